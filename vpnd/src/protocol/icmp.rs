//! ICMP "fragmentation needed" (RFC 792, RFC 1191), which the hub and a node send in the hub's name.
//!
//! Never in answer to an ICMP error, to a fragment that is not the first, or to what no single host sent or
//! was to receive (RFC 1122, section 3.2.2); and only as often as a budget lets.

use std::{net::Ipv4Addr, time::Instant};

use bytes::{BufMut, Bytes, BytesMut};

use super::ipv4::{self, Header, SHORTEST_HEADER};
use crate::constants::{ICMP_BURST, ICMP_INTERVAL};

/// Least MTU that is told, in bytes: what every host and router carries (RFC 791, RFC 1191 section 3).
const LEAST_TOLD_MTU: u16 = 68;
/// Most bytes of such a message (RFC 1812, section 4.3.2.3).
const LONGEST: usize = 576;
/// Type, code, checksum, and the MTU.
const ICMP_HEADER: usize = 8;
/// Destination unreachable, fragmentation needed and DF set.
const TYPE_AND_CODE: [u8; 2] = [3, 4];
/// Precedence of messages about the network (RFC 1812, section 4.3.2.5).
const TYPE_OF_SERVICE: u8 = 0xc0;
const TIME_TO_LIVE: u8 = 64;
/// The types that quote a packet: a host acts on what they say of a connection, without looking whose word it
/// is.
pub const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
/// The types that ask or answer; every other is, or may be, an error.
const QUERIES: [u8; 10] = [0, 8, 9, 10, 13, 14, 15, 16, 17, 18];

/// The message from `hub` to the sender of `packet` that packets of up to `mtu` bytes would go; none if the
/// packet is one of those that are not answered, or if no path is as narrow.
pub fn fragmentation_needed(hub: Ipv4Addr, packet: &[u8], mtu: u16) -> Option<Bytes> {
    let header = Header::parse(packet).ok()?;
    let packet = &packet[..header.total_length];
    let of_one_host = ipv4::is_unicast(header.source) && ipv4::is_unicast(header.destination);
    if header.fragment_offset != 0 || !of_one_host || mtu < LEAST_TOLD_MTU {
        return None;
    }
    if header.protocol == ipv4::ICMP && !QUERIES.contains(packet.get(header.header_length)?) {
        return None;
    }
    let quoted = &packet[..packet.len().min(LONGEST - SHORTEST_HEADER - ICMP_HEADER)];
    let total = SHORTEST_HEADER + ICMP_HEADER + quoted.len();
    let mut message = BytesMut::with_capacity(total);
    message.put_slice(&[0x45, TYPE_OF_SERVICE]);
    message.put_u16(u16::try_from(total).expect("a message has at most 576 bytes"));
    // DF and no id: a packet that is whole and stays so needs none (RFC 6864).
    message.put_slice(&[0, 0, 0x40, 0, TIME_TO_LIVE, ipv4::ICMP, 0, 0]);
    message.put_slice(&hub.octets());
    message.put_slice(&header.source.octets());
    ipv4::seal(&mut message);
    message.put_slice(&TYPE_AND_CODE);
    message.put_slice(&[0; 4]);
    message.put_u16(mtu);
    message.put_slice(quoted);
    let sum = ipv4::checksum(&message[SHORTEST_HEADER..]);
    message[SHORTEST_HEADER + 2..SHORTEST_HEADER + 4].copy_from_slice(&sum.to_be_bytes());
    Some(message.freeze())
}

/// How many messages one sender may still be sent: a bucket that fills with time.
#[derive(Debug)]
pub struct IcmpBudget {
    left: u32,
    /// When the last of what is in the bucket became due.
    filled: Instant,
}

impl IcmpBudget {
    /// A full one.
    pub fn new(now: Instant) -> Self {
        Self { left: ICMP_BURST, filled: now }
    }

