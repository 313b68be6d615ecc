//! When the listener's certificate is asked for again: ahead of its end, with jitter and a bounded
//! backoff, and never without a session or by a parked relay (XTR-12, XTR-13).

use std::time::Duration;

use coreflow_ipc::{backoff::Backoff, now::Now};

use super::Term;
use crate::constants::{
    CERTIFICATE_LEAD_LONGEST, CERTIFICATE_RETRY_FIRST, CERTIFICATE_RETRY_LONGEST, CERTIFICATE_RETRY_SHORTEST,
};

/// When the next attempt is due: on both clocks, so that a wall clock that jumps brings neither a burst of
/// attempts nor a certificate that ends unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    /// Unix milliseconds.
    wall: u64,
    /// Not before this, on the monotonic clock.
    mono: Duration,
}

/// The schedule of one listener's certificate.
#[derive(Debug)]
pub struct Renewal {
    term: Option<Term>,
    due: Option<Due>,
    backoff: Backoff,
}

impl Default for Renewal {
    fn default() -> Self {
        let backoff = Backoff::new(CERTIFICATE_RETRY_FIRST, CERTIFICATE_RETRY_LONGEST);
        Self { term: None, due: None, backoff }
    }
}

impl Renewal {
    /// A certificate of `term` is served from now on. It is renewed in the last third of its time, at
    /// most thirty days ahead; `random` spreads relays over a tenth of that lead.
    pub fn serves(&mut self, term: Term, now: Now, random: u32) {
        self.backoff.reset();
        self.term = Some(term);
        let lead = (term.ends - term.begins.min(term.ends)) / 3;
        let lead = lead.min(milliseconds(CERTIFICATE_LEAD_LONGEST));
        let jitter = lead / 10 * u64::from(random) / u64::from(u32::MAX);
        let mono = now.mono + self.soon(now);
        self.due = Some(Due { wall: term.ends - lead + jitter, mono });
    }

    /// An attempt begins, if one is due.
    pub fn begin(&mut self, now: Now) -> bool {
        let due = self.due.take_if(|due| due.wall <= now.wall && due.mono <= now.mono);
        due.is_some()
    }

    /// The attempt brought no other certificate: it is made again, sooner the nearer the end is.
    pub fn again(&mut self, now: Now, random: u32) {
        let wait = self.backoff.advance_jittered(random).min(self.soon(now));
        self.due = Some(Due { wall: 0, mono: now.mono + wait });
    }

    /// When [`Renewal::begin`] may begin, on the monotonic clock; `None` while an attempt is under way and
    /// without a certificate.
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        let due = self.due?;
        let wait = Duration::from_millis(due.wall.saturating_sub(now.wall));
        Some(due.mono.max(now.mono.saturating_add(wait)))
    }

    /// An eighth of the time that is left. After the end it is the first wait of the backoff: a relay
    /// without a valid certificate gets no node.
    fn soon(&self, now: Now) -> Duration {
        let ends = self.term.map_or(0, |term| term.ends);
        let left = Duration::from_millis(ends.saturating_sub(now.wall));
        if left.is_zero() {
            return CERTIFICATE_RETRY_FIRST;
        }
        (left / 8).max(CERTIFICATE_RETRY_SHORTEST)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("the constants are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;
    const TERM: Term = Term { begins: 0, ends: 90 * DAY };

    fn at(wall: u64) -> Now {
        Now { wall, mono: Duration::from_millis(wall) }
    }

    /// The moment of the first attempt of a certificate that is served from `now` on.
    fn first(term: Term, now: Now, random: u32) -> u64 {
        let mut renewal = Renewal::default();
        renewal.serves(term, now, random);
        let at = renewal.next_deadline(now).expect("an attempt is due");
        now.wall + milliseconds(at - now.mono)
    }

    /// XTR-12: the last third of the time, at most thirty days, spread over a tenth of it.
    #[test]
    fn the_first_attempt_comes_ahead_of_the_end() {
        assert_eq!(first(TERM, at(DAY), 0), 60 * DAY);
        assert_eq!(first(TERM, at(DAY), u32::MAX), 63 * DAY);
        assert_eq!(first(Term { begins: 0, ends: 900 * DAY }, at(DAY), 0), 870 * DAY);
        // One that is served late in its time was just given out: it is not asked for at once.
        assert_eq!(first(TERM, at(82 * DAY), 0), 83 * DAY);
        assert_eq!(first(Term { begins: 0, ends: 1_000 }, at(0), 0), 5_000, "never in a burst");
    }

    /// XTR-12: nothing is due before its time or twice; what fails is made again, with a bounded backoff
    /// that leaves attempts before the end however near it is.
    #[test]
    fn a_failed_attempt_is_made_again_with_a_bounded_backoff() {
        let mut renewal = Renewal::default();
        let mut now = at(DAY);
        renewal.serves(TERM, now, 0);
        assert!(!renewal.begin(at(60 * DAY - 1)));
        now = at(60 * DAY);
        assert!(renewal.begin(now) && !renewal.begin(now));
        assert_eq!(renewal.next_deadline(now), None, "an attempt is under way");
        let mut waits = Vec::new();
        while now.wall < 92 * DAY {
            renewal.again(now, u32::MAX);
            let due = renewal.next_deadline(now).unwrap();
            let wait = (due - now.mono).as_micros().div_ceil(1000).try_into().unwrap();
            waits.push((wait, TERM.ends.saturating_sub(now.wall)));
            now = at(now.wall + wait);
            assert!(renewal.begin(now));
        }
        assert_eq!(waits[..3].iter().map(|(wait, _)| *wait).collect::<Vec<_>>(), [60_000, 120_000, 240_000]);
        for (wait, left) in &waits {
            let bound = if *left == 0 { 60_000 } else { (left / 8 + 1).clamp(5_000, 3_600_000) };
            assert!((5_000..=bound).contains(wait), "{wait} ms with {left} ms left");
        }
        assert!(waits.len() < 6_000, "{}", waits.len());
    }

    /// A wall clock that jumps ahead brings one attempt, and one that jumps back delays none for ever.
    #[test]
    fn a_jump_of_the_wall_clock_brings_one_attempt() {
        let mut renewal = Renewal::default();
        renewal.serves(TERM, at(DAY), 0);
        let jumped = Now { wall: 61 * DAY, mono: Duration::from_millis(13 * DAY) };
        assert_eq!(renewal.next_deadline(jumped), Some(jumped.mono), "at the next look");
        assert!(renewal.begin(jumped) && !renewal.begin(jumped));
        renewal.again(jumped, 0);
        let back = Now { wall: 0, ..jumped };
        assert_eq!(renewal.next_deadline(back), Some(jumped.mono + Duration::from_secs(30)));
    }

    /// Another certificate starts the schedule over.
    #[test]
    fn a_new_certificate_starts_over() {
        let mut renewal = Renewal::default();
        renewal.serves(TERM, at(DAY), 0);
        assert!(renewal.begin(at(60 * DAY)));
        renewal.serves(Term { begins: 60 * DAY, ends: 150 * DAY }, at(60 * DAY), 0);
        assert!(!renewal.begin(at(119 * DAY)));
        assert!(renewal.begin(at(120 * DAY)));
    }
}
