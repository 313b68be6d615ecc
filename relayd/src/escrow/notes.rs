//! What the escrow says to the log: a method, a node and a sequence, never a body or a signature.

use coreflow_ipc::typedrequest::PeerError;
use tracing::{debug, info, warn};

use crate::{
    contract::values::{Generation, Id},
    routes::{HOLD, RENEWAL},
};

/// Longest name of a node's refusal that a line repeats.
const NAME_LENGTH: usize = 64;

/// Why a run is not held any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The node registered another session (ESC-46).
    OtherSession,
    /// The node acknowledged a projection that the run does not renew (ESC-48).
    ProjectionReplaced,
    /// Its last window has ended (ESC-57).
    Ended,
    /// Cloudly gave custody up while the node was not carried.
    GivenUp,
}

/// Why a delivery was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The node refused it; the refusal's name, where it is one.
    Refused(String),
    /// The answer is not bound to the offer (ESC-33).
    Unbound,
    /// No answer came within the budget of a push.
    Timeout,
    /// The node's socket ended.
    Gone,
}

impl Failure {
    /// A refusal of a node; a text that is no refusal's name is not repeated.
    pub(super) fn refused(error: &PeerError) -> Self {
        let name = error.name();
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let named = plain && (1..=NAME_LENGTH).contains(&name.len());
        Self::Refused(if named { name } else { "unnamed" }.to_owned())
    }

    fn class(&self) -> &str {
        match self {
            Self::Refused(name) => name,
            Self::Unbound => "unbound",
            Self::Timeout => "timeout",
            Self::Gone => "gone",
        }
    }
}

/// A statement of the escrow for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A hold was accepted.
    Held {
        /// For whom.
        node: Id,
        /// How many renewals.
        held: usize,
    },
    /// A hold was refused.
    HoldRefused {
        /// For whom, where the hold says so.
        node: Option<Id>,
        /// The refusal's name.
        refusal: &'static str,
        /// Where an invalid run is invalid, by the contract's member names and positions.
        path: Option<String>,
    },
    /// A node acknowledged a renewal.
    Acknowledged {
        /// Who.
        node: Id,
        /// Which.
        sequence: Generation,
    },
    /// A delivery was refused or failed; it is made again (ESC-34).
    Failed {
        /// To whom.
        node: Id,
        /// Which.
        sequence: Generation,
        /// Why.
        why: Failure,
    },
    /// A renewal is not offered any more (ESC-37).
    RepeatsEnded {
        /// To whom.
        node: Id,
        /// Which.
        sequence: Generation,
    },
    /// A run was dropped.
    Dropped {
        /// Whose.
        node: Id,
        /// Why.
        why: Dropped,
    },
    /// Every run was dropped.
    CustodyEnded {
        /// How many there were.
        runs: usize,
        /// The refusal that said so, or `stop`.
        why: &'static str,
    },
}

impl Note {
    /// Writes the line.
    pub fn log(&self) {
        match self {
            Self::Held { node, held } => {
                debug!(method = HOLD, node = node.as_str(), held, "a run of DNS lease renewals is held");
            }
            Self::HoldRefused { node, refusal, path } => {
                let node = node.as_ref().map_or("unnamed", Id::as_str);
                let path = path.as_ref().map(|path| format!(": {path}")).unwrap_or_default();
                info!(method = HOLD, node, "a hold was refused: {refusal}{path}");
            }
            Self::Acknowledged { node, sequence } => {
                let sequence = sequence.get();
                info!(
                    method = RENEWAL,
                    node = node.as_str(),
                    sequence,
                    "node {node} has a renewed DNS lease"
                );
            }
            Self::Failed { node, sequence, why } => {
                let (sequence, why) = (sequence.get(), why.class());
                warn!(
                    method = RENEWAL,
                    node = node.as_str(),
                    sequence,
                    "a DNS lease renewal was not delivered: {why}"
                );
            }
            Self::RepeatsEnded { node, sequence } => {
                let sequence = sequence.get();
                warn!(
                    method = RENEWAL,
                    node = node.as_str(),
                    sequence,
                    "a DNS lease renewal is not offered any more: node {node} waits for the next window"
                );
            }
            Self::Dropped { node, why } => {
                let why = match why {
                    Dropped::OtherSession => "the node registered another session",
                    Dropped::ProjectionReplaced => "the node acknowledged another projection",
                    Dropped::Ended => "its last window has ended",
                    Dropped::GivenUp => "Cloudly gave it up while the node was away",
                };
                debug!(node = node.as_str(), "a run of DNS lease renewals is dropped: {why}");
            }
            Self::CustodyEnded { runs, why } => {
                info!(runs, "every run of DNS lease renewals is dropped: {why}");
            }
        }
    }
}
