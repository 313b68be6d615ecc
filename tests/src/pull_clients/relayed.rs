//! A cluster whose nodes pull through the relay. Each node is carried, is told the endpoint with an
//! assignment (PULL-03) and asks for its registry credential over the relay (PULL-09). The relay and the
//! registry have certificates of different authorities, and a client trusts the relay's alone: a realm that
//! still led to the registry would lead to nothing (PULL-10).

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::Failure;
use super::client::Endpoint;
use super::stock::Stock;
use super::way::NODES;
use crate::authority::Authority;
use crate::cloudly::{Cloudly, Step};
use crate::dial::Target;
use crate::pallet::{PalletNode, Setup};
use crate::relay::{Relay, RelaySetup};

/// The method by which a node gets its credential.
const CREDENTIAL: &str = "getRuntimeRegistryCredential";

/// The relay and the peers it needs.
pub(super) struct Relayed {
    /// The relay.
    pub(super) relay: Relay,
    /// The registry's host and port.
    pub(super) registry_host: String,
    nodes_trust: Authority,
    relay_trusts: Authority,
    told: BTreeMap<String, Told>,
    _nodes: Vec<PalletNode>,
    _cloudly: Cloudly,
}

/// What a node was told over the relay.
struct Told {
    pull_endpoint: String,
    secret: String,
}

impl Relayed {
    /// Starts everything; `binaries` are built where there are none.
    ///
    /// # Errors
    /// [`Failure`] at the first party that does not serve.
    pub(super) async fn start(folder: &Path, binaries: Option<&Path>) -> Result<(Self, Stock), Failure> {
        let (nodes_trust, relay_trusts) = (Authority::new(), Authority::new());
        let mut setup = RelaySetup::new(&relay_trusts);
        // Clients look the name up.
        setup.host_name = "localhost".to_owned();
        setup.executables = binaries.map(Path::to_owned);
        let mut settings = setup.cloudly_settings();
        let own = nodes_trust.issue(&[&setup.host_name]);
        settings.certificates.insert(setup.host_name.clone(), own);
        let cloudly = Cloudly::start(&relay_trusts, settings).await;
        let registry_host = format!("localhost:{}", cloudly.port());
        let registry = Stock::start(folder, &cloudly.url()).await?;
        cloudly.pass_pulls_to(registry.origin.address(), false);
        let relay = setup.clone().facing(&cloudly).start();
        relay.wait_open().await?;
        cloudly.wait_accepted(1).await?;
        // The most verbose level: what it writes is searched for secrets.
        relay.signal(Signal::SIGUSR1);
        relay.wait_line("the log level is TRACE").await?;
        let target = Target { tls: nodes_trust.client_config(&["http/1.1"]), ..setup.target() };
        let mut told = BTreeMap::new();
        let mut nodes = Vec::new();
        for id in NODES {
            let node = PalletNode::start(Setup::new(target.clone(), id));
            let binding = node.wait_registered(1).await?;
            let issued = registry.origin.issue(id);
            told.insert(id.to_owned(), tell(&cloudly, &node, &binding, &setup.origin(), &issued).await?);
            nodes.push(node);
        }
        let relayed =
            Self { relay, registry_host, nodes_trust, relay_trusts, told, _nodes: nodes, _cloudly: cloudly };
        Ok((relayed, registry))
    }

    /// The relay, as the node was told of it.
    pub(super) fn endpoint(&self, node: &str) -> Endpoint {
        let told = &self.told[node];
        let authority = told.pull_endpoint.trim_start_matches("https://").to_owned();
        self.endpoint_at(authority, &self.nodes_trust, node)
    }

    /// The registry itself, past the relay.
    pub(super) fn registry_itself(&self, node: &str) -> Endpoint {
        self.endpoint_at(self.registry_host.clone(), &self.relay_trusts, node)
    }

    fn endpoint_at(&self, authority: String, trust: &Authority, node: &str) -> Endpoint {
        Endpoint {
            authority,
            root_pem: trust.ca_pem().to_owned(),
            node: node.to_owned(),
            secret: self.told[node].secret.clone(),
        }
    }
}

/// Cloudly tells a node the endpoint with an assignment, and its credential when it asks.
async fn tell(
    cloudly: &Cloudly,
    node: &PalletNode,
    binding: &str,
    endpoint: &str,
    secret: &str,
) -> Result<Told, Failure> {
    let assignment = json!({"workload": {"pullEndpoint": endpoint}});
    let body = format!(r#"{{"session":{binding},"assignment":{assignment}}}"#);
    cloudly.push("applyRuntimeAssignment", &body).await?.outcome()?;
    let push = node.wait_push("applyRuntimeAssignment", 1).await?;
    let pushed: Value = serde_json::from_str(push.message.request())?;
    cloudly.once(CREDENTIAL, Step::Answer(json!({"secret": secret}).to_string()));
    let answer = node.request(CREDENTIAL, &format!(r#"{{"session":{binding}}}"#)).await?.outcome()?;
    let answer: Value = serde_json::from_str(answer.get())?;
    let text = |value: &Value, what: &str| {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| Failure::new(format!("a node was told no {what}")))
    };
    Ok(Told {
        pull_endpoint: text(&pushed["assignment"]["workload"]["pullEndpoint"], "endpoint")?,
        secret: text(&answer["secret"], "credential")?,
    })
}
