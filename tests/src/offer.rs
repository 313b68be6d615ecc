//! Protocol offers of the contract, section 2: what a peer speaks and what it still accepts.

use serde_json::{Value, json};

/// A stated offer. Releases are text, so that a test can state a malformed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The release this side speaks, `major.minor.patch`.
    pub release: String,
    /// The oldest release of the other side that this side accepts.
    pub oldest_accepted_peer_release: String,
}

impl Offer {
    /// An offer of these two releases.
    pub fn new(release: &str, oldest_accepted_peer_release: &str) -> Self {
        Self {
            release: release.to_owned(),
            oldest_accepted_peer_release: oldest_accepted_peer_release.to_owned(),
        }
    }

    /// The exact-key JSON object.
    pub fn json(&self) -> Value {
        json!({
            "release": self.release,
            "oldestAcceptedPeerRelease": self.oldest_accepted_peer_release,
        })
    }

    /// Reads the exact-key object; anything else is `None`, a malformed offer.
    pub fn read(value: Option<&Value>) -> Option<Self> {
        let members = value?.as_object()?;
        let text = |key: &str| members.get(key)?.as_str().map(str::to_owned);
        let offer = Self {
            release: text("release")?,
            oldest_accepted_peer_release: text("oldestAcceptedPeerRelease")?,
        };
        let readable =
            numbers(&offer.release).is_some() && numbers(&offer.oldest_accepted_peer_release).is_some();
        (members.len() == 2 && readable).then_some(offer)
    }

    /// Two offers are compatible when neither release is below what the other side accepts.
    pub fn serves(&self, peer: &Self) -> bool {
        let reaches = |release: &str, oldest: &str| match (numbers(release), numbers(oldest)) {
            (Some(release), Some(oldest)) => release >= oldest,
            (None, _) | (_, None) => false,
        };
        reaches(&self.release, &peer.oldest_accepted_peer_release)
            && reaches(&peer.release, &self.oldest_accepted_peer_release)
    }

    /// The text and data of the refusal this side gives to `received` on a session of `kind`.
    pub fn refusal(&self, kind: &str, received: Option<&Self>) -> (String, Value) {
        let (spoken, accepted) = match received {
            Some(peer) => (peer.release.as_str(), peer.oldest_accepted_peer_release.as_str()),
            None => ("nothing readable", "nothing readable"),
        };
        let text = format!(
            "protocol-refused: {kind} peer speaks {spoken} and accepts from {accepted}; this side speaks {} and accepts from {}",
            self.release, self.oldest_accepted_peer_release
        );
        (text, json!({"kind": kind, "offer": self.json(), "received": received.map(Self::json)}))
    }
}

fn numbers(release: &str) -> Option<[u64; 3]> {
    let mut parts = release.split('.').map(|part| {
        let plain = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
        if plain { part.parse().ok() } else { None }
    });
    let read = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compatibility asks both sides, and releases compare as numbers.
    #[test]
    fn both_sides_have_to_accept() {
        let own = Offer::new("33.1.0", "32.0.0");
        assert!(own.serves(&Offer::new("32.0.0", "33.1.0")));
        assert!(own.serves(&Offer::new("32.10.1", "32.9.9")));
        assert!(!own.serves(&Offer::new("31.9.9", "30.0.0")));
        assert!(!own.serves(&Offer::new("34.0.0", "33.2.0")));
    }

    /// Only the exact object is an offer.
    #[test]
    fn an_offer_is_exact() {
        assert!(
            Offer::read(Some(&json!({"release": "1.2.3", "oldestAcceptedPeerRelease": "1.0.0"}))).is_some()
        );
        for wrong in [
            json!({"release": "1.2.3"}),
            json!({"release": "1.2.3", "oldestAcceptedPeerRelease": "1.0.0", "more": 1}),
            json!({"release": "1.2", "oldestAcceptedPeerRelease": "1.0.0"}),
            json!({"release": "01.2.3", "oldestAcceptedPeerRelease": "1.0.0"}),
            json!({"release": 1, "oldestAcceptedPeerRelease": "1.0.0"}),
            json!(null),
        ] {
            assert_eq!(Offer::read(Some(&wrong)), None, "{wrong}");
        }
        assert_eq!(Offer::read(None), None);
    }
}
