//! What the hub does for those who are no members, and for members that ask too much of it.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
};

use quinn::{ClientConfig, Connection, ConnectionError, TransportConfig};

use super::stand::{Stand, key, packet, three, why, within};
use crate::{
    constants::{KEY_BURST, MOST_HANDSHAKES_OF_ADDRESS, MOST_UNPROVEN_OF_ADDRESS, NOISE_BURST, RETRY_FROM},
    protocol::{
        close::Close,
        control::{Wish, write_message},
        noise::{Asking, binding},
        tls,
    },
};

/// What no hub can read.
const JUNK: [u8; 100] = [7; 100];

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 3, number)
}

/// A node's configuration with another transport.
fn config(set: impl FnOnce(&mut TransportConfig)) -> ClientConfig {
    let mut transport = TransportConfig::default();
    set(&mut transport);
    let mut config = tls::node_config().unwrap();
    config.transport_config(Arc::new(transport));
    config
}

impl Stand {
    async fn try_from(&self, address: Ipv4Addr) -> Result<Connection, ConnectionError> {
        let config = tls::node_config().unwrap();
        self.connect_by(config, (address, 1452), self.hub.bound()).await
    }

    /// Says what no hub can read, from `address`, and gives the hub's word for it.
    async fn junk_from(&self, address: Ipv4Addr) -> Option<Close> {
        let connection = self.try_from(address).await.unwrap();
        self.say(&connection, &JUNK).await.unwrap_err()
    }

    async fn is_refused(&self, address: Ipv4Addr) -> bool {
        matches!(self.try_from(address).await, Err(ConnectionError::ConnectionClosed(_)))
    }

    async fn ended(&self, name: &str) -> u64 {
        self.hub.report().await.ended.get(name).copied().unwrap_or(0)
    }
}

/// A packet before the hub has said that the peer is a member ends the handshake: the hub would have to keep it.
#[tokio::test]
async fn packets_before_an_answer_end_the_handshake() {
    let stand = Stand::new().await;
    let early = stand.connect(1452).await;
    early.send_datagram(packet([10, 8, 0, 2], [10, 8, 0, 3], 1000, 1)).unwrap();
    assert_eq!(why(within("an end", early.closed()).await), Some(Close::Malformed));
    assert_eq!(stand.ended("malformed").await, 1);
    stand.node(0).await;
}

/// Who takes only small datagrams, or none, is no node: each packet for it would be many.
#[tokio::test]
async fn who_takes_only_small_datagrams_is_malformed() {
    let stand = Stand::new().await;
    let connect = async |most| {
        let config = config(|transport| {
            transport.datagram_receive_buffer_size(most);
        });
        stand.connect_by(config, (host(1), 1452), stand.hub.bound()).await.unwrap()
    };
    for most in [None, Some(500), Some(1158)] {
        let end = within("an end", connect(most).await.closed()).await;
        assert_eq!(why(end), Some(Close::Malformed), "{most:?}");
    }
    let proven = stand.prove(&key(0), connect(Some(1159)).await).await;
    proven.unwrap_or_else(|why| panic!("{why:?}"));
}

/// VPN-15: whom a revision gives another address while the hub's answer is on its way is not admitted by the
/// former one.
#[tokio::test]
async fn a_member_that_changes_while_it_is_answered_is_withdrawn() {
    let stand = Stand::new().await;
    // The hub's answer has to wait until it is read.
    let config = config(|transport| {
        transport.stream_receive_window(10_u32.into());
    });
    let connection = stand.connect_by(config, (host(1), 1452), stand.hub.bound()).await.unwrap();
    let wish = Wish::of_mtu(1380).encode();
    let binding = binding(&connection).unwrap();
    let (_, message) = Asking::begin(&key(0), &stand.public, &binding, &wish).unwrap();
    let (mut sender, mut receiver) = connection.open_bi().await.unwrap();
    write_message(&mut sender, &message).await.unwrap();
    within("an answer's begin", receiver.read_exact(&mut [0; 2])).await.unwrap();
    let mut next = three(2);
    next.members[0].address = [10, 8, 0, 77].into();
    stand.hub.apply(next).await.unwrap();
    let _ = within("its end", receiver.read_to_end(1024)).await;
    assert_eq!(why(within("an end", connection.closed()).await), Some(Close::Withdrawn));
    let report = stand.hub.report().await;
    assert_eq!((report.admitted, report.sessions, report.ended.get("withdrawn")), (0, 0, Some(&1)));
    assert_eq!(stand.node(0).await.address(), [10, 8, 0, 77]);
}

/// The Noise handshakes of all have a burst and a pace; beyond, the hub says that it is busy.
#[tokio::test]
async fn more_noise_than_the_hub_allows_itself_is_told_busy() {
    let moment = Arc::<AtomicU64>::default();
    let stand = Stand::at(Arc::clone(&moment)).await;
    for number in 0..NOISE_BURST {
        let address = host(u8::try_from(number % 40).unwrap());
        assert_eq!(stand.junk_from(address).await, Some(Close::Malformed), "{number}");
    }
    assert_eq!(stand.junk_from(host(200)).await, Some(Close::Busy));
    assert_eq!(stand.dial(&key(0), 1452).await.err(), Some(Some(Close::Busy)));
    assert_eq!(stand.ended("busy").await, 2);
    moment.fetch_add(100, Relaxed);
    stand.node(0).await;
}

/// A member that dials again and again is told that the hub is busy, and another is not.
#[tokio::test]
async fn a_member_that_dials_without_end_is_paced() {
    let moment = Arc::<AtomicU64>::default();
    let stand = Stand::at(Arc::clone(&moment)).await;
    for _ in 0..KEY_BURST {
        stand.node(0).await;
    }
    assert_eq!(stand.dial(&key(0), 1452).await.err(), Some(Some(Close::Busy)));
    stand.node(1).await;
    moment.fetch_add(1_000, Relaxed);
    stand.node(0).await;
    assert_eq!(stand.dial(&key(0), 1452).await.err(), Some(Some(Close::Busy)));
}

