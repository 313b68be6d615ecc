//! What becomes of a packet on a leg that carries so many bytes now.
//!
//! What a leg carries changes: it begins low, is probed upwards, and falls when the path seems to swallow
//! large packets. No packet is dropped in silence for it: what does not fit goes in two frames, and only
//! what two frames cannot carry is the sender's to make smaller, or is fragmented as IPv4 does (RFC 791).

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    frame::{FRAGMENT_HEADER, Fragment},
    icmp,
    ipv4::{self, Header, LONGEST_PACKET, SHORTEST_HEADER},
};
use crate::constants::{INNER_MTU, LEAST_PIECE, MOST_PIECES};

/// How a packet goes on.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// As it is.
    Whole,
    /// In these two datagrams, fragments of the tunnel.
    Two([Bytes; 2]),
    /// As these packets, fragments of IPv4 that each fit.
    Pieces(Vec<Bytes>),
    /// Not at all: it may not be taken apart, or not into so few pieces. Its sender is told the MTU, in bytes.
    TooBig {
        /// What would have gone.
        mtu: u16,
    },
}

/// The ids of one leg's fragments, each in its turn.
#[derive(Debug, Default)]
pub struct FragmentIds(u16);

impl FragmentIds {
    fn next(&mut self) -> u16 {
        let id = self.0;
        self.0 = self.0.wrapping_add(1);
        id
    }
}

/// Decides about `packet`, of which `header` was read, on a leg whose datagrams carry `room` bytes.
pub fn plan(packet: &Bytes, header: &Header, room: usize, ids: &mut FragmentIds) -> Plan {
    if packet.len() <= room {
        return Plan::Whole;
    }
    // Bytes behind the packet are no part of it and need no frame of their own.
    let packet = &packet[..header.total_length];
    let of_two = 2 * room.saturating_sub(FRAGMENT_HEADER);
    if packet.len() <= of_two {
        // Equal halves still fit if the path gets a little smaller meanwhile.
        let (first, second) = packet.split_at(packet.len().div_ceil(2));
        let id = ids.next();
        return Plan::Two([Fragment::encode(id, 0, first), Fragment::encode(id, 1, second)]);
    }
    // IPv4 fragments on borders of 8 bytes.
    let body = room.saturating_sub(header.header_length) & !7;
    let payload = packet.len() - header.header_length;
    let one_piece = header.dont_fragment || is_icmp_error(packet, header);
    // Who reads headers lets no packet come here whose pieces would begin beyond what an offset can say.
    let beyond = usize::from(header.fragment_offset) * 8 + packet.len() > LONGEST_PACKET;
    if one_piece || beyond || body < LEAST_PIECE || payload.div_ceil(body) > MOST_PIECES {
        let mtu = u16::try_from(of_two).unwrap_or(u16::MAX).min(INNER_MTU);
        return Plan::TooBig { mtu };
    }
    Plan::Pieces(pieces(packet, header, body))
}

/// Whether the packet is an error of ICMP, or the beginning of one: in pieces nobody could judge what it quotes.
fn is_icmp_error(packet: &[u8], header: &Header) -> bool {
    let kind = || packet.get(header.header_length).is_some_and(|kind| icmp::ERRORS.contains(kind));
    header.protocol == ipv4::ICMP && header.fragment_offset == 0 && kind()
}

/// Fragments of IPv4 with `body` bytes each, a multiple of 8; the last has what is left.
fn pieces(packet: &[u8], header: &Header, body: usize) -> Vec<Bytes> {
    let (first, rest) = packet.split_at(header.header_length);
    let copied = copied_header(first);
    let count = rest.len().div_ceil(body);
    rest.chunks(body)
        .enumerate()
        .map(|(number, chunk)| {
            let head = if number == 0 { first } else { &copied[..] };
            let mut piece = BytesMut::with_capacity(head.len() + chunk.len());
            piece.put_slice(head);
            let total =
                u16::try_from(head.len() + chunk.len()).expect("a piece is no longer than its packet");
            piece[2..4].copy_from_slice(&total.to_be_bytes());
            piece[0] = 0x40 | u8::try_from(head.len() / 4).expect("a header has at most 15 words");
            let more = number + 1 < count || header.more_fragments;
            let offset = usize::from(header.fragment_offset) + number * body / 8;
            let offset = u16::try_from(offset).expect("no piece begins beyond the longest packet");
            let fragment = u16::from(more) << 13 | offset;
            piece[6..8].copy_from_slice(&fragment.to_be_bytes());
            ipv4::seal(&mut piece);
            piece.put_slice(chunk);
            piece.freeze()
        })
        .collect()
}

/// The header of every fragment but the first: of the options only those that say so are repeated.
fn copied_header(header: &[u8]) -> Vec<u8> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    let (fixed, mut options) = header.split_at(SHORTEST_HEADER);
    let mut copied = fixed.to_vec();
    while let [kind, ..] = *options {
        let length = match (kind, options) {
            (END, _) => break,
            (NOTHING, _) => {
                options = &options[1..];
                continue;
            }
            (_, [_, length, ..]) => usize::from(*length),
            (_, _) => break,
        };
        // An option of an impossible length ends what can be read.
        let Some(option) = options.get(..length).filter(|option| option.len() >= 2) else { break };
        if kind & 0x80 != 0 {
            copied.extend_from_slice(option);
        }
        options = &options[length..];
    }
    copied.resize(copied.len().next_multiple_of(4), END);
    copied
}

#[cfg(test)]
mod tests;
