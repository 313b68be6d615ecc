//! The node against the loopback Cloudly, which answers a node as the relay would.

use std::net::{Ipv4Addr, SocketAddr};

use super::*;
use crate::authority::Authority;
use crate::cloudly::{Cloudly, Settings, Step};

fn target(authority: &Authority, cloudly: &Cloudly) -> Target {
    Target {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, cloudly.port())),
        server_name: "localhost".to_owned(),
        tls: authority.client_config(&["http/1.1"]),
    }
}

const REGISTERED: &str = r#"{"session":{"sessionId":"s","nodeId":"node-1","clusterId":"c","generation":1}}"#;

/// OUT-15: a node whose socket was closed registers again. FWD-35: a rejection is terminal.
#[tokio::test]
async fn a_node_comes_back_until_it_is_denied() {
    let authority = Authority::new();
    let cloudly = Cloudly::start(&authority, Settings::default()).await;
    cloudly.always("registerPalletRuntimeSession", Step::Answer(REGISTERED.to_owned()));
    let node = PalletNode::start(Setup::new(target(&authority, &cloudly), "node-1"));
    let binding = node.wait_registered(1).await.unwrap();
    assert!(REGISTERED.contains(&binding));
    cloudly.close_connections(4001).await;
    assert_eq!(node.wait_close(1).await.unwrap().code, Some(4001));
    node.wait_registered(2).await.unwrap();
    assert!(node.wait_denied().now_or_late().await.is_none());

    cloudly.always("registerPalletRuntimeSession", Step::refuse("some-refusal: because"));
    cloudly.drop_connections();
    assert_eq!(node.wait_denied().await.unwrap(), "some-refusal: because");
    assert_eq!(cloudly.calls_of("registerPalletRuntimeSession").len(), 3);
}

trait NowOrLate {
    async fn now_or_late(self) -> Option<String>;
}

impl<F: Future<Output = Result<String, Late>>> NowOrLate for F {
    async fn now_or_late(self) -> Option<String> {
        tokio::select! {
            biased;
            answer = self => answer.ok(),
            () = std::future::ready(()) => None,
        }
    }
}

/// OUT-18 and the contract's 4.2, 4.3: acknowledgements are bound to what was asked.
#[test]
fn acknowledgements_are_bound() {
    let mut seen = BTreeSet::new();
    let mut ask = |method: &str, body: &str| {
        let ids = crate::envelope::Ids::fresh();
        let push = Message::parse(&crate::envelope::request(method, body, &ids)).unwrap();
        acknowledgement::bound(&push, &mut seen)
    };
    let assignment = r#"{"session":{"n":1.0},"assignment":{"a":1}}"#;
    assert_eq!(
        ask("applyRuntimeAssignment", assignment).unwrap(),
        r#"{"session":{"n":1.0},"admitted":"new"}"#
    );
    assert!(ask("applyRuntimeAssignment", assignment).unwrap().contains("by-reference"));
    let renewal = r#"{"session":1,"renewal":{"projection":{"id":"p"},"sequence":4,"signature":""}}"#;
    assert_eq!(
        ask("applyRuntimeNetworkDnsLeaseRenewal", renewal).unwrap(),
        r#"{"session":1,"renewal":{"projection":{"id":"p"},"sequence":4}}"#
    );
    assert_eq!(ask("applyRuntimeNetworkProjection", "{}").unwrap_err().name(), "push-invalid");
}
