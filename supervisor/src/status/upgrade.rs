//! Which build has to be upgraded so that two offers meet: what an operator looks for in a refused protocol
//! (PROT-24, PROT-35).

use coreflow_ipc::messages::readiness::{Hop, Offers};

/// What has to be upgraded, to at least which release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// This relay.
    Relay(String),
    /// The other side of the hop.
    Peer(String),
}

/// The upgrades that let the two offers meet: one or both, and none when they meet as they are, or when a
/// release of this relay's own offer is none.
pub(super) fn upgrades(offers: &Offers) -> Vec<Upgrade> {
    let own = &offers.own;
    let (Some(speaks), Some(accepts)) = (numbers(&own.release), numbers(&own.oldest_accepted_peer_release))
    else {
        return Vec::new();
    };
    let peer = Upgrade::Peer(own.oldest_accepted_peer_release.clone());
    let Some(stated) = &offers.peer else { return vec![peer] };
    let (Some(peer_speaks), Some(peer_accepts)) =
        (numbers(&stated.release), numbers(&stated.oldest_accepted_peer_release))
    else {
        return vec![peer];
    };
    let relay = Upgrade::Relay(stated.oldest_accepted_peer_release.clone());
    let needed = [(speaks < peer_accepts, relay), (peer_speaks < accepts, peer)];
    needed.into_iter().filter(|(needed, _)| *needed).map(|(_, upgrade)| upgrade).collect()
}

/// The other side of a hop, as one of them and as all of them.
pub(super) fn peer_of(hop: Hop) -> (&'static str, &'static str) {
    match hop {
        Hop::CloudlyClient | Hop::ClusterRelayRegistration => ("Cloudly", "Cloudly"),
        Hop::PalletRuntime => ("the Pallet node", "the Pallet nodes"),
        Hop::ClusterIngress => ("the cluster ingress", "the cluster ingress"),
    }
}

/// `major.minor.patch`.
fn numbers(release: &str) -> Option<[u64; 3]> {
    let mut parts = release.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}
