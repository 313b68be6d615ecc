//! A packet of a node on its way through the hub: it goes on only as its sender's own to somebody it may send to, in
//! frames that fit and carry it unchanged; and ICMP is said only to one host, about a packet of its own (VPN-06,
//! VPN-16).
#![no_main]

use std::{net::Ipv4Addr, sync::Arc, sync::LazyLock, time::Instant};

use arbitrary::Arbitrary;
use bytes::Bytes;
use coreflow_ipc::messages::vpn_network::{Grants, Held, Prefix, SNAPSHOT_SCHEMA, Snapshot, SnapshotMember};
use coreflow_vpnd::{
    constants::MOST_PIECES,
    hub::{
        forwarding::{Onward, judge},
        network::Network,
        view::View,
    },
    protocol::{
        egress::{FragmentIds, Plan, plan},
        fragments::Reassembly,
        frame::{Fragment, Frame},
        icmp::{self, fragmentation_needed},
        ipv4::{self, Header, ICMP, checksum, is_unicast},
    },
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    from: u8,
    room: u16,
    mtu: u16,
    datagram: &'a [u8],
}

/// Members 0 to 3 of 10.8.0.0/24 at .2 to .5; 0 has 10.9.0.0/16 besides, and 2 has 203.0.113.0/24. Everybody sends to
/// the next, 0 to everybody, and 3 has no session.
static VIEW: LazyLock<View> = LazyLock::new(|| {
    let prefix = |address: [u8; 4], length| Prefix { address: address.into(), length };
    let prefixes = [vec![prefix([10, 9, 0, 0], 16)], vec![], vec![prefix([203, 0, 113, 0], 24)], vec![]];
    let members = (0_u8..).zip(prefixes).map(|(number, prefixes)| SnapshotMember {
        node_id: format!("node-{number}"),
        public_key: [number + 1; 32],
        address: Ipv4Addr::new(10, 8, 0, number + 2),
        prefixes,
        enabled: true,
        expires_at: "2027-01-01T00:00:00.000Z".to_owned(),
    });
    let mut grants = Grants::none(4);
    for (from, to) in [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (3, 0)] {
        grants.grant(from, to);
    }
    let control_prefix = prefix([10, 8, 0, 0], 24);
    let network = Held { authority: "a".into(), generation: 1, revision: 1, control_prefix, digest: [0; 32] };
    let snapshot = Snapshot { schema_version: SNAPSHOT_SCHEMA, network, members: members.collect(), grants };
    let network = Network::of(snapshot).expect("the network is one");
    View::new(Arc::new(network), [Some(1), Some(2), Some(3), None].into_iter().collect())
});

/// Whose an address is, by the words above.
fn owner(address: Ipv4Addr) -> Option<usize> {
    match address.octets() {
        [10, 8, 0, last @ 2..=5] => Some(usize::from(last - 2)),
        [10, 9, ..] => Some(0),
        [203, 0, 113, _] => Some(2),
        _ => None,
    }
}

fn goes_on_rightly(from: usize, packet: &[u8], onward: &Onward) {
    let Onward { to, session, header } = onward;
    assert_eq!((owner(header.source), owner(header.destination)), (Some(from), Some(*to)));
    assert!(matches!((from, to), (0, 1 | 2) | (1, 2) | (3, 0)), "{from} may not send to {to}");
    assert_eq!(*session, [1, 2, 3][*to]);
    let payload = &packet[header.header_length..header.total_length];
    let error = header.protocol == ICMP
        && header.fragment_offset == 0
        && payload.first().is_some_and(|kind| icmp::ERRORS.contains(kind));
    if error {
        let at = |place: usize| {
            Ipv4Addr::new(payload[place], payload[place + 1], payload[place + 2], payload[place + 3])
        };
        assert!(!header.more_fragments && payload.len() >= 28);
        assert_eq!(
            (owner(at(8 + 12)), owner(at(8 + 16))),
            (Some(*to), Some(from)),
            "an error is about their packet"
        );
    }
}

