//! Who may hold one of a bounded number of places, so that nobody who holds them without end keeps
//! others out. Those who have not shown what they came for are *unproven*; each address may hold a share
//! of the places that way, and makes room for others when the places are scarce.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// Where a connection comes from, as far as one owner can be told from another: an IPv4 address, or the
/// /64 that one IPv6 host or site is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6(u64),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                Self::V6(u64::try_from(address.to_bits() >> 64).expect("half of 128 bits are 64"))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => address.fmt(f),
            Self::V6(prefix) => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(*prefix) << 64)),
        }
    }
}

/// How places are given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// How many there are.
    pub(super) places: usize,
    /// How many of them one source may hold unproven.
    pub(super) share: usize,
    /// How long an unproven holder keeps its place against a newcomer of its own source, or of a source
    /// that holds as many.
    pub(super) grace: Duration,
}

/// Why somebody gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scarce {
    /// The source holds its share, and none of that is past its grace.
    Share,
    /// All places are held, and none is to be given up.
    Places,
}

/// A place was given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Its number.
    pub(super) number: u64,
    /// The place that is taken away for it.
    pub(super) instead: Option<u64>,
}

/// The places and who holds them.
pub(super) struct Admission {
    rules: Rules,
    next: u64,
    unproven: BTreeMap<u64, (Source, Duration)>,
    sources: BTreeMap<Source, BTreeSet<u64>>,
    proven: BTreeSet<u64>,
}

