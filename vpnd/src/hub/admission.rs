//! How much the hub works for strangers: who gets a handshake, and how many at once. Its port is open to the
//! cluster's whole network, and a handshake costs it half a millisecond and some memory; so an address has to
//! show that it receives before it is worked for, once there is more to do than a quiet hub has. Pure
//! accounting, of no socket and no clock.
//!
//! What a packet with a forged address causes is booked apart from what a proven one does: the first makes
//! its address prove itself, and never takes the room of the one who can.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use crate::constants::{
    FAILED_LINGER, KEY_BURST, KEY_PACE, MOST_HANDSHAKES, MOST_HANDSHAKES_OF_ADDRESS, MOST_LINGERING,
    MOST_UNPROVEN_OF_ADDRESS, NOISE_BURST, NOISE_PACE, RETRY_FROM, SESSION_LINGER, SILENT_AFTER,
    UNPROVEN_BURST, UNPROVEN_PACE,
};

/// What is done with a first packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The handshake begins.
    Accept {
        /// Is held until it is given back.
        place: Place,
        /// The handshake that has to end for it; its place is given back already.
        instead_of: Option<Number>,
    },
    /// The address has to show first that it receives; costs the hub nothing to keep.
    Retry,
    /// There are too many.
    Refuse,
}

/// Numbers the places, in the order in which they were given.
pub type Number = u64;

/// The place of one handshake.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a place that is not given back is lost"]
pub struct Place(Number);

impl Place {
    /// By which the place is told to be given to another.
    pub fn number(&self) -> Number {
        self.0
    }
}

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a session.
    Session,
    /// Without one.
    Failed,
}

/// What counts as one address: one of IPv4, or 64 bits of IPv6, which a host has to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

/// What a place is taken by. Each kind has its own room, at each address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A handshake whose address was not proven before it began, or its failure: it may be forged.
    Unproven,
    /// One whose address was, or its failure.
    Proven,
    /// A session that came about a moment ago.
    Session,
}

/// A handshake that is under way.
#[derive(Debug)]
struct Pending {
    source: Source,
    kind: Kind,
    since: Duration,
}

/// What is paid for in time: so many at once, then one in each interval.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// When all that was taken is paid for.
    paid: Duration,
}

impl Pace {
    /// Whether there is one more; takes it if so.
    fn take(&mut self, interval: Duration, burst: u32, mono: Duration) -> bool {
        let paid = self.paid.max(mono) + interval;
        let taken = paid <= mono + interval * burst;
        if taken {
            self.paid = paid;
        }
        taken
    }
}

/// The handshakes that are under way, and those that were a moment ago.
#[derive(Debug, Default)]
pub struct Admission {
    pending: BTreeMap<Number, Pending>,
    given: Number,
    /// Places that are taken, by kind.
    taken: BTreeMap<Source, [usize; 3]>,
    /// Places that are held beyond their handshake, by kind, with the end of each; ascending.
    lingering: [VecDeque<(Duration, Source)>; 3],
    unproven: Pace,
    noise: Pace,
    /// Of members that began a session a short time ago.
    keys: BTreeMap<[u8; 32], Pace>,
    keys_swept: Duration,
}

