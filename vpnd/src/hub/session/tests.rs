//! Sessions whose nodes have sent already when the hub begins to take: what it takes at once is then known.

use std::{net::UdpSocket, time::Duration};

use coreflow_ipc::messages::vpn_network::{Grants, Snapshot};
use quinn::{Connection, Endpoint, TokioRuntime};
use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::{
    constants::{MOST_WAITING, SERVER_NAME},
    hub::sample,
    protocol::{close::Close, closing::close, tls, transport},
};

const LATER: u64 = 4_000_000_000_000;
/// More than two rows.
const SENT: u64 = 600;

struct Bench {
    shared: Arc<Shared>,
    _endpoint: Endpoint,
    /// Of members 0 and 1.
    nodes: Vec<Connection>,
    legs: Vec<Arc<Leg>>,
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

fn three(revision: u64) -> Snapshot {
    sample::snapshot(revision, (0..3).map(|number| sample::member(number, LATER)).collect())
}

impl Bench {
    /// Members 0 and 1 are admitted, and nothing is taken of what they send.
    async fn new() -> Self {
        let (shared, endpoint) = sample::hub(|socket| socket);
        let network = sample::network(three(1));
        shared.apply(Arc::clone(&network)).unwrap();
        let (mut nodes, mut legs) = (Vec::new(), Vec::new());
        for member in &network.members()[..2] {
            let (node, ours) = tokio::join!(connect(&shared), async {
                endpoint.accept().await.unwrap().accept().unwrap().await.unwrap()
            });
            legs.push(shared.admit(ours, member).unwrap());
            nodes.push(node);
        }
        Self { shared, _endpoint: endpoint, nodes, legs }
    }

