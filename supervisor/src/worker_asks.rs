//! What one worker is asked for an operator's look, and what of it was answered: a machine without link or clock.
//!
//! A worker that does not answer costs a look its time and nothing more. It has a bounded number of asks
//! unanswered, given up ones among them until they are old, so that no number of looks fills its queue and none
//! keeps it from being asked for ever. An answer that nobody asked for, that comes twice or is of another kind
//! breaks the link's rule; one that is late is counted.

use std::{collections::BTreeMap, time::Duration};

use coreflow_ipc::asks::AskId;

use crate::constants::{WORKER_ASK_KEPT, WORKER_ASKS};

/// What a worker is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskKind {
    /// How it stands.
    Standing,
    /// A page of its roster.
    Nodes,
}

/// The look that an ask is for.
pub type LookId = u64;

/// One ask that was not answered.
#[derive(Debug)]
struct Ask {
    kind: AskKind,
    /// Until when it is waited for.
    deadline: Duration,
    /// Which look waits for it; none once it was given up.
    look: Option<LookId>,
}

impl Ask {
    /// When it is given up, and when it is forgotten after that.
    fn due(&self) -> Duration {
        if self.look.is_some() { self.deadline } else { self.deadline + WORKER_ASK_KEPT }
    }
}

/// The asks of one worker; its ids are used once in the life of the supervisor.
#[derive(Debug, Default)]
pub struct WorkerAsks {
    next: AskId,
    /// The first id of the process that is asked now.
    first: AskId,
    unanswered: BTreeMap<AskId, Ask>,
    /// How many were forgotten, whose answers may still come.
    forgotten: u64,
    late: u64,
}

/// An answer that nobody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unasked;

impl WorkerAsks {
    /// Opens an ask that `look` waits for until `deadline` (monotonic); none for a worker that has as many
    /// unanswered as it may.
    pub fn open(&mut self, kind: AskKind, look: LookId, deadline: Duration) -> Option<AskId> {
        if self.unanswered.len() >= WORKER_ASKS {
            return None;
        }
        let id = self.next;
        self.next += 1;
        self.unanswered.insert(id, Ask { kind, deadline, look: Some(look) });
        Some(id)
    }

    /// The look that waits for an answer; none when it waits no more, which is counted.
    ///
    /// # Errors
    /// Nobody asked for it.
    pub fn settle(&mut self, id: AskId, kind: AskKind) -> Result<Option<LookId>, Unasked> {
        let Some(ask) = self.unanswered.get(&id) else { return self.settle_forgotten(id) };
        // One of another kind ends the worker, and with it the ask, which is waited for until then.
        if ask.kind != kind {
            return Err(Unasked);
        }
        let look = ask.look;
        self.unanswered.remove(&id);
        if look.is_none() {
            self.late += 1;
        }
        Ok(look)
    }

    fn settle_forgotten(&mut self, id: AskId) -> Result<Option<LookId>, Unasked> {
        if self.forgotten == 0 || !(self.first..self.next).contains(&id) {
            return Err(Unasked);
        }
        self.forgotten -= 1;
        self.late += 1;
        Ok(None)
    }

    /// Gives up the asks whose deadline has passed, and says whose they are; forgets those that were given up long
    /// ago, so that the worker may be asked again.
    pub fn expire(&mut self, mono: Duration) -> Vec<LookId> {
        let asked = self.unanswered.len();
        self.unanswered.retain(|_, ask| ask.look.is_some() || mono < ask.due());
        self.forgotten += (asked - self.unanswered.len()) as u64;
        let due = self.unanswered.values_mut().filter(|ask| ask.due() <= mono);
        due.filter_map(|ask| ask.look.take()).collect()
    }

    /// The process ended, and answers nothing any more; the looks that waited for it.
    pub fn ended(&mut self) -> Vec<LookId> {
        (self.first, self.forgotten) = (self.next, 0);
        let asks = std::mem::take(&mut self.unanswered).into_values();
        asks.filter_map(|ask| ask.look).collect()
    }

