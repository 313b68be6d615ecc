//! A doubling wait with an upper bound and jitter.

use std::time::Duration;

/// Doubles from `first` to `longest`; the caller says when it starts over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// A backoff whose first wait is `first` and whose waits never exceed `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The next wait, exact.
    pub fn advance(&mut self) -> Duration {
        let wait = self.next;
        self.next = (self.next * 2).min(self.longest);
        wait
    }

    /// The next wait, drawn by `random` from its upper half, so that relays that lost the same
    /// Cloudly do not return in step.
    pub fn advance_jittered(&mut self, random: u32) -> Duration {
        let wait = self.advance();
        wait / 2 + (wait / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// Starts over with the first wait.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_double_up_to_the_bound_and_start_over() {
        let mut backoff = Backoff::new(500 * MS, 30_000 * MS);
        let waits: Vec<u128> = (0..9).map(|_| backoff.advance().as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.advance(), 500 * MS);
    }

    #[test]
    fn jitter_stays_in_the_upper_half() {
        for random in [0, 1, u32::MAX / 2, u32::MAX] {
            let wait = Backoff::new(1000 * MS, 60_000 * MS).advance_jittered(random);
            assert!((500 * MS..=1000 * MS).contains(&wait), "{wait:?}");
        }
    }
}
