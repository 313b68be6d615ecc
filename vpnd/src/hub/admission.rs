//! How much the hub works for strangers: who gets a handshake, and how many at once. Its port is open to the
//! cluster's whole network, and a handshake costs it half a millisecond and some memory; so an address has to
//! show that it receives before it is worked for, once there is more to do than a quiet hub has. Pure
//! accounting, of no socket and no clock.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use crate::constants::{
    FAILED_LINGER, MOST_HANDSHAKES, MOST_HANDSHAKES_OF_ADDRESS, MOST_LINGERING, NOISE_BURST, NOISE_PACE,
    RETRY_FROM,
};

/// What is done with a first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The handshake begins; it holds the place until it is given back.
    Accept(Place),
    /// The address has to show first that it receives; costs the hub nothing to keep.
    Retry,
    /// There are too many.
    Refuse,
}

/// The place of one handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a place that is not given back is lost"]
pub struct Place {
    address: IpAddr,
    validated: bool,
}

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With a session.
    Session,
    /// Without one.
    Failed,
}

/// Places of one address.
#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    /// By handshakes whose address was proven before they began, with those that linger.
    validated: usize,
    /// By others.
    unvalidated: usize,
}

/// The handshakes that are under way.
#[derive(Debug)]
pub struct Admission {
    pending: usize,
    by_address: BTreeMap<IpAddr, Taken>,
    /// Places that are held beyond their handshake, with the end of each; ascending.
    lingering: VecDeque<(Duration, IpAddr)>,
    /// When the Noise handshakes that were answered are paid for.
    noise_paid: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            pending: 0,
            by_address: BTreeMap::new(),
            lingering: VecDeque::new(),
            noise_paid: Duration::ZERO,
        }
    }
}

impl Admission {
    /// A first packet from `address`, which has `validated` itself or not. `mono` is monotonic time, as is
    /// every other here.
    pub fn judge(&mut self, address: IpAddr, validated: bool, mono: Duration) -> Judgement {
        self.release(mono);
        let taken = self.by_address.get(&address).copied().unwrap_or_default();
        if validated {
            if self.pending >= MOST_HANDSHAKES || taken.validated >= MOST_HANDSHAKES_OF_ADDRESS {
                return Judgement::Refuse;
            }
        } else if self.pending >= RETRY_FROM
            || taken.validated + taken.unvalidated >= MOST_HANDSHAKES_OF_ADDRESS
        {
            // Whoever forges an address takes no place of the one who has it: that one comes back validated.
            return Judgement::Retry;
        }
        self.pending += 1;
        let taken = self.by_address.entry(address).or_default();
        *if validated { &mut taken.validated } else { &mut taken.unvalidated } += 1;
        Judgement::Accept(Place { address, validated })
    }

    /// A handshake ended.
    pub fn give_back(&mut self, place: Place, outcome: Outcome, mono: Duration) {
        self.release(mono);
        self.pending -= 1;
        let Some(taken) = self.by_address.get_mut(&place.address) else { return };
        *if place.validated { &mut taken.validated } else { &mut taken.unvalidated } -= 1;
        match outcome {
            Outcome::Failed if place.validated || taken.validated < MOST_HANDSHAKES_OF_ADDRESS => {
                taken.validated += 1;
                self.lingering.push_back((mono + FAILED_LINGER, place.address));
                if self.lingering.len() > MOST_LINGERING {
                    self.release_first();
                }
            }
            Outcome::Failed | Outcome::Session => self.forget(place.address),
        }
    }

    /// Whether a Noise handshake is answered now; counts it if so.
    pub fn noise(&mut self, mono: Duration) -> bool {
        let paid = self.noise_paid.max(mono) + NOISE_PACE;
        if paid > mono + NOISE_PACE * NOISE_BURST {
            return false;
        }
        self.noise_paid = paid;
        true
    }

    /// Handshakes that are under way.
    pub fn pending(&self) -> usize {
        self.pending
    }

    fn release(&mut self, mono: Duration) {
        while self.lingering.front().is_some_and(|(until, _)| *until <= mono) {
            self.release_first();
        }
    }

    fn release_first(&mut self) {
        let Some((_, address)) = self.lingering.pop_front() else { return };
        if let Some(taken) = self.by_address.get_mut(&address) {
            taken.validated -= 1;
        }
        self.forget(address);
    }

