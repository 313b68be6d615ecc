//! The snapshot that relayd hands vpnd, and what vpnd says of it.
//!
//! The daemon's own words, `schemaVersion`, the ISO-8601 expiry and `enabled`, stand here and nowhere else
//! (VPN-31); what relayd holds has the contract's form (VPN-32). Nothing here is a secret: keys are public
//! ones (VPN-07).

use std::{fmt, net::Ipv4Addr};

use bincode::{Decode, Encode};

/// The version of [`Snapshot`] that this build writes and reads.
pub const SNAPSHOT_SCHEMA: u32 = 1;

/// Members that a network has at most (contract, section 6).
pub const MOST_MEMBERS: usize = 4096;

/// Prefixes that the members of a network have at most, together.
pub const MOST_PREFIXES: usize = 65_536;

/// Grants that a network states at most, repeats among them: 256 for each of [`MOST_MEMBERS`].
pub const MOST_GRANTS: usize = 1 << 20;

/// An IPv4 prefix; bits behind the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Prefix {
    /// The network's address.
    pub address: Ipv4Addr,
    /// Bits of it that are fixed, 0 to 32.
    pub length: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Which network is held: what a relayd that starts anew takes over from the vpnd that lives.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Held {
    /// Id of the authority that compiled it.
    pub authority: String,
    /// Generation of that authority.
    pub generation: u64,
    /// The network's revision under it.
    pub revision: u64,
    /// The control prefix, fixed for the life of the hub (VPN-12).
    pub control_prefix: Prefix,
    /// SHA-256 over the network's content, to tell a repeat from another network of the same revision.
    pub digest: [u8; 32],
}

/// A member, as the daemon is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SnapshotMember {
    /// The node.
    pub node_id: String,
    /// Its X25519 key, by which it is admitted.
    pub public_key: [u8; 32],
    /// Its address in the control prefix.
    pub address: Ipv4Addr,
    /// The ranges behind it.
    pub prefixes: Vec<Prefix>,
    /// Always set: what the contract leaves out is withdrawn (VPN-15).
    pub enabled: bool,
    /// ISO-8601, UTC, with milliseconds: `2026-01-31T00:00:00.000Z`.
    pub expires_at: String,
}

/// One whole network (VPN-14).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Snapshot {
    /// [`SNAPSHOT_SCHEMA`].
    pub schema_version: u32,
    /// Which network this is.
    pub network: Held,
    /// At most [`MOST_MEMBERS`].
    pub members: Vec<SnapshotMember>,
    /// Who may open traffic to whom.
    pub grants: Grants,
}

/// The grants among `n` members, as a square of bits: one row per member, of whole 64-bit words.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Grants {
    words_per_row: u32,
    words: Vec<u64>,
}

impl Grants {
    /// No grant among `members` members.
    pub fn none(members: usize) -> Self {
        let words_per_row = members.div_ceil(64);
        Self {
            words_per_row: u32::try_from(words_per_row).expect("a network has a bounded number of members"),
            words: vec![0; members * words_per_row],
        }
    }

    /// Whether this is a square of `members` members, with no grant beyond them; one that came over a link may be
    /// anything.
    pub fn is_of(&self, members: usize) -> bool {
        let words_per_row = members.div_ceil(64);
        let beyond = if members.is_multiple_of(64) { 0 } else { u64::MAX << (members % 64) };
        self.words_per_row as usize == words_per_row
            && self.words.len() == members * words_per_row
            && self
                .words
                .chunks(words_per_row.max(1))
                .all(|row| row.last().is_none_or(|word| word & beyond == 0))
    }

    /// Lets `from` open traffic to `to`, by their places among the members.
    pub fn grant(&mut self, from: usize, to: usize) {
        let word = from * self.words_per_row as usize + to / 64;
        self.words[word] |= 1 << (to % 64);
    }

    /// Whether `from` may open traffic to `to`; places beyond the members have no grant.
    pub fn granted(&self, from: usize, to: usize) -> bool {
        if to / 64 >= self.words_per_row as usize {
            return false;
        }
        let word = from * self.words_per_row as usize + to / 64;
        self.words.get(word).is_some_and(|word| word >> (to % 64) & 1 == 1)
    }

    /// The square, row by row; equal squares have equal words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// How many grants there are.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Why vpnd does not serve a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum NotApplied {
    /// The host refused the bind; the system's class (VPN-33).
    Bind(String),
    /// The snapshot is none that this daemon serves; says what of it.
    Snapshot(String),
    /// The hub serves another authority, another control prefix or a later revision.
    Passed,
}

impl fmt::Display for NotApplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(class) => write!(f, "vpn-hub-bind-refused: {class}"),
            Self::Snapshot(what) => write!(f, "vpn-hub-snapshot-refused: {what}"),
            Self::Passed => f.write_str("vpn-hub-snapshot-passed: the hub holds a later network"),
        }
    }
}

impl std::error::Error for NotApplied {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_one_bit_of_a_square() {
        for members in [1, 63, 64, 65, 130] {
            let mut grants = Grants::none(members);
            assert!(grants.is_of(members) && !grants.is_of(members + 64));
            grants.grant(members - 1, 0);
            assert_eq!((grants.count(), grants.words().len()), (1, members * members.div_ceil(64)));
            for from in 0..members {
                for to in 0..members + 70 {
                    assert_eq!(grants.granted(from, to), (from, to) == (members - 1, 0), "{members}");
                }
            }
            assert!(!grants.granted(members, 0));
            if !members.is_multiple_of(64) {
                grants.grant(0, members);
                assert!(!grants.is_of(members), "a grant to nobody");
            }
        }
    }
}
