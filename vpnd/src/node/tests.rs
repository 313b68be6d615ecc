//! A node against a hub that a test plays with the protocol's own functions.

use std::{future::Future, net::UdpSocket, time::Duration};

use bytes::Bytes;
use coreflow_ipc::messages::vpn_network::Prefix;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream, TokioRuntime};
use tokio::time::timeout;

use super::*;
use crate::{
    constants::KEEPALIVE,
    protocol::{
        close::Close,
        control::{Wish, read_message, write_message},
        fragments::Reassembly,
        frame::{Fragment, Frame},
        ipv4::{Header, checksum},
        noise::{Asked, NoiseError, binding},
        socket::Datagrams,
        transport::endpoint_config,
    },
};

const BOUND: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(BOUND, future).await.unwrap_or_else(|_| panic!("no {what} in time"))
}

/// The hub as a test plays it: it accepts, and does with each connection what the test says.
struct Hub {
    endpoint: Endpoint,
    key: StaticKey,
}

/// An admitted session, as the hub sees it.
struct Admitted {
    connection: Connection,
    node_key: [u8; 32],
    _control: (SendStream, RecvStream),
}

fn grant() -> Grant {
    Grant {
        address: Ipv4Addr::new(10, 99, 0, 7),
        control_prefix: Prefix { address: Ipv4Addr::new(10, 99, 0, 0), length: 24 },
        mtu: 1380,
        keepalive: KEEPALIVE,
        generation: 1,
        revision: 9,
    }
}

impl Hub {
    fn start() -> Self {
        socket::probe();
        let socket = Datagrams::over(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
        let server = Some(tls::hub_config().unwrap());
        let runtime = Arc::new(TokioRuntime);
        let endpoint =
            Endpoint::new_with_abstract_socket(endpoint_config(), server, socket, runtime).unwrap();
        Self { endpoint, key: StaticKey::generate().unwrap() }
    }

    fn node(&self) -> Started {
        self.node_that_expects(self.key.public())
    }

    fn node_that_expects(&self, hub_key: [u8; 32]) -> Started {
        let hub = self.endpoint.local_addr().unwrap();
        let local = Some((Ipv4Addr::LOCALHOST, 0).into());
        Node::start(NodeConfig { key: StaticKey::generate().unwrap(), hub_key, hub, mtu: 1380, local })
            .unwrap()
    }

    /// The next node's connection, and what it asks on it.
    async fn asked(&self) -> (Connection, Result<Asked, NoiseError>, (SendStream, RecvStream)) {
        let connection = within("node", self.endpoint.accept()).await.unwrap().await.unwrap();
        let (send, mut receive) = within("stream", connection.accept_bi()).await.unwrap();
        let first = within("message 1", read_message(&mut receive)).await.unwrap();
        let asked = Asked::read(&self.key, &binding(&connection).unwrap(), &first);
        (connection, asked, (send, receive))
    }

    async fn admit(&self) -> Admitted {
        let (connection, asked, (mut send, receive)) = self.asked().await;
        let asked = asked.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(Wish::decode(asked.payload()), Ok(Wish::of_mtu(1380)));
        let node_key = *asked.node_key();
        write_message(&mut send, &asked.answer(&grant().encode()).unwrap()).await.unwrap();
        Admitted { connection, node_key, _control: (send, receive) }
    }

    async fn refuse(&self, close: Close) -> Connection {
        let (connection, _, _control) = self.asked().await;
        connection.close(close.code(), &[]);
        connection
    }
}

impl Admitted {
    /// The next packet from the node, put together if it came in two.
    async fn packet(&self) -> Bytes {
        let mut reassembly = Reassembly::default();
        loop {
            let datagram = within("datagram", self.connection.read_datagram()).await.unwrap();
            match Frame::decode(&datagram) {
                Frame::Packet(packet) => return packet.clone(),
                Frame::Fragment(fragment) => {
                    if let Some(packet) = reassembly.take(fragment, std::time::Instant::now()) {
                        return packet;
                    }
                }
                Frame::Unknown => panic!("a frame of no version"),
            }
        }
    }
}

async fn event(events: &mut mpsc::Receiver<NodeEvent>) -> NodeEvent {
    within("event", events.recv()).await.unwrap()
}

async fn received(receiver: &mut NodeReceiver) -> Vec<Bytes> {
    let mut packets = Vec::new();
    within("packet", receiver.receive(&mut packets, 64)).await.unwrap();
    packets
}

fn packet(length: u16, dont_fragment: bool) -> Bytes {
    let mut packet = vec![0xa5; usize::from(length)];
    packet[..20].fill(0);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6] = if dont_fragment { 0x40 } else { 0 };
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..20].copy_from_slice(&[10, 99, 0, 7, 10, 99, 0, 8]);
    Bytes::from(packet)
}

