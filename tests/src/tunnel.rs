//! A node of the managed VPN within the test: the node's end as a library, which a test hands IPv4 packets in the
//! place of a device. One value is one session: its end ends the node, so that each dial is the test's own.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coreflow_vpnd::constants::INNER_MTU;
use coreflow_vpnd::node::{Node, NodeConfig, NodeEvent, NodeReceiver, NodeSender, Why};
use coreflow_vpnd::protocol::control::Grant;
use coreflow_vpnd::protocol::noise::StaticKey;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::cloudly::AdvertisedHub;
use crate::ipv4::{read_udp, udp};
use crate::waiting::{BOUND, within};

/// Packets that are taken from the node at once.
const BATCH: usize = 64;
/// Port of the packets' UDP, on both ends.
const PORT: u16 = 7000;

/// A node's X25519 key.
#[derive(Clone)]
pub struct NodeKey([u8; 32]);

impl Default for NodeKey {
    fn default() -> Self {
        let mut private = [0; 32];
        getrandom::fill(&mut private).expect("the system gives randomness");
        Self(private)
    }
}

impl NodeKey {
    fn key(&self) -> StaticKey {
        StaticKey::of_bytes(Zeroizing::new(self.0))
    }

    /// What Cloudly is told of it, base64.
    pub fn public(&self) -> String {
        STANDARD.encode(self.key().public())
    }
}

/// A tunnel that is up. It ends with this value.
pub struct Tunnel {
    /// What the hub granted.
    pub grant: Grant,
    node: Option<Node>,
    sender: NodeSender,
    receiver: NodeReceiver,
    events: mpsc::Receiver<NodeEvent>,
    /// Packets that came beside one that was waited for.
    came: VecDeque<Bytes>,
}

impl Tunnel {
    /// Dials the hub and proves `key`, expecting the hub to prove its own. What the first dial comes to is the end
    /// of it.
    ///
    /// # Errors
    /// Why there is no session.
    ///
    /// # Panics
    /// When the host gives no socket, or the dial comes to nothing within [`BOUND`].
    pub async fn dial(key: &NodeKey, hub: &AdvertisedHub) -> Result<Self, Why> {
        let hub_key = STANDARD.decode(&hub.public_key).ok().and_then(|bytes| bytes.try_into().ok());
        let config = NodeConfig {
            key: key.key(),
            hub_key: hub_key.expect("the relay advertises base64 of 32 bytes"),
            hub: SocketAddr::from((hub.address, hub.quic_port)),
            mtu: INNER_MTU,
            local: None,
        };
        let (node, sender, receiver, mut events) = Node::start(config).expect("the host gives a socket");
        let first = within(BOUND, "end of a dial of the hub", events.recv());
        match first.await.expect("a dial bounds itself").expect("the node runs") {
            NodeEvent::Up(grant) => {
                Ok(Self { grant, node: Some(node), sender, receiver, events, came: VecDeque::new() })
            }
            NodeEvent::Down(why) => Err(why),
        }
    }

    /// Sends `payload` to `address` of the network, and gives the packet.
    ///
    /// # Panics
    /// When the tunnel takes no packets.
    pub fn send(&mut self, address: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
        let packet = self.packet_from(self.grant.address, address, payload);
        self.send_packet(&packet);
        packet
    }

    /// A packet with `payload` that states to be from `source`.
    pub fn packet_from(&self, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
        udp(SocketAddrV4::new(source, PORT), SocketAddrV4::new(destination, PORT), payload)
    }

    /// Sends a whole packet.
    ///
    /// # Panics
    /// When the tunnel is down, or the packet is none that fits.
    pub fn send_packet(&mut self, packet: &[u8]) {
        let before = self.sender.counts().packets;
        self.sender.send(&mut vec![Bytes::copy_from_slice(packet)]);
        assert_eq!(self.sender.counts().packets, before + 1, "not sent: {:?}", self.sender.counts());
    }

    /// The next packet.
    ///
    /// # Panics
    /// When none comes within [`BOUND`].
    pub async fn receive(&mut self) -> Bytes {
        while self.came.is_empty() {
            let mut batch = Vec::new();
            let received = within(BOUND, "packet out of a tunnel", self.receiver.receive(&mut batch, BATCH));
            received.await.expect("a packet comes").expect("the node runs");
            self.came.extend(batch);
        }
        self.came.pop_front().expect("filled above")
    }

    /// Checks that the next packet is `payload` from `address`.
    ///
    /// # Panics
    /// When it is another one, or none comes.
    pub async fn expect(&mut self, address: Ipv4Addr, payload: &[u8]) {
        let packet = self.receive().await;
        let read = read_udp(&packet).expect("what was sent is a UDP packet");
        assert_eq!((read.source.ip(), read.destination.ip()), (&address, &self.grant.address));
        assert_eq!(String::from_utf8_lossy(&read.payload), String::from_utf8_lossy(payload));
    }

    /// Whether the session that was dialled goes on, as far as is known here.
    pub fn is_up(&self) -> bool {
        self.events.is_empty() && self.node.as_ref().is_some_and(|node| node.granted() == Some(self.grant))
    }

    /// Waits for the session's end, which ends the node too.
    ///
    /// # Panics
    /// When it does not end within [`BOUND`].
    pub async fn ended(&mut self) -> Why {
        let event = within(BOUND, "end of a tunnel", self.events.recv()).await.expect("the tunnel ends");
        if let Some(node) = self.node.take() {
            node.stop().await;
        }
        match event.expect("the node told it before it was stopped") {
            NodeEvent::Down(why) => why,
            NodeEvent::Up(_) => panic!("a session that was up came up again"),
        }
    }
}

/// Checks that `payload` crosses from the one to the other.
///
/// # Panics
/// When it does not.
pub async fn crosses(from: &mut Tunnel, to: &mut Tunnel, payload: &[u8]) {
    let sent = from.send(to.grant.address, payload);
    let received = to.receive().await;
    assert_eq!(received, sent, "the packet that was sent, byte for byte");
}
