//! A network as the hub serves it: made of a snapshot once, whole, and never changed (VPN-14, VPN-15). What
//! came over a link may be anything; a snapshot that is no network is refused and says what of it (VPN-23).

use std::{collections::BTreeSet, fmt, net::Ipv4Addr};

use coreflow_ipc::messages::vpn_network::{
    Grants, Held, MOST_MEMBERS, MOST_PREFIXES, NotApplied, Prefix, SNAPSHOT_SCHEMA, Snapshot, SnapshotMember,
};
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

use super::routes::{Overlap, Routes, bounds, is_canonical};
use crate::{
    constants::{CONTROL_PREFIX_BITS, LONGEST_ID},
    protocol::ipv4::is_unicast,
};

/// A node of the network.
#[derive(Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node_id: String,
    /// Its X25519 key.
    pub key: [u8; 32],
    /// Its address in the control prefix.
    pub address: Ipv4Addr,
    /// Unix milliseconds of its end.
    pub expires_at: u64,
    /// Whether it may be admitted at all.
    pub enabled: bool,
}

/// One whole network.
#[derive(Debug)]
pub struct Network {
    held: Held,
    members: Vec<Member>,
    /// The members' keys, ascending, with the place of each.
    keys: Vec<([u8; 32], usize)>,
    routes: Routes,
    grants: Grants,
    hub: Ipv4Addr,
    broadcast: Ipv4Addr,
}

/// Why a snapshot is no network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unservable {
    /// Another build's.
    Schema(u32),
    /// An id that is empty, too long, or not printable.
    Id,
    /// The control prefix is none, or has no room for a member.
    ControlPrefix,
    /// More members than a network has.
    Members(usize),
    /// More prefixes than a network has.
    Prefixes(usize),
    /// Two members have the same node id, key or address; says which.
    Twice(&'static str),
    /// A member's address is not one of the control prefix for members.
    Address(Ipv4Addr),
    /// A prefix with bits behind its length, or one that meets the control prefix.
    Prefix(Prefix),
    /// Members have addresses in common.
    Overlap(Overlap),
    /// An expiry that is no moment in UTC.
    Expiry,
    /// The grants are not those of as many members.
    Grants,
}

impl fmt::Display for Unservable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema(version) => write!(f, "schema version {version}"),
            Self::Id => f.write_str("an id that is none"),
            Self::ControlPrefix => f.write_str("the control prefix"),
            Self::Members(count) => write!(f, "{count} members"),
            Self::Prefixes(count) => write!(f, "{count} prefixes"),
            Self::Twice(what) => write!(f, "the same {what} twice"),
            Self::Address(address) => write!(f, "address {address}"),
            Self::Prefix(prefix) => write!(f, "prefix {prefix}"),
            Self::Overlap(overlap) => overlap.fmt(f),
            Self::Expiry => f.write_str("an expiry that is no moment in UTC"),
            Self::Grants => f.write_str("grants of another number of members"),
        }
    }
}

impl std::error::Error for Unservable {}

impl From<Unservable> for NotApplied {
    fn from(why: Unservable) -> Self {
        Self::Snapshot(why.to_string())
    }
}

impl Network {
    /// The network that `snapshot` is.
    ///
    /// # Errors
    /// It is none.
    pub fn of(snapshot: Snapshot) -> Result<Self, Unservable> {
        let Snapshot { schema_version, network: held, members, grants } = snapshot;
        if schema_version != SNAPSHOT_SCHEMA {
            return Err(Unservable::Schema(schema_version));
        }
        if !is_id(&held.authority) {
            return Err(Unservable::Id);
        }
        let control = held.control_prefix;
        if !is_canonical(control) || !CONTROL_PREFIX_BITS.contains(&control.length) {
            return Err(Unservable::ControlPrefix);
        }
        if members.len() > MOST_MEMBERS {
            return Err(Unservable::Members(members.len()));
        }
        let prefixes = members.iter().map(|member| member.prefixes.len()).sum();
        if prefixes > MOST_PREFIXES {
            return Err(Unservable::Prefixes(prefixes));
        }
        if !grants.is_of(members.len()) {
            return Err(Unservable::Grants);
        }
        distinct("node id", members.iter().map(|member| member.node_id.as_str()))?;
        distinct("key", members.iter().map(|member| member.public_key))?;
        distinct("address", members.iter().map(|member| member.address))?;
        let (first, last) = bounds(control);
        for member in &members {
            check_addresses(member, first, last)?;
        }
        let owned = members.iter().map(|member| (member.address, member.prefixes.as_slice()));
        let routes = Routes::of(control, owned).map_err(Unservable::Overlap)?;
        let members: Vec<Member> = members.into_iter().map(member_of).collect::<Result<_, _>>()?;
        let mut keys: Vec<_> =
            members.iter().enumerate().map(|(place, member)| (member.key, place)).collect();
        keys.sort_unstable();
        let (hub, broadcast) = (Ipv4Addr::from_bits(first + 1), Ipv4Addr::from_bits(last));
        Ok(Self { held, members, keys, routes, grants, hub, broadcast })
    }

    /// Which network this is.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Its members, by their places.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The place of the member with `key`.
    pub fn place(&self, key: &[u8; 32]) -> Option<usize> {
        let at = self.keys.binary_search_by(|(held, _)| held.cmp(key)).ok()?;
        Some(self.keys[at].1)
    }

    /// Whose an address is.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Whether the member at `from` may send to the one at `to`.
    pub fn granted(&self, from: usize, to: usize) -> bool {
        self.grants.granted(from, to)
    }

    /// The hub's own address: the first after the network's.
    pub fn hub(&self) -> Ipv4Addr {
        self.hub
    }

    /// Whether `address` is nobody's by its nature, whatever a prefix says: the hub's, the control prefix's
    /// first and last, `0.0.0.0/8`, loopback, multicast, and what is above.
    pub fn is_special(&self, address: Ipv4Addr) -> bool {
        !is_unicast(address)
            || address == self.hub
            || address == self.held.control_prefix.address
            || address == self.broadcast
    }
}

fn is_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn distinct<T: Ord>(what: &'static str, all: impl Iterator<Item = T>) -> Result<(), Unservable> {
    let mut seen = BTreeSet::new();
    for one in all {
        if !seen.insert(one) {
            return Err(Unservable::Twice(what));
        }
    }
    Ok(())
}

fn check_addresses(member: &SnapshotMember, first: u32, last: u32) -> Result<(), Unservable> {
    if !(first + 2..last).contains(&member.address.to_bits()) {
        return Err(Unservable::Address(member.address));
    }
    for prefix in &member.prefixes {
        let meets = || {
            let (from, to) = bounds(*prefix);
            from <= last && first <= to
        };
        if !is_canonical(*prefix) || meets() {
            return Err(Unservable::Prefix(*prefix));
        }
    }
    Ok(())
}

fn member_of(member: SnapshotMember) -> Result<Member, Unservable> {
    let SnapshotMember { node_id, public_key, address, prefixes: _, enabled, expires_at } = member;
    if !is_id(&node_id) {
        return Err(Unservable::Id);
    }
    let expires = OffsetDateTime::parse(&expires_at, &Rfc3339).map_err(|_| Unservable::Expiry)?;
    if expires.offset() != UtcOffset::UTC {
        return Err(Unservable::Expiry);
    }
    let expires_at = expires.unix_timestamp_nanos().div_euclid(1_000_000);
    let expires_at = u64::try_from(expires_at).map_err(|_| Unservable::Expiry)?;
    Ok(Member { node_id, key: public_key, address, expires_at, enabled })
}

#[cfg(test)]
mod tests;
