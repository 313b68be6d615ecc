//! The real daemon in its real confinement: this test is its supervisor, its relayd and two nodes, and a packet
//! goes from one to the other (VPN-10, VPN-41, VPN-46).
#![expect(clippy::unwrap_used, reason = "what surprises a test fails it")]

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use coreflow_ipc::{
    confine::{Layer, Report, State},
    hello::{Hello, Role},
    link::{self, Descriptors, LinkReceiver, LinkSender},
    messages::{
        FromWorker, ToWorker,
        peers::{RelaydToVpnd, VpndToRelayd},
        vpn_network::{Grants, Held, Prefix, SNAPSHOT_SCHEMA, Snapshot, SnapshotMember},
        vpnd::{FromVpnd, ToVpnd},
    },
    peer::greet,
    worker::Launch,
};
use coreflow_vpnd::{
    constants::SERVER_NAME,
    protocol::{
        close::Close,
        control::{Grant, Wish, read_message, write_message},
        noise::{Asking, StaticKey, binding},
        socket::Datagrams,
        tls, transport,
    },
};
use quinn::{Connection, ConnectionError, Endpoint, TokioRuntime};
use tokio::time::timeout;

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// The daemon, as its supervisor has it.
struct Daemon {
    process: Child,
    sender: LinkSender<ToVpnd>,
    receiver: LinkReceiver<FromVpnd>,
    report: Report,
}

