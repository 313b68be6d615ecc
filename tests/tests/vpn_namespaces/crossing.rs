//! What a network of three nodes is for.

use std::net::SocketAddrV4;

use coreflow_tests::field::Field;
use coreflow_tests::field::traffic::{Echo, round_trip};

use crate::{A, B, BOUND, C, STAND};

/// VPN-01, VPN-04, VPN-08: pings, datagrams and streams cross between every two nodes, to their own addresses and
/// to the ranges behind them, and there is no other way than the hub: the nodes' networks share no route.
#[test]
fn ping_tcp_and_udp_cross_between_every_two_nodes() {
    let field = Field::up(STAND);
    for (from, to) in [(A, B), (B, C), (C, A)] {
        let (near, far) = (&field.nodes[from], &field.nodes[to]);
        field.wait_reach(from, to, BOUND);
        let (received, said) =
            near.ground.ping(&["-c", "3", "-i", "0.05", "-W", "5", &far.address.to_string()]);
        assert_eq!(received, 3, "{said}");
        let within = ["-c", "1", "-W", "5", "-I", &near.behind.to_string(), &far.behind.to_string()];
        let (received, said) = near.ground.ping(&within);
        assert_eq!(received, 1, "from the range behind one node to that behind the other: {said}");
        let at = SocketAddrV4::new(far.address, 7_001);
        let _echo = Echo::at(&far.ground, at);
        round_trip(&mut near.ground.connect(at), 1 << 20, BOUND);
    }
    for (from, to) in [(A, B), (B, C), (C, A)] {
        let (received, said) =
            field.nodes[from].ground.ping(&["-c", "1", "-W", "1", &field.nodes[to].underlay.to_string()]);
        assert_eq!(received, 0, "the nodes reach each other past the hub: {said}");
    }
}

/// VPN-02: while it relays, the hub's network has the links and routes that it had before, and the kernel there
/// forwards nothing.
#[test]
fn the_hub_makes_no_device_no_route_and_no_rule() {
    let idle = Field::idle(STAND, 1500);
    let shown = |field: &Field| {
        ["link", "route", "rule"].map(|what| field.ground.ip(&["-oneline", what, "show"]).lines().count())
    };
    let before = shown(&idle);
    drop(idle);
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    assert_eq!(shown(&field), before);
    let forwards = field.ground.inside(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")).unwrap();
    assert_eq!(forwards.trim(), "0");
    let layers = field.hub.program.lines_from(0, "confined ");
    assert!(layers.iter().any(|layer| layer.contains("seccomp")), "{layers:?}");
}
