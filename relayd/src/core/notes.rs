//! Log lines: what the forwarder states, a method and a node and never a body (FWD-30, LOG-05), and what
//! stands for the life of the service.

use coreflow_ipc::messages::relayd::Reference;
use tracing::{debug, info, warn};

use crate::{contract::values::Id, forwarder::Note};

/// A line that stands for the life of the service, and is said after what it states was kept (ARC-17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// The credential was pinned (REG-42).
    Pinned(Reference),
    /// Cloudly accepted this relay's registration.
    Accepted {
        /// The accepted origin and the served one, where they differ (REG-35).
        other: Option<(String, String)>,
    },
    /// The relay parked (REG-59).
    Parked(String),
}

impl Statement {
    /// Writes the line.
    pub fn log(&self) {
        match self {
            Self::Pinned(Reference { id, generation }) => {
                info!("this relay is bound to cluster relay credential {id} generation {generation}");
            }
            Self::Accepted { other } => {
                info!(method = "registerClusterRelay", "Cloudly accepted this relay's registration");
                if let Some((accepted, served)) = other {
                    warn!(
                        accepted,
                        served,
                        "the accepted origin is not the served one: nodes dial an origin that this relay does not serve"
                    );
                }
            }
            Self::Parked(line) => warn!("{line}"),
        }
    }
}

/// Writes a statement of the forwarder.
pub(super) fn log(note: Note) {
    let name = |node: Option<Id>| node.map_or_else(|| "unregistered".to_owned(), |node| node.to_string());
    match note {
        Note::Registered { node } => info!(node = node.as_str(), "node {node} is carried"),
        Note::Unbound => warn!(
            method = "registerPalletRuntimeSession",
            "a registration was answered without a readable binding; the node is not carried"
        ),
        Note::Gone { node } => info!(node = node.as_str(), "node {node} is gone"),
        Note::Foreign { method, which } => {
            debug!(method, ?which, "a request of another session was refused");
        }
        Note::Timeout { method, node } => {
            warn!(method, node = name(node), "a forward was not answered in time");
        }
    }
}