impl Daemon {
    async fn start() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let launch = Launch { supervisor: std::process::id(), connect_port: None };
        let process = Command::new(env!("CARGO_BIN_EXE_coreflow-vpnd"))
            .args(launch.arguments())
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        let (mut sender, mut receiver) =
            link::open::<ToVpnd, FromVpnd>(ours.into(), Descriptors::Refused).unwrap();
        let hello = ToVpnd::Worker(ToWorker::Hello(Hello::of(Role::Supervisor)));
        sender.send(&hello, &[]).await.unwrap();
        let mut said = Vec::new();
        while said.len() < 2 {
            said.push(within("a greeting", receiver.receive()).await.unwrap().message);
        }
        let Some(FromVpnd::Worker(FromWorker::Confined(report))) = said.pop() else { panic!("no report") };
        Self { process, sender, receiver, report }
    }

    async fn relayd(&mut self) -> (LinkSender<RelaydToVpnd>, LinkReceiver<VpndToRelayd>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = ToVpnd::Worker(ToWorker::PeerLink { role: Role::Relayd });
        self.sender.send(&link, &[OwnedFd::from(theirs).as_fd()]).await.unwrap();
        within("a greeting", greet(ours.into(), Descriptors::Refused, Role::Relayd, Role::Vpnd))
            .await
            .unwrap()
    }

    /// What is said next that is neither a record nor a look at the hub.
    async fn said(&mut self) -> FromVpnd {
        loop {
            match within("a message", self.receiver.receive()).await.unwrap().message {
                FromVpnd::Worker(FromWorker::Record(_)) | FromVpnd::Report(_) => {}
                message => return message,
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn network(keys: &[StaticKey]) -> Snapshot {
    let member = |(number, key): (u8, &StaticKey)| SnapshotMember {
        node_id: format!("node-{number}"),
        public_key: key.public(),
        address: [10, 8, 0, number].into(),
        prefixes: Vec::new(),
        enabled: true,
        expires_at: "2100-01-01T00:00:00.000Z".to_owned(),
    };
    let mut grants = Grants::none(2);
    grants.grant(0, 1);
    Snapshot {
        schema_version: SNAPSHOT_SCHEMA,
        network: Held {
            authority: "cloudly".to_owned(),
            generation: 1,
            revision: 1,
            control_prefix: Prefix { address: [10, 8, 0, 0].into(), length: 24 },
            digest: [1; 32],
        },
        members: (2..).zip(keys).map(member).collect(),
        grants,
    }
}

async fn dial(hub: SocketAddr, hub_key: &[u8; 32], key: &StaticKey) -> (Connection, Grant) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = Datagrams::over(socket).unwrap();
    let config = transport::endpoint_config();
    let endpoint = Endpoint::new_with_abstract_socket(config, None, socket, Arc::new(TokioRuntime)).unwrap();
    let connecting = endpoint.connect_with(tls::node_config().unwrap(), hub, SERVER_NAME).unwrap();
    let connection = within("a TLS session", connecting).await.unwrap();
    let wish = Wish::of_mtu(1380).encode();
    let (asking, message) = Asking::begin(key, hub_key, &binding(&connection).unwrap(), &wish).unwrap();
    let (mut sender, mut receiver) = connection.open_bi().await.unwrap();
    write_message(&mut sender, &message).await.unwrap();
    let answer = within("an answer", read_message(&mut receiver)).await.unwrap();
    (connection, Grant::decode(&asking.finish(&answer).unwrap()).unwrap())
}

/// VPN-10, VPN-41, VPN-46: with every layer on that the kernel has, and the system calls of
/// its profile alone, the daemon serves the hub on the socket that it was handed, under the key that it stated
/// before there was one; a stop tells the nodes and ends the process in order.
#[tokio::test]
async fn the_confined_daemon_serves() {
    let mut daemon = Daemon::start().await;
    let seccomp = daemon.report.layers.iter().find(|layer| layer.layer == Layer::Seccomp).unwrap();
    assert_eq!(seccomp.state, State::On);
    let (mut tell, mut hear) = daemon.relayd().await;
    let standing = within("a standing", hear.receive()).await.unwrap().message;
    let VpndToRelayd::Standing { public_key, held: None } = standing else { panic!("no standing") };

    let keys = [StaticKey::generate().unwrap(), StaticKey::generate().unwrap()];
    let offer = RelaydToVpnd::Apply { id: 7, snapshot: Box::new(network(&keys)) };
    tell.send(&offer, &[]).await.unwrap();
    let FromVpnd::AskSocket { id } = daemon.said().await else { panic!("no ask") };
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let hub = socket.local_addr().unwrap();
    let answer = ToVpnd::AnswerSocket { id, answer: Ok(hub) };
    daemon.sender.send(&answer, &[socket.as_fd()]).await.unwrap();
    drop(socket);
    let applied = within("an outcome", hear.receive()).await.unwrap().message;
    assert!(matches!(applied, VpndToRelayd::Applied { id: 7, outcome: Ok(()) }));

    let (one, _) = dial(hub, &public_key, &keys[0]).await;
    let (two, granted) = dial(hub, &public_key, &keys[1]).await;
    assert_eq!(granted.address, Ipv4Addr::new(10, 8, 0, 3));
    let mut packet = [0_u8; 1000];
    packet[..4].copy_from_slice(&[0x45, 0, 3, 232]);
    packet[12..20].copy_from_slice(&[10, 8, 0, 2, 10, 8, 0, 3]);
    // Enough for batches both ways through the socket.
    for _ in 0..300 {
        one.send_datagram(Bytes::copy_from_slice(&packet)).unwrap();
    }
    for _ in 0..100 {
        assert_eq!(within("a packet", two.read_datagram()).await.unwrap(), packet[..]);
    }

    daemon.sender.send(&ToVpnd::Worker(ToWorker::Ping(9)), &[]).await.unwrap();
    assert!(matches!(daemon.said().await, FromVpnd::Worker(FromWorker::Pong(9))));
    daemon.sender.send(&ToVpnd::Worker(ToWorker::Stop), &[]).await.unwrap();
    assert!(matches!(daemon.said().await, FromVpnd::Worker(FromWorker::Stopped)));
    for node in [one, two] {
        let ConnectionError::ApplicationClosed(close) = within("an end", node.closed()).await else {
            panic!("another end")
        };
        assert_eq!(Close::of(close.error_code), Some(Close::Stopping));
    }
    let ended = tokio::task::spawn_blocking({
        let mut daemon = daemon;
        move || daemon.process.wait().unwrap()
    });
    assert!(within("the end of the process", ended).await.unwrap().success());
    UdpSocket::bind(hub).unwrap();
}
