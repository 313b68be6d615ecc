//! Packets of every size on legs of every room.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::protocol::{
    fragments::Reassembly,
    frame::Frame,
    ipv4::{Header, checksum},
};

/// A packet with a right checksum: `options` in its header, then `length` bytes that tell their places.
fn packet(options: &[u8], length: usize, fragment: u16) -> Bytes {
    assert!(options.len().is_multiple_of(4));
    let header = SHORTEST_HEADER + options.len();
    let mut packet = vec![0; header];
    packet[0] = 0x40 | u8::try_from(header / 4).unwrap();
    packet[2..4].copy_from_slice(&u16::try_from(header + length).unwrap().to_be_bytes());
    packet[4..6].copy_from_slice(&[0xab, 0xcd]);
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..].copy_from_slice(options);
    ipv4::seal(&mut packet);
    packet.extend((0..length).map(|at| u8::try_from(at % 251).unwrap()));
    Bytes::from(packet)
}

fn planned(packet: &Bytes, room: usize) -> Plan {
    plan(packet, &Header::parse(packet).unwrap(), room, &mut FragmentIds::default())
}

const DONT_FRAGMENT: u16 = 0x4000;

/// The table of a path that starts at 1200 bytes, and of smaller and larger ones.
#[test]
fn a_packet_goes_whole_in_two_or_tells_its_sender() {
    let large = packet(&[], 1360, DONT_FRAGMENT);
    assert_eq!(planned(&large, 1380), Plan::Whole);
    let Plan::Two([first, second]) = planned(&large, 1379) else { panic!("it fits in two") };
    assert_eq!((first.len(), second.len()), (694, 694));
    assert!(matches!(planned(&large, 694), Plan::Two(_)));
    assert_eq!(planned(&large, 693), Plan::TooBig { mtu: 1378 });
    let giant = packet(&[], 8980, DONT_FRAGMENT);
    assert_eq!(planned(&giant, 1162), Plan::TooBig { mtu: INNER_MTU });
    assert_eq!(planned(&giant, 0), Plan::TooBig { mtu: 0 });
    let Plan::Pieces(pieces) = planned(&packet(&[], 4544, 0), 1162) else { panic!("it may be fragmented") };
    assert_eq!(pieces.len(), MOST_PIECES);
    assert_eq!(planned(&packet(&[], 4545, 0), 1162), Plan::TooBig { mtu: INNER_MTU }, "a fifth piece");
    // A leg on which a packet would become hundreds takes none of them.
    assert_eq!(planned(&packet(&[], 1360, 0), 36), Plan::TooBig { mtu: 64 });
    assert_eq!(planned(&packet(&[], 1100, 0), 531), Plan::TooBig { mtu: 1054 });
    assert!(matches!(planned(&packet(&[], 1100, 0), 532), Plan::Pieces(_)));
}

#[test]
fn bytes_behind_the_packet_take_no_frame() {
    let packet = packet(&[], 1100, DONT_FRAGMENT);
    let trailed = Bytes::from([&packet[..], &[0xee; 400]].concat());
    let Plan::Two([first, second]) = planned(&trailed, 1162) else { panic!("it is longer than the room") };
    assert_eq!([&first[4..], &second[4..]].concat(), packet);
}

#[test]
fn ids_follow_each_other_and_come_round() {
    let mut ids = FragmentIds(u16::MAX);
    assert_eq!([ids.next(), ids.next()], [u16::MAX, 0]);
}

/// RFC 791: an option is repeated in every fragment if its first bit says so.
#[test]
fn options_are_repeated_only_if_they_say_so() {
    let options = [
        0x01, // nothing
        0x44, 4, 5, 0, // a timestamp: not repeated
        0x83, 7, 4, 10, 0, 0, 9, // a source route: repeated
    ];
    let Plan::Pieces(pieces) = planned(&packet(&options, 2000, 0), 600) else { panic!("fragmented") };
    assert_eq!(&pieces[0][20..32], &options);
    assert_eq!(Header::parse(&pieces[1]).unwrap().header_length, 28);
    assert_eq!(&pieces[1][20..28], &[0x83, 7, 4, 10, 0, 0, 9, 0]);
    for impossible in [[0x83, 1, 0, 0], [0x83, 9, 0, 0], [0x83, 0, 0, 0], [1, 1, 1, 0x83]] {
        let Plan::Pieces(pieces) = planned(&packet(&impossible, 2000, 0), 600) else { panic!("fragmented") };
        assert_eq!(Header::parse(&pieces[1]).unwrap().header_length, 20);
    }
}

