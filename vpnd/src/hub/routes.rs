//! Whose an address is: the one answer that both the source of a packet and its destination are judged by
//! (VPN-06). What belongs to different members is disjoint, so the longest prefix is the only one.

use std::{fmt, net::Ipv4Addr};

use coreflow_ipc::messages::vpn_network::Prefix;

use crate::constants::DIRECT_ADDRESSES;

/// No member has this place: a network has at most 4,096.
const NOBODY: u16 = u16::MAX;

/// Addresses from `first` to `last`, both included, of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u32,
    last: u32,
    member: u16,
}

/// Who has which addresses.
#[derive(Debug)]
pub struct Routes {
    /// The control prefix's own address.
    base: u32,
    /// Members by the offset of their address in the control prefix, up to the last of these.
    direct: Vec<u16>,
    /// Everything else, ascending and disjoint.
    ranges: Vec<Range>,
}

/// Addresses that two members have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The first of them.
    pub at: Ipv4Addr,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "two members have {}", self.at)
    }
}

impl std::error::Error for Overlap {}

/// The first and the last address of `prefix`.
pub fn bounds(prefix: Prefix) -> (u32, u32) {
    let first = prefix.address.to_bits();
    (first, first | host_bits(prefix.length))
}

/// Whether `prefix` has no bits behind its length, and a length that there is.
pub fn is_canonical(prefix: Prefix) -> bool {
    prefix.length <= 32 && prefix.address.to_bits() & host_bits(prefix.length) == 0
}

fn host_bits(length: u8) -> u32 {
    u32::MAX.checked_shr(u32::from(length)).unwrap_or(0)
}

impl Routes {
    /// The routes of members that have `owned`, in the order of their places; of each its address in
    /// `control_prefix`, and its canonical prefixes.
    ///
    /// # Errors
    /// Two members have an address in common.
    pub fn of<'a>(
        control_prefix: Prefix,
        owned: impl Iterator<Item = (Ipv4Addr, &'a [Prefix])>,
    ) -> Result<Self, Overlap> {
        let base = control_prefix.address.to_bits();
        let mut direct: Vec<u16> = Vec::new();
        let mut ranges = Vec::new();
        for (place, (address, prefixes)) in owned.enumerate() {
            let member = u16::try_from(place).expect("a network has a bounded number of members");
            let bits = address.to_bits();
            match usize::try_from(bits.wrapping_sub(base)) {
                Ok(offset) if offset < DIRECT_ADDRESSES => {
                    if direct.len() <= offset {
                        direct.resize(offset + 1, NOBODY);
                    }
                    if direct[offset] != NOBODY {
                        return Err(Overlap { at: address });
                    }
                    direct[offset] = member;
                }
                Ok(_) | Err(_) => ranges.push(Range { first: bits, last: bits, member }),
            }
            ranges.extend(prefixes.iter().map(|prefix| {
                let (first, last) = bounds(*prefix);
                Range { first, last, member }
            }));
        }
        ranges.sort_unstable();
        let ranges = disjoint(ranges)?;
        Ok(Self { base, direct, ranges })
    }

    /// The place of the member that has `address`.
    pub fn member(&self, address: Ipv4Addr) -> Option<usize> {
        let bits = address.to_bits();
        if let Some(member) =
            usize::try_from(bits.wrapping_sub(self.base)).ok().and_then(|offset| self.direct.get(offset))
            && *member != NOBODY
        {
            return Some(usize::from(*member));
        }
        let after = self.ranges.partition_point(|range| range.first <= bits);
        let range = self.ranges[..after].last()?;
        (bits <= range.last).then(|| usize::from(range.member))
    }

    /// Whether `source` is the member's own: found by the very look-up that finds a destination.
    pub fn owns(&self, member: usize, source: Ipv4Addr) -> bool {
        self.member(source) == Some(member)
    }
}

