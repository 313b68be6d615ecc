//! Protocol offers: what a build speaks and what it accepts.

use coreflow_ipc::messages::readiness::StatedOffer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// `Release`: `major.minor.patch`, ordered by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release([u32; 3]);

impl Release {
    /// Parses `major.minor.patch`; `None` for anything else, leading zeros included.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut numbers = [0; 3];
        for number in &mut numbers {
            let part = parts.next()?;
            let canonical = !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && (part == "0" || !part.starts_with('0'));
            *number = canonical.then(|| part.parse().ok()).flatten()?;
        }
        parts.next().is_none().then_some(Self(numbers))
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Serialize for Release {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Release {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a release"))
    }
}

/// `Offer`, exact-key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Offer {
    /// The release that the build implements.
    pub release: Release,
    /// The oldest release of a peer that it serves.
    pub oldest_accepted_peer_release: Release,
}

impl Offer {
    /// The offer as texts.
    pub fn stated(&self) -> StatedOffer {
        StatedOffer {
            release: self.release.to_string(),
            oldest_accepted_peer_release: self.oldest_accepted_peer_release.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_three_plain_numbers() {
        assert!(Release::parse("32.10.1") > Release::parse("32.9.9"));
        for refused in
            ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.3-rc", "1..3", "+1.2.3", " 1.2.3", "1.2.99999999999"]
        {
            assert_eq!(Release::parse(refused), None, "{refused:?}");
        }
    }
}
