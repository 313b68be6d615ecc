//! Requests on a link: each has an id and a deadline, and an answer that comes after the deadline is
//! dropped and counted.

use std::{collections::BTreeMap, time::Duration};

/// Identifies a request on its link; never used twice in the life of the asking process.
pub type AskId = u64;

/// The open requests of one link, each with what waits for its answer.
pub struct Asks<W> {
    next: AskId,
    open: BTreeMap<AskId, (Duration, W)>,
    late: u64,
}

impl<W> Default for Asks<W> {
    fn default() -> Self {
        Self { next: 0, open: BTreeMap::new(), late: 0 }
    }
}

impl<W> Asks<W> {
    /// Opens a request that `waiter` waits for until `deadline` (monotonic).
    pub fn open(&mut self, deadline: Duration, waiter: W) -> AskId {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, (deadline, waiter));
        id
    }

    /// The waiter of an answer; `None` for an answer nobody asked for or that came too late, which
    /// is counted.
    pub fn settle(&mut self, id: AskId) -> Option<W> {
        let waiter = self.open.remove(&id).map(|(_, waiter)| waiter);
        if waiter.is_none() {
            self.late += 1;
        }
        waiter
    }

    /// Takes out every request whose deadline has passed.
    pub fn expire(&mut self, mono: Duration) -> Vec<W> {
        let due: Vec<AskId> =
            self.open.iter().filter(|(_, (deadline, _))| *deadline <= mono).map(|(id, _)| *id).collect();
        due.into_iter().filter_map(|id| self.open.remove(&id)).map(|(_, waiter)| waiter).collect()
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.open.values().map(|(deadline, _)| *deadline).min()
    }

    /// Answers dropped because nobody waited for them any more.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const S: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_after_the_deadline_is_dropped_and_counted() {
        let mut asks = Asks::default();
        let first = asks.open(2 * S, "first");
        let second = asks.open(5 * S, "second");
        assert_eq!(asks.next_deadline(), Some(2 * S));
        assert_eq!(asks.expire(2 * S), ["first"]);
        assert_eq!(asks.settle(first), None);
        assert_eq!(asks.late(), 1);
        assert_eq!(asks.settle(second), Some("second"));
        assert_eq!(asks.settle(second), None);
        assert_eq!(asks.late(), 2);
    }
}