    /// Member 0 has sent to member 1, and its session takes the first row of it.
    async fn in_mid_flow(&self) -> JoinHandle<()> {
        let packet = packet();
        within("the arrival", async {
            for number in 1..=SENT {
                self.nodes[0].send_datagram(packet.clone()).unwrap();
                while self.legs[0].connection.stats().frame_rx.datagram < number {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
        let carrying = tokio::spawn(carry(Arc::clone(&self.shared), Arc::clone(&self.legs[0])));
        // Spawned after it, and has its turn after the first of the other's.
        let leg = Arc::clone(&self.legs[0]);
        let taken = tokio::spawn(async move { leg.received.packets.get() }).await.unwrap();
        assert_eq!(taken, MOST_IN_A_ROW as u64, "a full row lets others have their turn");
        carrying
    }

    fn forwarded(&self) -> u64 {
        self.shared.counters.forwarded.packets.get()
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.shared.counters.drops().get(reason.name()).copied().unwrap_or(0)
    }
}

async fn connect(shared: &Shared) -> Connection {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(transport::endpoint_config(), None, socket, runtime).unwrap();
    let connecting = endpoint.connect_with(tls::node_config().unwrap(), shared.bound, SERVER_NAME);
    within("a TLS session", connecting.unwrap()).await.unwrap()
}

/// From member 0 to member 1.
fn packet() -> Bytes {
    let mut packet = [0; 60];
    packet[..12].copy_from_slice(&[0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet[12..20].copy_from_slice(&[10, 8, 0, 2, 10, 8, 0, 3]);
    Bytes::copy_from_slice(&packet)
}

/// VPN-15: of what a member had sent nothing goes on after the revision that leaves it out, whether or not it had
/// arrived.
#[tokio::test]
async fn what_arrived_of_a_withdrawn_member_goes_nowhere() {
    let bench = Bench::new().await;
    let carrying = bench.in_mid_flow().await;
    let mut next = three(2);
    next.members.remove(0);
    next.grants = sample::snapshot(2, next.members.clone()).grants;
    bench.shared.apply(sample::network(next)).unwrap();
    within("the end", carrying).await.unwrap();
    assert_eq!(bench.forwarded(), MOST_IN_A_ROW as u64);
}

/// VPN-16: nor along a grant, after the revision that leaves it out.
#[tokio::test]
async fn what_arrived_along_a_withdrawn_grant_goes_nowhere() {
    let bench = Bench::new().await;
    let carrying = bench.in_mid_flow().await;
    let mut next = three(2);
    next.grants = Grants::none(3);
    bench.shared.apply(sample::network(next)).unwrap();
    within("the rest", async {
        while bench.legs[0].received.packets.get() < SENT {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(bench.forwarded(), MOST_IN_A_ROW as u64);
    assert_eq!(bench.dropped(Reason::NoGrant), SENT - MOST_IN_A_ROW as u64);
    assert!(!carrying.is_finished());
}

/// VPN-46: a stop counts and tells each session, and lets nobody in any more.
#[tokio::test]
async fn a_stop_ends_every_session_at_once() {
    let bench = Bench::new().await;
    let carrying = bench.in_mid_flow().await;
    bench.shared.stop();
    assert_eq!(bench.shared.counters.ends().get("stopping"), Some(&2));
    assert_eq!(bench.shared.report().sessions, 0);
    assert!(bench.shared.legs.load().view.is_none());
    within("the end", carrying).await.unwrap();
    assert_eq!(bench.forwarded(), MOST_IN_A_ROW as u64);
    for node in &bench.nodes {
        let ConnectionError::ApplicationClosed(end) = within("an end", node.closed()).await else {
            panic!("no end of the protocol")
        };
        assert_eq!(Close::of(end.error_code), Some(Close::Stopping));
    }
    let network = sample::network(three(1));
    let late = bench.legs[1].connection.clone();
    assert_eq!(bench.shared.admit(late, &network.members()[1]).err(), Some(Close::Stopping));
    assert_eq!(bench.shared.counters.ends().len(), 1, "no end is counted twice");
}

/// Beyond what may wait for all together a receiver with more than its share is given nothing.
#[tokio::test]
async fn a_hub_that_is_full_says_so() {
    let bench = Bench::new().await;
    // Looked at in an hour, and everything was used up by very many.
    let later = Instant::now() + Duration::from_hours(1);
    assert!(!bench.shared.budget.admits(1, later, || (MOST_WAITING + 1, MOST_WAITING)));
    let carrying = bench.in_mid_flow().await;
    within("the rest", async {
        while bench.dropped(Reason::HubFull) < SENT {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((bench.forwarded(), bench.legs[1].sent.packets.get()), (0, 0));
    assert!(!carrying.is_finished());
}

/// VPN-15: each packet that comes to a full queue is counted for itself, once.
#[tokio::test]
async fn a_full_queue_is_counted_by_the_packets_that_came_to_it() {
    let bench = Bench::new().await;
    let leg = &bench.legs[1];
    // Without a word of acknowledgement from its node, as nothing else runs in between.
    let large = Bytes::from(vec![0; 1_000]);
    while leg.waiting() + large.len() <= DATAGRAM_SEND_BUFFER {
        leg.connection.send_datagram(large.clone()).unwrap();
    }
    let view = bench.shared.legs.load();
    let mut sender = Sender {
        shared: &bench.shared,
        leg: &bench.legs[0],
        reassembly: Reassembly::default(),
        icmp: IcmpBudget::new(Instant::now()),
    };
    let mut long = packet().to_vec();
    long.resize(1_100, 0);
    long[2..4].copy_from_slice(&1_100_u16.to_be_bytes());
    for came in 1..=5 {
        sender.take(&view, view.view.as_ref().unwrap(), 0, Bytes::from(long.clone()));
        assert_eq!((bench.dropped(Reason::LegFull), bench.forwarded()), (came, came));
    }
    // One that the tunnel does not take is counted by that reason alone.
    close(&leg.connection, Close::Ended);
    sender.take(&view, view.view.as_ref().unwrap(), 0, Bytes::from(long));
    assert_eq!((bench.dropped(Reason::LegFull), bench.dropped(Reason::LegGone)), (5, 1));
    assert_eq!(bench.forwarded(), 5);
}

/// What has to wait does not hold on to all that was received with it.
#[test]
fn what_waits_has_memory_of_its_own() {
    let received = Bytes::from(vec![7; 60_000]);
    let part = received.slice(1_000..2_000);
    let is_copy = |packet: &Bytes, waits| {
        let detached = detached(packet.clone(), waits);
        assert_eq!(detached, packet);
        detached.as_ptr() != packet.as_ptr()
    };
    assert!(!is_copy(&part, 0) && !is_copy(&part, COPIED_BACKLOG));
    assert!(is_copy(&part, COPIED_BACKLOG + 1) && is_copy(&part, DATAGRAM_SEND_BUFFER));
    assert!(is_copy(&part.slice(..COPIED_PACKET), 0));
}