    /// When [`WorkerAsks::expire`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.unanswered.values().map(Ask::due).min()
    }

    /// Answers that came when nobody waited for them any more.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_goes_to_the_look_that_waits_for_it() {
        let mut asks = WorkerAsks::default();
        let first = asks.open(AskKind::Standing, 7, 2 * S).unwrap();
        let second = asks.open(AskKind::Nodes, 8, 3 * S).unwrap();
        assert_eq!(asks.next_deadline(), Some(2 * S));
        assert_eq!(asks.settle(second, AskKind::Nodes), Ok(Some(8)));
        assert_eq!(asks.settle(first, AskKind::Standing), Ok(Some(7)));
        assert_eq!((asks.next_deadline(), asks.late()), (None, 0));
    }

    /// What nobody asked for, what was answered and what is of another kind breaks a rule.
    #[test]
    fn an_answer_that_nobody_asked_for_breaks_a_rule() {
        let mut asks = WorkerAsks::default();
        assert_eq!(asks.settle(0, AskKind::Standing), Err(Unasked));
        let id = asks.open(AskKind::Standing, 1, S).unwrap();
        assert_eq!(asks.settle(id + 1, AskKind::Standing), Err(Unasked));
        assert_eq!(asks.settle(id, AskKind::Standing), Ok(Some(1)));
        assert_eq!(asks.settle(id, AskKind::Standing), Err(Unasked), "answered twice");
        let id = asks.open(AskKind::Nodes, 2, S).unwrap();
        assert_eq!(asks.settle(id, AskKind::Standing), Err(Unasked), "of another kind");
        assert_eq!(asks.ended(), [2], "its look waits until the process has ended, and no longer");
    }

    /// A late answer is dropped and counted, and costs its worker nothing; until then it has one ask less.
    #[test]
    fn a_late_answer_is_dropped_and_counted() {
        let mut asks = WorkerAsks::default();
        let ids: Vec<_> = (0..).map_while(|look| asks.open(AskKind::Standing, look, S)).collect();
        assert_eq!(ids.len(), WORKER_ASKS);
        assert_eq!(asks.expire(S - Duration::from_nanos(1)), [] as [LookId; 0]);
        assert_eq!(asks.expire(S).len(), WORKER_ASKS);
        assert_eq!((asks.expire(S).len(), asks.next_deadline()), (0, Some(S + WORKER_ASK_KEPT)));
        assert_eq!(
            asks.open(AskKind::Standing, 99, 2 * S),
            None,
            "a worker that does not answer is asked no more"
        );
        assert_eq!((asks.settle(ids[0], AskKind::Standing), asks.late()), (Ok(None), 1));
        assert!(asks.open(AskKind::Standing, 99, 2 * S).is_some());
        assert_eq!(asks.open(AskKind::Standing, 100, 2 * S), None);
    }

    /// An ask that was given up long ago takes no place; an answer to it is still a late one, once.
    #[test]
    fn a_worker_that_did_not_answer_is_asked_again_later() {
        let mut asks = WorkerAsks::default();
        let ids: Vec<_> = (0..).map_while(|look| asks.open(AskKind::Standing, look, S)).collect();
        asks.expire(S);
        asks.expire(S + WORKER_ASK_KEPT - Duration::from_nanos(1));
        assert_eq!(asks.open(AskKind::Standing, 99, 2 * S), None);
        assert_eq!(asks.expire(S + WORKER_ASK_KEPT), [] as [LookId; 0]);
        assert_eq!(asks.next_deadline(), None);
        let again = asks.open(AskKind::Standing, 99, WORKER_ASK_KEPT + 3 * S).unwrap();
        assert_eq!((asks.settle(ids[0], AskKind::Standing), asks.late()), (Ok(None), 1));
        assert_eq!(asks.settle(again + 1, AskKind::Standing), Err(Unasked), "never asked");
        assert_eq!(asks.settle(again, AskKind::Standing), Ok(Some(99)));
        for _ in 1..WORKER_ASKS {
            assert_eq!(asks.settle(ids[1], AskKind::Standing), Ok(None));
        }
        assert_eq!(asks.settle(ids[1], AskKind::Standing), Err(Unasked), "as many as were forgotten");
    }

    /// A process that ends leaves nobody waiting, and its successor is asked under other ids.
    #[test]
    fn the_end_of_a_process_is_the_end_of_its_asks() {
        let mut asks = WorkerAsks::default();
        let former = asks.open(AskKind::Standing, 1, S).unwrap();
        asks.open(AskKind::Standing, 2, 2 * S).unwrap();
        asks.expire(S);
        assert_eq!(asks.ended(), [2]);
        assert_eq!(asks.settle(former, AskKind::Standing), Err(Unasked));
        let last = asks.open(AskKind::Standing, 3, S).unwrap();
        assert!(last > former);
        asks.expire(S);
        asks.expire(S + WORKER_ASK_KEPT);
        assert_eq!(asks.settle(former, AskKind::Standing), Err(Unasked), "it was of another process");
        assert_eq!(asks.settle(last, AskKind::Standing), Ok(None));
    }
}
