//! Hubs and nodes that end and come back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use coreflow_tests::field::{Field, HUB};
use coreflow_tests::processes::signal;
use coreflow_vpnd::constants::IDLE;
use nix::sys::signal::Signal;

use crate::{A, B, BOUND, C, STAND};

/// How long nodes may be without a hub that was killed: an idle timeout and a dial.
const OUTAGE: Duration = Duration::from_secs(20);
/// How long a hub may take to stop.
const STOP: Duration = Duration::from_secs(5);
/// Within this time a node knows of a hub that stopped.
const TOLD: Duration = Duration::from_secs(1);

/// A hub that was killed and started again has its nodes back within 20 s, without anything done to them.
#[test]
fn nodes_come_back_to_a_hub_that_was_killed() {
    let mut field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    signal(field.hub.program.pid(), Signal::SIGKILL);
    field.hub.program.ended(STOP);
    field.restart_hub();
    field.wait_reach(A, B, OUTAGE);
    field.wait_reach(B, C, OUTAGE);
}

/// VPN-46: a hub that is stopped ends in order, its nodes know within a second, and they come back to the next.
#[test]
fn nodes_know_at_once_of_a_hub_that_stops() {
    let mut field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let places: Vec<_> = field.nodes.iter().map(|node| node.program().said()).collect();
    signal(field.hub.program.pid(), Signal::SIGTERM);
    for (node, place) in field.nodes.iter().zip(places) {
        node.program().wait_from(place, "down stopping", TOLD);
    }
    assert!(field.hub.program.ended(STOP).success());
    assert_eq!(field.hub.program.lines_from(0, "stopped").len(), 1);
    field.restart_hub();
    field.wait_reach(A, B, OUTAGE);
}

/// A node that is stopped ends in order, and its session with it.
#[test]
fn a_node_that_stops_takes_its_session_along() {
    let mut field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    field.nodes[A].signal(Signal::SIGTERM);
    assert!(field.nodes[A].program.as_mut().unwrap().ended(STOP).success());
    field.hub.wait_report("session less", BOUND, |report| report["sessions"] == 2);
    assert_eq!(field.hub.report()["ended"]["ended"], 1);
}

/// VPN-01: nodes that say nothing for longer than any silence is borne are still there, and reached at once.
#[test]
fn silence_ends_no_session() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let places: Vec<_> = field.nodes.iter().map(|node| node.program().said()).collect();
    let forwarded = |field: &Field| field.hub.report()["forwardedPackets"].as_u64().unwrap();
    let before = forwarded(&field);
    std::thread::sleep(IDLE + IDLE / 4);
    assert!(forwarded(&field) <= before + 20, "it was not silent");
    field.wait_reach(B, A, TOLD);
    for (node, place) in field.nodes.iter().zip(places) {
        assert_eq!(node.program().lines_from(place, "down"), Vec::<String>::new());
    }
    assert_eq!(field.hub.report()["admitted"], 3);
}

/// VPN-01: of two nodes with one key the later one has the session, and keeps it; the former is told, and does
/// not take it back.
#[test]
fn the_later_of_two_sessions_of_a_key_stays() {
    let mut field = Field::up(STAND);
    field.wait_reach(B, A, BOUND);
    let place = field.nodes[A].program().said();
    // A's key where C was.
    field.nodes[C].program = None;
    let later = field.program_of(A, &field.nodes[C].ground, SocketAddr::V4(HUB));
    later.wait("up ", BOUND);
    field.nodes[A].program().wait_from(place, "down superseded", BOUND);
    let from_c = |field: &Field| {
        field.hub.remote_of("a").is_some_and(|at| at.starts_with(&field.nodes[C].underlay.to_string()))
    };
    assert!(from_c(&field), "{}", field.hub.report());
    // The former one stays away although it has nothing else to do.
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_secs(5) {
        assert!(from_c(&field), "{}", field.hub.report());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(later.lines_from(0, "down"), Vec::<String>::new());
}

/// VPN-01: a node that was killed and dials anew is reached at once, although its former session has not been
/// idle long enough to end.
#[test]
fn a_node_that_was_killed_is_reached_as_soon_as_it_is_back() {
    let mut field = Field::up(STAND);
    field.wait_reach(B, A, BOUND);
    field.nodes[A].program = None;
    assert_eq!(field.hub.report()["sessions"], 3, "the former session is there still");
    field.start(A);
    field.nodes[A].program().wait("up ", BOUND);
    field.wait_reach(B, A, Duration::from_secs(2));
    assert_eq!(field.hub.report()["sessions"], 3);
    assert_eq!(field.hub.report()["ended"]["superseded"], 1);
}
