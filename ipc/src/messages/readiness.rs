//! What blocks the relay's hops, as relayd states it to the supervisor and `coreflowctl` prints it
//! (PROT-21 – PROT-25; contract, section 9).

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// A place where the relay negotiates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hop {
    /// The registration of the Cloudly session.
    CloudlyClient,
    /// The registration of the relay on it.
    ClusterRelayRegistration,
    /// The nodes.
    PalletRuntime,
    /// The cluster ingress.
    ClusterIngress,
}

impl Hop {
    /// The hop's name in `refusals`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CloudlyClient => "cloudlyClient",
            Self::ClusterRelayRegistration => "clusterRelayRegistration",
            Self::PalletRuntime => "palletRuntime",
            Self::ClusterIngress => "clusterIngress",
        }
    }
}

/// A protocol offer, its releases as `major.minor.patch`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StatedOffer {
    /// The release that a build speaks.
    pub release: String,
    /// The oldest release that it accepts.
    pub oldest_accepted_peer_release: String,
}

/// Two offers that do not meet (PROT-24).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offers {
    /// This relay's.
    pub own: StatedOffer,
    /// The peer's, `None` when it stated none that can be read.
    pub peer: Option<StatedOffer>,
}

/// One thing that blocks one hop (PROT-22).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The hop that cannot serve.
    pub hop: Hop,
    /// The two offers; `None` when an answer was not the contract's, and of a parked relay (PROT-25).
    pub refusal: Option<Offers>,
    /// Why, in one line.
    pub line: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.hop.name(), self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROT-22, PROT-24, PROT-25: the JSON of an entry is the contract's, with and without offers.
    #[test]
    fn an_entry_has_the_form_of_the_contract() {
        let offer = |release: &str| StatedOffer {
            release: release.to_owned(),
            oldest_accepted_peer_release: "32.0.0".to_owned(),
        };
        let offers = Offers { own: offer("33.1.0"), peer: Some(offer("31.0.0")) };
        let mut entry = Refusal { hop: Hop::PalletRuntime, refusal: Some(offers), line: "why".to_owned() };
        let json = serde_json::to_value(&entry).unwrap();
        let stated = serde_json::json!({
            "hop": "palletRuntime",
            "refusal": {
                "own": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"},
                "peer": {"release": "31.0.0", "oldestAcceptedPeerRelease": "32.0.0"},
            },
            "line": "why",
        });
        assert_eq!(json, stated);
        assert_eq!(serde_json::from_value::<Refusal>(json).unwrap(), entry);
        entry.refusal = None;
        assert_eq!(serde_json::to_value(&entry).unwrap()["refusal"], serde_json::Value::Null);
        for hop in
            [Hop::CloudlyClient, Hop::ClusterRelayRegistration, Hop::PalletRuntime, Hop::ClusterIngress]
        {
            assert_eq!(serde_json::to_value(hop).unwrap(), hop.name());
        }
    }
}
