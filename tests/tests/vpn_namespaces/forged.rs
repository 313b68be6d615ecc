//! Packets with an address that is not the sender's, and packets for nobody.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

use coreflow_tests::field::wire::{Wire, holds};
use coreflow_tests::field::{Field, HUB_CONTROL, TUN, packet};

use crate::{A, B, BOUND, STAND};

/// What a forged packet carries, so that it is known wherever it turns up.
const MARK: &[u8] = b"forged, and to be seen nowhere";
/// Sent behind the forged ones on the same way; when it has come, they have been judged.
const FENCE: &[u8] = b"honest, and behind the others";

/// Sends these packets from A and then an honest one to B, and gives how many of them B's device had.
fn seen_at_b(field: &Field, packets: &[Vec<u8>]) -> usize {
    let (a, b) = (&field.nodes[A], &field.nodes[B]);
    let (out, seen) = (Wire::on(&a.ground, TUN), Wire::on(&b.ground, TUN));
    for packet in packets {
        out.send(packet);
    }
    // Of a flow of its own, so that the device joins it with none of the others.
    let (from, to) = (SocketAddrV4::new(a.address, 2), SocketAddrV4::new(b.address, 10));
    let mut passed = 0;
    // In one tunnel datagrams keep their order, but none is sent again.
    for _ in 0..50 {
        out.send(&packet::udp(from, to, FENCE));
        let until = Instant::now() + BOUND / 20;
        while let Some(packet) = seen.wait(until.saturating_duration_since(Instant::now()), |_| true) {
            // Packets of one flow can pass as one.
            passed += packet.windows(MARK.len()).filter(|window| *window == MARK).count();
            if holds(&packet, FENCE) {
                return passed;
            }
        }
    }
    panic!("the honest packet did not come: {}", field.hub.report());
}

/// VPN-06: a packet whose source is not the sender's own address or range reaches nobody, whoever's address it
/// is: nobody's, the receiver's, a third member's, the hub's, or none at all. Each is counted, and the sender's
/// honest packets go on.
#[test]
fn a_source_that_is_not_the_senders_reaches_nobody() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let b = &field.nodes[B];
    let sources = [
        Ipv4Addr::new(10, 99, 0, 77),
        Ipv4Addr::new(192, 0, 2, 7),
        b.address,
        b.behind,
        field.nodes[2].address,
        field.nodes[2].behind,
        HUB_CONTROL,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::BROADCAST,
    ];
    let to = SocketAddrV4::new(b.address, 9);
    let forged: Vec<_> =
        sources.iter().map(|from| packet::udp(SocketAddrV4::new(*from, 1), to, MARK)).collect();
    let before = field.hub.dropped("source-foreign");
    assert_eq!(seen_at_b(&field, &forged), 0);
    let counted = field.hub.dropped("source-foreign") - before;
    assert_eq!(counted, u64::try_from(forged.len()).unwrap(), "{}", field.hub.report());
    // The control: from A's own address and from the range behind it the same packet does pass.
    let own = [field.nodes[A].address, field.nodes[A].behind];
    let honest: Vec<_> = own.iter().map(|from| packet::udp(SocketAddrV4::new(*from, 1), to, MARK)).collect();
    assert_eq!(seen_at_b(&field, &honest), own.len());
}

/// VPN-06: an ICMP error passes only with the sender's own source and about a packet that its receiver sent to it;
/// and no packet with a foreign source teaches the hub anything.
#[test]
fn an_error_about_others_packets_reaches_nobody() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let (a, b, elsewhere) = (field.nodes[A].address, field.nodes[B].address, Ipv4Addr::new(192, 0, 2, 7));
    let sent = |from, to| packet::udp(SocketAddrV4::new(from, 1), SocketAddrV4::new(to, 2), MARK);
    let before = ["source-foreign", "quoted-foreign"].map(|reason| field.hub.dropped(reason));
    let forged = packet::unreachable(elsewhere, b, &sent(b, elsewhere));
    let about_others = packet::unreachable(a, b, &sent(b, elsewhere));
    assert_eq!(seen_at_b(&field, &[forged, about_others]), 0);
    let after = ["source-foreign", "quoted-foreign"].map(|reason| field.hub.dropped(reason));
    assert_eq!(after, before.map(|before| before + 1), "{}", field.hub.report());
    // The control: one about what B did send to A.
    assert_eq!(seen_at_b(&field, &[packet::unreachable(a, b, &sent(b, a))]), 1);
    // A thousand honest packets behind one with a foreign source: nothing was learned of it.
    let foreign = packet::udp(SocketAddrV4::new(b, 1), SocketAddrV4::new(b, 9), b"foreign");
    let honest = packet::udp(SocketAddrV4::new(a, 1), SocketAddrV4::new(b, 9), MARK);
    let before = field.hub.dropped("source-foreign");
    for _ in 0..10 {
        let burst: Vec<_> =
            std::iter::once(foreign.clone()).chain(std::iter::repeat_n(honest.clone(), 100)).collect();
        assert_eq!(seen_at_b(&field, &burst), 100);
    }
    assert_eq!(field.hub.dropped("source-foreign") - before, 10);
}

/// VPN-01, VPN-06: a packet for no member, for the hub, for everybody or for a group goes nowhere, is counted by
/// its reason, and changes nothing for the others.
#[test]
fn a_packet_for_nobody_goes_nowhere() {
    let field = Field::up(STAND);
    field.wait_reach(A, B, BOUND);
    let a = SocketAddrV4::new(field.nodes[A].address, 1);
    let to = |address: [u8; 4]| packet::udp(a, SocketAddrV4::new(Ipv4Addr::from(address), 9), MARK);
    let unknown = [[10, 99, 0, 200], [10, 200, 0, 1], [192, 0, 2, 1]].map(to);
    let special = [
        HUB_CONTROL.octets(),
        [10, 99, 0, 0],
        [10, 99, 0, 255],
        [255; 4],
        [224, 0, 0, 1],
        [127, 0, 0, 1],
        [0; 4],
    ]
    .map(to);
    let before = ["destination-unknown", "destination-special"].map(|reason| field.hub.dropped(reason));
    assert_eq!(seen_at_b(&field, &unknown), 0);
    assert_eq!(seen_at_b(&field, &special), 0);
    let after = ["destination-unknown", "destination-special"].map(|reason| field.hub.dropped(reason));
    // The hosts' own chatter may add to it.
    assert!(after[0] >= before[0] + 3 && after[1] >= before[1] + 7, "{before:?} {after:?}");
}
