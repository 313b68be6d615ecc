//! Ways between a node and the hub that are narrow, become so, or change.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use coreflow_tests::field::traffic::{Echo, Sink, Stream, round_trip};
use coreflow_tests::field::translator::Translator;
use coreflow_tests::field::{Field, HUB, TUN, UPLINK};

use crate::{A, B, BOUND, C, STAND};

const PORT: u16 = 9_000;
/// IPv4 and ICMP headers of a ping.
const PING_HEADERS: u32 = 28;
/// An address that A's network can have on the way to the hub beside its own.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 9);

/// The inner MTU that a node was given.
fn inner_mtu(field: &Field, node: usize) -> u32 {
    let shown = field.nodes[node].ground.ip(&["link", "show", TUN]);
    shown.split("mtu ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap()
}

/// Full-size packets cross, whole or in parts, or their sender is told; and so does a stream of a megabyte.
fn full_size_packets_cross(field: &Field) {
    let (a, b) = (&field.nodes[A], &field.nodes[B]);
    let mtu = inner_mtu(field, A);
    assert!(mtu >= 1280, "{mtu}");
    let size = (mtu - PING_HEADERS).to_string();
    let to = b.address.to_string();
    for fragment in ["do", "dont"] {
        let words = ["-M", fragment, "-s", &size, "-c", "4", "-i", "0.2", "-W", "5", &to];
        let (received, said) = a.ground.ping(&words);
        let told = said.contains("rag needed") || said.contains("essage too long");
        assert!(received >= 3 || (fragment == "do" && told), "{fragment}: {said}\n{}", field.hub.report());
    }
    let at = SocketAddrV4::new(b.address, PORT + 1);
    let _echo = Echo::at(&b.ground, at);
    round_trip(&mut a.ground.connect(at), 1 << 20, BOUND);
}

/// VPN-01: on a link of 1500 bytes every full-size packet crosses from the first one on.
#[test]
fn full_size_packets_cross_an_ordinary_link() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    full_size_packets_cross(&field);
}

/// VPN-01: on a link of 1400 bytes, which carries no full-size packet in one piece, nothing is lost in silence.
#[test]
fn full_size_packets_cross_a_link_of_1400_bytes() {
    let field = Field::with_links(STAND, 1400);
    field.wait_reach(A, B, BOUND);
    full_size_packets_cross(&field);
}

/// VPN-01: the same on a link of 1280 bytes, the least that IPv6 has.
#[test]
fn full_size_packets_cross_a_link_of_1280_bytes() {
    let field = Field::with_links(STAND, 1280);
    field.wait_reach(A, B, BOUND);
    full_size_packets_cross(&field);
}

/// VPN-01: a stream goes on when its path becomes narrower under it, at either end.
#[test]
fn a_stream_survives_a_path_that_shrinks_under_it() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let at = SocketAddrV4::new(field.nodes[B].address, PORT);
    let _echo = Echo::at(&field.nodes[B].ground, at);
    let mut stream = field.nodes[A].ground.connect(at);
    round_trip(&mut stream, 4 << 20, BOUND);
    for (node, towards) in [(A, "to-a"), (B, "to-b")] {
        field.ground.ip(&["link", "set", towards, "mtu", "1300"]);
        field.nodes[node].ground.ip(&["link", "set", UPLINK, "mtu", "1300"]);
        round_trip(&mut stream, 4 << 20, 2 * BOUND);
    }
    full_size_packets_cross(&field);
}

/// VPN-01: devices that take no segments any more, at either end and while a stream runs, cost speed alone.
#[test]
fn a_stream_survives_devices_that_refuse_segments() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let at = SocketAddrV4::new(field.nodes[B].address, PORT);
    let _echo = Echo::at(&field.nodes[B].ground, at);
    let mut stream = field.nodes[A].ground.connect(at);
    round_trip(&mut stream, 1 << 20, BOUND);
    for (ground, device) in
        [(&field.ground, "to-b"), (&field.ground, "to-a"), (&field.nodes[A].ground, UPLINK)]
    {
        // Without the device's checksums a kernel refuses a send of several datagrams, or takes them apart itself.
        ground.ethtool(&["--features", device, "tx", "off"]);
        round_trip(&mut stream, 4 << 20, 2 * BOUND);
    }
    full_size_packets_cross(&field);
}

