//! What of the readiness was stated: each change at once as long as they are few, and then the latest once a
//! second, since a peer's offer is cheap to make (PROT-21).

use std::{collections::BTreeMap, time::Duration};

use coreflow_ipc::{
    messages::readiness::{Hop, Refusal},
    now::Now,
    record::Budget,
};

use crate::constants::{OFFER_LINES, READINESS_BURST};

/// The latest statement, and what bounds the next.
pub(super) struct Stated {
    refusals: Vec<Refusal>,
    budget: Budget,
    again: Option<Duration>,
    lines: BTreeMap<Hop, Duration>,
}

impl Default for Stated {
    fn default() -> Self {
        let budget = Budget::new(READINESS_BURST, 1);
        Self { refusals: Vec::new(), budget, again: None, lines: BTreeMap::new() }
    }
}

impl Stated {
    /// What has to be stated of `refusals` now.
    pub(super) fn state(&mut self, refusals: Vec<Refusal>, now: Now) -> Option<Vec<Refusal>> {
        if refusals == self.refusals {
            self.again = None;
            return None;
        }
        if self.again.is_some_and(|again| now.mono < again) {
            return None;
        }
        if !self.budget.admit(now.mono) {
            self.again = Some(now.mono + Duration::from_secs(1));
            return None;
        }
        self.again = None;
        self.refusals.clone_from(&refusals);
        Some(refusals)
    }

    /// When a statement is due that was held back, on the monotonic clock.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.again
    }

    /// Whether a line about a refused offer on `hop` is written.
    pub(super) fn writes(&mut self, hop: Hop, now: Now) -> bool {
        let due = self.lines.get(&hop).is_none_or(|next| *next <= now.mono);
        if due {
            self.lines.insert(hop, now.mono + OFFER_LINES);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { wall: 0, mono: Duration::from_millis(ms) }
    }

    fn refusal(line: &str) -> Vec<Refusal> {
        vec![Refusal { hop: Hop::PalletRuntime, refusal: None, line: line.to_owned() }]
    }

    /// PROT-21: a flood of changes is stated as its latest, once a second, and the last one always.
    #[test]
    fn a_flood_of_changes_is_stated_once_a_second() {
        let mut stated = Stated::default();
        let (mut statements, mut last) = (0, Vec::new());
        for step in 0..10_000_u64 {
            let now = refusal(&step.to_string());
            if let Some(refusals) = stated.state(now, at(step)) {
                statements += 1;
                last = refusals;
            }
        }
        assert!((10..=READINESS_BURST + 12).contains(&statements), "{statements}");
        assert_ne!(last, refusal("9999"));
        let due = stated.next_deadline().expect("the last one is still due");
        let due = at(due.as_millis().try_into().unwrap());
        assert_eq!(stated.state(refusal("9999"), due), Some(refusal("9999")));
        assert_eq!((stated.state(refusal("9999"), due), stated.next_deadline()), (None, None));
    }

    /// What goes back to what was stated needs no statement.
    #[test]
    fn a_change_that_was_taken_back_is_not_stated() {
        let mut stated = Stated::default();
        (0..READINESS_BURST)
            .for_each(|step| assert!(stated.state(refusal(&step.to_string()), at(0)).is_some()));
        let former = refusal(&(READINESS_BURST - 1).to_string());
        assert_eq!(stated.state(refusal("x"), at(0)), None);
        assert!(stated.next_deadline().is_some());
        assert_eq!((stated.state(former, at(1)), stated.next_deadline()), (None, None));
    }

    #[test]
    fn one_line_a_hop_is_written_in_ten_seconds() {
        let mut stated = Stated::default();
        assert!(stated.writes(Hop::PalletRuntime, at(0)) && stated.writes(Hop::ClusterIngress, at(1)));
        assert!(!stated.writes(Hop::PalletRuntime, at(9_999)));
        assert!(stated.writes(Hop::PalletRuntime, at(10_000)));
    }
}
