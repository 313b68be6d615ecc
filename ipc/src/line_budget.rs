//! How often a worker writes one kind of line about strangers: they cause it, and must not fill the log.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::record::Budget;

/// Lines of one kind that may be written in a row, before [`LINES_PER_SECOND`].
const LINES: u32 = 5;
/// See [`LINES`].
const LINES_PER_SECOND: u32 = 1;

/// The budget of one kind of line.
pub struct LineBudget {
    started: Instant,
    budget: Mutex<Budget>,
}

impl Default for LineBudget {
    fn default() -> Self {
        Self { started: Instant::now(), budget: Mutex::new(Budget::new(LINES, LINES_PER_SECOND)) }
    }
}

impl LineBudget {
    /// Whether a line is written now; with how many were left out before it.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(self.started.elapsed())
    }

    fn admit_at(&self, elapsed: Duration) -> Option<u64> {
        let mut budget = self.budget.lock().expect("no holder of the budget panics");
        budget.admit(elapsed).then(|| budget.take_suppressed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flood costs a few lines, and the next one says how many were left out.
    #[test]
    fn a_flood_costs_a_few_lines() {
        let lines = LineBudget::default();
        let written = (0..1000).filter(|_| lines.admit_at(Duration::ZERO).is_some()).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(lines.admit_at(Duration::from_secs(1)), Some(1000 - u64::from(LINES)));
    }
}