/// VPN-44: this project's own node end is served by whoever speaks the protocol; a packet of the full inner
/// MTU passes both ways before the path was searched.
#[tokio::test]
async fn packets_pass_both_ways() {
    let hub = Hub::start();
    let (node, mut sender, mut receiver, mut events) = hub.node();
    assert_eq!(node.granted(), None);
    let admitted = hub.admit().await;
    assert_eq!(event(&mut events).await, NodeEvent::Up(grant()));
    assert_eq!((node.granted(), node.attempts()), (Some(grant()), 1));
    for length in [20, 600, 1162, 1163, 1380] {
        let packet = packet(length, true);
        let mut batch = vec![packet.clone(), Bytes::from_static(b"no packet"), packet.clone()];
        sender.send(&mut batch);
        assert!(batch.is_empty());
        assert_eq!([admitted.packet().await, admitted.packet().await], [packet.clone(), packet]);
    }
    let counts = sender.counts();
    assert_eq!((counts.packets, counts.malformed, counts.too_big), (10, 5, 0));
    let back = packet(900, true);
    admitted.connection.send_datagram(back.clone()).unwrap();
    assert_eq!(received(&mut receiver).await, [back]);
    assert_ne!(admitted.node_key, hub.key.public());
}

/// The host gets well-formed IPv4 and nothing else, without what followed it in its datagram.
#[tokio::test]
async fn only_whole_packets_are_delivered() {
    let hub = Hub::start();
    let (_node, _sender, mut receiver, _events) = hub.node();
    let admitted = hub.admit().await;
    let (first, second) = (packet(700, true), packet(40, true));
    let trailed = Bytes::from([&second[..], &[0; 9]].concat());
    for datagram in [
        Bytes::from_static(&[0x60; 40]),
        Bytes::from_static(&[0x45; 19]),
        Fragment::encode(5, 1, &first[300..]),
        Fragment::encode(6, 0, b"lonely"),
        Fragment::encode(5, 0, &first[..300]),
        Fragment::encode(7, 0, b"no "),
        Fragment::encode(7, 1, b"packet"),
        trailed,
    ] {
        admitted.connection.send_datagram(datagram).unwrap();
    }
    let mut packets = received(&mut receiver).await;
    if packets.len() < 2 {
        packets.extend(received(&mut receiver).await);
    }
    assert_eq!(packets, [first, second]);
    let counts = receiver.counts();
    assert_eq!((counts.packets, counts.bytes, counts.reassembled), (2, 740, 2));
    assert_eq!((counts.unknown, counts.malformed), (1, 2));
}

#[tokio::test]
async fn a_packet_that_may_not_be_fragmented_is_answered_and_another_is_fragmented() {
    let hub = Hub::start();
    let (_node, mut sender, mut receiver, mut events) = hub.node();
    let admitted = hub.admit().await;
    event(&mut events).await;
    sender.send(&mut vec![packet(9000, true)]);
    let [message] = &received(&mut receiver).await[..] else { panic!("one message") };
    let header = Header::parse(message).unwrap();
    assert_eq!((header.source, header.destination), (grant().hub_address(), grant().address));
    assert_eq!((&message[20..22], &message[26..28]), (&[3, 4][..], &1380_u16.to_be_bytes()[..]));
    assert_eq!((checksum(&message[20..]), sender.counts().too_big), (0, 1));
    sender.send(&mut vec![packet(4000, false)]);
    let mut body = 0;
    while body < 3980 {
        let piece = admitted.packet().await;
        let header = Header::parse(&piece).unwrap();
        assert_eq!(usize::from(header.fragment_offset) * 8, body);
        body += piece.len() - header.header_length;
    }
    assert_eq!((body, sender.counts().fragmented), (3980, 1));
}

