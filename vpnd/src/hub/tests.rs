use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use coreflow_ipc::messages::{
    hub_report::HubReport,
    vpn_network::{Grants, NotApplied},
};

use stand::{Stand, key, member, now_ms, packet, three, within};

use super::sample;
use crate::{
    constants::RETRY_FROM,
    protocol::{
        close::Close,
        control::Wish,
        noise::{Asking, StaticKey, binding},
    },
};

mod stand;
mod strangers;

/// VPN-01, VPN-41, VPN-44: a member proves its key to a hub that proves its own, is given
/// its address, and its packets reach another member as they were.
#[tokio::test]
async fn members_reach_each_other() {
    let stand = Stand::new().await;
    let (mut one, mut two) = (stand.node(0).await, stand.node(1).await);
    assert_eq!(one.address(), [10, 8, 0, 2]);
    assert_eq!((one.grant.mtu, one.grant.revision, one.grant.generation), (1380, 1, 1));
    for (length, fill) in [(20, 0), (21, 1), (64, 2), (300, 3), (1100, 4)] {
        let there = packet(one.address(), [10, 101, 3, 4], length, fill);
        one.send(there.clone());
        assert_eq!(two.receive().await.0, there);
        let back = packet([10, 101, 3, 4], one.address(), length, fill);
        two.send(back.clone());
        assert_eq!(one.receive().await.0, back);
    }
    // What follows a packet in its datagram is no part of it.
    let whole = packet(one.address(), two.address(), 100, 9);
    one.send([&whole[..], b"behind"].concat().into());
    assert_eq!(two.receive().await.0, whole);

    let report = stand.hub.report().await;
    assert_eq!((report.members, report.admissible, report.sessions, report.admitted), (3, 3, 2, 2));
    assert_eq!((report.forwarded_packets, report.forwarded_bytes), (11, 2 * 1505 + 100));
    assert_eq!((report.bound, report.revision), (Some(stand.hub.bound()), Some(1)));
    assert_eq!(report.control_prefix.as_deref(), Some("10.8.0.0/24"));
    assert!(report.dropped.is_empty() && report.ended.is_empty() && report.handshakes == 0);
    let [first, second] = &report.listed[..] else { panic!("{report:?}") };
    assert_eq!((first.node_id.as_str(), second.node_id.as_str()), ("node-0", "node-1"));
    assert_eq!((first.sent_packets, first.received_packets), (5, 6));
    assert_eq!((second.sent_bytes, second.received_bytes), (1605, 1505));
    assert!(first.remote.ip().is_loopback() && first.remote != second.remote);
}

/// VPN-13, VPN-15: whoever is unknown, expired or not enabled is told the same, with no answer of the
/// hub's before it; nobody is admitted before there is a network.
#[tokio::test]
async fn who_is_no_member_is_refused_by_one_code_and_without_an_answer() {
    let stand = Stand::bare();
    assert_eq!(stand.dial(&key(0), 1452).await.err(), Some(Some(Close::NotAdmitted)));
    let end = now_ms() + 3_600_000;
    let mut members = vec![member(0, end), member(1, now_ms() - 1), member(2, end)];
    members[2].enabled = false;
    stand.hub.apply(sample::snapshot(1, members)).await.unwrap();
    for stranger in [key(1), key(2), key(3), StaticKey::generate().unwrap()] {
        assert_eq!(stand.dial(&stranger, 1452).await.err(), Some(Some(Close::NotAdmitted)));
    }
    let _node = stand.node(0).await;
    let report = stand.hub.report().await;
    assert_eq!((report.admissible, report.sessions, report.admitted), (1, 1, 1));
    assert_eq!(report.ended.get("not-admitted"), Some(&5));
}

