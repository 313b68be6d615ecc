//! Protocol offers, judged before a body is validated, a bearer travels or anything is forwarded
//! (PROT-12, PROT-13).

use coreflow_ipc::{
    messages::readiness::Offers,
    typedrequest::{Body, Outcome, refusal},
};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    constants::{OLDEST_CLOUDLY, OLDEST_INGRESS, OLDEST_PALLET, RELEASE},
    contract::{
        offer::{Offer, Release},
        values::from_object,
    },
    refusals::PROTOCOL_REFUSED,
};

/// A kind of session with an offer of its own (PROT-08).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The relay is Cloudly's client.
    CloudlyClient,
    /// A Pallet node is the relay's client.
    PalletRuntime,
    /// The cluster ingress is the relay's client.
    ClusterIngress,
}

impl Kind {
    /// The name of the kind in refusals and readiness.
    pub fn name(self) -> &'static str {
        match self {
            Self::CloudlyClient => "cloudlyClient",
            Self::PalletRuntime => "palletRuntime",
            Self::ClusterIngress => "clusterIngress",
        }
    }

    /// This build's offer for the kind (PROT-07, PROT-09).
    pub fn own_offer(self) -> Offer {
        let oldest = match self {
            Self::CloudlyClient => OLDEST_CLOUDLY,
            Self::PalletRuntime => OLDEST_PALLET,
            Self::ClusterIngress => OLDEST_INGRESS,
        };
        let release = |text| Release::parse(text).expect("the constants are releases");
        Offer { release: release(RELEASE), oldest_accepted_peer_release: release(oldest) }
    }
}

/// Two offers that do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disagreement {
    /// Which sessions it is about.
    pub kind: Kind,
    /// This build's offer.
    pub own: Offer,
    /// The peer's, if it stated one that can be read.
    pub peer: Option<Offer>,
}

impl Disagreement {
    /// Both offers, as readiness states them (PROT-24).
    pub fn offers(&self) -> Offers {
        Offers { own: self.own.stated(), peer: self.peer.map(|peer| peer.stated()) }
    }

    /// The line that states why.
    pub fn line(&self) -> String {
        let own = &self.own;
        let peer = self.peer.map_or_else(
            || "states no readable offer".to_owned(),
            |peer| format!("speaks {} and accepts from {}", peer.release, peer.oldest_accepted_peer_release),
        );
        format!(
            "{PROTOCOL_REFUSED}: {} peer {peer}; this relay speaks {} and accepts from {}",
            self.kind.name(),
            own.release,
            own.oldest_accepted_peer_release
        )
    }

    /// What the refused peer is told.
    pub fn refusal(&self) -> Outcome {
        refusal(&self.line(), json!({ "kind": self.kind.name(), "offer": self.own, "received": self.peer }))
    }
}

/// Judges what a peer offered: `None` and what cannot be read are refused like a foreign release.
pub fn judge(kind: Kind, offered: Option<&RawValue>) -> Result<Offer, Disagreement> {
    let own = kind.own_offer();
    let peer: Option<Offer> = offered.and_then(from_object);
    match peer {
        Some(peer) if compatible(&own, &peer) => Ok(peer),
        Some(_) | None => Err(Disagreement { kind, own, peer }),
    }
}

/// Whether each side's release is one that the other accepts.
pub fn compatible(one: &Offer, other: &Offer) -> bool {
    one.release >= other.oldest_accepted_peer_release && other.release >= one.oldest_accepted_peer_release
}

/// The disagreement behind Cloudly's `protocol-refused`, out of its `error.data`.
pub fn refused_by_cloudly(data: &Body) -> Disagreement {
    #[derive(Deserialize)]
    struct Data {
        #[serde(default)]
        offer: Option<Offer>,
    }
    let peer = data.read::<Data>().ok().and_then(|data| data.offer);
    Disagreement { kind: Kind::CloudlyClient, own: Kind::CloudlyClient.own_offer(), peer }
}

#[cfg(test)]
mod tests;
