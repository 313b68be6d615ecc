//! How relayd stands, as the supervisor is told; and what Cloudly is told of it, which is nothing.

use coreflow_ipc::messages::{
    Message,
    relayd::FromRelayd,
    standing::{NodeState, RelaydCounters, RelaydStanding},
};

use super::*;

const DAY: u64 = 24 * HOUR;

const BESIDE: Beside =
    Beside { sockets: 5, pulls_under_way: 3, pulls: 11, pulls_refused: 12, connections_refused: 13 };

fn standing(script: &Script) -> RelaydStanding {
    script.core.standing(BESIDE, script.now)
}

fn states(script: &Script) -> Vec<NodeState> {
    script.core.nodes(None).nodes.iter().map(|node| node.state).collect()
}

/// Each machine's part is at its place, and so is what is counted beside the core.
#[test]
fn every_machine_has_its_part() {
    let mut script = Script::resumed(Kept::default());
    let beside = RelaydCounters {
        pulls: BESIDE.pulls,
        pulls_refused: BESIDE.pulls_refused,
        connections_refused: BESIDE.connections_refused,
        ..RelaydCounters::default()
    };
    let mut first = RelaydStanding { pulls: 3, counters: beside.clone(), ..RelaydStanding::default() };
    (first.nodes.sockets, first.escrow.custody) = (5, "open".to_owned());
    assert_eq!(standing(&script), first);

    script = Script::registered();
    script.carry(1, "n");
    script.carry(2, "m");
    script.assert_carried(1, "n");
    script.node(1, asked("q", REPORT, &of("n")));
    script.node(9, asked("q", REPORT, &of("n")));
    script.cloudly(asked("p", APPLY, &of("absent")));
    script.cloudly(asked("p", APPLY, &of("m")));
    let stands = standing(&script);
    let session = &stands.session;
    assert!(session.dispatchable && session.connections == 1);
    assert_eq!(session.identity_ends_at, Some(script.now.wall + HOUR));
    let certificate = stands.certificate.as_ref().unwrap();
    assert_eq!((certificate.domain.as_str(), certificate.ends_at), ("relay.test", 90 * DAY));
    // The largest jitter: a tenth of the last third later than its begin (XTR-12).
    assert_eq!(certificate.renewed_at, Some(63 * DAY));
    let nodes = &stands.nodes;
    assert_eq!((nodes.sockets, nodes.carried, nodes.awaiting, nodes.requests, nodes.pushes), (5, 2, 0, 1, 1));
    let expected = RelaydCounters {
        registrations: 2,
        requests: 4,
        requests_refused: 1,
        pushes: 2,
        pushes_refused: 1,
        ..beside
    };
    assert_eq!((&stands.counters, stands.pulls), (&expected, 3));
    assert_eq!(states(&script), [NodeState::Registered; 2]);

    let connection = script.connection;
    script.session(session::Event::Closed { connection });
    let stands = standing(&script);
    assert!(!stands.session.dispatchable);
    assert_eq!(stands.certificate.unwrap().renewed_at, None, "nothing is renewed without a session");
    assert_eq!(states(&script), [NodeState::Carried; 2]);
}

/// OUT-04, OUT-08: who was carried before the reconnect awaits its registration, is asked for it, and is counted
/// when it is asked.
#[test]
fn a_reconnect_is_seen_in_the_roster_and_its_counter() {
    let mut script = Script::registered();
    script.carry(1, "n");
    script.carry(2, "m");
    let done = script.reconnect();
    let closed = |done: &[Did]| done.iter().filter(|did| matches!(did, Did::CloseNode(_))).count();
    assert_eq!((closed(&done), standing(&script).counters.asked_again), (1, 1));
    assert_eq!(states(&script), [NodeState::AwaitingRegistration; 2]);
    assert_eq!(standing(&script).nodes.awaiting, 2);
    assert_eq!(closed(&script.pass(75 * MS)), 1);
    assert_eq!(standing(&script).counters.asked_again, 2);
    script.on(Event::NodeClosed { socket: 1 });
    script.on(Event::NodeClosed { socket: 2 });
    assert_eq!((standing(&script).nodes.carried, states(&script).len()), (0, 0));
}

/// XTR-19: the registration is the same with nodes and without, and nothing that the relay says to Cloudly of its
/// own, before or after it is asked for its roster, names a node.
#[test]
fn cloudly_is_told_nothing_of_the_roster() {
    let registration = |carried: &[&str]| {
        let mut script = Script::registered();
        for (socket, node) in (1..).zip(carried) {
            script.carry(socket, node);
        }
        assert_eq!(script.core.nodes(None).nodes.len(), carried.len());
        let said = [script.renew(), script.reconnect(), script.pass(60_000 * MS)].concat();
        let mut registrations = Vec::new();
        for did in said {
            let Did::Sent(_, Sent { method, body, .. }) = did else { continue };
            assert!(!body.contains("roster-"), "{method}: {body}");
            if method == REGISTER {
                registrations.push(body);
            }
        }
        registrations
    };
    let without = registration(&[]);
    assert!(!without.is_empty());
    assert_eq!(registration(&["roster-n", "roster-m"]), without);
}

/// The largest answer fits the link.
#[test]
fn the_largest_standing_fits_the_link() {
    let script = Script::registered();
    let mut largest = standing(&script);
    let certificate = largest.certificate.as_mut().unwrap();
    certificate.domain = "d".repeat(253);
    (certificate.ends_at, certificate.renewed_at) = (u64::MAX, Some(u64::MAX));
    largest.escrow.custody = "c".repeat(128);
    largest.escrow.last_ends_at = Some(u64::MAX);
    largest.ingress.revision = Some(u64::MAX);
    largest.counters = RelaydCounters {
        registrations: u64::MAX,
        requests: u64::MAX,
        requests_refused: u64::MAX,
        pushes: u64::MAX,
        pushes_refused: u64::MAX,
        asked_again: u64::MAX,
        renewals_offered: u64::MAX,
        renewals_acknowledged: u64::MAX,
        pulls: u64::MAX,
        pulls_refused: u64::MAX,
        connections_refused: u64::MAX,
    };
    let message = FromRelayd::AnswerStanding { id: u64::MAX, standing: Box::new(largest) };
    let mut frame = Vec::new();
    assert_eq!(message.append(&mut frame), Ok(()));
    assert!(frame.len() < FromRelayd::LIMIT / 8, "{} bytes", frame.len());
}
