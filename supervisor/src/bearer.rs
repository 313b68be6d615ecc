//! The bearer: read once, kept in protected memory, and wiped when dropped (ARC-02, ARC-23, CFG-12..CFG-16,
//! LOG-01).

use std::fmt;

use coreflow_ipc::sys::{Errno, Protection, SecretPages};
use zeroize::Zeroizing;

use crate::configuration::VALUE_BYTES;

/// The bearer of the cluster's relay credential, byte for byte as it was stored.
///
/// It has no `Debug`, `Display`, `Clone` or `Serialize`; its one exit is [`Bearer::expose`].
pub struct Bearer(SecretPages);

/// Why stored bytes are no usable bearer. Holds nothing of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BearerFault {
    /// They are not UTF-8, so no JSON text can carry them.
    NotText,
    /// They are more than 16 KiB.
    TooLong,
    /// The kernel gave no memory to keep them in.
    Memory(Errno),
}

impl Bearer {
    /// Moves the stored bytes into protected memory; the passed buffer is wiped, also on refusal.
    ///
    /// Nothing is trimmed: a trailing line break is part of the value (CFG-16).
    ///
    /// # Errors
    /// The bytes are not UTF-8 or too many, or there is no memory for them.
    pub fn new(stored: Zeroizing<Vec<u8>>) -> Result<Self, BearerFault> {
        if stored.len() > VALUE_BYTES {
            return Err(BearerFault::TooLong);
        }
        if std::str::from_utf8(&stored).is_err() {
            return Err(BearerFault::NotText);
        }
        SecretPages::copy_of(&stored).map(Self).map_err(BearerFault::Memory)
    }

    /// The bytes, for the identity exchange alone.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Whether the value ends with a line break: part of the value, and most likely stored by mistake.
    #[must_use]
    pub fn ends_with_line_break(&self) -> bool {
        matches!(self.expose().last(), Some(b'\n' | b'\r'))
    }

    /// How well the memory that holds it is protected.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.0.protection()
    }
}

impl fmt::Display for BearerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => f.write_str("is not UTF-8 text; store the bearer as Cloudly issued it"),
            Self::TooLong => {
                write!(f, "is longer than {VALUE_BYTES} bytes; store the bearer as Cloudly issued it")
            }
            Self::Memory(errno) => {
                write!(f, "cannot be kept in memory ({}); raise LimitMEMLOCK= or free memory", errno.desc())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(bytes: &[u8]) -> Result<Bearer, BearerFault> {
        Bearer::new(Zeroizing::new(bytes.to_vec()))
    }

    /// CFG-16: byte for byte, the line break is part of the value and only hinted at.
    #[test]
    fn keeps_every_byte() {
        for (bytes, hint) in [
            (&b"token"[..], false),
            (b"token\n", true),
            (b"token\r\n", true),
            (b"token\r", true),
            (b" \ttoken ", false),
            (b"\n token", false),
            ("tökén\0".as_bytes(), false),
        ] {
            let bearer = bearer(bytes).ok().unwrap();
            assert_eq!((bearer.expose(), bearer.ends_with_line_break()), (bytes, hint));
        }
    }

    /// CFG-14: what cannot be a bearer is refused in words that hold nothing of it.
    #[test]
    fn refuses_what_no_json_text_can_carry_and_what_is_too_long() {
        assert_eq!(bearer(b"marked\xff").err(), Some(BearerFault::NotText));
        assert!(bearer(&vec![b'a'; VALUE_BYTES]).is_ok());
        assert_eq!(bearer(&vec![b'a'; VALUE_BYTES + 1]).err(), Some(BearerFault::TooLong));
        for fault in [BearerFault::NotText, BearerFault::TooLong, BearerFault::Memory(Errno::ENOMEM)] {
            assert!(!fault.to_string().contains("marked"));
        }
    }
}
