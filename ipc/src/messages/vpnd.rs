//! Supervisor ↔ vpnd.

use std::net::SocketAddr;

use bincode::{Decode, Encode};

use super::{FromWorker, ToWorker, hub_report::HubReport, message};
use crate::{
    asks::AskId,
    worker::{FromAnyWorker, ToAnyWorker},
};

/// Supervisor → vpnd.
#[derive(Encode, Decode)]
pub enum ToVpnd {
    /// What is said to every worker.
    Worker(ToWorker),
    /// Answers [`FromVpnd::AskSocket`]; a bound UDP socket travels beside a success.
    AnswerSocket {
        /// The ask.
        id: AskId,
        /// The address that was bound, or the system's class of what refused it (VPN-33).
        answer: Result<SocketAddr, String>,
    },
}

/// Vpnd → supervisor.
#[derive(Encode, Decode)]
pub enum FromVpnd {
    /// What every worker says.
    Worker(FromWorker),
    /// Bind the configured UDP address: vpnd can make no socket. One ask at a time (VPN-10, VPN-37).
    AskSocket {
        /// Copied into the answer.
        id: AskId,
    },
    /// One look at the hub, for `coreflowctl status`.
    Report(HubReport),
}

message!(ToVpnd, 16 << 10, |message| match message {
    ToVpnd::Worker(worker) => worker.descriptors(),
    ToVpnd::AnswerSocket { answer: Ok(_), .. } => 1,
    ToVpnd::AnswerSocket { answer: Err(_), .. } => 0,
});
// A report lists a bounded number of sessions, each with a node id of 128 characters at most.
message!(FromVpnd, 128 << 10);

impl FromAnyWorker for FromVpnd {
    fn of_worker(message: FromWorker) -> Self {
        Self::Worker(message)
    }
}

impl ToAnyWorker for ToVpnd {
    fn for_worker(self) -> Result<ToWorker, Self> {
        match self {
            Self::Worker(message) => Ok(message),
            other @ Self::AnswerSocket { .. } => Err(other),
        }
    }
}
