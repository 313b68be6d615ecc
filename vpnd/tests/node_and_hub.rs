//! The node library and the hub, end to end over the loopback interface: what a user of both sees.
#![expect(clippy::unwrap_used, reason = "what surprises a test fails it")]

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use coreflow_ipc::messages::vpn_network::{Grants, Held, Prefix, SNAPSHOT_SCHEMA, Snapshot, SnapshotMember};
use coreflow_vpnd::{
    hub::Hub,
    node::{Node, NodeConfig, NodeEvent, NodeReceiver, NodeSender, Why},
    protocol::{close::Close, control::Grant, noise::StaticKey},
};
use tokio::{sync::mpsc, time::timeout};
use zeroize::Zeroizing;

const BOUND: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(BOUND, future).await.unwrap_or_else(|_| panic!("no {what} in time"))
}

fn key(number: u8) -> StaticKey {
    StaticKey::of_bytes(Zeroizing::new([number; 32]))
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, last)
}

/// A network of members, each a key's number and the last byte of its address; everybody may send to
/// everybody.
fn network(revision: u64, members: &[(u8, u8)]) -> Snapshot {
    let mut grants = Grants::none(members.len());
    for from in 0..members.len() {
        (0..members.len()).for_each(|to| grants.grant(from, to));
    }
    let member = |(number, last): &(u8, u8)| SnapshotMember {
        node_id: format!("node-{number}"),
        public_key: key(*number).public(),
        address: address(*last),
        prefixes: Vec::new(),
        enabled: true,
        expires_at: "2200-01-01T00:00:00.000Z".to_owned(),
    };
    let control_prefix = Prefix { address: address(0), length: 24 };
    let digest = [u8::try_from(revision).unwrap(); 32];
    let network = Held { authority: "cloudly".to_owned(), generation: 1, revision, control_prefix, digest };
    let members = members.iter().map(member).collect();
    Snapshot { schema_version: SNAPSHOT_SCHEMA, network, members, grants }
}

const HUB_KEY: u8 = 200;

async fn hub(bind: SocketAddr, snapshot: Snapshot) -> Hub {
    let hub = Hub::start(UdpSocket::bind(bind).unwrap(), Arc::new(key(HUB_KEY))).unwrap();
    hub.apply(snapshot).await.unwrap();
    hub
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A node with its ends.
struct Member {
    node: Node,
    sender: NodeSender,
    receiver: NodeReceiver,
    events: mpsc::Receiver<NodeEvent>,
}

impl Member {
    fn start(number: u8, hub: SocketAddr) -> Self {
        let (key, hub_key) = (key(number), key(HUB_KEY).public());
        let config = NodeConfig { key, hub_key, hub, mtu: 1380, local: Some(anywhere()) };
        let (node, sender, receiver, events) = Node::start(config).unwrap();
        Self { node, sender, receiver, events }
    }

    async fn event(&mut self) -> NodeEvent {
        within("event", self.events.recv()).await.unwrap()
    }

    async fn up(&mut self) -> Grant {
        match self.event().await {
            NodeEvent::Up(grant) => grant,
            NodeEvent::Down(why) => panic!("{why}"),
        }
    }

    async fn down(&mut self) -> Why {
        match self.event().await {
            NodeEvent::Down(why) => why,
            NodeEvent::Up(grant) => panic!("it is up as {}", grant.address),
        }
    }

    fn send(&mut self, packet: &Bytes) {
        self.sender.send(&mut vec![packet.clone()]);
    }

    async fn receive(&mut self) -> Vec<Bytes> {
        let mut packets = Vec::new();
        within("packet", self.receiver.receive(&mut packets, 64)).await.unwrap();
        packets
    }
}

fn packet(from: u8, to: u8, length: u16) -> Bytes {
    let mut packet = vec![0x5a; usize::from(length)];
    packet[..20].fill(0);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..10].copy_from_slice(&[0x40, 0, 64, 17]);
    packet[12..16].copy_from_slice(&address(from).octets());
    packet[16..20].copy_from_slice(&address(to).octets());
    Bytes::from(packet)
}

/// VPN-01, VPN-44: two nodes of this project reach each other through the hub, with packets of the full inner
/// MTU from the first on, and each under the address of its key.
#[tokio::test]
async fn two_nodes_reach_each_other_through_the_hub() {
    let hub = hub(anywhere(), network(1, &[(1, 11), (2, 12)])).await;
    let (mut one, mut two) = (Member::start(1, hub.bound()), Member::start(2, hub.bound()));
    let (granted, _) = tokio::join!(one.up(), two.up());
    assert_eq!((granted.address, granted.mtu, granted.revision), (address(11), 1380, 1));
    assert_eq!(granted.hub_address(), address(1));
    for length in [28, 1380, 1162, 1163] {
        one.send(&packet(11, 12, length));
        assert_eq!(two.receive().await, [packet(11, 12, length)]);
        two.send(&packet(12, 11, length));
        assert_eq!(one.receive().await, [packet(12, 11, length)]);
    }
}

