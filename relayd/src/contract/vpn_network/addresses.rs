//! IPv4 prefixes: how the contract writes them, and which member an address belongs to.

use std::{collections::BTreeMap, net::Ipv4Addr};

use coreflow_ipc::messages::vpn_network::Prefix;

/// Reads `address/length` in its one canonical form: no bit is set behind the prefix, no digit is in vain.
pub(super) fn parse_prefix(text: &str) -> Option<Prefix> {
    let (address, length) = text.split_once('/')?;
    let prefix = Prefix { address: address.parse::<Ipv4Addr>().ok()?, length: length.parse().ok()? };
    let canonical = prefix.length <= 32
        && u32::from(prefix.address) & behind(prefix.length) == 0
        && prefix.to_string() == text;
    canonical.then_some(prefix)
}

/// The bits that a prefix of this length leaves open.
fn behind(length: u8) -> u32 {
    u32::MAX.checked_shr(u32::from(length)).unwrap_or(0)
}

/// The first address of a prefix.
pub(super) fn first(prefix: Prefix) -> u32 {
    u32::from(prefix.address)
}

/// The last address of a prefix.
pub(super) fn last(prefix: Prefix) -> u32 {
    first(prefix) | behind(prefix.length)
}

/// Which addresses are taken, and by whom: ranges that do not meet, by their first address.
#[derive(Default)]
pub(super) struct Occupied(BTreeMap<u32, (u32, usize)>);

impl Occupied {
    /// Takes a prefix for `owner`; says whether none of it is another's. Of two prefixes that meet one lies in
    /// the other.
    pub(super) fn take(&mut self, prefix: Prefix, owner: usize) -> bool {
        let (first, last) = (first(prefix), last(prefix));
        if let Some((_, (end, other))) = self.0.range(..=first).next_back()
            && *end >= last
        {
            return *other == owner;
        }
        let within: Vec<u32> = self.0.range(first..=last).map(|(start, _)| *start).collect();
        if within.iter().any(|start| self.0[start].1 != owner) {
            return false;
        }
        for start in within {
            self.0.remove(&start);
        }
        self.0.insert(first, (last, owner));
        true
    }
}
