use std::sync::Arc;

use coreflow_ipc::messages::vpn_network::Grants;
use proptest::prelude::*;

use super::*;
use crate::hub::sample::{member, network, prefix, snapshot};

/// Members 0, 1 and 2 have sessions, 3 has none; 0 and 1 may send to each other, 0 to 3 and to itself, 1 to 2.
fn view() -> View {
    let mut snapshot = snapshot(1, (0..4).map(|number| member(number, 1_900_000_000_000)).collect());
    snapshot.members[2].prefixes.push(prefix([127, 0, 0, 0], 8));
    snapshot.grants = Grants::none(4);
    for (from, to) in [(0, 1), (1, 0), (0, 3), (0, 0), (1, 2), (0, 2)] {
        snapshot.grants.grant(from, to);
    }
    View::new(network(snapshot), vec![Some(70), Some(71), Some(72), None])
}

fn packet(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend(source);
    packet.extend(destination);
    packet.extend(payload);
    let length = u16::try_from(packet.len()).unwrap();
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet
}

fn judged(from: usize, source: [u8; 4], destination: [u8; 4]) -> Result<usize, Reason> {
    judge(&view(), from, &packet(source, destination, 17, b"12345678")).map(|onward| onward.to)
}

/// VPN-01, VPN-06: a packet goes from a member's own addresses to the member that has the destination.
#[test]
fn a_packet_goes_to_whom_it_is_for() {
    for (source, destination) in [
        ([10, 8, 0, 2], [10, 8, 0, 3]),
        ([10, 8, 0, 2], [10, 101, 9, 9]),
        ([10, 100, 0, 0], [10, 101, 255, 255]),
    ] {
        assert_eq!(judged(0, source, destination), Ok(1));
    }
    let onward = judge(&view(), 1, &packet([10, 8, 0, 3], [10, 102, 0, 1], 17, &[])).unwrap();
    assert_eq!((onward.to, onward.session, onward.header.total_length), (2, 72, 20));
}

/// VPN-06: nobody speaks for another, whoever is asked for.
#[test]
fn a_source_that_is_not_the_senders_own_goes_nowhere() {
    for source in [
        [10, 8, 0, 3],
        [10, 101, 0, 1],
        [10, 8, 0, 1],
        [10, 8, 0, 0],
        [10, 8, 0, 255],
        [0, 0, 0, 0],
        [192, 0, 2, 1],
        [255, 255, 255, 255],
        [10, 8, 0, 200],
    ] {
        for destination in [[10, 8, 0, 3], [10, 8, 0, 1], [192, 0, 2, 1]] {
            assert_eq!(judged(0, source, destination), Err(Reason::SourceForeign), "{source:?}");
        }
    }
    // A prefix makes nobody the owner of what is special.
    assert_eq!(judged(2, [127, 0, 0, 1], [10, 8, 0, 2]), Err(Reason::SourceForeign));
}

/// VPN-16, VPN-06: each direction needs its own grant, and a member that is not there takes nothing.
#[test]
fn without_a_grant_or_a_session_nothing_goes() {
    for (from, destination, reason) in [
        (0, [10, 8, 0, 1], Reason::DestinationSpecial),
        (0, [10, 8, 0, 0], Reason::DestinationSpecial),
        (0, [10, 8, 0, 255], Reason::DestinationSpecial),
        (0, [255, 255, 255, 255], Reason::DestinationSpecial),
        (0, [224, 0, 0, 1], Reason::DestinationSpecial),
        (0, [127, 0, 0, 1], Reason::DestinationSpecial),
        (0, [0, 0, 0, 0], Reason::DestinationSpecial),
        (0, [10, 8, 0, 77], Reason::DestinationUnknown),
        (0, [192, 0, 2, 1], Reason::DestinationUnknown),
        (0, [10, 8, 0, 2], Reason::ToItself),
        (0, [10, 100, 7, 7], Reason::ToItself),
        (2, [10, 8, 0, 3], Reason::NoGrant),
        (2, [10, 8, 0, 2], Reason::NoGrant),
        (0, [10, 8, 0, 5], Reason::NoSession),
        (0, [10, 103, 0, 5], Reason::NoSession),
    ] {
        let source = [10, 8, 0, u8::try_from(from).unwrap() + 2];
        assert_eq!(judged(from, source, destination), Err(reason), "{destination:?}");
    }
    assert_eq!(judged(1, [10, 8, 0, 3], [10, 8, 0, 4]), Ok(2));
    assert_eq!(judge(&view(), 0, b"\x45 no packet"), Err(Reason::Malformed));
}

/// VPN-06: a right source outside and a wrong one in what an ICMP error quotes goes nowhere.
#[test]
fn an_icmp_error_is_about_a_packet_that_its_receiver_sent_to_its_sender() {
    let error = |kind: u8, quoted: &[u8]| {
        let mut payload = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        payload.extend(quoted);
        packet([10, 8, 0, 2], [10, 8, 0, 3], ICMP, &payload)
    };
    let judged = |packet: &[u8]| judge(&view(), 0, packet).map(|onward| onward.to);
    let honest = packet([10, 101, 0, 9], [10, 100, 4, 4], 6, b"12345678");
    for kind in ERRORS {
        assert_eq!(judged(&error(kind, &honest)), Ok(1));
        for (source, destination) in [
            ([10, 102, 0, 1], [10, 8, 0, 2]),
            ([10, 8, 0, 2], [10, 8, 0, 2]),
            ([10, 8, 0, 3], [10, 8, 0, 4]),
            ([10, 8, 0, 3], [192, 0, 2, 1]),
        ] {
            let forged = packet(source, destination, 6, b"12345678");
            assert_eq!(judged(&error(kind, &forged)), Err(Reason::QuotedForeign));
        }
        assert_eq!(judged(&error(kind, &honest[..19])), Err(Reason::QuotedForeign));
    }
    // Echo quotes nothing, and only a first fragment says what it is.
    assert_eq!(judged(&error(8, b"anything")), Ok(1));
    assert_eq!(judged(&packet([10, 8, 0, 2], [10, 8, 0, 3], ICMP, &[])), Ok(1));
    let mut fragment = packet([10, 8, 0, 2], [10, 8, 0, 3], ICMP, &[]);
    fragment[6] = 0x20;
    assert_eq!(judged(&fragment), Err(Reason::Malformed));
}

proptest! {
    /// VPN-06: whatever bytes a member sends, what goes on is from its own address, along a grant, to the owner.
    #[test]
    fn what_goes_on_was_allowed(
        from in 0_usize..4,
        source in (0_u8..8, any::<u8>()),
        destination in (0_u8..8, any::<u8>()),
        bytes in proptest::collection::vec(any::<u8>(), 20..80),
        shape in any::<bool>(),
    ) {
        let view = Arc::new(view());
        let mut bytes = bytes;
        if shape {
            bytes[0] = 0x45;
            bytes[2..4].copy_from_slice(&20_u16.to_be_bytes());
            let address = |(kind, low): (u8, u8)| match kind {
                0..4 => [10, 8, 0, kind + 2],
                _ => [10, 96 + kind, low, 1],
            };
            bytes[12..16].copy_from_slice(&address(source));
            bytes[16..20].copy_from_slice(&address(destination));
        }
        if let Ok(onward) = judge(&view, from, &bytes) {
            prop_assert!(view.network().routes().owns(from, onward.header.source));
            prop_assert!(view.network().routes().owns(onward.to, onward.header.destination));
            prop_assert!(view.network().granted(from, onward.to) && onward.to != from);
            prop_assert_eq!(view.session(onward.to), Some(onward.session));
        }
    }
}
