//! Why a session ends: the application's close codes.
//!
//! They tell a node when to dial again and tell an outsider nothing: a key that is unknown, expired or
//! withdrawn is refused by one and the same code.

use std::fmt;

use quinn::VarInt;

/// An application close code of QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Close {
    /// The node is done.
    Ended,
    /// The hub stops; it may come back under another key.
    Stopping,
    /// The same key began a newer session.
    Superseded,
    /// The key is no member's at present: it is unknown, or its time has passed, or it was withdrawn.
    NotAdmitted,
    /// A revision took the membership, or changed what the session was admitted with.
    Withdrawn,
    /// The membership's time has passed.
    Expired,
    /// The peer does not keep to the protocol, or its Noise message is not meant for this session.
    Malformed,
    /// The peer speaks another version.
    Version,
    /// The hub has too many handshakes at hand, or the key too many sessions.
    Busy,
    /// The handshake took too long.
    Late,
}

impl Close {
    /// Every code, in its order.
    pub const ALL: [Self; 10] = [
        Self::Ended,
        Self::Stopping,
        Self::Superseded,
        Self::NotAdmitted,
        Self::Withdrawn,
        Self::Expired,
        Self::Malformed,
        Self::Version,
        Self::Busy,
        Self::Late,
    ];

    /// The number that travels.
    pub fn code(self) -> VarInt {
        VarInt::from_u32(match self {
            Self::Ended => 0,
            Self::Stopping => 1,
            Self::Superseded => 2,
            Self::NotAdmitted => 3,
            Self::Withdrawn => 4,
            Self::Expired => 5,
            Self::Malformed => 6,
            Self::Version => 7,
            Self::Busy => 8,
            Self::Late => 9,
        })
    }

    /// What a number means, if this build knows it.
    pub fn of(code: VarInt) -> Option<Self> {
        Self::ALL.into_iter().find(|close| close.code() == code)
    }

    /// The name in logs, counters and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Stopping => "stopping",
            Self::Superseded => "superseded",
            Self::NotAdmitted => "not-admitted",
            Self::Withdrawn => "withdrawn",
            Self::Expired => "expired",
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::Busy => "busy",
            Self::Late => "late",
        }
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_the_numbers_from_zero_in_order() {
        for (number, close) in (0..).zip(Close::ALL) {
            assert_eq!(close.code(), VarInt::from_u32(number));
            assert_eq!(Close::of(VarInt::from_u32(number)), Some(close));
        }
        assert_eq!(Close::of(VarInt::from_u32(10)), None);
        assert_eq!(Close::of(VarInt::MAX), None);
    }

    #[test]
    fn the_document_lists_every_code() {
        let document = include_str!("../../../docs/vpn-protocol.md");
        for close in Close::ALL {
            let row = format!("| {} | `{close}` |", close.code());
            assert!(document.contains(&row), "{row}");
        }
    }
}
