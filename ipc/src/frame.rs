//! Frames on a link: a 4-byte big-endian length, then one encoded message (ARC-13).
//!
//! A length of nothing or beyond the link's limit ends the link: what lies behind a bad header may
//! be the peer's payload, so nothing is re-synchronised.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of a frame's header.
pub const HEADER: usize = 4;

/// Why a byte stream is not a sequence of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A frame states a length of zero; no message is that short.
    Empty,
    /// A frame states more than the link admits.
    TooLong {
        /// Bytes stated.
        stated: usize,
        /// Bytes admitted.
        limit: usize,
    },
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("ipc-frame-empty"),
            Self::TooLong { stated, limit } => {
                write!(f, "ipc-frame-too-long: {stated} bytes stated, {limit} admitted")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// Puts the header before an encoded message.
#[cfg(test)]
pub(crate) fn framed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a link's limit is far below 4 GiB");
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Cuts what arrives on a link into frames, however the bytes were split on their way.
pub struct FrameReader {
    buffer: BytesMut,
    limit: usize,
}

impl FrameReader {
    /// A reader that admits payloads of 1 to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Takes over bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether every byte that arrived was part of a frame already taken.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The next whole payload, or `None` while more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let stated = u32::from_be_bytes(*header) as usize;
        if stated == 0 {
            return Err(FrameError::Empty);
        }
        if stated > self.limit {
            return Err(FrameError::TooLong { stated, limit: self.limit });
        }
        if self.buffer.len() < HEADER + stated {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        Ok(Some(self.buffer.split_to(stated).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// ARC-13: however the stream is cut, the same payloads come out.
        #[test]
        fn payloads_survive_any_split(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..8),
            cut in 1_usize..40,
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|payload| framed(payload)).collect();
            let mut reader = FrameReader::new(200);
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                reader.push(piece);
                while let Some(payload) = reader.next_frame().unwrap() {
                    seen.push(payload.to_vec());
                }
            }
            prop_assert!(reader.is_empty());
            prop_assert_eq!(seen, payloads);
        }

        /// ARC-13: random bytes never panic, and never make the reader hold more than came.
        #[test]
        fn random_bytes_end_in_a_frame_or_a_name(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut reader = FrameReader::new(128);
            reader.push(&bytes);
            while let Ok(Some(payload)) = reader.next_frame() {
                prop_assert!(!payload.is_empty() && payload.len() <= 128);
            }
        }
    }

    /// ARC-13: both ends of the length are bounded.
    #[test]
    fn a_length_of_nothing_or_too_much_is_named() {
        let mut reader = FrameReader::new(16);
        reader.push(&[0, 0, 0, 0]);
        assert_eq!(reader.next_frame(), Err(FrameError::Empty));
        let mut reader = FrameReader::new(16);
        reader.push(&[0, 0, 0, 17]);
        assert_eq!(reader.next_frame(), Err(FrameError::TooLong { stated: 17, limit: 16 }));
    }
}
