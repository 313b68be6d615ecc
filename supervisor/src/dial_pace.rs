//! The pace of connections to the registry (ARC-15, PULL-02): a burst, and so many a second in the long run. Each
//! closed connection holds a local port for a minute, so that a pulld that was taken over, or nodes that pull and
//! leave without end, would use up those that the whole host has. A dial beyond the pace waits; none is refused.
//!
//! A pure state machine: the caller says what time it is, and waits.

use std::time::Duration;

use crate::constants::{DIAL_BURST, DIAL_SPACING};

/// The pace of one host.
#[derive(Debug, Default)]
pub struct DialPace {
    /// When all dials so far would have been made, one after the other at the long run's pace.
    through: Duration,
}

impl DialPace {
    /// How long the dial that is asked for at `now` waits. It counts as made then.
    pub fn admit(&mut self, now: Duration) -> Duration {
        self.through = self.through.max(now) + DIAL_SPACING;
        self.through.saturating_sub(DIAL_SPACING * DIAL_BURST).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// PULL-02: a burst goes through at once, what is beyond it one by one, and a pause makes room for as many as it
    /// lasted for.
    #[test]
    fn a_burst_is_at_once_and_the_rest_one_by_one() {
        let (mut pace, now) = (DialPace::default(), Duration::from_secs(1000));
        for _ in 0..DIAL_BURST {
            assert_eq!(pace.admit(now), Duration::ZERO);
        }
        for beyond in 1..=50 {
            assert_eq!(pace.admit(now), DIAL_SPACING * beyond);
        }
        let later = now + DIAL_SPACING * 53;
        for _ in 0..3 {
            assert_eq!(pace.admit(later), Duration::ZERO);
        }
        assert_eq!(pace.admit(later), DIAL_SPACING);
        let much_later = later + Duration::from_secs(3600);
        for _ in 0..DIAL_BURST {
            assert_eq!(pace.admit(much_later), Duration::ZERO);
        }
        assert_eq!(pace.admit(much_later), DIAL_SPACING);
    }

    proptest! {
        /// PULL-02: whenever they are asked for, no time sees more dials than the burst and what the pace gives it; they
        /// are made in their order, and none waits while there is room.
        #[test]
        fn no_time_sees_more_than_the_pace(pauses in prop::collection::vec(0u64..40, 1..600)) {
            let (mut pace, mut now, mut made) = (DialPace::default(), Duration::ZERO, Vec::new());
            for pause in pauses {
                now += Duration::from_millis(pause);
                let at = now + pace.admit(now);
                prop_assert!(made.last().is_none_or(|last| *last <= at));
                made.push(at);
                let burst = usize::try_from(DIAL_BURST).unwrap();
                if at > now {
                    prop_assert!(made.len() > burst);
                }
                if let Some(before) = made.len().checked_sub(burst + 1) {
                    prop_assert!(at - made[before] >= DIAL_SPACING);
                }
            }
            let (first, last) = (made[0], now.max(made[made.len() - 1]));
            let most = f64::from(DIAL_BURST) + (last - first).div_duration_f64(DIAL_SPACING) + 1.0;
            prop_assert!(made.len() as f64 <= most);
        }
    }
}