/// VPN-01: when a router forgets a binding, a stream through it goes on from the new port, and from the new
/// address; the hub sees the session where it now is, and its node is not told to dial again.
#[test]
fn a_session_follows_a_node_whose_port_and_address_change() {
    let mut field = Field::idle(STAND, 1500);
    field.nodes[A].ground.ip(&["address", "add", &format!("{OTHER}/24"), "dev", UPLINK]);
    let translator = Translator::in_front(&field.nodes[A].ground, field.nodes[A].underlay);
    field.start_behind(A, translator.near());
    field.start(B);
    field.nodes[A].program().wait("up ", BOUND);
    field.nodes[B].program().wait("up ", BOUND);
    field.wait_reach(A, B, BOUND);
    let place = field.nodes[A].program().said();
    let at = SocketAddrV4::new(field.nodes[B].address, PORT);
    let _echo = Echo::at(&field.nodes[B].ground, at);
    let mut stream = field.nodes[A].ground.connect(at);
    for outside in [field.nodes[A].underlay, OTHER] {
        round_trip(&mut stream, 1 << 20, BOUND);
        let former = translator.outside();
        translator.rebind(&field.nodes[A].ground, outside);
        let now = translator.outside();
        assert_ne!(former, now);
        round_trip(&mut stream, 1 << 20, BOUND);
        assert_eq!(field.hub.remote_of("a"), Some(now.to_string()));
    }
    assert_eq!(field.nodes[A].program().lines_from(place, "down"), Vec::<String>::new());
}

/// VPN-01: a node whose own address is replaced under it is reached at the new one.
#[test]
fn a_node_roams_to_another_address() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let ground = &field.nodes[A].ground;
    ground.set(&format!("net.ipv4.conf.{UPLINK}.promote_secondaries"), "1");
    ground.ip(&["address", "add", &format!("{OTHER}/24"), "dev", UPLINK]);
    ground.ip(&["address", "delete", &format!("{}/24", field.nodes[A].underlay), "dev", UPLINK]);
    ground.ip(&["route", "replace", &HUB.ip().to_string(), "via", "10.77.1.1"]);
    field.wait_reach(A, B, BOUND);
    field.wait_reach(B, A, BOUND);
    let remote: SocketAddr = field.hub.remote_of("a").unwrap().parse().unwrap();
    assert_eq!(remote.ip(), OTHER);
}

/// VPN-01: what was overheard and is sent again from another address, and noise, change nothing: the path stays
/// where the node is, nothing arrives twice, and nobody's packets are lost.
#[test]
fn replays_and_noise_from_elsewhere_change_nothing() {
    let mut field = Field::idle(STAND, 1500);
    let translator = Translator::in_front(&field.nodes[A].ground, field.nodes[A].underlay);
    translator.keep();
    field.start_behind(A, translator.near());
    field.start(B);
    field.nodes[A].program().wait("up ", BOUND);
    field.nodes[B].program().wait("up ", BOUND);
    field.wait_reach(A, B, BOUND);
    let sink = Sink::at(&field.nodes[B].ground, PORT);
    let at = SocketAddrV4::new(field.nodes[B].address, PORT);
    let stream = Stream::paced(&field.nodes[A].ground, at);
    sink.wait(400, BOUND);
    let forwarded = field.hub.report()["forwardedPackets"].as_u64().unwrap();

    // The whole conversation from its first datagram on, then each with one bit turned, then noise.
    let attacker = field.nodes[C].ground.udp(SocketAddrV4::new(field.nodes[C].underlay, 0));
    let kept = translator.kept();
    assert!(kept.len() > 50, "{} datagrams", kept.len());
    let mut noise = kept.clone();
    for (at, datagram) in noise.iter_mut().enumerate() {
        let bit = at % (datagram.len() * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..1400_usize {
        let mut random = vec![0; length];
        getrandom::fill(&mut random).unwrap();
        noise.push(random);
    }
    for datagram in kept.iter().chain(&noise) {
        attacker.send_to(datagram, HUB).unwrap();
    }
    let sent = stream.stop();
    sink.wait(sent - 1, BOUND);
    assert_eq!(sink.numbers().len(), usize::try_from(sent).unwrap(), "packets were lost");
    assert_eq!(field.hub.remote_of("a"), Some(translator.outside().to_string()));
    // Each packet of the stream once, and the little that the hosts say by themselves.
    let since = field.hub.report()["forwardedPackets"].as_u64().unwrap() - forwarded;
    assert!(since <= u64::from(sent) + 20, "{since} packets were forwarded of {sent}");
    field.wait_reach(B, A, Duration::from_secs(5));
}
