//! Every message of every direction of every link: decoding is bounded in memory, what was read can be sent, and is
//! read as the same again (ARC-13).
#![no_main]

use bytes::Bytes;
use coreflow_fuzz::memory::peak_of;
use coreflow_ipc::{
    frame::HEADER,
    messages::{
        FromWorker, Message,
        peers::{RelaydToVpnd, VpndToRelayd},
        pulld::{FromPulld, ToPulld},
        pulls::{PulldToRelayd, RelaydToPulld},
        relayd::{FromRelayd, ToRelayd},
        vpnd::{FromVpnd, ToVpnd},
    },
};
use libfuzzer_sys::fuzz_target;

/// What a message may cost beside its own bytes, in multiples of its link's limit: the codec lets elements claim the
/// limit once, and what they hold claims it again.
const MULTIPLE: usize = 4;

fn crosses<M: Message>(bytes: &Bytes) -> Option<M> {
    let (read, peak) = peak_of(|| M::of_bytes(bytes));
    assert!(peak <= MULTIPLE * M::LIMIT, "{peak} bytes for a message of {}", bytes.len());
    let message = read.ok()?;
    let sent = |message: &M| {
        let mut frame = Vec::new();
        message.append(&mut frame).expect("what was read fits its link");
        Bytes::from(frame).slice(HEADER..)
    };
    let first = sent(&message);
    assert!(first.len() <= bytes.len(), "no number is written longer than it was");
    let again = M::of_bytes(&first).unwrap_or_else(|error| panic!("what was sent is read: {error}"));
    assert_eq!(sent(&again), first);
    assert_eq!(again.descriptors(), message.descriptors());
    Some(message)
}

/// A record of a worker becomes one line of the journal, whatever stands in it (LOG-02).
fn is_written(said: FromWorker) {
    if let FromWorker::Record(record) = said {
        let line = record.bounded().line();
        assert!(!line.chars().any(char::is_control), "a record is one line");
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((direction, bytes)) = input.split_first() else { return };
    let bytes = Bytes::copy_from_slice(bytes);
    match direction % 10 {
        0 => drop(crosses::<ToRelayd>(&bytes)),
        1 => {
            if let Some(FromRelayd::Worker(said)) = crosses(&bytes) {
                is_written(said);
            }
        }
        2 => drop(crosses::<ToPulld>(&bytes)),
        3 => {
            if let Some(FromPulld::Worker(said)) = crosses(&bytes) {
                is_written(said);
            }
        }
        4 => drop(crosses::<ToVpnd>(&bytes)),
        5 => {
            if let Some(FromVpnd::Worker(said)) = crosses(&bytes) {
                is_written(said);
            }
        }
        6 => drop(crosses::<RelaydToPulld>(&bytes)),
        7 => drop(crosses::<PulldToRelayd>(&bytes)),
        8 => drop(crosses::<RelaydToVpnd>(&bytes)),
        _ => drop(crosses::<VpndToRelayd>(&bytes)),
    }
});