/// A header that nobody read, with an offset that comes round in its pieces.
#[test]
fn an_offset_does_not_come_round() {
    let mut whole = packet(&[], 2_400, 0).to_vec();
    let header = Header { fragment_offset: 8_000, ..Header::parse(&whole).unwrap() };
    whole[6..8].copy_from_slice(&8_000_u16.to_be_bytes());
    let planned = plan(&whole.into(), &header, 1_162, &mut FragmentIds::default());
    assert_eq!(planned, Plan::TooBig { mtu: INNER_MTU });
}

/// An error of ICMP stays in one piece, so that what it quotes can be judged; an echo need not.
#[test]
fn an_icmp_error_is_not_taken_apart() {
    for (kind, whole) in [(3, true), (5, true), (11, true), (8, false), (0, false)] {
        let mut echo = packet(&[], 3_000, 0).to_vec();
        (echo[9], echo[20]) = (ipv4::ICMP, kind);
        let planned = planned(&echo.into(), 1_162);
        assert_eq!(matches!(planned, Plan::TooBig { .. }), whole, "{kind}");
    }
}

/// What a receiving host makes of fragments: each put where its header says.
fn put_together(pieces: &[Bytes], start: u16) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    let mut last = false;
    for piece in pieces {
        let header = Header::parse(piece).unwrap();
        assert_eq!(checksum(&piece[..header.header_length]), 0);
        assert_eq!(header.total_length, piece.len());
        assert_eq!(&piece[4..6], &[0xab, 0xcd]);
        assert!(!last, "nothing follows the last");
        assert_eq!(usize::from(header.fragment_offset - start) * 8, body.len());
        body.extend_from_slice(&piece[header.header_length..]);
        last = !header.more_fragments;
    }
    (body, last)
}

proptest! {
    /// Whatever the size, the packet that comes out on the other side is the one that went in, byte for byte.
    #[test]
    fn a_split_packet_comes_back(
        length in 0_usize..3000, room in 0_usize..3100, reversed: bool,
    ) {
        let packet = packet(&[], length, DONT_FRAGMENT);
        match planned(&packet, room) {
            Plan::Whole => prop_assert!(packet.len() <= room),
            Plan::Two(mut frames) => {
                prop_assert!(packet.len() > room && frames.iter().all(|frame| frame.len() <= room));
                if reversed {
                    frames.reverse();
                }
                let (mut reassembly, now) = (Reassembly::default(), Instant::now());
                let mut whole = None;
                for frame in &frames {
                    let Frame::Fragment(fragment) = Frame::decode(frame) else { panic!("no fragment") };
                    prop_assert_eq!(&whole, &None);
                    whole = reassembly.take(fragment, now);
                }
                prop_assert_eq!(whole, Some(packet));
            }
            Plan::TooBig { mtu } => {
                prop_assert!(packet.len() > usize::from(mtu));
                prop_assert!(usize::from(mtu) <= 2 * room.saturating_sub(4));
            }
            Plan::Pieces(_) => prop_assert!(false, "it may not be fragmented"),
        }
    }

    /// IPv4 fragments have right headers, fit, and are the packet again; also those of a fragment.
    #[test]
    fn a_fragmented_packet_comes_back(
        length in 0_usize..9000, room in 0_usize..1500, words in 0_usize..4,
        back in 0_u16..8190, more: bool,
    ) {
        let longest = LONGEST_PACKET - 20 - 4 * words - length;
        let offset = u16::try_from(longest / 8).unwrap().saturating_sub(back);
        let options: Vec<u8> = [0x83, 4, 4, 0].repeat(words);
        let fragment = u16::from(more) << 13 | offset;
        let whole = packet(&options, if more { length & !7 } else { length }, fragment);
        match planned(&whole, room) {
            Plan::Whole | Plan::Two(_) => {}
            Plan::TooBig { .. } => {
                let body = room.saturating_sub(20 + options.len()) & !7;
                prop_assert!(body < LEAST_PIECE || length > MOST_PIECES * body);
            }
            Plan::Pieces(pieces) => {
                prop_assert!(pieces.len() <= MOST_PIECES);
                prop_assert!(pieces.iter().all(|piece| piece.len() <= room));
                let (body, last) = put_together(&pieces, offset);
                prop_assert_eq!(&body[..], &whole[20 + options.len()..]);
                prop_assert_eq!(last, !more);
            }
        }
    }
}
