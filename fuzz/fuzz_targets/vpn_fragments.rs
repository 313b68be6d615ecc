//! Halves of packets as a node sends them, in any order and at any time: only two halves of one id, close together,
//! become a packet, and only so many are held (VPN-16).
#![no_main]

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use bytes::Bytes;
use coreflow_fuzz::memory::peak_of;
use coreflow_vpnd::{
    constants::{HALF_LIFE, MOST_HALVES},
    protocol::{
        fragments::Reassembly,
        frame::{Fragment, Frame},
    },
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    /// Milliseconds to the datagram, of at most 1.6 s, and its first byte; ids are few, so that they meet.
    datagrams: Vec<(u8, u8, bool, &'a [u8])>,
}

/// The halves that are held, the oldest first: when it came, its id, whether it is the second, its bytes.
type Held = Vec<(Duration, u16, bool, Vec<u8>)>;

/// What a half completes, by the definition.
fn model(held: &mut Held, lost: &mut u64, at: Duration, fragment: &Fragment) -> Option<Vec<u8>> {
    let (before, second) = (held.len(), fragment.index == 1);
    held.retain(|(since, ..)| at - *since < HALF_LIFE);
    *lost += (before - held.len()) as u64;
    if let Some(place) = held.iter().position(|(_, id, ..)| *id == fragment.id) {
        let (_, _, other, bytes) = held.remove(place);
        if other != second {
            let (first, last) =
                if second { (&bytes[..], &fragment.bytes[..]) } else { (&fragment.bytes[..], &bytes[..]) };
            return Some([first, last].concat());
        }
        *lost += 1;
    }
    if held.len() == MOST_HALVES {
        held.remove(0);
        *lost += 1;
    }
    held.push((at, fragment.id, second, fragment.bytes.to_vec()));
    None
}

fuzz_target!(|input: Input<'_>| {
    let longest = input.datagrams.iter().map(|(.., bytes)| bytes.len()).max().unwrap_or(0);
    let start = Instant::now();
    let (mut held, mut lost, mut at) = (Held::new(), 0, Duration::ZERO);
    let mut reassembly = Reassembly::default();
    for (wait, id, second, bytes) in input.datagrams {
        at += Duration::from_micros(6_300 * u64::from(wait));
        let datagram = Fragment::encode(u16::from(id % 12), u8::from(second), bytes);
        let Frame::Fragment(fragment) = Frame::decode(&datagram) else {
            assert!(bytes.is_empty(), "half of nothing is none");
            continue;
        };
        let expected = model(&mut held, &mut lost, at, &fragment);
        let (packet, peak) = peak_of(|| reassembly.take(fragment, start + at));
        assert!(peak <= 2 * longest + 4096, "{peak} bytes for halves of {longest}");
        assert_eq!(packet, expected.map(Bytes::from));
    }
    assert_eq!(reassembly.lost(), lost);
});