    fn forget(&mut self, address: IpAddr) {
        if self.by_address.get(&address).is_some_and(|taken| taken.validated + taken.unvalidated == 0) {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    fn accepted(judgement: Judgement) -> Place {
        let Judgement::Accept(place) = judgement else { panic!("{judgement:?}") };
        place
    }

    /// The port is open to everybody on the network; what forged first packets cost is bounded, and whoever
    /// receives at its address gets through among them.
    #[test]
    fn forged_addresses_hold_no_more_than_the_first_places() {
        let mut admission = Admission::default();
        let mut places = Vec::new();
        for number in 0..10_000 {
            match admission.judge(address(number), false, S) {
                Judgement::Accept(place) => places.push(place),
                Judgement::Retry => {}
                Judgement::Refuse => panic!("nobody unproven is told that there is no room"),
            }
        }
        assert_eq!((places.len(), admission.pending()), (RETRY_FROM, RETRY_FROM));
        let mut proven = Vec::new();
        for number in 0..10_000 {
            match admission.judge(address(20_000 + number), true, S) {
                Judgement::Accept(place) => proven.push(place),
                Judgement::Retry => panic!("it has shown that it receives"),
                Judgement::Refuse => {}
            }
        }
        assert_eq!(admission.pending(), MOST_HANDSHAKES);
        assert_eq!(proven.len(), MOST_HANDSHAKES - RETRY_FROM);
        for place in places.into_iter().chain(proven) {
            admission.give_back(place, Outcome::Session, S);
        }
        assert_eq!((admission.pending(), admission.by_address.len()), (0, 0));
        let _ = accepted(admission.judge(address(1), false, S));
    }

    #[test]
    fn one_address_has_eight_places_and_takes_none_of_who_is_forged() {
        let mut admission = Admission::default();
        for _ in 0..MOST_HANDSHAKES_OF_ADDRESS {
            let _ = accepted(admission.judge(address(1), false, S));
        }
        assert_eq!(admission.judge(address(1), false, S), Judgement::Retry);
        let _ = accepted(admission.judge(address(2), false, S));
        for _ in 0..MOST_HANDSHAKES_OF_ADDRESS {
            let _ = accepted(admission.judge(address(1), true, S));
        }
        assert_eq!(admission.judge(address(1), true, S), Judgement::Refuse);
        let _ = accepted(admission.judge(address(2), true, S));
    }

    /// A stranger that completes handshakes with keys that are nobody's gets its places back a second later.
    #[test]
    fn failed_handshakes_of_one_address_are_paced() {
        let mut admission = Admission::default();
        let mut begun = 0;
        for tenth in 0..100_u32 {
            let now = S * tenth / 10;
            for _ in 0..100 {
                if let Judgement::Accept(place) = admission.judge(address(1), true, now) {
                    begun += 1;
                    admission.give_back(place, Outcome::Failed, now);
                }
            }
            let honest = accepted(admission.judge(address(2), true, now));
            admission.give_back(honest, Outcome::Session, now);
        }
        assert_eq!(begun, 10 * MOST_HANDSHAKES_OF_ADDRESS);
        admission.release(S * 20);
        assert!(admission.by_address.is_empty() && admission.lingering.is_empty());
    }

    #[test]
    fn what_lingers_is_bounded() {
        let mut admission = Admission::default();
        for number in 0..3 * u32::try_from(MOST_LINGERING).unwrap() {
            let place = accepted(admission.judge(address(number), true, S));
            admission.give_back(place, Outcome::Failed, S);
            assert!(admission.by_address.len() <= MOST_LINGERING);
        }
        assert_eq!(admission.lingering.len(), MOST_LINGERING);
    }

    #[test]
    fn noise_has_a_burst_and_then_a_pace() {
        let mut admission = Admission::default();
        let burst = (0..10_000).filter(|_| admission.noise(S)).count();
        assert_eq!(burst, NOISE_BURST as usize);
        let within_a_second = (1..=1_000_u32).filter(|ms| admission.noise(S + *ms * S / 1_000)).count();
        assert_eq!(within_a_second, 1_000);
        assert!(!admission.noise(2 * S));
    }
}