/// The same two halves serve through a hub's restart: a host need not notice.
#[tokio::test]
async fn packets_pass_again_after_the_hub_stopped() {
    let hub = Hub::start();
    let (node, mut sender, mut receiver, mut events) = hub.node();
    let admitted = hub.admit().await;
    event(&mut events).await;
    admitted.connection.close(Close::Stopping.code(), &[]);
    assert_eq!(event(&mut events).await, NodeEvent::Down(Why::Closed(Close::Stopping)));
    sender.send(&mut vec![packet(100, true)]);
    assert_eq!((sender.counts().unconnected, node.granted()), (1, None));
    let (admitted, packets) = tokio::join!(hub.admit_and_send(packet(60, true)), received(&mut receiver));
    assert_eq!(packets, [packet(60, true)]);
    assert_eq!(event(&mut events).await, NodeEvent::Up(grant()));
    sender.send(&mut vec![packet(100, true)]);
    assert_eq!(admitted.packet().await, packet(100, true));
    assert_eq!(node.attempts(), 2);
}

impl Hub {
    async fn admit_and_send(&self, packet: Bytes) -> Admitted {
        let admitted = self.admit().await;
        admitted.connection.send_datagram(packet).unwrap();
        admitted
    }
}

/// A refusal is told by its code, and the node that is none of the network's is not told more.
#[tokio::test]
async fn a_refusal_is_told_by_its_code() {
    for close in [Close::NotAdmitted, Close::Superseded, Close::Version, Close::Busy] {
        let hub = Hub::start();
        let (_node, _sender, _receiver, mut events) = hub.node();
        hub.refuse(close).await.closed().await;
        assert_eq!(event(&mut events).await, NodeEvent::Down(Why::Closed(close)));
    }
}

/// VPN-41: the node serves no hub but the one whose key it was given. A hub of another key cannot read what
/// it asks, and cannot answer it.
#[tokio::test]
async fn a_hub_of_another_key_is_none() {
    let hub = Hub::start();
    let (_node, _sender, _receiver, mut events) =
        hub.node_that_expects(StaticKey::generate().unwrap().public());
    let (connection, asked, (mut send, _receive)) = hub.asked().await;
    assert_eq!(asked.err(), Some(NoiseError::Message));
    write_message(&mut send, &[7; 79]).await.unwrap();
    assert_eq!(event(&mut events).await, NodeEvent::Down(Why::NotTheHub));
    let closed = within("close", connection.closed()).await;
    assert!(
        matches!(&closed, ConnectionError::ApplicationClosed(why) if why.error_code == Close::Malformed.code()),
        "{closed}"
    );
}

/// What cannot be read as message 2 ends the dial, and the hub hears why.
#[tokio::test]
async fn a_hub_that_does_not_keep_to_the_protocol_is_left() {
    let hub = Hub::start();
    let (_node, _sender, _receiver, mut events) = hub.node();
    let (connection, _asked, (mut send, _receive)) = hub.asked().await;
    send.write_all(&[0xff, 0xff, 0, 0]).await.unwrap();
    let NodeEvent::Down(Why::Malformed(_)) = event(&mut events).await else { panic!("it is left") };
    let closed = within("close", connection.closed()).await;
    assert_eq!(Why::of(&closed), Why::Closed(Close::Malformed));
}