/// VPN-41: what is not meant for this hub and this session is no handshake, a message that was good in
/// another session neither; another version is told so.
#[tokio::test]
async fn messages_that_do_not_belong_here_are_malformed() {
    let stand = Stand::new().await;
    let wish = Wish::of_mtu(1380).encode();
    let begin = |hub: &[u8; 32], connection: &quinn::Connection, wish: &[u8]| {
        Asking::begin(&key(0), hub, &binding(connection).unwrap(), wish).unwrap().1
    };
    let (recorded, replay) = (stand.connect(1452).await, stand.connect(1452).await);
    let message = begin(&stand.public, &recorded, &wish);
    assert_eq!(stand.say(&replay, &message).await.err(), Some(Some(Close::Malformed)));
    assert!(stand.say(&recorded, &message).await.is_ok());
    let mut flipped = message.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let connection = stand.connect(1452).await;
    assert_eq!(stand.say(&connection, &flipped).await.err(), Some(Some(Close::Malformed)));
    let connection = stand.connect(1452).await;
    let message = begin(&key(9).public(), &connection, &wish);
    assert_eq!(stand.say(&connection, &message).await.err(), Some(Some(Close::Malformed)));
    let connection = stand.connect(1452).await;
    let message = begin(&stand.public, &connection, &[]);
    assert_eq!(stand.say(&connection, &message).await.err(), Some(Some(Close::Malformed)));
    let connection = stand.connect(1452).await;
    let other = Wish { version: 2, mtu: 1380 }.encode();
    let message = begin(&stand.public, &connection, &other);
    assert_eq!(stand.say(&connection, &message).await.err(), Some(Some(Close::Version)));
    let report = stand.hub.report().await;
    assert_eq!((report.ended.get("malformed"), report.ended.get("version")), (Some(&4), Some(&1)));
    assert_eq!((report.admitted, report.sessions), (1, 1));
}

/// VPN-15, VPN-19: a member that a revision leaves out is closed when the revision is answered, in mid-flow, and
/// is refused when it dials again; the others' flows go on.
#[tokio::test]
async fn a_withdrawn_member_ends_at_once() {
    let stand = Stand::new().await;
    let (one, mut two, three_) = (stand.node(0).await, stand.node(1).await, stand.node(2).await);
    let (from_one, from_three) =
        (packet(one.address(), two.address(), 200, 1), packet(three_.address(), two.address(), 200, 3));
    one.send(from_one.clone());
    assert_eq!(two.receive().await.0, from_one);
    // More than a row, of which most is still to be taken when the revision comes.
    for _ in 0..600 {
        one.send(from_one.clone());
    }
    let mut next = three(2);
    next.members.remove(0);
    next.grants = sample::snapshot(2, next.members.clone()).grants;
    stand.hub.apply(next).await.unwrap();
    let report = stand.hub.report().await;
    assert_eq!((report.sessions, report.ended.get("withdrawn")), (2, Some(&1)));
    assert_eq!(one.ended().await, Some(Close::Withdrawn));
    assert_eq!(stand.dial(&key(0), 1452).await.err(), Some(Some(Close::NotAdmitted)));
    three_.send(from_three.clone());
    while two.receive().await.0 != from_three {}
    let gone_on = stand.hub.report().await.forwarded_packets - report.forwarded_packets;
    assert_eq!(gone_on, 1, "nothing of the withdrawn one");
}

/// VPN-16: a grant that a revision leaves out ends its flow, and no session; the other direction goes on.
#[tokio::test]
async fn a_withdrawn_grant_ends_its_flow() {
    let stand = Stand::new().await;
    let (mut one, mut two) = (stand.node(0).await, stand.node(1).await);
    let there = packet(one.address(), two.address(), 100, 1);
    let back = packet(two.address(), one.address(), 100, 2);
    one.send(there.clone());
    assert_eq!(two.receive().await.0, there);
    let mut next = three(2);
    next.grants = Grants::none(3);
    next.grants.grant(1, 0);
    stand.hub.apply(next).await.unwrap();
    for _ in 0..3 {
        one.send(there.clone());
    }
    stand.dropped("no-grant", 3).await;
    two.send(back.clone());
    assert_eq!(one.receive().await.0, back);
    stand.hub.apply(three(3)).await.unwrap();
    let again = packet(one.address(), two.address(), 101, 1);
    one.send(again.clone());
    assert_eq!(two.receive().await.0, again);
    assert_eq!(stand.hub.report().await.admitted, 2);
}

/// VPN-06: what a member sends in another's name, or to nobody, reaches nobody and is counted by its reason; its
/// own packets go on, and nothing is learned from the others.
#[tokio::test]
async fn a_spoofed_source_reaches_nobody() {
    let stand = Stand::new().await;
    let (one, mut two) = (stand.node(0).await, stand.node(1).await);
    let foreign = [two.address(), [10, 8, 0, 1], [0, 0, 0, 0], [10, 101, 0, 1], [192, 0, 2, 1]];
    for source in foreign {
        one.send(packet(source, two.address(), 60, 1));
    }
    one.send(packet(one.address(), [192, 0, 2, 1], 60, 1));
    one.send(packet(one.address(), [10, 8, 0, 1], 60, 1));
    one.send(packet(one.address(), [10, 8, 0, 4], 60, 1));
    one.send(Bytes::from_static(b"\x45 is how a packet begins"));
    one.send(Bytes::from_static(b"\x60 is another version"));
    one.send(Bytes::new());
    for number in 0..200 {
        let honest = packet(one.address(), two.address(), 60 + number, 2);
        one.send(honest.clone());
        assert_eq!(two.receive().await.0, honest);
    }
    let dropped = stand.hub.report().await.dropped;
    let expected = [
        ("destination-special", 1),
        ("destination-unknown", 1),
        ("malformed", 1),
        ("no-session", 1),
        ("source-foreign", 5),
        ("unknown-frame", 2),
    ];
    assert_eq!(dropped, expected.map(|(reason, count)| (reason.to_owned(), count)).into());
}

