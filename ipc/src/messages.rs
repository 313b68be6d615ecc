//! The messages of every link, one enum per direction.
//!
//! A process can only send what its end of a link can say: the other direction's enum is another
//! type. None of them has a place for the bearer (ARC-06).

use bincode::{Decode, Encode};
use bytes::Bytes;

use crate::{
    codec::CodecError,
    confine::Report,
    hello::{Hello, Role},
    record::{Level, Record},
};

pub mod hub_report;
pub mod peers;
pub mod pulld;
pub mod pulls;
pub mod readiness;
pub mod relayd;
pub mod standing;
pub mod vpn_network;
pub mod vpnd;

/// A message of one direction of a link.
pub trait Message: Sized + Send + Sync + 'static {
    /// Longest encoded form in bytes, both when sending and when receiving.
    const LIMIT: usize;

    /// Appends the message as a frame.
    fn append(&self, frames: &mut Vec<u8>) -> Result<(), CodecError>;

    /// The message that `bytes` are, exactly.
    fn of_bytes(bytes: &Bytes) -> Result<Self, CodecError>;

    /// How many descriptors travel beside this message.
    fn descriptors(&self) -> usize {
        0
    }
}

/// Gives a message type its limit; see [`Message`].
macro_rules! message {
    ($kind:ty, $limit:expr) => {
        message!($kind, $limit, |_message| 0);
    };
    ($kind:ty, $limit:expr, $descriptors:expr) => {
        impl $crate::messages::Message for $kind {
            const LIMIT: usize = $limit;

            fn append(&self, frames: &mut Vec<u8>) -> Result<(), $crate::codec::CodecError> {
                $crate::codec::append::<_, { $limit }>(self, frames)
            }

            fn of_bytes(bytes: &bytes::Bytes) -> Result<Self, $crate::codec::CodecError> {
                $crate::codec::decode::<_, { $limit }>(bytes)
            }

            fn descriptors(&self) -> usize {
                let count: fn(&Self) -> usize = $descriptors;
                count(self)
            }
        }
    };
}
pub(crate) use message;

/// What the supervisor says to every worker.
#[derive(Encode, Decode)]
pub enum ToWorker {
    /// First frame.
    Hello(Hello),
    /// The worker's end of its link to `role`; one descriptor travels beside it.
    PeerLink {
        /// Who holds the other end.
        role: Role,
    },
    /// The records to send from here on.
    LogLevel(Level),
    /// Answered with [`FromWorker::Pong`] of the same number.
    Ping(u64),
    /// End in order; answered with [`FromWorker::Stopped`].
    Stop,
}

impl ToWorker {
    /// Descriptors beside the message.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::PeerLink { .. } => 1,
            Self::Hello(_) | Self::LogLevel(_) | Self::Ping(_) | Self::Stop => 0,
        }
    }
}

/// What every worker says to the supervisor.
#[derive(Encode, Decode)]
pub enum FromWorker {
    /// First frame.
    Hello(Hello),
    /// The layers of confinement that this worker runs under, once, right after the hello.
    Confined(Report),
    /// A log record; workers write no log of their own.
    Record(Record),
    /// The answer to [`ToWorker::Ping`].
    Pong(u64),
    /// The worker stopped in order and ends.
    Stopped,
}

#[cfg(test)]
mod tests;
