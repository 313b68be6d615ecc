//! What waits for all receivers together. Each receiver's queue has a bound of its own, which thousands that take
//! nothing would reach at once; beyond the bound of all, whoever has a small queue still gets what is for it.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::constants::{BUDGET_LOOK, MOST_WAITING};

/// Bytes in the queues.
#[derive(Debug, Default)]
pub struct Budget {
    /// What was found to wait at the last look, and all that was queued since: never less than there is.
    most: AtomicUsize,
    looked: Mutex<Looked>,
}

#[derive(Debug, Default)]
struct Looked {
    at: Option<Instant>,
    queues: usize,
}

impl Budget {
    /// So many bytes were queued. One thread says so, so this is a load and a store.
    pub fn queued(&self, bytes: usize) {
        self.most.store(self.most.load(Relaxed).saturating_add(bytes), Relaxed);
    }

    /// More may wait than is allowed: [`Budget::admits`] is to be asked.
    pub fn may_be_used_up(&self) -> bool {
        self.most.load(Relaxed) > MOST_WAITING
    }

    /// Whether a packet may be queued where `waits` bytes wait already. `look` counts the bytes that wait and the
    /// queues that there are; it is asked seldom.
    pub fn admits(&self, waits: usize, now: Instant, look: impl FnOnce() -> (usize, usize)) -> bool {
        let mut looked = self.looked.lock().expect("no holder of it panics");
        if looked.at.is_none_or(|at| now.saturating_duration_since(at) >= BUDGET_LOOK) {
            let (bytes, queues) = look();
            self.most.store(bytes, Relaxed);
            *looked = Looked { at: Some(now), queues };
        }
        !self.may_be_used_up() || waits < MOST_WAITING / looked.queues.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_bound_only_small_queues_grow() {
        let (budget, now) = (Budget::default(), Instant::now());
        for _ in 0..64 {
            assert!(!budget.may_be_used_up());
            budget.queued(MOST_WAITING / 64 + 1);
        }
        assert!(budget.may_be_used_up());
        // Most of it was sent meanwhile.
        assert!(budget.admits(MOST_WAITING, now, || (1_000, 64)));
        assert!(!budget.may_be_used_up());
        budget.queued(MOST_WAITING);
        let (full, share) = (|| (MOST_WAITING + 1, 64), MOST_WAITING / 64);
        assert!(!budget.admits(share, now, || unreachable!("just now it was looked")));
        assert!(!budget.admits(share, now + BUDGET_LOOK, full));
        assert!(budget.admits(share - 1, now + BUDGET_LOOK, full));
        assert!(!budget.admits(share, now + 2 * BUDGET_LOOK, full));
        assert!(budget.admits(share, now + 3 * BUDGET_LOOK, || (MOST_WAITING, 64)));
    }
}