fn fits(packet: &Bytes, header: &Header, room: usize) {
    let whole = &packet[..header.total_length];
    match plan(packet, header, room, &mut FragmentIds::default()) {
        Plan::Whole => assert!(packet.len() <= room),
        Plan::Two(halves) => {
            let (mut reassembly, now) = (Reassembly::default(), Instant::now());
            let joined = halves.iter().filter_map(|half| {
                assert!(half.len() <= room);
                let Frame::Fragment(fragment) = Frame::decode(half) else { panic!("a half is a fragment") };
                reassembly.take(fragment, now)
            });
            assert_eq!(joined.collect::<Vec<_>>(), [whole]);
        }
        Plan::Pieces(pieces) => {
            assert!(!header.dont_fragment && (2..=MOST_PIECES).contains(&pieces.len()));
            let (mut carried, mut offset) = (Vec::new(), usize::from(header.fragment_offset));
            for (number, piece) in pieces.iter().enumerate() {
                let own = Header::parse(piece).expect("a piece is a packet");
                assert!(piece.len() <= room && own.total_length == piece.len());
                assert_eq!(checksum(&piece[..own.header_length]), 0);
                assert_eq!(
                    (own.source, own.destination, own.protocol),
                    (header.source, header.destination, header.protocol)
                );
                assert_eq!(piece[4..6], whole[4..6], "pieces of one packet have its id");
                assert_eq!(usize::from(own.fragment_offset), offset);
                assert_eq!(own.more_fragments, number + 1 < pieces.len() || header.more_fragments);
                let payload = &piece[own.header_length..];
                offset += payload.len() / 8;
                carried.extend_from_slice(payload);
            }
            assert_eq!(carried, whole[header.header_length..]);
        }
        Plan::TooBig { mtu } => assert!(packet.len() > room && mtu <= 1380),
    }
}

fn is_told_rightly(packet: &[u8], mtu: u16) {
    let hub = Ipv4Addr::new(10, 8, 0, 1);
    let Some(message) = fragmentation_needed(hub, packet, mtu) else { return };
    let about = Header::parse(packet).expect("only a packet is answered");
    let own = Header::parse(&message).expect("what is said is a packet");
    assert_eq!((own.source, own.destination, own.protocol), (hub, about.source, ICMP));
    assert!(message.len() <= 576 && own.total_length == message.len());
    assert_eq!((checksum(&message[..20]), checksum(&message[20..])), (0, 0));
    assert!(message[20..22] == [3, 4] && message[26..28] == mtu.to_be_bytes() && mtu >= 68);
    assert!(
        packet[..about.total_length].starts_with(&message[28..]),
        "it quotes the packet and nothing beyond"
    );
    assert!(about.fragment_offset == 0 && is_unicast(about.source) && is_unicast(about.destination));
    let kind = packet[..about.total_length].get(about.header_length);
    assert!(about.protocol != ipv4::ICMP || kind.is_some_and(|kind| !icmp::ERRORS.contains(kind)));
    assert_eq!(fragmentation_needed(hub, &message, mtu), None, "an error is not answered with another");
}

fuzz_target!(|input: Input<'_>| {
    let datagram = Bytes::copy_from_slice(input.datagram);
    match Frame::decode(&datagram) {
        Frame::Packet(packet) => assert_eq!(*packet, datagram),
        Frame::Fragment(Fragment { id, index, bytes }) => {
            assert_eq!(Fragment::encode(id, index, &bytes), datagram)
        }
        Frame::Unknown => assert!(Header::parse(&datagram).is_err(), "a packet is a frame"),
    }
    let from = usize::from(input.from % 4);
    if let Ok(onward) = judge(&VIEW, from, &datagram) {
        goes_on_rightly(from, &datagram, &onward);
    }
    if let Ok(header) = Header::parse(&datagram) {
        fits(&datagram, &header, usize::from(input.room % 2000));
    }
    is_told_rightly(&datagram, input.mtu);
});
