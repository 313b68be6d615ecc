//! The one place where bytes become messages and messages become bytes (ARC-13).
//!
//! bincode's size limit is set for each link, every byte has to be consumed, no message type is
//! recursive or holds elements without a size, and a map states how many entries it may have: under
//! these four rules a hostile frame costs a small multiple of its link's limit in memory at most.

use bincode::{Decode, Encode, config};

use crate::frame::HEADER;

/// Why bytes are not a message, or a message has no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecError {
    /// The bytes are no message of this link, or one that states more than its limit.
    Malformed,
    /// A message was followed by bytes that belong to nothing.
    TrailingBytes,
    /// The message does not fit the limit of its link.
    TooLong,
}

impl std::fmt::Display for CodecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Malformed => "ipc-message-malformed",
            Self::TrailingBytes => "ipc-message-trailing-bytes",
            Self::TooLong => "ipc-message-too-long",
        })
    }
}

impl std::error::Error for CodecError {}

/// Encodes `message`; more than `LIMIT` bytes are refused.
pub fn encode<M: Encode, const LIMIT: usize>(message: &M) -> Result<Vec<u8>, CodecError> {
    let mut frame = Vec::new();
    append::<_, LIMIT>(message, &mut frame)?;
    Ok(frame.split_off(HEADER))
}

/// Appends the frame of `message` to `frames`, header and all; on an error nothing is appended.
pub fn append<M: Encode, const LIMIT: usize>(message: &M, frames: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = frames.len();
    frames.extend_from_slice(&[0; HEADER]);
    let encoded = bincode::encode_into_std_write(message, frames, config::standard());
    let length = frames.len() - start - HEADER;
    let fits = match encoded {
        Ok(_) if length <= LIMIT => Ok(()),
        Ok(_) => Err(CodecError::TooLong),
        Err(_) => Err(CodecError::Malformed),
    };
    if fits.is_err() {
        frames.truncate(start);
        return fits;
    }
    let stated = u32::try_from(length).expect("a link's limit is far below 4 GiB");
    frames[start..start + HEADER].copy_from_slice(&stated.to_be_bytes());
    Ok(())
}

/// Decodes exactly one message out of `bytes`, claiming at most `LIMIT` bytes of memory.
pub fn decode<M: Decode<()>, const LIMIT: usize>(bytes: &[u8]) -> Result<M, CodecError> {
    if bytes.len() > LIMIT {
        return Err(CodecError::TooLong);
    }
    let (message, consumed) = bincode::decode_from_slice(bytes, config::standard().with_limit::<LIMIT>())
        .map_err(|_| CodecError::Malformed)?;
    if consumed == bytes.len() { Ok(message) } else { Err(CodecError::TrailingBytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::framed;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let bytes = encode::<_, 64>(&(7_u32, "seven".to_owned())).unwrap();
        assert_eq!(decode::<(u32, String), 64>(&bytes), Ok((7, "seven".to_owned())));
    }

    /// ARC-13: trailing bytes, an over-long statement and a cut message are named errors.
    #[test]
    fn what_is_not_exactly_one_message_is_refused() {
        let mut bytes = encode::<_, 64>(&1_u8).unwrap();
        bytes.push(0);
        assert_eq!(decode::<u8, 64>(&bytes), Err(CodecError::TrailingBytes));
        // A vector that states u64::MAX elements.
        let hostile = [253, 255, 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(decode::<Vec<u8>, 64>(&hostile), Err(CodecError::Malformed));
        assert_eq!(decode::<String, 64>(&[9, b'c', b'u', b't']), Err(CodecError::Malformed));
        assert_eq!(encode::<_, 4>(&"too long".to_owned()), Err(CodecError::TooLong));
        let mut frames = Vec::new();
        append::<_, 8>(&"fits".to_owned(), &mut frames).unwrap();
        assert_eq!(append::<_, 4>(&"too long".to_owned(), &mut frames), Err(CodecError::TooLong));
        assert_eq!(frames, framed(&encode::<_, 8>(&"fits".to_owned()).unwrap()));
        assert_eq!(decode::<Vec<u8>, 4>(&[0; 5]), Err(CodecError::TooLong));
    }
}
