//! A node's end of a tunnel within the test: one dial, the handshake, and IPv4 packets, without a device and
//! without another dial after the end, so that a test sees each session by itself.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coreflow_vpnd::constants::{INNER_MTU, SERVER_NAME};
use coreflow_vpnd::protocol::close::Close;
use coreflow_vpnd::protocol::control::{Grant, Wish, read_message, write_message};
use coreflow_vpnd::protocol::egress::{FragmentIds, Plan, plan};
use coreflow_vpnd::protocol::fragments::Reassembly;
use coreflow_vpnd::protocol::frame::Frame;
use coreflow_vpnd::protocol::ipv4::Header;
use coreflow_vpnd::protocol::noise::{Asking, StaticKey, binding};
use coreflow_vpnd::protocol::tls::node_config;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use zeroize::Zeroizing;

use crate::cloudly::AdvertisedHub;
use crate::ipv4::{read_udp, udp};
use crate::waiting::{BOUND, within};

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

/// How a tunnel ended, or did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The hub closed it by a code.
    By(Close),
    /// Otherwise; in words.
    Otherwise(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(close) => write!(f, "closed as {close}"),
            Self::Otherwise(how) => f.write_str(how),
        }
    }
}

impl std::error::Error for Ended {}

impl From<ConnectionError> for Ended {
    fn from(error: ConnectionError) -> Self {
        match &error {
            ConnectionError::ApplicationClosed(closed) => Close::of(closed.error_code)
                .map_or_else(|| Self::Otherwise(format!("closed by code {}", closed.error_code)), Self::By),
            _ => Self::Otherwise(error.to_string()),
        }
    }
}

/// A tunnel that is up. It ends with this value.
pub struct Tunnel {
    /// What the hub granted.
    pub grant: Grant,
    connection: Connection,
    reassembly: Reassembly,
    ids: FragmentIds,
    // The stream and the endpoint live as long as the session.
    _control: (SendStream, RecvStream),
    _endpoint: Endpoint,
}

impl Tunnel {
    /// Dials the hub once and proves `key`, expecting the hub to prove its own.
    ///
    /// # Errors
    /// [`Ended`].
    ///
    /// # Panics
    /// When the host gives no socket, or nothing ends the dial within [`BOUND`].
    pub async fn dial(key: &NodeKey, hub: &AdvertisedHub) -> Result<Self, Ended> {
        within(BOUND, "end of a dial of the hub", Self::dialled(key, hub))
            .await
            .expect("a dial bounds itself")
    }

    async fn dialled(key: &NodeKey, hub: &AdvertisedHub) -> Result<Self, Ended> {
        let hub_key: [u8; 32] = STANDARD
            .decode(&hub.public_key)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .expect("the relay advertises base64 of 32 bytes");
        let mut endpoint =
            Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("the host gives a socket");
        endpoint.set_default_client_config(node_config().expect("the node's TLS can be configured"));
        let address = SocketAddr::from((hub.address, hub.quic_port));
        let connection =
            endpoint.connect(address, SERVER_NAME).expect("the hub's address can be dialled").await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        let bound = binding(&connection).expect("the session has an exporter");
        let wish = Wish::of_mtu(INNER_MTU).encode();
        let (asking, message) =
            Asking::begin(&key.key(), &hub_key, &bound, &wish).expect("a message 1 can be made");
        // A hub that refuses closes the connection, which says why.
        let answer = async {
            write_message(&mut send, &message).await.ok()?;
            read_message(&mut receive).await.ok()
        };
        let Some(answer) = answer.await else { return Err(connection.closed().await.into()) };
        let payload = asking
            .finish(&answer)
            .map_err(|why| Ended::Otherwise(format!("the hub did not prove its key: {why}")))?;
        let grant = Grant::decode(&payload).map_err(|why| Ended::Otherwise(why.to_string()))?;
        Ok(Self {
            grant,
            connection,
            reassembly: Reassembly::default(),
            ids: FragmentIds::default(),
            _control: (send, receive),
            _endpoint: endpoint,
        })
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

    /// Sends a whole packet, in two frames where one has no room for it.
    ///
    /// # Panics
    /// When it is no packet that goes in two frames, or the tunnel takes none.
    pub fn send_packet(&mut self, packet: &[u8]) {
        let packet = Bytes::copy_from_slice(packet);
        let header = Header::parse(&packet).expect("a test sends packets");
        let room = self.connection.max_datagram_size().expect("the hub takes datagrams");
        let frames = match plan(&packet, &header, room, &mut self.ids) {
            Plan::Whole => vec![packet],
            Plan::Two(frames) => frames.to_vec(),
            Plan::Pieces(_) | Plan::TooBig { .. } => panic!("a test's packets fit two frames"),
        };
        for frame in frames {
            self.connection.send_datagram(frame).expect("the tunnel takes a datagram");
        }
    }

    /// Sends the bytes as they are.
    ///
    /// # Panics
    /// When the tunnel does not take them.
    pub fn send_frame(&self, frame: &[u8]) {
        self.connection.send_datagram(Bytes::copy_from_slice(frame)).expect("the tunnel takes a datagram");
    }

    /// The next packet.
    ///
    /// # Errors
    /// The tunnel ended.
    ///
    /// # Panics
    /// When none comes within [`BOUND`].
    pub async fn receive(&mut self) -> Result<Vec<u8>, Ended> {
        within(BOUND, "packet out of a tunnel", self.received()).await.expect("a packet comes")
    }

    /// The next packet, if one comes within `wait`.
    pub async fn receive_within(&mut self, wait: Duration) -> Option<Result<Vec<u8>, Ended>> {
        within(wait, "packet out of a tunnel", self.received()).await.ok()
    }

    async fn received(&mut self) -> Result<Vec<u8>, Ended> {
        loop {
            let datagram = self.connection.read_datagram().await?;
            match Frame::decode(&datagram) {
                Frame::Packet(packet) => return Ok(packet.to_vec()),
                Frame::Fragment(fragment) => {
                    if let Some(packet) = self.reassembly.take(fragment, Instant::now()) {
                        return Ok(packet.to_vec());
                    }
                }
                Frame::Unknown => return Err(Ended::Otherwise("a frame that is none".to_owned())),
            }
        }
    }

    /// Checks that the next packet is `payload` from `address`.
    ///
    /// # Panics
    /// When it is another one, or none comes.
    pub async fn expect(&mut self, address: Ipv4Addr, payload: &[u8]) {
        let packet = self.receive().await.expect("the tunnel is up");
        let read = read_udp(&packet).expect("what was sent is a UDP packet");
        assert_eq!((read.source.ip(), read.destination.ip()), (&address, &self.grant.address));
        assert_eq!(String::from_utf8_lossy(&read.payload), String::from_utf8_lossy(payload));
    }

    /// Whether it is up, as far as is known here.
    pub fn is_up(&self) -> bool {
        self.connection.close_reason().is_none()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within [`BOUND`].
    pub async fn ended(&self) -> Ended {
        within(BOUND, "end of a tunnel", self.connection.closed()).await.expect("the tunnel ends").into()
    }
}

/// Checks that `payload` crosses from the one to the other.
///
/// # Panics
/// When it does not.
pub async fn crosses(from: &mut Tunnel, to: &mut Tunnel, payload: &[u8]) {
    let sent = from.send(to.grant.address, payload);
    let received = to.receive().await.expect("the tunnel is up");
    assert_eq!(received, sent, "the packet that was sent, byte for byte");
}
