//! Supervisor ↔ vpnd.

use bincode::{Decode, Encode};

use super::{FromWorker, ToWorker, message};
use crate::worker::{FromAnyWorker, ToAnyWorker};

/// Supervisor → vpnd.
#[derive(Encode, Decode)]
pub enum ToVpnd {
    /// What is said to every worker.
    Worker(ToWorker),
}

/// Vpnd → supervisor.
#[derive(Encode, Decode)]
pub enum FromVpnd {
    /// What every worker says.
    Worker(FromWorker),
}

message!(ToVpnd, 16 << 10, |message| match message {
    ToVpnd::Worker(worker) => worker.descriptors(),
});
message!(FromVpnd, 16 << 10);

impl FromAnyWorker for FromVpnd {
    fn of_worker(message: FromWorker) -> Self {
        Self::Worker(message)
    }
}

impl ToAnyWorker for ToVpnd {
    fn for_worker(self) -> Result<ToWorker, Self> {
        match self {
            Self::Worker(message) => Ok(message),
        }
    }
}