/// Joins what one member has several times; `ranges` ascend.
fn disjoint(ranges: Vec<Range>) -> Result<Vec<Range>, Overlap> {
    let mut joined: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(former) if range.first <= former.last => {
                if former.member != range.member {
                    return Err(Overlap { at: Ipv4Addr::from_bits(range.first) });
                }
                former.last = former.last.max(range.last);
            }
            Some(_) | None => joined.push(range),
        }
    }
    joined.shrink_to_fit();
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(address: [u8; 4], length: u8) -> Prefix {
        let bits = Ipv4Addr::from(address).to_bits() & !host_bits(length);
        Prefix { address: Ipv4Addr::from_bits(bits), length }
    }

    fn routes(control: Prefix, owned: &[(Ipv4Addr, Vec<Prefix>)]) -> Result<Routes, Overlap> {
        Routes::of(control, owned.iter().map(|(address, prefixes)| (*address, prefixes.as_slice())))
    }

    #[test]
    fn an_address_is_whose_prefix_holds_it_up_to_its_ends() {
        let control = prefix([10, 8, 0, 0], 16);
        let owned = [
            ([10, 8, 0, 2].into(), vec![prefix([10, 1, 0, 0], 16), prefix([10, 1, 4, 0], 24)]),
            ([10, 8, 0, 3].into(), vec![prefix([10, 2, 0, 0], 24), prefix([255, 255, 255, 255], 32)]),
            ([10, 8, 255, 254].into(), vec![]),
        ];
        let routes = routes(control, &owned).unwrap();
        for (address, member) in [
            ([10, 8, 0, 2], Some(0)),
            ([10, 8, 0, 3], Some(1)),
            ([10, 8, 255, 254], Some(2)),
            ([10, 8, 0, 1], None),
            ([10, 8, 0, 4], None),
            ([10, 1, 0, 0], Some(0)),
            ([10, 1, 4, 9], Some(0)),
            ([10, 1, 255, 255], Some(0)),
            ([10, 0, 255, 255], None),
            ([10, 2, 0, 255], Some(1)),
            ([10, 2, 1, 0], None),
            ([255, 255, 255, 255], Some(1)),
            ([0, 0, 0, 0], None),
        ] {
            assert_eq!(routes.member(address.into()), member, "{address:?}");
            for asked in 0..4 {
                assert_eq!(routes.owns(asked, address.into()), member == Some(asked));
            }
        }
    }

    #[test]
    fn members_have_no_address_in_common() {
        let control = prefix([10, 8, 0, 0], 16);
        let overlapping = [
            ([10, 8, 0, 2].into(), vec![prefix([10, 1, 0, 0], 16)]),
            ([10, 8, 0, 3].into(), vec![prefix([10, 1, 4, 0], 24)]),
        ];
        assert_eq!(routes(control, &overlapping).unwrap_err(), Overlap { at: [10, 1, 4, 0].into() });
        let twice = [([10, 8, 0, 2].into(), vec![]), ([10, 8, 0, 2].into(), vec![])];
        assert!(routes(control, &twice).is_err());
    }

    proptest! {
        /// Against looking at every prefix, with control prefixes on both sides of the direct table's size.
        #[test]
        fn the_lookup_agrees_with_looking_at_every_prefix(
            length in 8_u8..=28,
            addresses in proptest::collection::btree_set(2_u32..200, 1..6),
            prefixes in proptest::collection::vec((0_usize..6, any::<[u8; 2]>(), 12_u8..=32), 0..12),
            asked in proptest::collection::vec(any::<u32>(), 64),
        ) {
            let control = prefix([10, 0, 0, 0], length);
            let room = host_bits(length) - 2;
            let mut owned: Vec<(Ipv4Addr, Vec<Prefix>)> = addresses
                .iter()
                .map(|offset| (Ipv4Addr::from_bits(control.address.to_bits() + (offset * 104_729 % room + 1)), vec![]))
                .collect();
            for (member, [high, low], length) in prefixes {
                let member = member % owned.len();
                owned[member].1.push(prefix([172, 16 | high & 3, low, 0], length));
            }
            let slow = |bits: u32| -> Vec<usize> {
                let has = |(address, prefixes): &(Ipv4Addr, Vec<Prefix>)| {
                    address.to_bits() == bits
                        || prefixes.iter().any(|prefix| {
                            bits & !host_bits(prefix.length) == prefix.address.to_bits()
                        })
                };
                (0..owned.len()).filter(|member| has(&owned[*member])).collect()
            };
            let near = owned.iter().flat_map(|(address, prefixes)| {
                let ends = prefixes.iter().flat_map(|prefix| { let (a, b) = bounds(*prefix); [a, b] });
                ends.chain([address.to_bits()]).flat_map(|bits| [bits, bits.wrapping_sub(1), bits.wrapping_add(1)])
            });
            let asked: Vec<u32> = near.chain(asked).collect();
            match routes(control, &owned) {
                Ok(routes) => for bits in asked {
                    let found = slow(bits);
                    prop_assert!(found.len() <= 1);
                    prop_assert_eq!(routes.member(Ipv4Addr::from_bits(bits)), found.first().copied());
                },
                Err(Overlap { at }) => prop_assert!(slow(at.to_bits()).len() > 1),
            }
        }
    }
}
