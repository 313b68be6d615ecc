//! What the log says of the hub: of a network whose it is, its revision and how much it holds; refusals by name
//! and path; no key.

use tracing::{debug, info, warn};

use crate::{
    contract::values::Id,
    refusals::{HUB_ABSENT, NETWORK_INVALID},
};

/// A statement for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A vpnd stated its key.
    Linked {
        /// The revision that it serves already.
        revision: Option<u64>,
    },
    /// The link to vpnd is gone; whether vpnd is, the supervisor says.
    Lost {
        /// The revision that it served then.
        revision: Option<u64>,
    },
    /// The hub serves another network.
    Adopted {
        /// Id of the authority that compiled it.
        authority: Id,
        /// Generation of that authority.
        generation: u64,
        /// Its revision.
        revision: u64,
        /// How many members it has.
        members: usize,
        /// How many grants it has.
        grants: usize,
    },
    /// The held network came again.
    Replayed {
        /// Its revision.
        revision: u64,
    },
    /// A network is not admitted.
    Refused {
        /// The refusal's name.
        name: &'static str,
        /// The revision that is held.
        held: Option<u64>,
    },
    /// A network failed its validator.
    Invalid {
        /// Where it is invalid.
        path: String,
    },
    /// The hub does not serve a network that was admitted, or could not be given it.
    Failed {
        /// Why, by name.
        reason: String,
    },
    /// Cloudly has compiled no network for this cluster (VPN-26).
    NoNetwork,
    /// The network could not be read.
    NotRead {
        /// Cloudly's refusal by name, or the class of the failure.
        class: String,
        /// Whether there is a hub that it would be for.
        hub: bool,
    },
}

impl Note {
    /// Writes the line.
    pub fn log(&self) {
        match self {
            Self::Linked { revision } => info!(revision, "the managed VPN hub has stated its key"),
            Self::Lost { revision } => {
                warn!(
                    revision,
                    "the link to the managed VPN hub is gone; the hub takes no network until it is linked again"
                );
            }
            Self::Adopted { authority, generation, revision, members, grants } => info!(
                authority = authority.as_str(),
                generation, revision, members, grants, "the managed VPN hub serves the cluster's network"
            ),
            Self::Replayed { revision } => debug!(revision, "the held VPN network came again"),
            // Without a hub there is nothing to do about it.
            Self::Refused { name: HUB_ABSENT, .. } => {
                debug!("{HUB_ABSENT}: a VPN network has no hub to go to")
            }
            Self::Refused { name, held } => {
                warn!(held, "{name}; the VPN network that was held before stays in service");
            }
            Self::Invalid { path } => {
                warn!("{NETWORK_INVALID}: {path}; the VPN network that was held before stays in service");
            }
            Self::Failed { reason } => warn!("{reason}; the VPN network is not applied"),
            Self::NoNetwork => debug!("Cloudly has compiled no VPN network for this cluster"),
            Self::NotRead { class, hub: true } => warn!(
                method = "getClusterVpnNetwork",
                class, "the VPN network could not be read; the one that was held before stays in service"
            ),
            Self::NotRead { class, hub: false } => {
                debug!(method = "getClusterVpnNetwork", class, "the VPN network could not be read");
            }
        }
    }
}