impl Admission {
    /// A first packet from `address`, which has `validated` itself or not. `mono` is monotonic time, as is
    /// every other here.
    pub fn judge(&mut self, address: IpAddr, validated: bool, mono: Duration) -> Judgement {
        self.release(mono);
        let source = Source::from(address);
        let [unproven, proven, sessions] = self.taken.get(&source).copied().unwrap_or_default();
        let full = sessions >= MOST_HANDSHAKES_OF_ADDRESS;
        if !validated {
            // Whoever forges an address takes no place of the one who has it: that one comes back validated.
            if self.pending.len() >= RETRY_FROM
                || unproven >= MOST_UNPROVEN_OF_ADDRESS
                || full
                || !self.unproven.take(UNPROVEN_PACE, UNPROVEN_BURST, mono)
            {
                return Judgement::Retry;
            }
            return Judgement::Accept { place: self.begin(source, Kind::Unproven, mono), instead_of: None };
        }
        if full {
            return Judgement::Refuse;
        }
        // One that says nothing gives way: of the same address if that has its share, otherwise of any.
        let instead_of = if proven >= MOST_HANDSHAKES_OF_ADDRESS {
            let own = |pending: &Pending| pending.source == source && pending.kind == Kind::Proven;
            self.silent(own, mono)
        } else if self.pending.len() >= MOST_HANDSHAKES {
            self.silent(|_| true, mono)
        } else {
            return Judgement::Accept { place: self.begin(source, Kind::Proven, mono), instead_of: None };
        };
        let Some(former) = instead_of else { return Judgement::Refuse };
        self.evict(former);
        Judgement::Accept { place: self.begin(source, Kind::Proven, mono), instead_of }
    }

    /// A handshake ended. That of a place that another was given changes nothing any more.
    pub fn give_back(&mut self, place: Place, outcome: Outcome, mono: Duration) {
        self.release(mono);
        let Some(Pending { source, kind, .. }) = self.pending.remove(&place.0) else { return };
        match outcome {
            Outcome::Failed => self.linger(source, kind, mono + FAILED_LINGER),
            Outcome::Session => {
                self.free(source, kind);
                self.taken.entry(source).or_default()[Kind::Session as usize] += 1;
                self.linger(source, Kind::Session, mono + SESSION_LINGER);
            }
        }
    }

    /// Whether a Noise handshake is answered now; counts it if so.
    pub fn noise(&mut self, mono: Duration) -> bool {
        self.noise.take(NOISE_PACE, NOISE_BURST, mono)
    }

    /// Whether the member of `key` may begin a session now; counts it if so.
    pub fn member(&mut self, key: &[u8; 32], mono: Duration) -> bool {
        if mono >= self.keys_swept + KEY_PACE {
            self.keys_swept = mono;
            self.keys.retain(|_, pace| pace.paid > mono);
        }
        self.keys.entry(*key).or_default().take(KEY_PACE, KEY_BURST, mono)
    }

    /// Handshakes that are under way.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn begin(&mut self, source: Source, kind: Kind, since: Duration) -> Place {
        self.given += 1;
        self.taken.entry(source).or_default()[kind as usize] += 1;
        self.pending.insert(self.given, Pending { source, kind, since });
        Place(self.given)
    }

    /// The oldest handshake of `which` that has taken so long that it waits for its peer.
    fn silent(&self, which: impl Fn(&Pending) -> bool, mono: Duration) -> Option<Number> {
        let (number, oldest) = self.pending.iter().find(|(_, pending)| which(pending))?;
        (oldest.since + SILENT_AFTER <= mono).then_some(*number)
    }

    fn evict(&mut self, number: Number) {
        if let Some(Pending { source, kind, .. }) = self.pending.remove(&number) {
            self.free(source, kind);
        }
    }

    /// Keeps a place that is taken until then.
    fn linger(&mut self, source: Source, kind: Kind, until: Duration) {
        let queue = &mut self.lingering[kind as usize];
        queue.push_back((until, source));
        if queue.len() > MOST_LINGERING {
            self.release_first(kind);
        }
    }

    fn release(&mut self, mono: Duration) {
        for kind in [Kind::Unproven, Kind::Proven, Kind::Session] {
            while self.lingering[kind as usize].front().is_some_and(|(until, _)| *until <= mono) {
                self.release_first(kind);
            }
        }
    }

    fn release_first(&mut self, kind: Kind) {
        if let Some((_, source)) = self.lingering[kind as usize].pop_front() {
            self.free(source, kind);
        }
    }

    fn free(&mut self, source: Source, kind: Kind) {
        let Some(taken) = self.taken.get_mut(&source) else { return };
        taken[kind as usize] -= 1;
        if *taken == [0; 3] {
            self.taken.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests;
