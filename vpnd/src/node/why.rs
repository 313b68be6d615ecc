//! Why a node has no session.

use std::fmt;

use quinn::{ConnectionError, VarInt};

use crate::protocol::{close::Close, control::ControlError, noise::NoiseError};

/// Why a session ended, or a dial came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The hub closed it, and said why.
    Closed(Close),
    /// The hub closed it with a code of another version.
    Unknown(u64),
    /// Nothing came from the hub for too long.
    Lost,
    /// No session came about in time.
    Unanswered,
    /// QUIC or TLS did not come about: what answers is busy, or is no hub.
    Refused,
    /// What answered has not the hub's key.
    NotTheHub,
    /// What the hub said is not of the protocol.
    Malformed(ControlError),
    /// This end cannot dial; says what hinders it.
    Local(String),
}

impl Why {
    /// What the end of a connection means.
    pub(super) fn of(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => Self::of_code(close.error_code),
            ConnectionError::TimedOut | ConnectionError::Reset | ConnectionError::LocallyClosed => Self::Lost,
            ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_) => Self::Refused,
            ConnectionError::CidsExhausted => Self::Local(error.to_string()),
        }
    }

    fn of_code(code: VarInt) -> Self {
        Close::of(code).map_or(Self::Unknown(code.into_inner()), Self::Closed)
    }
}

impl From<NoiseError> for Why {
    fn from(why: NoiseError) -> Self {
        match why {
            NoiseError::Message | NoiseError::Length => Self::NotTheHub,
            NoiseError::Random | NoiseError::Exporter | NoiseError::Key => Self::Local(why.to_string()),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(close) => write!(f, "the hub closed the session: {close}"),
            Self::Unknown(code) => write!(f, "the hub closed the session with code {code}"),
            Self::Lost => f.write_str("the hub fell silent"),
            Self::Unanswered => f.write_str("the hub did not answer in time"),
            Self::Refused => f.write_str("QUIC was refused: the hub is busy, or another server answers"),
            Self::NotTheHub => f.write_str("what answers has not the hub's key"),
            Self::Malformed(why) => write!(f, "the hub does not keep to the protocol: {why}"),
            Self::Local(what) => write!(f, "this end cannot dial: {what}"),
        }
    }
}

impl std::error::Error for Why {}
