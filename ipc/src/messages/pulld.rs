//! Supervisor ↔ pulld.

use bincode::{Decode, Encode};

use super::{FromWorker, ToWorker, message, pulls::RegistryFailure, standing::PulldStanding};
use crate::{
    asks::AskId,
    worker::{FromAnyWorker, ToAnyWorker},
};

/// All that pulld is told (ARC-15).
#[derive(Encode, Decode)]
pub struct PulldStart {
    /// The registry: the origin of `CLOUDLY_URL` (CFG-11).
    pub registry_origin: String,
    /// The relay's own origin, which replaces the registry's in a challenge's realm.
    pub relay_origin: String,
    /// DER certificates that the registry's chain may end in.
    pub trust_anchors: Vec<Vec<u8>>,
}

/// Supervisor → pulld.
#[derive(Encode, Decode)]
pub enum ToPulld {
    /// What is said to every worker.
    Worker(ToWorker),
    /// Configuration, after the hello, and again whenever the relay's origin changes.
    Start(PulldStart),
    /// Answers [`FromPulld::AskConnection`]; a connected TCP socket travels beside a success.
    AnswerConnection {
        /// The ask.
        id: AskId,
        /// Why there is no connection: [`RegistryFailure::Dns`], [`RegistryFailure::Connect`] or
        /// [`RegistryFailure::Timeout`].
        answer: Result<(), RegistryFailure>,
    },
    /// Answered with [`FromPulld::AnswerStanding`].
    AskStanding {
        /// Copied into the answer.
        id: AskId,
    },
}

/// Pulld → supervisor.
#[derive(Encode, Decode)]
pub enum FromPulld {
    /// What every worker says.
    Worker(FromWorker),
    /// Dial the registry: pulld can make no socket, so the supervisor connects to the origin that it
    /// knows and no other (ARC-15). At most [`CONNECTION_ASKS`] may be unanswered.
    AskConnection {
        /// Copied into the answer.
        id: AskId,
    },
    /// Answers [`ToPulld::AskStanding`].
    AnswerStanding {
        /// The ask.
        id: AskId,
        /// One look.
        standing: PulldStanding,
    },
}

/// Connections that pulld may ask for before the first of them is answered.
pub const CONNECTION_ASKS: usize = 32;

message!(ToPulld, 1 << 20, |message| match message {
    ToPulld::Worker(worker) => worker.descriptors(),
    ToPulld::AnswerConnection { answer: Ok(()), .. } => 1,
    ToPulld::Start(_) | ToPulld::AnswerConnection { answer: Err(_), .. } | ToPulld::AskStanding { .. } => 0,
});
message!(FromPulld, 16 << 10);

impl FromAnyWorker for FromPulld {
    fn of_worker(message: FromWorker) -> Self {
        Self::Worker(message)
    }
}

impl ToAnyWorker for ToPulld {
    fn for_worker(self) -> Result<ToWorker, Self> {
        match self {
            Self::Worker(message) => Ok(message),
            other => Err(other),
        }
    }
}
