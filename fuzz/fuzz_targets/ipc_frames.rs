//! Frames of a link, however the stream is cut (ARC-13).
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use coreflow_ipc::frame::{FrameError, FrameReader, HEADER};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 300;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: [u8; 4],
    stream: &'a [u8],
}

/// The frames that a reader takes out of a stream that comes in these pieces, and why it ended.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Bytes>, Option<FrameError>, bool) {
    let (mut reader, mut frames) = (FrameReader::new(LIMIT), Vec::new());
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.next_frame(), Err(error), "nothing is re-synchronised");
                    return (frames, Some(error), false);
                }
            }
        }
    }
    (frames, None, reader.is_empty())
}

/// The same by the definition: a length, so many bytes, and again.
fn model(mut stream: &[u8]) -> (Vec<Bytes>, Option<FrameError>, bool) {
    let mut frames = Vec::new();
    while let Some((header, rest)) = stream.split_first_chunk::<HEADER>() {
        match u32::from_be_bytes(*header) as usize {
            0 => return (frames, Some(FrameError::Empty), false),
            stated if stated > LIMIT => {
                return (frames, Some(FrameError::TooLong { stated, limit: LIMIT }), false);
            }
            stated if stated > rest.len() => break,
            stated => {
                frames.push(Bytes::copy_from_slice(&rest[..stated]));
                stream = &rest[stated..];
            }
        }
    }
    (frames, None, stream.is_empty())
}

fuzz_target!(|input: Input<'_>| {
    let (mut rest, mut turn, mut pieces) = (input.stream, 0, Vec::new());
    while !rest.is_empty() {
        let cut = usize::from(input.cuts[turn % input.cuts.len()]).clamp(1, rest.len());
        let (piece, after) = rest.split_at(cut);
        pieces.push(piece);
        (rest, turn) = (after, turn + 1);
    }
    let expected = model(input.stream);
    assert_eq!(read(pieces.into_iter()), expected);
    assert_eq!(read(std::iter::once(input.stream)), expected);
});
