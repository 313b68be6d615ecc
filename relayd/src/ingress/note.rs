//! What the log says of the ingress: of the table its revision and how much it holds (ING-05), of
//! everything else a name; never a part of a table, a bearer or a page (ING-04, LOG-06).

use tracing::{debug, info, warn};

use crate::{contract::values::Id, refusals::ROUTE_TABLE_INVALID};

/// A statement for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A newer table is held.
    Adopted {
        /// Its revision.
        revision: u64,
        /// How many routes it holds.
        routes: usize,
        /// How many certificates it holds.
        certificates: usize,
    },
    /// Cloudly has computed no table; said once per transition (ING-16).
    NoTable,
    /// A table was pushed or read that is no newer than the held one.
    NotNewer {
        /// The revision of the held table.
        held: u64,
    },
    /// A table failed its validator and was not adopted.
    Invalid {
        /// Where it is invalid.
        path: String,
    },
    /// The table could not be read; the held one stays in service (ING-14).
    NotRead {
        /// Cloudly's refusal by name, or the class of the failure.
        class: String,
    },
    /// Cloudly accepted an ingress, and its connection is bound.
    Bound {
        /// The node that it runs on.
        node: Id,
        /// Whether another connection was bound before (ING-25).
        superseded: bool,
    },
    /// A registration did not bind a connection.
    NotBound {
        /// The refusal by name, or the class of the failure.
        class: String,
    },
    /// The bound connection ended.
    Released {
        /// The node of the ingress.
        node: Id,
    },
    /// A table was asked for by a connection that is not the bound one (ING-28).
    Stranger,
    /// The bound ingress is given what it asked for.
    Pulled {
        /// The revision that it serves so far.
        applied: Option<u64>,
        /// The held one.
        held: Option<u64>,
    },
    /// The ingress could not be hinted; it is not hinted again (ING-20).
    HintFailed {
        /// The revision that it was not told.
        revision: u64,
        /// Its refusal by name, or the class of the failure.
        class: String,
    },
    /// The ingress did not answer for its traffic statistics.
    StatisticsTimeout,
}

impl Note {
    /// Writes the line.
    pub fn log(&self) {
        match self {
            Self::Adopted { revision, routes, certificates } => {
                info!(revision, routes, certificates, "the cluster's route table is held");
            }
            Self::NoTable => info!("Cloudly has computed no route table for this cluster"),
            Self::NotNewer { held } => debug!(held, "a route table is no newer than the held one"),
            Self::Invalid { path } => {
                warn!("{ROUTE_TABLE_INVALID}: {path}; the table that was held before stays in service");
            }
            Self::NotRead { class } => warn!(
                method = "getClusterRouteTable",
                class, "the route table could not be read; the table that was held before stays in service"
            ),
            Self::Bound { node, superseded } => {
                info!(node = node.as_str(), superseded, "the cluster ingress on node {node} is bound");
            }
            // A stranger can have this said as often as it likes.
            Self::NotBound { class } => {
                debug!(method = "registerClusterIngress", class, "an ingress registration binds nothing");
            }
            Self::Released { node } => {
                warn!(node = node.as_str(), "the cluster ingress on node {node} is gone");
            }
            Self::Stranger => {
                debug!("a connection that is not the bound ingress's asked for the route table")
            }
            Self::Pulled { applied, held } => debug!(applied, held, "the ingress reads the route table"),
            Self::HintFailed { revision, class } => warn!(
                revision,
                class,
                "the ingress could not be hinted at the newer route table; it reads it at its next pull"
            ),
            Self::StatisticsTimeout => {
                warn!(method = "getClusterTrafficStatistics", "the ingress did not answer in time");
            }
        }
    }
}