    /// Takes one message's worth; false if none is left.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled);
        let due = u32::try_from(passed.as_nanos() / ICMP_INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        if due >= ICMP_BURST - self.left {
            (self.left, self.filled) = (ICMP_BURST, now);
        } else {
            self.left += due;
            self.filled += due * ICMP_INTERVAL;
        }
        let taken = self.left > 0;
        self.left -= u32::from(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HUB: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);

    fn refill() -> std::time::Duration {
        ICMP_INTERVAL * ICMP_BURST
    }

    fn packet(length: u16, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut packet = vec![0; usize::from(length)];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[6..10].copy_from_slice(&[0x40, 0, 64, 6]);
        packet[12..20].copy_from_slice(&[10, 99, 0, 2, 10, 99, 0, 3]);
        change(&mut packet);
        packet
    }

    #[test]
    fn the_message_quotes_the_packet_and_tells_the_mtu() {
        let packet = packet(1400, |_| {});
        let message = fragmentation_needed(HUB, &packet, 1280).unwrap();
        let header = Header::parse(&message).unwrap();
        assert_eq!((header.source, header.destination), (HUB, Ipv4Addr::new(10, 99, 0, 2)));
        assert_eq!((header.protocol, header.total_length, message.len()), (1, 576, 576));
        assert_eq!(ipv4::checksum(&message[..20]), 0);
        assert_eq!(ipv4::checksum(&message[20..]), 0);
        assert_eq!(message[20..22], [3, 4]);
        assert_eq!(message[24..28], [0, 0, 0x05, 0x00]);
        assert_eq!(message[28..], packet[..548]);
    }

    #[test]
    fn a_short_packet_is_quoted_whole_and_without_what_follows_it() {
        let packet = packet(100, |packet| packet.extend([0xee; 9]));
        let message = fragmentation_needed(HUB, &packet, 68).unwrap();
        assert_eq!(message[28..], packet[..100]);
        assert_eq!(ipv4::checksum(&message[20..]), 0);
    }

    #[test]
    fn what_must_not_be_answered_is_not() {
        let answered =
            |change: fn(&mut Vec<u8>)| fragmentation_needed(HUB, &packet(64, change), 1280).is_some();
        assert!(answered(|_| {}));
        assert!(answered(|packet| packet[6] = 0x60), "the first fragment is");
        assert!(!answered(|packet| packet[7] = 1), "a later one is not");
        for query in QUERIES {
            let mut asked = packet(64, |packet| packet[9] = 1);
            asked[20] = query;
            assert!(fragmentation_needed(HUB, &asked, 1280).is_some(), "{query}");
        }
        for error in [3, 4, 5, 11, 12, 1, 42] {
            let mut told = packet(64, |packet| packet[9] = 1);
            told[20] = error;
            assert_eq!(fragmentation_needed(HUB, &told, 1280), None, "{error}");
        }
        let bare = packet(20, |packet| packet[9] = 1);
        assert_eq!(fragmentation_needed(HUB, &bare, 1280), None, "an ICMP message without a type");
        for first in [0, 127, 224, 255] {
            let mut from = packet(64, |_| {});
            from[12] = first;
            let mut to = packet(64, |_| {});
            to[16] = first;
            assert_eq!(fragmentation_needed(HUB, &from, 1280), None);
            assert_eq!(fragmentation_needed(HUB, &to, 1280), None);
        }
    }

    #[test]
    fn a_budget_is_spent_and_fills_with_time() {
        let start = Instant::now();
        let mut budget = IcmpBudget::new(start);
        let spend = |budget: &mut IcmpBudget, now| (0..1000).filter(|_| budget.take(now)).count();
        assert_eq!(spend(&mut budget, start), 20);
        assert_eq!(spend(&mut budget, start + ICMP_INTERVAL / 2), 0);
        assert_eq!(spend(&mut budget, start + ICMP_INTERVAL), 1);
        assert_eq!(spend(&mut budget, start + ICMP_INTERVAL * 7 / 2), 2);
        assert_eq!(spend(&mut budget, start + ICMP_INTERVAL * 4), 1, "no time is lost");
        assert_eq!(spend(&mut budget, start), 0, "nor won by a clock that goes back");
        assert_eq!(spend(&mut budget, start + ICMP_INTERVAL * 4 + refill()), 20);
        assert_eq!(spend(&mut budget, start + 100 * refill()), 20);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_rightly_or_not_at_all(
            mut bytes in prop::collection::vec(any::<u8>(), 0..700), version: bool,
        ) {
            if version && bytes.len() >= 4 {
                bytes[0] = 0x45;
                bytes[2] = 0;
            }
            if let Some(message) = fragmentation_needed(HUB, &bytes, 1280) {
                prop_assert_eq!(ipv4::checksum(&message[..20]), 0);
                prop_assert_eq!(ipv4::checksum(&message[20..]), 0);
                prop_assert!(message.len() <= LONGEST);
                prop_assert_eq!(fragmentation_needed(HUB, &message, 1280), None, "an error");
            }
        }
    }
}
