//! The binary frames of a closure (contract of the Corestore half, section 7): type, stream, and what the type has.

use ring::digest::{SHA256, digest};

/// Most bytes that a chunk carries.
pub const CHUNK: usize = 256 << 10;

/// How far a sender may be ahead of what its receiver took, in bytes.
pub const WINDOW: u64 = 4 << 20;

/// Type and stream.
const HEAD: usize = 17;

/// The name of a stream in its frames: the first 16 bytes of the SHA-256 of its `streamId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamName([u8; 16]);

impl StreamName {
    /// The name of the stream with this id.
    pub fn of(stream_id: &str) -> Self {
        Self::read(&sha256(stream_id.as_bytes())).expect("a digest is longer than a name")
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied().map(Self)
    }
}

/// The SHA-256 of the bytes, as an end states it.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// What a frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameBody {
    /// Bytes of the closure from an offset on.
    Chunk {
        /// Of the first byte.
        offset: u64,
        /// At most [`CHUNK`] bytes.
        bytes: Vec<u8>,
    },
    /// The offset up to which the sender may send.
    Credit(u64),
    /// All was sent.
    End {
        /// How much it was, in bytes.
        length: u64,
        /// Its SHA-256.
        digest: [u8; 32],
    },
    /// The receiver has it, or does not take it.
    Receipt {
        /// Whether it was accepted.
        accepted: bool,
        /// The receipt, or the reason.
        text: String,
    },
    /// A side gives up, for this reason.
    Abort(String),
}

/// One binary frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Of which stream.
    pub stream: StreamName,
    /// What it says.
    pub body: FrameBody,
}

impl Frame {
    /// Reads a frame; `None` for bytes that are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, stream) = (bytes.first()?, StreamName::read(bytes.get(1..)?)?);
        let rest = bytes.get(HEAD..)?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let body = match kind {
            1 => {
                let (offset, bytes) = rest.split_first_chunk::<8>()?;
                if bytes.is_empty() || bytes.len() > CHUNK {
                    return None;
                }
                FrameBody::Chunk { offset: u64::from_be_bytes(*offset), bytes: bytes.to_vec() }
            }
            2 => FrameBody::Credit(number(rest)?),
            3 => {
                let (length, digest) = rest.split_first_chunk::<8>()?;
                FrameBody::End { length: u64::from_be_bytes(*length), digest: digest.try_into().ok()? }
            }
            4 => {
                let (accepted, rest) = rest.split_first()?;
                let accepted = match accepted {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                FrameBody::Receipt { accepted, text: text(rest)? }
            }
            5 => FrameBody::Abort(text(rest)?),
            _ => return None,
        };
        Some(Self { stream, body })
    }

    /// The frame as it travels.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(self.stream.0);
        bytes[0] = match &self.body {
            FrameBody::Chunk { offset, bytes: payload } => {
                bytes.extend(offset.to_be_bytes());
                bytes.extend(payload);
                1
            }
            FrameBody::Credit(offset) => {
                bytes.extend(offset.to_be_bytes());
                2
            }
            FrameBody::End { length, digest } => {
                bytes.extend(length.to_be_bytes());
                bytes.extend(digest);
                3
            }
            FrameBody::Receipt { accepted, text } => {
                bytes.push(u8::from(*accepted));
                bytes.extend(text.as_bytes());
                4
            }
            FrameBody::Abort(reason) => {
                bytes.extend(reason.as_bytes());
                5
            }
        };
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is read again, in the layout of the contract, and no part of a frame is a frame.
    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let stream = StreamName::of("stream-1");
        for body in [
            FrameBody::Chunk { offset: 258, bytes: vec![7] },
            FrameBody::Credit(WINDOW),
            FrameBody::End { length: 3, digest: [9; 32] },
            FrameBody::Receipt { accepted: true, text: String::new() },
            FrameBody::Abort("node".to_owned()),
        ] {
            let frame = Frame { stream, body };
            assert_eq!(Frame::parse(&frame.bytes()), Some(frame));
        }
        let chunk = Frame { stream, body: FrameBody::Chunk { offset: 258, bytes: vec![7] } }.bytes();
        let name = &sha256(b"stream-1")[..16];
        assert_eq!(chunk, [&[1], name, &[0, 0, 0, 0, 0, 0, 1, 2], &[7]].concat());
        for length in 0..chunk.len() {
            assert_eq!(Frame::parse(&chunk[..length]), None, "{length} bytes");
        }
        let mut long = chunk;
        long.resize(HEAD + 8 + CHUNK + 1, 0);
        assert_eq!(Frame::parse(&long), None, "256 KiB at most");
    }
}
