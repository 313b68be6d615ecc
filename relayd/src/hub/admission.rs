//! Whether a network is admitted: the contract's own decision over what is held and what is offered (VPN-17,
//! VPN-18, VPN-19, VPN-20, VPN-21, VPN-22, VPN-25).
//!
//! Networks of one authority are ordered by its generation, and by the revision within it.

use coreflow_ipc::messages::vpn_network::{Held, Prefix};

use super::reading::Offered;
use crate::{
    contract::vpn_network::VpnNetwork,
    refusals::{NETWORK_AUTHORITY_FOREIGN, NETWORK_REVISION_STALE},
};

/// What the hub serves.
pub(super) enum Holding {
    /// The network, as Cloudly wrote it (VPN-32).
    Network(Box<VpnNetwork>),
    /// Which one, as vpnd states it to a relayd that began after it.
    Stated(Held),
}

/// What becomes of an offered network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// It takes the place of the held one.
    TakeOver,
    /// It is the held one.
    Replay,
    /// It is refused; the name.
    Refuse(&'static str),
}

impl Holding {
    pub(super) fn revision(&self) -> u64 {
        self.order().1
    }

    /// Whose it is and where.
    fn of(&self) -> (&str, Prefix) {
        match self {
            Self::Network(network) => (network.authority.as_str(), network.control_prefix),
            Self::Stated(held) => (&held.authority, held.control_prefix),
        }
    }

    fn order(&self) -> (u64, u64) {
        match self {
            Self::Network(network) => order(network),
            Self::Stated(held) => (held.generation, held.revision),
        }
    }

    fn is(&self, offered: &Offered) -> bool {
        match self {
            Self::Network(held) => *held == offered.network,
            Self::Stated(held) => held.digest == offered.snapshot.network.digest,
        }
    }
}

fn order(network: &VpnNetwork) -> (u64, u64) {
    (network.generation.get(), network.revision.get())
}

/// Whether `offered` comes after `other` in the order that both are of: a hub that is given it has passed the other.
pub(super) fn passes(offered: &VpnNetwork, other: &VpnNetwork) -> bool {
    let of = |network: &VpnNetwork| (network.authority.clone(), network.control_prefix);
    of(offered) == of(other) && order(offered) > order(other)
}

/// Decides. Another network under the revision of the held one is one that the hub has passed.
pub(super) fn decide(holding: Option<&Holding>, offered: &Offered) -> Decision {
    let Some(holding) = holding else { return Decision::TakeOver };
    if holding.of() != (offered.network.authority.as_str(), offered.network.control_prefix) {
        return Decision::Refuse(NETWORK_AUTHORITY_FOREIGN);
    }
    match order(&offered.network).cmp(&holding.order()) {
        std::cmp::Ordering::Greater => Decision::TakeOver,
        std::cmp::Ordering::Equal if holding.is(offered) => Decision::Replay,
        std::cmp::Ordering::Equal | std::cmp::Ordering::Less => Decision::Refuse(NETWORK_REVISION_STALE),
    }
}
