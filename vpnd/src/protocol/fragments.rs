//! Putting halves of packets together again.
//!
//! Little is held, and not for long: 8 packets whose other half has not come, each for a second. A half is
//! copied, as its bytes are a part of a receive buffer many times as large.

use std::{collections::VecDeque, time::Instant};

use bytes::{Bytes, BytesMut};

use super::frame::Fragment;
use crate::constants::{HALF_LIFE, MOST_HALVES};

/// The halves that one peer has sent.
#[derive(Debug, Default)]
pub struct Reassembly {
    /// The oldest first.
    halves: VecDeque<Half>,
    /// Halves whose other half never came in time.
    lost: u64,
}

#[derive(Debug)]
struct Half {
    id: u16,
    index: u8,
    bytes: BytesMut,
    since: Instant,
}

impl Reassembly {
    /// Takes a half that came at `now`, and gives the packet that it completes. Of two first or two second
    /// halves of one id the later is kept: ids come round again.
    pub fn take(&mut self, fragment: Fragment, now: Instant) -> Option<Bytes> {
        while self.halves.front().is_some_and(|half| now.saturating_duration_since(half.since) >= HALF_LIFE) {
            self.halves.pop_front();
            self.lost += 1;
        }
        let Fragment { id, index, bytes } = fragment;
        if let Some(at) = self.halves.iter().position(|half| half.id == id) {
            let half = self.halves.remove(at).expect("the position of one that is held");
            if half.index != index {
                return Some(joined(half, &bytes));
            }
            self.lost += 1;
        }
        if self.halves.len() == MOST_HALVES {
            self.halves.pop_front();
            self.lost += 1;
        }
        self.halves.push_back(Half { id, index, bytes: BytesMut::from(&bytes[..]), since: now });
        None
    }

    /// How many halves were given up since the last time this was asked.
    pub fn lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

fn joined(half: Half, other: &[u8]) -> Bytes {
    let (first, second) = if half.index == 0 { (&half.bytes[..], other) } else { (other, &half.bytes[..]) };
    let mut packet = BytesMut::with_capacity(first.len() + second.len());
    packet.extend_from_slice(first);
    packet.extend_from_slice(second);
    packet.freeze()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn half(id: u16, index: u8, bytes: &'static [u8]) -> Fragment {
        Fragment { id, index, bytes: Bytes::from_static(bytes) }
    }

    #[test]
    fn two_halves_are_a_packet_in_either_order() {
        let (mut reassembly, now) = (Reassembly::default(), Instant::now());
        assert_eq!(reassembly.take(half(7, 0, b"ab"), now), None);
        assert_eq!(reassembly.take(half(7, 1, b"c"), now).as_deref(), Some(&b"abc"[..]));
        assert_eq!(reassembly.take(half(7, 1, b"c"), now), None);
        assert_eq!(reassembly.take(half(7, 0, b"ab"), now).as_deref(), Some(&b"abc"[..]));
        assert_eq!(reassembly.lost(), 0);
    }

    #[test]
    fn a_half_is_held_for_a_second_and_not_longer() {
        let (mut reassembly, now) = (Reassembly::default(), Instant::now());
        let just = HALF_LIFE - Duration::from_millis(1);
        assert_eq!(reassembly.take(half(1, 0, b"a"), now), None);
        assert!(reassembly.take(half(1, 1, b"b"), now + just).is_some());
        assert_eq!(reassembly.take(half(2, 0, b"a"), now), None);
        assert_eq!(reassembly.take(half(2, 1, b"b"), now + HALF_LIFE), None);
        assert_eq!(reassembly.lost(), 1);
        assert_eq!(reassembly.lost(), 0);
    }

    #[test]
    fn of_more_than_eight_halves_the_oldest_goes() {
        let (mut reassembly, now) = (Reassembly::default(), Instant::now());
        for id in 0..=8 {
            assert_eq!(reassembly.take(half(id, 0, b"a"), now), None);
        }
        assert_eq!(reassembly.lost(), 1);
        for id in 1..=8 {
            assert!(reassembly.take(half(id, 1, b"b"), now).is_some(), "{id}");
        }
        assert_eq!(reassembly.take(half(0, 1, b"b"), now), None, "the first was given up");
    }

    #[test]
    fn the_later_of_two_equal_halves_counts() {
        let (mut reassembly, now) = (Reassembly::default(), Instant::now());
        assert_eq!(reassembly.take(half(1, 0, b"old"), now), None);
        assert_eq!(reassembly.take(half(1, 0, b"new"), now), None);
        assert_eq!(reassembly.take(half(1, 1, b"er"), now).as_deref(), Some(&b"newer"[..]));
    }

    /// A half of a packet, as the property sends it.
    fn fragment_of(packet: u16, index: u8) -> Fragment {
        let bytes = vec![u8::try_from(packet).unwrap() * 2 + index; usize::from(packet) + 1];
        Fragment { id: packet, index, bytes: Bytes::from(bytes) }
    }

    proptest! {
        /// Whatever is lost, doubled or out of order: what comes out is one of the packets that went in, and a
        /// packet of which both halves arrived close together does come out.
        #[test]
        fn nothing_but_whole_packets_comes_out(
            sent in prop::collection::vec((0_u16..20, 0_u8..2), 0..200),
        ) {
            let (mut reassembly, now) = (Reassembly::default(), Instant::now());
            let mut waiting: Vec<(u16, u8)> = Vec::new();
            for (packet, index) in sent {
                let whole = reassembly.take(fragment_of(packet, index), now);
                let other = waiting.iter().position(|half| *half == (packet, 1 - index));
                prop_assert_eq!(whole.is_some(), other.is_some());
                if let Some(whole) = whole {
                    let expected =
                        [fragment_of(packet, 0).bytes, fragment_of(packet, 1).bytes].concat();
                    prop_assert_eq!(&whole[..], &expected[..]);
                    waiting.remove(other.unwrap());
                } else {
                    waiting.retain(|half| half.0 != packet);
                    waiting.push((packet, index));
                    if waiting.len() > MOST_HALVES {
                        waiting.remove(0);
                    }
                }
                prop_assert!(reassembly.halves.len() <= MOST_HALVES);
            }
        }
    }
}