impl Admission {
    /// Places of which none is held.
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, next: 0, unproven: BTreeMap::new(), sources: BTreeMap::new(), proven: BTreeSet::new() }
    }

    /// How many places are held.
    pub(super) fn held(&self) -> usize {
        self.unproven.len() + self.proven.len()
    }

    /// Gives `source` a place, if need be one that another loses.
    ///
    /// # Errors
    /// [`Scarce`].
    pub(super) fn admit(&mut self, source: Source, now: Duration) -> Result<Given, Scarce> {
        let own = self.sources.get(&source).map_or(0, BTreeSet::len);
        let instead = if own >= self.rules.share {
            Some(self.past_grace(self.oldest_of(source), now).ok_or(Scarce::Share)?)
        } else if self.held() < self.rules.places {
            None
        } else {
            Some(self.in_the_way_of(own, now).ok_or(Scarce::Places)?)
        };
        if let Some(number) = instead {
            self.leave(number);
        }
        let number = self.next;
        self.next += 1;
        self.unproven.insert(number, (source, now));
        self.sources.entry(source).or_default().insert(number);
        Ok(Given { number, instead })
    }

    /// The holder showed what it came for: nobody takes its place any more, and it counts for no share.
    pub(super) fn prove(&mut self, number: u64) {
        if self.forget_unproven(number) {
            self.proven.insert(number);
        }
    }

    /// The holder left, or lost its place already.
    pub(super) fn leave(&mut self, number: u64) {
        let _ = self.forget_unproven(number) || self.proven.remove(&number);
    }

    fn forget_unproven(&mut self, number: u64) -> bool {
        let Some((source, _)) = self.unproven.remove(&number) else { return false };
        if let Some(own) = self.sources.get_mut(&source) {
            own.remove(&number);
            if own.is_empty() {
                self.sources.remove(&source);
            }
        }
        true
    }

    /// Who makes room, when all places are held, for a source that holds `own`: the oldest of the source
    /// that holds the most, where that is more than the newcomer's would be; else the oldest of all.
    fn in_the_way_of(&self, own: usize, now: Duration) -> Option<u64> {
        let (_, heaviest) = self.sources.iter().max_by_key(|(_, numbers)| numbers.len())?;
        if heaviest.len() > own + 1 {
            return heaviest.first().copied();
        }
        self.past_grace(self.unproven.keys().next().copied(), now)
    }

    fn oldest_of(&self, source: Source) -> Option<u64> {
        self.sources.get(&source)?.first().copied()
    }

    fn past_grace(&self, number: Option<u64>, now: Duration) -> Option<u64> {
        let (_, since) = self.unproven.get(&number?)?;
        (now.saturating_sub(*since) >= self.rules.grace).then_some(number?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules = Rules { places: 8, share: 4, grace: Duration::from_secs(1) };

    fn source(number: u8) -> Source {
        Source::from(IpAddr::from([192, 0, 2, number]))
    }

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A /64 is one source, and an IPv4 address is the same one in either notation.
    #[test]
    fn a_source_is_an_address_or_a_prefix() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:192.0.2.7"), of("192.0.2.7"));
        assert_eq!(of("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(of("192.0.2.7").to_string(), "192.0.2.7");
    }

    #[test]
    fn one_source_holds_its_share_and_no_more() {
        let mut admission = Admission::new(RULES);
        let first = admission.admit(source(1), at(0)).unwrap();
        for _ in 0..3 {
            admission.admit(source(1), at(500)).unwrap();
        }
        assert_eq!(admission.admit(source(1), at(999)), Err(Scarce::Share));
        // Its own oldest gives way once that had its time.
        let given = admission.admit(source(1), at(1000)).unwrap();
        assert_eq!((given.instead, admission.held()), (Some(first.number), 4));
        // Who is proven counts for no share.
        admission.prove(given.number);
        assert_eq!(admission.admit(source(1), at(1001)).unwrap().instead, None);
        assert_eq!(admission.held(), 5);
    }

    /// Two sources that fill all places, renewed or not, keep no third one out.
    #[test]
    fn a_newcomer_gets_a_place_while_others_fill_them() {
        let mut admission = Admission::new(RULES);
        for number in 0..8 {
            admission.admit(source(1 + number / 4), at(0)).unwrap();
        }
        for (newcomer, holds) in [(3, 0), (3, 1), (4, 0), (4, 1)] {
            let given = admission.admit(source(newcomer), at(1)).unwrap();
            let lost = given.instead.unwrap();
            assert!(lost < 8, "{newcomer} holding {holds} took the place of {lost}");
            assert_eq!(admission.held(), 8);
        }
        assert_eq!(admission.admit(source(4), at(1)), Err(Scarce::Places), "one is no more than another");
    }

    /// Many sources with a place each: the oldest gives way once it had its time, not before.
    #[test]
    fn the_oldest_of_equals_gives_way_after_its_grace() {
        let mut admission = Admission::new(RULES);
        for number in 0..8 {
            admission.admit(source(number), at(u64::from(number) * 100)).unwrap();
        }
        assert_eq!(admission.admit(source(9), at(999)), Err(Scarce::Places));
        assert_eq!(admission.admit(source(9), at(1000)).unwrap().instead, Some(0));
        assert_eq!(admission.admit(source(10), at(1000)), Err(Scarce::Places));
    }

    #[test]
    fn nobody_takes_the_place_of_the_proven() {
        let mut admission = Admission::new(RULES);
        for number in 0..8 {
            let given = admission.admit(source(number), at(0)).unwrap();
            admission.prove(given.number);
        }
        assert_eq!(admission.admit(source(9), at(60_000)), Err(Scarce::Places));
        admission.leave(3);
        assert_eq!(admission.admit(source(9), at(60_000)).unwrap().instead, None);
    }

    proptest! {
        /// However they come and go: the places are never overdrawn, no source has more than its share,
        /// and whoever was given a place has it until it leaves or loses it.
        #[test]
        fn places_are_never_overdrawn(steps in prop::collection::vec((0..4u8, 0..6u8, 0..40usize, 0..700u64), 1..300)) {
            let mut admission = Admission::new(RULES);
            let mut holders: BTreeMap<u64, (Source, bool)> = BTreeMap::new();
            let mut now = 0;
            for (step, from, which, passed) in steps {
                now += passed;
                let chosen = holders.keys().nth(which).copied();
                match (step, chosen) {
                    (2, Some(number)) => {
                        admission.prove(number);
                        holders.get_mut(&number).unwrap().1 = true;
                    }
                    (3, Some(number)) => {
                        admission.leave(number);
                        holders.remove(&number);
                    }
                    _ => {
                        if let Ok(given) = admission.admit(source(from), at(now)) {
                            if let Some(lost) = given.instead {
                                let (_, proven) = holders.remove(&lost).expect("only a holder loses a place");
                                prop_assert!(!proven);
                                admission.leave(lost);
                            }
                            holders.insert(given.number, (source(from), false));
                        }
                    }
                }
                prop_assert_eq!(admission.held(), holders.len());
                prop_assert!(admission.held() <= RULES.places);
                for number in 0..6 {
                    let own = holders.values().filter(|(from, proven)| *from == source(number) && !proven);
                    prop_assert!(own.count() <= RULES.share);
                }
            }
        }
    }
}
