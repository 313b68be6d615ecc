//! What is given to whom, by a clock in the test's hand.

use super::*;

mod reconnection;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn address(number: u32) -> IpAddr {
    IpAddr::V4(number.into())
}

fn accepted(judgement: Judgement) -> Place {
    let Judgement::Accept { place, instead_of: None } = judgement else { panic!("{judgement:?}") };
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
            Judgement::Accept { place, .. } => places.push(place),
            Judgement::Retry => {}
            Judgement::Refuse => panic!("nobody unproven is told that there is no room"),
        }
    }
    assert_eq!((places.len(), admission.pending()), (RETRY_FROM, RETRY_FROM));
    let mut proven = Vec::new();
    for number in 0..10_000 {
        match admission.judge(address(20_000 + number), true, S) {
            Judgement::Accept { place, .. } => proven.push(place),
            Judgement::Retry => panic!("it has shown that it receives"),
            Judgement::Refuse => {}
        }
    }
    assert_eq!(admission.pending(), MOST_HANDSHAKES);
    assert_eq!(proven.len(), MOST_HANDSHAKES - RETRY_FROM);
    for place in places.into_iter().chain(proven) {
        admission.give_back(place, Outcome::Session, S);
    }
    admission.release(2 * S);
    assert_eq!((admission.pending(), admission.taken.len()), (0, 0));
    let _ = accepted(admission.judge(address(1), false, 2 * S));
}

/// Forged packets that fail take the unproven places of the address that they name, and leave the proven ones
/// to who has it: it is asked to prove itself, and gets in, however many come.
#[test]
fn forged_failures_lock_nobody_out() {
    let mut admission = Admission::default();
    let mut forged = 0;
    for ms in 0..5_000 {
        let now = S + MS * ms;
        for _ in 0..10 {
            match admission.judge(address(1), false, now) {
                Judgement::Accept { place, .. } => {
                    forged += 1;
                    admission.give_back(place, Outcome::Failed, now);
                }
                Judgement::Retry => {}
                Judgement::Refuse => panic!("nobody unproven is told that there is no room"),
            }
        }
        if ms % 100 == 50 {
            assert_eq!(admission.judge(address(1), false, now), Judgement::Retry);
            let honest = accepted(admission.judge(address(1), true, now));
            admission.give_back(honest, Outcome::Session, now);
        }
    }
    assert_eq!(forged, 5 * MOST_UNPROVEN_OF_ADDRESS);
}

/// First packets that fail at once are never under way for long, and are bounded by a pace; and as they have
/// their own room, they push nobody out who failed at a proven address.
#[test]
fn forged_failures_of_many_addresses_are_paced_and_release_no_stranger() {
    let mut admission = Admission::default();
    for _ in 0..MOST_HANDSHAKES_OF_ADDRESS {
        let place = accepted(admission.judge(address(1), true, S));
        admission.give_back(place, Outcome::Failed, S);
    }
    let (mut number, mut begun) = (10, 0);
    for ms in 0..900 {
        for _ in 0..20 {
            number += 1;
            if let Judgement::Accept { place, .. } = admission.judge(address(number), false, S + MS * ms) {
                begun += 1;
                admission.give_back(place, Outcome::Failed, S + MS * ms);
            }
        }
    }
    assert_eq!(begun, UNPROVEN_BURST + 899 / 5);
    assert_eq!(admission.judge(address(1), true, S + MS * 999), Judgement::Refuse);
    let _ = accepted(admission.judge(address(1), true, 2 * S));
    admission.release(S * 3);
    assert!(admission.lingering.iter().all(VecDeque::is_empty));
}

