//! A network that Cloudly changed, on sessions that are open.

use std::net::SocketAddrV4;
use std::time::Duration;

use coreflow_tests::field::traffic::{Sink, Stream};
use coreflow_tests::field::{Field, milliseconds_from_now};

use crate::{A, B, BOUND, C, STAND};

const PORT: u16 = 9_000;
/// Packets that have to be dropped before a test believes that they are.
const SURELY: u64 = 50;

fn address_of(field: &Field, node: usize) -> SocketAddrV4 {
    SocketAddrV4::new(field.nodes[node].address, PORT)
}

/// VPN-06, VPN-14, VPN-16, VPN-19: once a push without a grant is answered, no packet that is sent along it
/// arrives; the opposite grant, and others' packets to the same node, go on without a loss.
#[test]
fn a_withdrawn_grant_carries_nothing_once_it_is_answered() {
    let mut field = Field::up(STAND);
    for (from, to) in [(A, B), (B, A), (C, B)] {
        field.wait_reach(from, to, BOUND);
    }
    let sink = Sink::at(&field.nodes[B].ground, PORT);
    let stream = Stream::paced(&field.nodes[A].ground, address_of(&field, B));
    sink.wait(20, BOUND);
    let other = SocketAddrV4::new(field.nodes[B].address, PORT + 1);
    let others_sink = Sink::at(&field.nodes[B].ground, other.port());
    let others = Stream::paced(&field.nodes[C].ground, other);

    let (a, b) = (field.nodes[A].name.clone(), field.nodes[B].name.clone());
    field.apply(|network| network.grants.retain(|grant| *grant != (a.clone(), b.clone())));
    let answered = stream.next();
    field.hub.wait_report("drops for want of a grant", BOUND, |report| {
        report["dropped"]["no-grant"].as_u64().is_some_and(|dropped| dropped >= SURELY)
    });
    let last = sink.numbers().last().copied().unwrap();
    assert!(last <= answered, "packet {last} was sent after the answer, when {answered} was next");
    field.wait_reach(B, A, BOUND);
    let sent = others.stop();
    others_sink.wait(sent - 1, BOUND);
    assert_eq!(others_sink.numbers().len(), usize::try_from(sent).unwrap(), "another's packets were lost");

    // The grant comes back, and with it the packets.
    field.apply(|network| network.grants.push((a, b)));
    sink.wait(stream.next() + 20, BOUND);
}

/// VPN-06, VPN-13, VPN-15: once a push without a member is answered, nothing that the member sends arrives, its
/// session is closed by name and it is not admitted again; others go on without a loss. Back in the network, it
/// is let in.
#[test]
fn a_withdrawn_member_is_out_once_it_is_answered() {
    let mut field = Field::up(STAND);
    for (from, to) in [(A, B), (C, B)] {
        field.wait_reach(from, to, BOUND);
    }
    let sink = Sink::at(&field.nodes[B].ground, PORT);
    let stream = Stream::paced(&field.nodes[A].ground, address_of(&field, B));
    sink.wait(20, BOUND);
    let other = SocketAddrV4::new(field.nodes[B].address, PORT + 1);
    let others_sink = Sink::at(&field.nodes[B].ground, other.port());
    let others = Stream::paced(&field.nodes[C].ground, other);

    let with_a = field.network.clone();
    let name = field.nodes[A].name.clone();
    let place = field.nodes[A].program().said();
    field.apply(|network| {
        network.members.retain(|member| member.node_id != name);
        network.grants.retain(|(from, to)| *from != name && *to != name);
    });
    let answered = stream.next();
    assert_eq!(field.hub.report()["sessions"], 2, "the session is closed before the answer");
    field.nodes[A].program().wait_from(place, "down withdrawn", BOUND);
    // Started anew, as it does not dial again at once by itself.
    field.nodes[A].program = None;
    field.start(A);
    field.nodes[A].program().wait("down not-admitted", BOUND);
    let last = sink.numbers().last().copied().unwrap();
    assert!(last <= answered, "packet {last} was sent after the answer, when {answered} was next");
    let sent = others.stop();
    others_sink.wait(sent - 1, BOUND);
    assert_eq!(others_sink.numbers().len(), usize::try_from(sent).unwrap(), "another's packets were lost");

    field.apply(|network| {
        network.members = with_a.members;
        network.grants = with_a.grants;
    });
    field.nodes[A].program = None;
    field.start(A);
    field.nodes[A].program().wait("up ", BOUND);
    field.wait_reach(A, B, BOUND);
}

/// A member whose time passes loses its session by the hub's own clock, without a push and not before, and is not
/// admitted any more; nothing is sent to it either (contract, section 6).
#[test]
fn an_expired_member_is_out_when_its_time_has_passed() {
    let mut field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    field.wait_reach(B, A, BOUND);
    let place = field.nodes[A].program().said();
    let name = field.nodes[A].name.clone();
    let soon = milliseconds_from_now(Duration::from_secs(2));
    field.apply(|network| {
        let member = network.members.iter_mut().find(|member| member.node_id == name).unwrap();
        member.expires_at = soon;
    });
    field.nodes[A].program().wait_from(place, "down expired", BOUND);
    assert!(milliseconds_from_now(Duration::ZERO) >= soon, "it was a member until then");
    // Started anew, as it does not dial again at once by itself.
    field.nodes[A].program = None;
    field.start(A);
    field.nodes[A].program().wait("down not-admitted", BOUND);
    let before = field.hub.dropped("no-session") + field.hub.dropped("destination-unknown");
    let stream = Stream::paced(&field.nodes[B].ground, address_of(&field, A));
    field.hub.wait_report("drops of packets to an expired member", BOUND, |report| {
        let of = |reason: &str| report["dropped"][reason].as_u64().unwrap_or(0);
        of("no-session") + of("destination-unknown") >= before + SURELY
    });
    drop(stream);
    assert_eq!(field.hub.report()["admissible"], 2);
}

/// VPN-18, VPN-22, VPN-23: a repeat and a revision that was passed change nothing for what flows; the second is
/// refused.
#[test]
fn a_repeat_and_a_passed_revision_change_nothing() {
    let mut field = Field::up(STAND);
    let first = field.network.clone();
    field.wait_reach(A, B, BOUND);
    field.apply(|_| {});
    let places: Vec<_> = field.nodes.iter().map(|node| node.program().said()).collect();
    let sink = Sink::at(&field.nodes[B].ground, PORT);
    let stream = Stream::paced(&field.nodes[A].ground, address_of(&field, B));
    sink.wait(20, BOUND);
    assert!(field.hub.tell(&field.network).starts_with("applied"));
    let mut passed = first;
    passed.members.clear();
    passed.grants.clear();
    let answer = field.hub.tell(&passed);
    assert!(answer.starts_with("refused") && answer.contains("vpn-hub-snapshot-passed"), "{answer}");
    let sent = stream.stop();
    sink.wait(sent - 1, BOUND);
    assert_eq!(sink.numbers().len(), usize::try_from(sent).unwrap(), "packets were lost");
    for (node, place) in field.nodes.iter().zip(places) {
        assert_eq!(node.program().lines_from(place, "down"), Vec::<String>::new());
    }
}
