//! The latest of what changes, told within a budget: a change is told at once, a flood of them is told by its
//! last one, and the last one is always told in the end (REL-36).

use std::time::Duration;

use coreflow_ipc::record::Budget;

use crate::constants::{LATEST_BURST, LATEST_PACE, LATEST_PER_SECOND};

/// One text that changes. What is told, and where, is its holder's.
#[derive(Debug)]
pub struct Latest {
    told: Option<String>,
    untold: Option<String>,
    budget: Budget,
    again_at: Duration,
}

impl Default for Latest {
    fn default() -> Self {
        let budget = Budget::new(LATEST_BURST, LATEST_PER_SECOND);
        Self { told: None, untold: None, budget, again_at: Duration::ZERO }
    }
}

impl Latest {
    /// What is so from here on; it replaces what was not told yet.
    pub fn set(&mut self, text: String) {
        self.untold = (self.told.as_ref() != Some(&text)).then_some(text);
    }

    /// Nothing is so any more: the next text is news even if it is that of before.
    pub fn forget(&mut self) {
        (self.told, self.untold) = (None, None);
    }

    /// The text to be told now, once; `None` while there is no news, or no budget for it.
    pub fn take_due(&mut self, mono: Duration) -> Option<String> {
        if self.untold.is_none() || mono < self.again_at {
            return None;
        }
        if !self.budget.admit(mono) {
            self.again_at = mono + LATEST_PACE;
            return None;
        }
        self.told.clone_from(&self.untold);
        self.untold.take()
    }

    /// What was taken could not be told, and is due again at `again_at`.
    pub fn put_back(&mut self, again_at: Duration) {
        self.untold = self.told.take();
        self.again_at = again_at;
    }

    /// When [`Latest::take_due`] may have something.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.untold.is_some().then_some(self.again_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// REL-36: a flood costs its burst and then one telling per second, and what is told last is the last.
    #[test]
    fn a_flood_is_told_by_its_last() {
        let mut latest = Latest::default();
        let mut told = Vec::new();
        for number in 0..10_000_u32 {
            latest.set(number.to_string());
            told.extend(latest.take_due(S + number * Duration::from_millis(1)));
        }
        let most = LATEST_BURST + 10 * LATEST_PER_SECOND + 1;
        assert!((LATEST_BURST as usize..=most as usize).contains(&told.len()), "{}", told.len());
        let due = latest.next_deadline().unwrap();
        assert!(due <= 11 * S + LATEST_PACE);
        assert_eq!(latest.take_due(due).as_deref(), Some("9999"));
        assert_eq!((latest.take_due(100 * S), latest.next_deadline()), (None, None));
    }

    /// What is as it was told is no news, also when something else was so in between.
    #[test]
    fn no_news_is_not_told() {
        let mut latest = Latest::default();
        latest.set("a".to_owned());
        assert_eq!(latest.take_due(S).as_deref(), Some("a"));
        latest.set("b".to_owned());
        latest.set("a".to_owned());
        assert_eq!((latest.take_due(S), latest.next_deadline()), (None, None));
        latest.forget();
        latest.set("a".to_owned());
        assert_eq!(latest.take_due(S).as_deref(), Some("a"));
    }

    /// What could not be told is due again, unless there is something newer.
    #[test]
    fn what_was_not_told_is_due_again() {
        let mut latest = Latest::default();
        latest.set("a".to_owned());
        latest.take_due(S);
        latest.put_back(2 * S);
        assert_eq!((latest.take_due(S), latest.next_deadline()), (None, Some(2 * S)));
        assert_eq!(latest.take_due(2 * S).as_deref(), Some("a"));
        latest.put_back(3 * S);
        latest.set("b".to_owned());
        assert_eq!(latest.take_due(3 * S).as_deref(), Some("b"));
    }
}
