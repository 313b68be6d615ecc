//! Supervisor ↔ pulld.

use bincode::{Decode, Encode};

use super::{FromWorker, ToWorker, message};
use crate::worker::{FromAnyWorker, ToAnyWorker};

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
    /// Configuration, once, after the hello.
    Start(PulldStart),
}

/// Pulld → supervisor.
#[derive(Encode, Decode)]
pub enum FromPulld {
    /// What every worker says.
    Worker(FromWorker),
}

message!(ToPulld, 1 << 20, |message| match message {
    ToPulld::Worker(worker) => worker.descriptors(),
    ToPulld::Start(_) => 0,
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
