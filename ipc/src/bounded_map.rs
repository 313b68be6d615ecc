//! Maps as a link carries them: refused, while they are decoded, where they hold more entries than they may or
//! name one by more bytes (ARC-13).
//!
//! An entry costs more memory than its bytes on a link, many times more where it is short; a bounded number of
//! entries keeps what the codec promises.

use std::collections::BTreeMap;

use bincode::{Decode, de::Decoder, error::DecodeError};

/// Decodes a map of at most `entries` entries, none with a name of more than `name` bytes.
pub(crate) fn decode<D, V>(
    decoder: &mut D,
    entries: usize,
    name: usize,
) -> Result<BTreeMap<String, V>, DecodeError>
where
    D: Decoder,
    V: Decode<D::Context>,
{
    let length = u64::decode(decoder)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= entries);
    let length = length.ok_or(DecodeError::Other("a map has more entries than it may"))?;
    decoder.claim_container_read::<(String, V)>(length)?;
    let mut map = BTreeMap::new();
    for _ in 0..length {
        decoder.unclaim_bytes_read(size_of::<(String, V)>());
        let key = String::decode(decoder)?;
        if key.len() > name {
            return Err(DecodeError::Other("a map names an entry by more bytes than it may"));
        }
        map.insert(key, V::decode(decoder)?);
    }
    Ok(map)
}
