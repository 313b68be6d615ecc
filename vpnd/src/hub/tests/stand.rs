//! A hub on loopback, and nodes that dial it with the functions of the protocol alone.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use coreflow_ipc::{
    messages::vpn_network::{Snapshot, SnapshotMember},
    now::{Clock, Now},
};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, TokioRuntime};
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::super::{Hub, StartError, sample};
use crate::{
    constants::SERVER_NAME,
    protocol::{
        close::Close,
        control::{Grant, Wish, read_message, write_message},
        fragments::Reassembly,
        frame::{Fragment, Frame},
        noise::{Asking, StaticKey, binding},
        socket::Datagrams,
        tls, transport,
    },
};

const BOUND: Duration = Duration::from_secs(20);

pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(BOUND, future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

pub(super) fn key(number: u8) -> StaticKey {
    StaticKey::of_bytes(Zeroizing::new([number + 1; 32]))
}

pub(super) fn member(number: u8, expires_at: u64) -> SnapshotMember {
    SnapshotMember { public_key: key(number).public(), ..sample::member(number, expires_at) }
}

pub(super) fn now_ms() -> u64 {
    Clock::start().now().wall
}

/// Members 0 to 2, for an hour, with every grant.
pub(super) fn three(revision: u64) -> Snapshot {
    let end = now_ms() + 3_600_000;
    sample::snapshot(revision, (0..3).map(|number| member(number, end)).collect())
}

pub(super) struct Stand {
    pub(super) hub: Hub,
    pub(super) public: [u8; 32],
}

impl Stand {
    /// A hub that serves revision 1 of [`three`].
    pub(super) async fn new() -> Self {
        let stand = Self::bare();
        stand.hub.apply(three(1)).await.unwrap();
        stand
    }

    pub(super) fn bare() -> Self {
        Self::of(Hub::start)
    }

    /// A hub whose wall clock is ahead by so many milliseconds.
    pub(super) fn ahead(by: Arc<AtomicU64>) -> Self {
        let clock = Clock::start();
        let read = move || {
            let now = clock.now();
            Now { wall: now.wall + by.load(Relaxed), ..now }
        };
        Self::of(|socket, key| Hub::start_by(Arc::new(read), socket, key))
    }

    fn of(start: impl FnOnce(UdpSocket, Arc<StaticKey>) -> Result<Hub, StartError>) -> Self {
        let key = StaticKey::generate().unwrap();
        let public = key.public();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Self { hub: start(socket, Arc::new(key)).unwrap(), public }
    }

    pub(super) async fn node(&self, number: u8) -> Node {
        self.dial(&key(number), 1452).await.unwrap_or_else(|why| panic!("not admitted: {why:?}"))
    }

    /// A hub whose clocks are so many milliseconds on, and stand still otherwise.
    pub(super) async fn at(moment: Arc<AtomicU64>) -> Self {
        let start = now_ms();
        let read = move || {
            let on = moment.load(Relaxed);
            Now { wall: start + on, mono: Duration::from_millis(1_000_000 + on) }
        };
        let stand = Self::of(|socket, key| Hub::start_by(Arc::new(read), socket, key));
        stand.hub.apply(three(1)).await.unwrap();
        stand
    }

    /// Dials with `key`, from a host whose path carries UDP payloads of `payload` bytes.
    pub(super) async fn dial(&self, key: &StaticKey, payload: u16) -> Result<Node, Option<Close>> {
        self.prove(key, self.connect(payload).await).await
    }

    /// Proves `key` on `connection`.
    pub(super) async fn prove(&self, key: &StaticKey, connection: Connection) -> Result<Node, Option<Close>> {
        let payload = Wish::of_mtu(1380).encode();
        let (asking, message) =
            Asking::begin(key, &self.public, &binding(&connection).unwrap(), &payload).unwrap();
        let answer = self.say(&connection, &message).await?;
        let grant = Grant::decode(&asking.finish(&answer).unwrap()).unwrap();
        Ok(Node { connection, grant, reassembly: Reassembly::default() })
    }

    pub(super) async fn connect(&self, payload: u16) -> Connection {
        self.connect_from(Ipv4Addr::LOCALHOST, payload).await
    }

    pub(super) async fn connect_from(&self, address: Ipv4Addr, payload: u16) -> Connection {
        let config = tls::node_config().unwrap();
        self.connect_by(config, (address, payload), self.hub.bound()).await.unwrap()
    }

    /// Opens a TLS session with whoever is at `to`, from an address whose path carries so many bytes.
    pub(super) async fn connect_by(
        &self,
        config: ClientConfig,
        (address, payload): (Ipv4Addr, u16),
        to: SocketAddr,
    ) -> Result<Connection, ConnectionError> {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut own = transport::endpoint_config();
        own.max_udp_payload_size(payload).unwrap();
        let socket = Datagrams::over(socket).unwrap();
        let endpoint = Endpoint::new_with_abstract_socket(own, None, socket, Arc::new(TokioRuntime)).unwrap();
        within("a TLS session", endpoint.connect_with(config, to, SERVER_NAME).unwrap()).await
    }

    /// Sends the first message of a handshake, and gives the answer.
    pub(super) async fn say(
        &self,
        connection: &Connection,
        message: &[u8],
    ) -> Result<Vec<u8>, Option<Close>> {
        let (mut sender, mut receiver) = connection.open_bi().await.unwrap();
        write_message(&mut sender, message).await.unwrap();
        match within("an answer", read_message(&mut receiver)).await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(why(within("an end", connection.closed()).await)),
        }
    }

    /// Waits until the hub has dropped so many packets for `reason`.
    pub(super) async fn dropped(&self, reason: &str, count: u64) {
        within(reason, async {
            while self.hub.report().await.dropped.get(reason).copied().unwrap_or(0) < count {
                sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        let dropped = self.hub.report().await.dropped;
        assert_eq!(dropped.get(reason), Some(&count), "{dropped:?}");
    }
}

pub(super) fn why(error: ConnectionError) -> Option<Close> {
    let ConnectionError::ApplicationClosed(close) = error else { return None };
    Close::of(close.error_code)
}

pub(super) struct Node {
    pub(super) connection: Connection,
    pub(super) grant: Grant,
    reassembly: Reassembly,
}

impl Node {
    pub(super) fn send(&self, packet: Bytes) {
        self.connection.send_datagram(packet).unwrap();
    }

    /// Sends in two fragment frames.
    pub(super) fn send_halves(&self, packet: &[u8]) {
        let (first, second) = packet.split_at(packet.len() / 2);
        self.send(Fragment::encode(7, 0, first));
        self.send(Fragment::encode(7, 1, second));
    }

    /// The next packet, and whether it came in halves.
    pub(super) async fn receive(&mut self) -> (Bytes, bool) {
        loop {
            let datagram = within("a packet", self.connection.read_datagram()).await.unwrap();
            match Frame::decode(&datagram) {
                Frame::Packet(packet) => return (packet.clone(), false),
                Frame::Fragment(fragment) => {
                    if let Some(packet) = self.reassembly.take(fragment, std::time::Instant::now()) {
                        return (packet, true);
                    }
                }
                Frame::Unknown => panic!("a frame of no kind"),
            }
        }
    }

    pub(super) async fn ended(&self) -> Option<Close> {
        why(within("an end", self.connection.closed()).await)
    }

    pub(super) fn address(&self) -> [u8; 4] {
        self.grant.address.octets()
    }
}

/// A UDP packet of `length` bytes that may not be taken apart, of which every byte behind its header is `fill`.
pub(super) fn packet(source: [u8; 4], destination: [u8; 4], length: u16, fill: u8) -> Bytes {
    let mut packet = vec![fill; usize::from(length)];
    packet[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&destination);
    packet.into()
}