/// VPN-15: who is absent from a later network is told so, dials once more, and is then no member; the others
/// go on.
#[tokio::test]
async fn a_withdrawn_node_is_told_so_and_then_is_no_member() {
    let hub = hub(anywhere(), network(1, &[(1, 11), (2, 12), (3, 13)])).await;
    let [mut one, mut two, mut three] = [1, 2, 3].map(|number| Member::start(number, hub.bound()));
    tokio::join!(one.up(), two.up(), three.up());
    hub.apply(network(2, &[(2, 12), (3, 13)])).await.unwrap();
    assert_eq!(one.down().await, Why::Closed(Close::Withdrawn));
    assert_eq!(one.down().await, Why::Closed(Close::NotAdmitted));
    two.send(&packet(12, 13, 100));
    assert_eq!(three.receive().await, [packet(12, 13, 100)]);
    assert_eq!(two.node.attempts(), 1);
}

/// VPN-19: a later network that gives a node another address ends its session, and the next one has it.
#[tokio::test]
async fn a_node_takes_over_another_address() {
    let hub = hub(anywhere(), network(1, &[(1, 11), (2, 12)])).await;
    let (mut one, mut two) = (Member::start(1, hub.bound()), Member::start(2, hub.bound()));
    tokio::join!(one.up(), two.up());
    hub.apply(network(2, &[(1, 21), (2, 12)])).await.unwrap();
    assert_eq!(one.down().await, Why::Closed(Close::Withdrawn));
    let granted = one.up().await;
    assert_eq!((granted.address, granted.revision), (address(21), 2));
    one.send(&packet(21, 12, 100));
    assert_eq!(two.receive().await, [packet(21, 12, 100)]);
}

/// The newest session of a key counts, and the node of the former one stays away.
#[tokio::test]
async fn a_node_that_is_superseded_stays_away() {
    let hub = hub(anywhere(), network(1, &[(1, 11), (2, 12)])).await;
    let mut two = Member::start(2, hub.bound());
    let mut former = Member::start(1, hub.bound());
    tokio::join!(two.up(), former.up());
    let mut newer = Member::start(1, hub.bound());
    newer.up().await;
    assert_eq!(former.down().await, Why::Closed(Close::Superseded));
    two.send(&packet(12, 11, 100));
    assert_eq!(newer.receive().await, [packet(12, 11, 100)]);
    assert_eq!(former.node.attempts(), 1);
}

/// VPN-06: a key that is none of the network's gets no session.
#[tokio::test]
async fn a_stranger_is_not_admitted() {
    let hub = hub(anywhere(), network(1, &[(1, 11)])).await;
    let mut stranger = Member::start(9, hub.bound());
    assert_eq!(stranger.down().await, Why::Closed(Close::NotAdmitted));
    assert_eq!(stranger.node.granted(), None);
}

/// VPN-46: nodes hear that a hub stops, and find the one that comes after it at the same place; both ends of
/// each node serve on.
#[tokio::test]
async fn nodes_come_back_to_a_hub_that_was_restarted() {
    let first = hub(anywhere(), network(1, &[(1, 11), (2, 12)])).await;
    let bound = first.bound();
    let (mut one, mut two) = (Member::start(1, bound), Member::start(2, bound));
    tokio::join!(one.up(), two.up());
    first.stop().await;
    assert_eq!(one.down().await, Why::Closed(Close::Stopping));
    assert_eq!(two.down().await, Why::Closed(Close::Stopping));
    let _second = hub(bound, network(7, &[(1, 11), (2, 12)])).await;
    for member in [&mut one, &mut two] {
        // A dial that met neither of them may come between.
        while let NodeEvent::Down(_) = member.event().await {}
    }
    one.send(&packet(11, 12, 1380));
    assert_eq!(two.receive().await, [packet(11, 12, 1380)]);
}

/// A node that moves to another local address is reached there, without a word of its own, by whom it has
/// not spoken to since.
#[tokio::test]
async fn a_node_that_moved_is_reached() {
    let hub = hub(anywhere(), network(1, &[(1, 11), (2, 12)])).await;
    let (mut one, mut two) = (Member::start(1, hub.bound()), Member::start(2, hub.bound()));
    tokio::join!(one.up(), two.up());
    one.node.rebind(anywhere()).unwrap();
    let moved = one.node.local_addr().unwrap();
    within("the hub to follow", async {
        while !hub.report().await.listed.iter().any(|session| session.remote == moved) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    two.send(&packet(12, 11, 1380));
    assert_eq!(one.receive().await, [packet(12, 11, 1380)]);
    assert_eq!((one.node.attempts(), hub.report().await.admitted), (1, 2));
}