/// The session stays when the node's own address changes: the hub sees the same connection from elsewhere.
#[tokio::test]
async fn a_session_moves_with_its_node() {
    let hub = Hub::start();
    let (node, mut sender, mut receiver, mut events) = hub.node();
    let admitted = hub.admit().await;
    event(&mut events).await;
    let former = node.local_addr().unwrap();
    assert_eq!(admitted.connection.remote_address(), former);
    node.rebind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let present = node.local_addr().unwrap();
    assert_ne!(present, former);
    sender.send(&mut vec![packet(80, true)]);
    assert_eq!(admitted.packet().await, packet(80, true));
    assert_eq!(admitted.connection.remote_address(), present);
    admitted.connection.send_datagram(packet(90, true)).unwrap();
    assert_eq!(received(&mut receiver).await, [packet(90, true)]);
    assert!(events.try_recv().is_err() && node.attempts() == 1);
}

#[tokio::test]
async fn a_stop_closes_with_code_zero_and_ends_both_halves() {
    let hub = Hub::start();
    let (node, mut sender, mut receiver, mut events) = hub.node();
    let admitted = hub.admit().await;
    event(&mut events).await;
    let mut none = Vec::new();
    let (ended, closed, ()) =
        tokio::join!(receiver.receive(&mut none, 64), admitted.connection.closed(), node.stop());
    assert_eq!((ended, none.len()), (Err(Stopped), 0));
    assert_eq!(Why::of(&closed), Why::Closed(Close::Ended));
    sender.send(&mut vec![packet(80, true)]);
    assert_eq!(sender.counts().unconnected, 1);
    assert_eq!(events.recv().await, None);
}

#[tokio::test]
async fn a_node_that_is_dropped_stops() {
    let hub = Hub::start();
    let (node, _sender, mut receiver, mut events) = hub.node();
    let admitted = hub.admit().await;
    event(&mut events).await;
    drop(node);
    assert_eq!(Why::of(&within("close", admitted.connection.closed()).await), Why::Closed(Close::Ended));
    assert_eq!(within("end", receiver.receive(&mut Vec::new(), 1)).await, Err(Stopped));
}

/// A host that neither sends nor receives keeps nothing of a session that ended: up to a megabyte and a half
/// waits in it.
#[tokio::test]
async fn a_session_that_ended_is_given_back_without_the_host() {
    let hub = Hub::start();
    let (node, mut sender, mut receiver, mut events) = hub.node();
    let admitted = hub.admit().await;
    event(&mut events).await;
    // Both halves have had it in hand.
    sender.send(&mut vec![packet(80, true)]);
    assert_eq!(admitted.packet().await, packet(80, true));
    admitted.connection.send_datagram(packet(90, true)).unwrap();
    assert_eq!(received(&mut receiver).await, [packet(90, true)]);
    let session = node.sessions.borrow().as_ref().map(Arc::downgrade).unwrap();
    assert!(session.upgrade().is_some());
    admitted.connection.close(Close::Stopping.code(), &[]);
    assert_eq!(event(&mut events).await, NodeEvent::Down(Why::Closed(Close::Stopping)));
    assert!(session.upgrade().is_none());
}

/// An endpoint ends when its socket fails; the next dial is made from another, of the same address.
#[tokio::test]
async fn an_endpoint_that_ended_is_replaced_by_the_next_dial() {
    let hub = Hub::start();
    let address = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let passing = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = {
        let _within = passing.enter();
        Local::bind(address).unwrap()
    };
    // What serves the endpoint ends with the runtime.
    passing.shutdown_background();
    let ended = local.endpoint().unwrap();
    let to = hub.endpoint.local_addr().unwrap();
    let refused = ended.connect_with(tls::node_config().unwrap(), to, "hub").err();
    assert_eq!(refused, Some(quinn::ConnectError::EndpointStopping));
    drop(ended);
    let (key, hub_key) = (StaticKey::generate().unwrap(), hub.key.public());
    let config = NodeConfig { key, hub_key, hub: to, mtu: 1380, local: Some(address) };
    let (node, _sender, _receiver, mut events) = Node::start_from(local, config).unwrap();
    let admitted = hub.admit().await;
    assert_eq!(event(&mut events).await, NodeEvent::Up(grant()));
    assert_eq!((node.attempts(), node.local_addr().unwrap()), (1, address));
    assert_eq!(admitted.connection.remote_address(), address);
}