#[test]
fn one_address_has_its_places_and_takes_none_of_who_is_forged() {
    let mut admission = Admission::default();
    for _ in 0..MOST_UNPROVEN_OF_ADDRESS {
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

/// A host has 64 bits of IPv6 to itself, and a socket of both kinds gives IPv4 in IPv6.
#[test]
fn addresses_of_one_host_count_as_one() {
    let v6 = |high: u64, low: u64| IpAddr::from((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
    let mut admission = Admission::default();
    for low in 0..MOST_HANDSHAKES_OF_ADDRESS as u64 {
        let _ = accepted(admission.judge(v6(0x2001_0db8_0000_0001, low << 32 | 7), true, S));
    }
    assert_eq!(admission.judge(v6(0x2001_0db8_0000_0001, 99), true, S), Judgement::Refuse);
    let _ = accepted(admission.judge(v6(0x2001_0db8_0000_0002, 99), true, S));
    for low in 0..MOST_HANDSHAKES_OF_ADDRESS as u64 {
        let _ = accepted(admission.judge(v6(0, 0xffff_0a00_0000 | low), true, S));
    }
    let _ = accepted(admission.judge(v6(0, 0xffff_0a00_0063), true, S));
    let mut mapped = Admission::default();
    for _ in 0..MOST_HANDSHAKES_OF_ADDRESS {
        let _ = accepted(mapped.judge(v6(0, 0xffff_0a00_0001), true, S));
    }
    assert_eq!(mapped.judge([10, 0, 0, 1].into(), true, S), Judgement::Refuse);
}

/// A stranger that completes handshakes with keys that are nobody's gets its places back a second later.
#[test]
fn failed_handshakes_of_one_address_are_paced() {
    let mut admission = Admission::default();
    let mut begun = 0;
    for tenth in 0..100_u32 {
        let now = S * tenth / 10;
        for _ in 0..100 {
            if let Judgement::Accept { place, .. } = admission.judge(address(1), true, now) {
                begun += 1;
                admission.give_back(place, Outcome::Failed, now);
            }
        }
        let honest = accepted(admission.judge(address(2), true, now));
        admission.give_back(honest, Outcome::Session, now);
    }
    assert_eq!(begun, 10 * MOST_HANDSHAKES_OF_ADDRESS);
    admission.release(S * 20);
    assert!(admission.taken.is_empty() && admission.lingering.iter().all(VecDeque::is_empty));
}

/// A member that dials without end takes a small part of what the hub does in a second, though it succeeds.
#[test]
fn sessions_of_one_address_are_paced() {
    let mut admission = Admission::default();
    let mut begun = 0;
    for ms in 0..1_000_u32 {
        let now = S + MS * ms;
        for validated in [false, true] {
            if let Judgement::Accept { place, .. } = admission.judge(address(1), validated, now) {
                assert!(admission.noise(now));
                begun += 1;
                admission.give_back(place, Outcome::Session, now);
            }
        }
    }
    assert_eq!(begun, 4 * MOST_HANDSHAKES_OF_ADDRESS);
    let burst = (0..10_000).filter(|_| admission.noise(2 * S)).count();
    assert_eq!(burst, NOISE_BURST as usize, "nothing of it was missing");
}

/// A place whose handshake says nothing for a second is another's if there is no other.
#[test]
fn a_silent_handshake_gives_way() {
    let mut admission = Admission::default();
    let mut places: Vec<Place> = (0..MOST_HANDSHAKES_OF_ADDRESS as u32)
        .map(|number| accepted(admission.judge(address(1), true, S + MS * number)))
        .collect();
    assert_eq!(admission.judge(address(1), true, 2 * S - MS), Judgement::Refuse);
    let judgement = admission.judge(address(1), true, 2 * S);
    let Judgement::Accept { place, instead_of: Some(former) } = judgement else { panic!("{judgement:?}") };
    assert_eq!(former, places[0].number());
    assert_eq!(admission.pending(), MOST_HANDSHAKES_OF_ADDRESS);
    assert_eq!(admission.judge(address(1), true, 2 * S), Judgement::Refuse, "the next is younger");
    // What becomes of it is nobody's matter any more.
    admission.give_back(places.remove(0), Outcome::Failed, 2 * S);
    assert_eq!(admission.pending(), MOST_HANDSHAKES_OF_ADDRESS);
    admission.give_back(place, Outcome::Session, 2 * S);
    let _ = accepted(admission.judge(address(1), true, 2 * S));
}

/// The same of all: whoever opens connections at many addresses and says nothing keeps nobody out.
#[test]
fn silent_handshakes_of_many_addresses_give_way() {
    let mut admission = Admission::default();
    for number in 0..MOST_HANDSHAKES as u32 {
        let _ = accepted(admission.judge(address(number), true, S));
    }
    assert_eq!(admission.judge(address(9_999), true, 2 * S - MS), Judgement::Refuse);
    for number in 0..20 {
        let judgement = admission.judge(address(10_000 + number), true, 2 * S);
        let Judgement::Accept { place, instead_of: Some(_) } = judgement else { panic!("{judgement:?}") };
        admission.give_back(place, Outcome::Session, 2 * S);
        // The place that it gives back is the next one's, and nobody else loses one.
        let _ = accepted(admission.judge(address(20_000 + number), true, 2 * S));
        assert_eq!(admission.pending(), MOST_HANDSHAKES);
    }
}

#[test]
fn what_lingers_is_bounded() {
    for outcome in [Outcome::Failed, Outcome::Session] {
        let mut admission = Admission::default();
        for number in 0..3 * u32::try_from(MOST_LINGERING).unwrap() {
            let place = accepted(admission.judge(address(number), true, S));
            admission.give_back(place, outcome, S);
            assert!(admission.taken.len() <= MOST_LINGERING);
        }
        let lingering: usize = admission.lingering.iter().map(VecDeque::len).sum();
        assert_eq!(lingering, MOST_LINGERING);
    }
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

/// A member begins a few sessions at once and then one each second, and takes nothing of another's.
#[test]
fn a_key_has_a_burst_and_then_a_pace() {
    let mut admission = Admission::default();
    let begun = |admission: &mut Admission, key: u8, now| {
        (0..100).filter(|_| admission.member(&[key; 32], now)).count()
    };
    assert_eq!(begun(&mut admission, 1, S), KEY_BURST as usize);
    assert_eq!(begun(&mut admission, 2, S), KEY_BURST as usize);
    let tenths = (1..=100).map(|tenth| begun(&mut admission, 1, S + S * tenth / 10));
    assert_eq!(tenths.sum::<usize>(), 10);
    assert_eq!(begun(&mut admission, 3, 100 * S), KEY_BURST as usize);
    assert_eq!(admission.keys.len(), 1, "who has paid is forgotten");
}