/// Failures of one address hold its places for a second, those that were not proven first; then it is refused, and
/// others are not.
#[tokio::test]
async fn failures_of_one_address_hold_its_places() {
    let moment = Arc::<AtomicU64>::default();
    let stand = Stand::at(Arc::clone(&moment)).await;
    for number in 0..MOST_UNPROVEN_OF_ADDRESS + MOST_HANDSHAKES_OF_ADDRESS {
        assert_eq!(stand.junk_from(host(1)).await, Some(Close::Malformed), "{number}");
    }
    assert!(stand.is_refused(host(1)).await);
    assert_eq!(stand.junk_from(host(2)).await, Some(Close::Malformed));
    moment.fetch_add(999, Relaxed);
    assert!(stand.is_refused(host(1)).await);
    assert_eq!(stand.ended("refused").await, 2);
    moment.fetch_add(1, Relaxed);
    assert_eq!(stand.junk_from(host(1)).await, Some(Close::Malformed));
}

/// Sessions hold no places of failures: nobody has to prove an address for them.
#[tokio::test]
async fn sessions_of_one_address_hold_places_of_their_own() {
    let stand = Stand::at(Arc::default()).await;
    for number in 0..MOST_UNPROVEN_OF_ADDRESS {
        let connection = stand.try_from(host(1)).await.unwrap();
        let proven = stand.prove(&key(u8::try_from(number % 3).unwrap()), connection).await;
        proven.unwrap_or_else(|why| panic!("{why:?}"));
    }
    assert_eq!(asked_to_prove(&stand, host(1), 2).await, 0);
}

/// A connection that says nothing for a second gives way where an address has no other place, and hears why.
#[tokio::test]
async fn a_silent_connection_gives_way() {
    let moment = Arc::<AtomicU64>::default();
    let stand = Stand::at(Arc::clone(&moment)).await;
    let mut silent = Vec::new();
    for _ in 0..MOST_UNPROVEN_OF_ADDRESS + MOST_HANDSHAKES_OF_ADDRESS {
        silent.push(stand.try_from(host(1)).await.unwrap());
    }
    assert!(stand.is_refused(host(1)).await);
    moment.fetch_add(1_000, Relaxed);
    let node = stand.try_from(host(1)).await.unwrap();
    let first = &silent[MOST_UNPROVEN_OF_ADDRESS];
    assert_eq!(why(within("an end", first.closed()).await), Some(Close::Busy));
    let node = stand.prove(&key(0), node).await.unwrap_or_else(|why| panic!("{why:?}"));
    assert!(silent[MOST_UNPROVEN_OF_ADDRESS + 1].close_reason().is_none());
    assert!(node.connection.close_reason().is_none());
}

/// What goes between a node and the hub, by way of `host`.
struct Between {
    address: SocketAddr,
    retries: Arc<AtomicUsize>,
}

impl Between {
    fn new(host: Ipv4Addr, hub: SocketAddr) -> Self {
        let outside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let inside = UdpSocket::bind((host, 0)).unwrap();
        let address = outside.local_addr().unwrap();
        let retries = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&retries);
        inside.connect(hub).unwrap();
        let (answers, back) = (inside.try_clone().unwrap(), outside.try_clone().unwrap());
        let (learn, learned) = std::sync::mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = outside.recv_from(&mut buffer) {
                let _ = learn.try_send(from);
                let _ = inside.send(&buffer[..length]);
            }
        });
        thread::spawn(move || {
            let Ok(node) = learned.recv() else { return };
            let mut buffer = [0; 2048];
            while let Ok(length) = answers.recv(&mut buffer) {
                // A long header of QUIC v1 of the type Retry (RFC 9000, section 17.2.5).
                if buffer[0] & 0xf0 == 0xf0 {
                    counted.fetch_add(1, SeqCst);
                }
                let _ = back.send_to(&buffer[..length], node);
            }
        });
        Self { address, retries }
    }
}

/// A node by way of `host`, and how often it was asked to prove its address.
async fn asked_to_prove(stand: &Stand, host: Ipv4Addr, number: u8) -> usize {
    let between = Between::new(host, stand.hub.bound());
    let config = tls::node_config().unwrap();
    let local = (Ipv4Addr::LOCALHOST, 1452);
    let connection = stand.connect_by(config, local, between.address).await.unwrap();
    stand.prove(&key(number), connection).await.unwrap_or_else(|why| panic!("{why:?}"));
    between.retries.load(SeqCst)
}

/// An address proves itself once it has failed a few times, whoever failed in its name, or once the hub is at work
/// for many; a quiet hub asks nobody.
#[tokio::test]
async fn an_address_proves_itself_when_there_is_reason() {
    let moment = Arc::<AtomicU64>::default();
    let stand = Stand::at(Arc::clone(&moment)).await;
    assert_eq!(asked_to_prove(&stand, host(1), 0).await, 0);
    for _ in 0..MOST_UNPROVEN_OF_ADDRESS {
        stand.junk_from(host(1)).await;
    }
    assert_eq!(asked_to_prove(&stand, host(1), 1).await, 1);
    assert_eq!(asked_to_prove(&stand, host(2), 2).await, 0);
    let mut silent = Vec::new();
    for number in 0..RETRY_FROM {
        silent.push(stand.try_from(host(10 + u8::try_from(number / 4).unwrap())).await.unwrap());
    }
    assert_eq!(asked_to_prove(&stand, host(2), 0).await, 1);
}