/// A key has one session, the newest; the older one's end does not end it.
#[tokio::test]
async fn a_second_session_supersedes_the_first() {
    let stand = Stand::new().await;
    let (first, two) = (stand.node(0).await, stand.node(1).await);
    let mut second = stand.node(0).await;
    assert_eq!(first.ended().await, Some(Close::Superseded));
    drop(first);
    for number in 0..20 {
        let there = packet(two.address(), second.address(), 60 + number, 1);
        two.send(there.clone());
        assert_eq!(second.receive().await.0, there);
    }
    let report = stand.hub.report().await;
    assert_eq!((report.sessions, report.admitted, report.ended.get("superseded")), (2, 3, Some(&1)));
    // A node that leaves by itself is gone, and may come back.
    second.connection.close(Close::Ended.code(), &[]);
    within("the end", async {
        while stand.hub.report().await.sessions == 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stand.hub.report().await.ended.get("ended"), Some(&1));
    stand.node(0).await;
}

/// VPN-06: a member whose time passes is closed by the hub itself, by a code that says so.
#[tokio::test]
async fn a_members_time_ends_its_session() {
    let ahead = Arc::<AtomicU64>::default();
    let stand = Stand::ahead(Arc::clone(&ahead));
    let members = vec![member(0, now_ms() + 3_600_000), member(1, now_ms() + 36_000_000)];
    stand.hub.apply(sample::snapshot(1, members)).await.unwrap();
    let (one, two) = (stand.node(0).await, stand.node(1).await);
    ahead.store(3_600_000, Relaxed);
    assert_eq!(one.ended().await, Some(Close::Expired));
    assert_eq!(stand.dial(&key(0), 1452).await.err(), Some(Some(Close::NotAdmitted)));
    two.send(packet(two.address(), one.address(), 60, 1));
    stand.dropped("no-session", 1).await;
    assert_eq!(stand.hub.report().await.admissible, 1);
}

/// VPN-12, VPN-18, VPN-20, VPN-21, VPN-22, VPN-23: what may not follow is refused, and the served network goes on.
#[tokio::test]
async fn a_refused_network_leaves_the_served_one() {
    let stand = Stand::new().await;
    let (one, mut two) = (stand.node(0).await, stand.node(1).await);
    stand.hub.apply(three(5)).await.unwrap();
    let mut foreign = three(6);
    foreign.network.authority = "other".into();
    let mut moved = three(6);
    moved.network.control_prefix = sample::prefix([10, 8, 0, 0], 25);
    let mut spoiled = three(6);
    spoiled.members[0].expires_at.clear();
    for refused in [three(4), foreign, moved] {
        assert_eq!(stand.hub.apply(refused).await, Err(NotApplied::Passed));
    }
    assert!(matches!(stand.hub.apply(spoiled).await, Err(NotApplied::Snapshot(_))));
    assert_eq!(stand.hub.apply(three(5)).await, Ok(()));
    let there = packet(one.address(), two.address(), 100, 1);
    one.send(there.clone());
    assert_eq!(two.receive().await.0, there);
    assert_eq!(stand.hub.report().await.revision, Some(5));
}

/// VPN-01: a full-size packet crosses a path that is too small for it, in two; what two cannot carry is answered
/// by the hub's own address with what would go, and counted.
#[tokio::test]
async fn a_small_path_is_crossed_in_two_frames() {
    let stand = Stand::new().await;
    let mut one = stand.node(0).await;
    let mut two = stand.dial(&key(1), 1200).await.unwrap();
    for fill in 0..20 {
        let full = packet(one.address(), two.address(), 1380, fill);
        one.send_halves(&full);
        assert_eq!(two.receive().await, (full, true));
    }
    let small = packet(one.address(), two.address(), 1100, 1);
    one.send(small.clone());
    assert_eq!(two.receive().await, (small, false));

    let large = packet(one.address(), two.address(), 2320, 1);
    one.send_halves(&large[..2200]);
    stand.dropped("malformed", 1).await;
    one.send_halves(&large);
    stand.dropped("too-big", 1).await;
    let (icmp, _) = one.receive().await;
    assert_eq!((&icmp[12..16], &icmp[16..20]), (&[10, 8, 0, 1][..], &one.address()[..]));
    assert_eq!((icmp[9], icmp[20], icmp[21]), (1, 3, 4));
}

/// VPN-46, VPN-37: a hub that stops tells its nodes so, and its socket is free then.
#[tokio::test]
async fn a_hub_that_stops_says_so_and_frees_its_port() {
    let stand = Stand::new().await;
    let (one, two) = (stand.node(0).await, stand.node(1).await);
    let bound = stand.hub.bound();
    assert!(UdpSocket::bind(bound).is_err());
    let started = std::time::Instant::now();
    within("the stop", stand.hub.stop()).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(one.ended().await, Some(Close::Stopping));
    assert_eq!(two.ended().await, Some(Close::Stopping));
    UdpSocket::bind(bound).unwrap();
}

/// A change shows by itself; without one nothing does.
#[tokio::test]
async fn reports_come_when_something_changed() {
    let stand = Stand::new().await;
    let mut reports = stand.hub.reports();
    within("a report", reports.wait_for(|report| report.revision == Some(1))).await.unwrap();
    let _one = stand.node(0).await;
    let shown = within("a report", reports.wait_for(|report| report.sessions == 1)).await.unwrap().clone();
    assert_eq!(shown.listed.len(), 1);
    within("the stop", stand.hub.stop()).await;
    within("the end", async { while reports.changed().await.is_ok() {} }).await;
}

/// Connections that say nothing are given up, and while they hold every place that is had without a proof
/// of address, a member still gets in.
#[tokio::test]
async fn members_get_in_among_connections_that_say_nothing() {
    let stand = Stand::new().await;
    let mut idle = Vec::new();
    for number in 0..40_u8 {
        idle.push(stand.connect_from([127, 0, 0, 10 + number / 4].into(), 1452).await);
    }
    assert!(stand.hub.report().await.handshakes as usize > RETRY_FROM);
    let one = stand.node(0).await;
    for connection in idle {
        let end = within("an end", connection.closed()).await;
        assert_eq!(stand::why(end), Some(Close::Late));
    }
    let report = stand.hub.report().await;
    assert_eq!((report.handshakes, report.sessions, report.ended.get("late")), (0, 1, Some(&40)));
    assert!(one.connection.close_reason().is_none());
}

/// VPN-15: a node that takes nothing any more loses its own packets alone, within a bound, and no other's; withdrawn
/// then, it hears of it when it wakes, though its queue is full.
#[test]
fn a_receiver_that_stalls_holds_up_nobody() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (awake, asleep) = (runtime(), runtime());
    let stand = awake.block_on(Stand::new());
    let two = asleep.block_on(stand.node(1));
    awake.block_on(async {
        let (one, mut third) = (stand.node(0).await, stand.node(2).await);
        let large = packet(one.address(), two.address(), 1000, 1);
        let dropped = |report: &HubReport| report.dropped.get("leg-full").copied().unwrap_or(0);
        within("a full queue", async {
            // Three times what the queue holds; each seen by the hub before the next is sent.
            for number in 0..3_200_u16 {
                one.send(large.clone());
                let small = packet(one.address(), third.address(), 60, u8::try_from(number % 251).unwrap());
                one.send(small.clone());
                assert_eq!(third.receive().await.0, small);
            }
        })
        .await;
        let report = stand.hub.report().await;
        assert!(dropped(&report) > 1_000, "{:?}", report.dropped);
        assert_eq!(report.dropped.len(), 1);
        assert_eq!(report.sessions, 3);
        let mut next = three(2);
        next.members[1].enabled = false;
        stand.hub.apply(next).await.unwrap();
    });
    assert_eq!(asleep.block_on(two.ended()), Some(Close::Withdrawn));
}

/// VPN-46: a node that takes nothing, with a full queue, hears of a stop too.
#[test]
fn a_receiver_that_stalls_hears_of_a_stop() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (awake, asleep) = (runtime(), runtime());
    let stand = awake.block_on(Stand::new());
    let two = asleep.block_on(stand.node(1));
    awake.block_on(async {
        let one = stand.node(0).await;
        let large = packet(one.address(), two.address(), 1000, 1);
        within("a full queue", async {
            while !stand.hub.report().await.dropped.contains_key("leg-full") {
                (0..20).for_each(|_| one.send(large.clone()));
            }
        })
        .await;
        stand.hub.stop().await;
        assert_eq!(one.ended().await, Some(Close::Stopping));
    });
    assert_eq!(asleep.block_on(two.ended()), Some(Close::Stopping));
}
