use std::sync::Arc;

use coreflow_ipc::messages::vpn_network::Grants;
use proptest::prelude::*;

use super::*;
use crate::{
    hub::sample::{member, network, prefix, snapshot},
    protocol::egress::{FragmentIds, Plan, plan},
};

/// Members 0, 1 and 2 have sessions, 3 has none; 0 and 1 may send to each other, 0 to 3 and to itself, 1 to 2.
fn view() -> View {
    let mut snapshot = snapshot(1, (0..4).map(|number| member(number, 1_900_000_000_000)).collect());
    snapshot.members[2].prefixes.push(prefix([127, 0, 0, 0], 8));
    snapshot.grants = Grants::none(4);
    for (from, to) in [(0, 1), (1, 0), (0, 3), (0, 0), (1, 2), (0, 2)] {
        snapshot.grants.grant(from, to);
    }
    View::new(network(snapshot), [Some(70), Some(71), Some(72), None].into_iter().collect())
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

/// VPN-06: a host puts together what nobody judged as a whole, so an ICMP error comes in one piece, and nothing is
/// laid over where one would quote.
#[test]
fn an_icmp_error_in_pieces_goes_nowhere() {
    let judged = |kind: u8, fragment: u16| {
        let mut payload = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        payload.extend(packet([10, 101, 0, 9], [10, 100, 4, 4], 6, b"12345678"));
        let mut packet = packet([10, 8, 0, 2], [10, 8, 0, 3], ICMP, &payload);
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        judge(&view(), 0, &packet).map(|onward| onward.to)
    };
    for kind in ERRORS {
        assert_eq!(judged(kind, 0), Ok(1));
        assert_eq!(judged(kind, 0x2000), Err(Reason::QuotedForeign));
    }
    assert_eq!(judged(8, 0x2000), Ok(1), "an echo quotes nothing");
    for (offset, expected) in [
        (1, Err(Reason::QuotedForeign)),
        (3, Err(Reason::QuotedForeign)),
        (4, Ok(1)),
        (8_000, Ok(1)),
        (8_185, Err(Reason::Malformed)),
    ] {
        assert_eq!((judged(8, offset), judged(3, 0x2000 | offset)), (expected, expected), "{offset}");
    }
}

/// VPN-06: the hub takes nothing apart into what it would not let through. This one's third piece, with an offset
/// that comes round to 0, would be a whole ICMP error about the receiver's own packet to a third.
#[test]
fn no_piece_is_a_packet_that_was_not_judged() {
    for room in [1_162, 1_357, 1_414] {
        let body = (room - 20) & !7;
        let mut payload = vec![0; 2 * body + 38];
        payload[2 * body..2 * body + 9].copy_from_slice(&[3, 4, 0, 0, 0, 0, 0, 0, 0x45]);
        payload[2 * body + 20..2 * body + 28].copy_from_slice(&[10, 8, 0, 3, 10, 8, 0, 4]);
        let mut packet = packet([10, 8, 0, 2], [10, 8, 0, 3], ICMP, &payload);
        let offset = 8_192 - u16::try_from(2 * body / 8).unwrap();
        packet[6..8].copy_from_slice(&offset.to_be_bytes());
        assert_eq!(judge(&view(), 0, &packet), Err(Reason::Malformed));
    }
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
            let total = u16::try_from(bytes.len()).unwrap();
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
            // Of the first of a fragment's bytes, and of ICMP, there are enough.
            bytes[9] = if bytes[9] < 128 { ICMP } else { bytes[9] };
            if bytes[8] < 128 {
                bytes[6..8].fill(0);
            }
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

    /// VPN-06: whatever becomes of what goes on, each piece of it would have gone on by itself, to the same member,
    /// and no ICMP error is made of pieces.
    #[test]
    fn what_is_made_of_a_packet_was_allowed(
        protocol in prop_oneof![2 => Just(ICMP), 1 => Just(17)],
        kind in prop_oneof![Just(0_u8), Just(3), Just(5), Just(8), Just(11), any::<u8>()],
        quoted in (0_u8..4, 0_u8..4),
        length in prop_oneof![0_usize..80, 0_usize..6_000],
        offset in prop_oneof![Just(0_u16), 0_u16..8, 0_u16..8_192, 7_000_u16..8_192],
        more: bool,
        words in 0_usize..3,
        room in prop_oneof![0_usize..1_500, 1_100_usize..1_500],
        repeat: bool,
    ) {
        let mut payload = vec![0; length];
        let error = [&[kind, 4, 0, 0, 0, 0, 0, 0, 0x45][..], &[0; 11],
            &[10, 8, 0, quoted.0 + 2, 10, 8, 0, quoted.1 + 2]].concat();
        // Also where the pieces begin.
        let body = room.saturating_sub(20 + 4 * words) & !7;
        let starts = if repeat && body > 64 { length.div_ceil(body) } else { 1 };
        for start in (0..starts).map(|number| number * body) {
            for (at, byte) in (start..length).zip(&error) {
                payload[at] = *byte;
            }
        }
        let mut packet = packet([10, 8, 0, 2], [10, 8, 0, 3], protocol, &payload);
        packet.splice(20..20, [0x83, 4, 4, 0].repeat(words));
        packet[0] += u8::try_from(words).unwrap();
        let total = u16::try_from(packet.len()).unwrap();
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[6..8].copy_from_slice(&(u16::from(more) << 13 | offset).to_be_bytes());
        let view = view();
        if let Ok(onward) = judge(&view, 0, &packet) {
            let error = protocol == ICMP && ERRORS.contains(&kind) && length > 0 && offset == 0;
            prop_assert!(!(error && more));
            if error {
                prop_assert_eq!((length >= 28, quoted), (true, (1, 0)));
            }
            if let Plan::Pieces(pieces) = plan(&packet.into(), &onward.header, room, &mut FragmentIds::default()) {
                for piece in pieces {
                    let alone = judge(&view, 0, &piece);
                    prop_assert_eq!(alone.map(|alone| (alone.to, alone.session)), Ok((onward.to, onward.session)));
                    let alone = alone.unwrap().header;
                    prop_assert!(alone.fragment_offset >= offset);
                }
            }
        }
    }
}
