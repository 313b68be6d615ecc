//! Who would like to be a member and is none: handshakes from forged addresses that never hear the answer, and
//! whole TLS sessions whose key nobody knows.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coreflow_vpnd::constants::SERVER_NAME;
use coreflow_vpnd::protocol::close::Close;
use coreflow_vpnd::protocol::control::{Wish, write_message};
use coreflow_vpnd::protocol::noise::{Asking, StaticKey, binding};
use coreflow_vpnd::protocol::{tls, transport};
use quinn::{Connection, ConnectionError, Endpoint, TokioRuntime};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::HUB;
use super::namespace::Namespace;
use super::packet;

/// Between two bursts of forged packets.
const BURST: Duration = Duration::from_millis(5);
/// The most that one session of a stranger may take.
const SESSION: Duration = Duration::from_secs(15);
/// The most that a first datagram may take on a busy machine.
const FIRST: Duration = Duration::from_secs(5);
/// Addresses of 198.18.0.0/15, which is set aside for such measurements (RFC 2544).
const FORGED: u32 = 0xc612_0000;
/// How many of them.
const FORGED_ADDRESSES: u32 = 1 << 17;

/// The first datagrams of so many handshakes, each of a connection of its own.
///
/// # Panics
/// When there is no loopback to make them on.
pub fn initials(count: usize) -> Vec<Vec<u8>> {
    runtime().block_on(async {
        let sink = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port of loopback");
        let target = sink.local_addr().expect("a bound socket has an address");
        let endpoint = endpoint(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback"));
        let (mut seen, mut initials) = (BTreeSet::new(), Vec::with_capacity(count));
        let mut datagram = [0; 2048];
        while initials.len() < count {
            let connecting = endpoint.connect(target, SERVER_NAME).expect("an endpoint that is not closed");
            loop {
                let received =
                    timeout(FIRST, sink.recv(&mut datagram)).await.expect("a first datagram comes at once");
                let datagram = &datagram[..received.expect("a socket that stays open")];
                // Of a connection that was given up another one follows.
                if seen.insert(destination_id(datagram).to_vec()) {
                    initials.push(datagram.to_vec());
                    break;
                }
            }
            drop(connecting);
        }
        initials
    })
}

/// The connection id that a datagram with a long header is sent to (RFC 9000, section 17.2).
fn destination_id(datagram: &[u8]) -> &[u8] {
    let length = datagram.get(5).map_or(0, |length| usize::from(*length));
    datagram.get(6..6 + length).unwrap_or_default()
}

/// Sends forged packets until it is dropped.
pub struct Forger {
    ended: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Forger {
    /// Sends `payloads` in turn to the hub, `rate` of them in a second, each from another address.
    ///
    /// # Panics
    /// Without root.
    pub fn start(ground: &Namespace, payloads: Vec<Vec<u8>>, rate: u32) -> Self {
        let socket = ground.inside(|| {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
            socket.set_header_included_v4(true)?;
            Ok::<_, io::Error>(socket)
        });
        let socket = socket.unwrap_or_else(|error| panic!("a raw socket takes root: {error}"));
        let (ended, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (ended.clone(), sent.clone());
        let forge = move || {
            let began = Instant::now();
            for (number, payload) in (0_u32..).zip(payloads.iter().cycle()) {
                while began + Duration::from_secs(1) / rate * number > Instant::now() {
                    std::thread::sleep(BURST);
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let from = Ipv4Addr::from_bits(FORGED + number % FORGED_ADDRESSES);
                let port = 1024 + u16::try_from(number % 60_000).expect("less than 60,000");
                let forged = packet::udp(SocketAddrV4::new(from, port), HUB, payload);
                // A queue that is full loses it, as any wire.
                if socket.send_to(&forged, &SocketAddr::V4(HUB).into()).is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        Self { ended, sent, thread: Some(std::thread::spawn(forge)) }
    }

    /// How many went out so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// What became of the sessions of strangers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strangers {
    /// Ended by the hub with the code for whoever is no member.
    pub not_admitted: u32,
    /// Ended with another of the hub's codes.
    pub other_codes: u32,
    /// Did not come about or did not end in time.
    pub lost: u32,
    /// Got an answer to their Noise message, which only a member does.
    pub answered: u32,
}

/// Opens `count` whole TLS sessions with the hub, `together` of them at a time, each with a key that no network
/// holds and from the next of `addresses`.
///
/// # Panics
/// When the namespace has none of the addresses or no way to the hub.
pub fn strangers(
    ground: &Namespace,
    addresses: &[Ipv4Addr],
    hub_key: [u8; 32],
    count: usize,
    together: usize,
) -> Strangers {
    let sockets: Vec<_> = addresses.iter().map(|at| ground.udp(SocketAddrV4::new(*at, 0))).collect();
    runtime().block_on(async move {
        let endpoints: Vec<_> = sockets.into_iter().map(endpoint).collect();
        let (mut became, mut sessions, mut begun) = (Strangers::default(), JoinSet::new(), 0);
        while begun < count || !sessions.is_empty() {
            if begun < count && sessions.len() < together {
                sessions.spawn(stranger(endpoints[begun % endpoints.len()].clone(), hub_key));
                begun += 1;
                continue;
            }
            match sessions.join_next().await {
                Some(Ok(Ended::Code(Close::NotAdmitted))) => became.not_admitted += 1,
                Some(Ok(Ended::Code(_))) => became.other_codes += 1,
                Some(Ok(Ended::Answered)) => became.answered += 1,
                Some(Ok(Ended::Lost) | Err(_)) => became.lost += 1,
                None => {}
            }
        }
        became
    })
}

enum Ended {
    Code(Close),
    Answered,
    Lost,
}

async fn stranger(endpoint: Endpoint, hub_key: [u8; 32]) -> Ended {
    let session = async {
        let connecting = endpoint.connect(SocketAddr::V4(HUB), SERVER_NAME).ok()?;
        let connection = connecting.await.ok()?;
        Some(ask(&connection, hub_key).await)
    };
    timeout(SESSION, session).await.ok().flatten().unwrap_or(Ended::Lost)
}

async fn ask(connection: &Connection, hub_key: [u8; 32]) -> Ended {
    let asked = async {
        let (mut send, mut receive) = connection.open_bi().await.ok()?;
        let key = StaticKey::generate().ok()?;
        let binding = binding(connection).ok()?;
        let (_, message) = Asking::begin(&key, &hub_key, &binding, &Wish::of_mtu(1380).encode()).ok()?;
        write_message(&mut send, &message).await.ok()?;
        receive.read_exact(&mut [0; 2]).await.ok()
    };
    if asked.await.is_some() {
        return Ended::Answered;
    }
    match connection.closed().await {
        ConnectionError::ApplicationClosed(close) => {
            Close::of(close.error_code).map_or(Ended::Lost, Ended::Code)
        }
        _ => Ended::Lost,
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime of one thread")
}

/// The node's end of the tunnel's QUIC, over this socket.
fn endpoint(socket: UdpSocket) -> Endpoint {
    let endpoint = Endpoint::new(transport::endpoint_config(), None, socket, Arc::new(TokioRuntime));
    let mut endpoint = endpoint.expect("a socket that a runtime takes");
    endpoint.set_default_client_config(tls::node_config().expect("a configuration without a key of its own"));
    endpoint
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is a first datagram of QUIC's full size, and none is like another.
    #[test]
    fn initials_are_whole_and_differ() {
        let initials = initials(20);
        let ids: BTreeSet<_> = initials.iter().map(|initial| destination_id(initial)).collect();
        assert_eq!((initials.len(), ids.len()), (20, 20));
        assert!(initials.iter().all(|initial| initial.len() >= 1200 && initial[0] & 0xf0 == 0xc0));
    }
}
