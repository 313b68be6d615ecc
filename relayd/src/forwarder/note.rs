//! What the forwarder states for the log: a method and a node, never a body (FWD-30).

use crate::{contract::values::Id, refusals::Foreign};

/// A statement of the forwarder for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Cloudly issued the node a binding through this relay.
    Registered {
        /// The node.
        node: Id,
    },
    /// A registration was answered without a readable binding: the node cannot be carried.
    Unbound,
    /// The socket of a carried node ended.
    Gone {
        /// The node.
        node: Id,
    },
    /// A request of a socket was refused as not its session's.
    Foreign {
        /// Its method.
        method: String,
        /// What was foreign.
        which: Foreign,
    },
    /// A forward ran past its budget.
    Timeout {
        /// Its method.
        method: String,
        /// The node, where the relay knows it.
        node: Option<Id>,
    },
}
