//! The order of a stop and of a rollback.
//!
//! A stop ends relayd first and as long as Cloudly's requests in flight take, then pulld and vpnd with
//! five seconds each (START-22 – START-25, REL-39). What hangs meanwhile is not waiting: a worker that answers no ping is
//! killed by its [`supervision`](crate::supervision), which goes on until it has died. A start that failed is rolled back in the reverse
//! order of the start, each part with five seconds (START-06).

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use coreflow_ipc::hello::Role;

use crate::constants::STOP_BOUND;

/// What the loop does for a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Tell the worker to end.
    Tell(Role),
    /// The worker did not end in time.
    Kill(Role),
    /// Nothing is left; whether everything ended as it should.
    Done {
        /// `false` makes the exit code 1 (START-12).
        completed: bool,
    },
}

/// Workers that end together, and within which time; `None` is bounded by the service manager alone, for a worker that
/// answers.
#[derive(Debug, Clone)]
struct Stage {
    roles: &'static [Role],
    bound: Option<Duration>,
}

const STOP: [Stage; 2] = [
    Stage { roles: &[Role::Relayd], bound: None },
    Stage { roles: &[Role::Pulld, Role::Vpnd], bound: Some(STOP_BOUND) },
];

const ROLLBACK: [Stage; 2] = [
    Stage { roles: &[Role::Vpnd, Role::Pulld], bound: Some(STOP_BOUND) },
    Stage { roles: &[Role::Relayd], bound: Some(STOP_BOUND) },
];

/// A stop under way.
#[derive(Debug)]
pub struct Stopping {
    stages: VecDeque<Stage>,
    alive: BTreeSet<Role>,
    left: BTreeSet<Role>,
    deadline: Option<Duration>,
    completed: bool,
}

impl Stopping {
    /// Begins a stop of the workers that are `alive`.
    pub fn begin(alive: BTreeSet<Role>, mono: Duration) -> (Self, Vec<Action>) {
        Self::of(&STOP, alive, mono)
    }

    /// Begins the rollback of a start that failed.
    pub fn rollback(alive: BTreeSet<Role>, mono: Duration) -> (Self, Vec<Action>) {
        Self::of(&ROLLBACK, alive, mono)
    }

    fn of(stages: &[Stage], alive: BTreeSet<Role>, mono: Duration) -> (Self, Vec<Action>) {
        let stages = stages.iter().cloned().collect();
        let mut stopping = Self { stages, alive, left: BTreeSet::new(), deadline: None, completed: true };
        let actions = stopping.advance(mono);
        (stopping, actions)
    }

    /// A worker ended; `orderly` when it said that it stopped.
    pub fn ended(&mut self, role: Role, orderly: bool, mono: Duration) -> Vec<Action> {
        self.completed &= orderly;
        self.alive.remove(&role);
        let was_left = self.left.remove(&role);
        if was_left && self.left.is_empty() { self.advance(mono) } else { Vec::new() }
    }

    /// When [`Stopping::tick`] is due. In a stop relayd has no deadline of ours (START-25).
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// A deadline passed, or may have.
    pub fn tick(&mut self, mono: Duration) -> Vec<Action> {
        if self.deadline.is_none_or(|deadline| deadline > mono) {
            return Vec::new();
        }
        self.completed = false;
        // A killed process is waited for as long again, though the kernel needs no such time.
        self.deadline = Some(mono + STOP_BOUND);
        self.left.iter().map(|role| Action::Kill(*role)).collect()
    }

    /// The next stage that has somebody to end.
    fn advance(&mut self, mono: Duration) -> Vec<Action> {
        while let Some(stage) = self.stages.pop_front() {
            let roles: Vec<Role> =
                stage.roles.iter().copied().filter(|role| self.alive.contains(role)).collect();
            if !roles.is_empty() {
                self.left = roles.iter().copied().collect();
                self.deadline = stage.bound.map(|bound| mono + bound);
                return roles.into_iter().map(Action::Tell).collect();
            }
        }
        self.deadline = None;
        vec![Action::Done { completed: self.completed }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Role; 3] = [Role::Relayd, Role::Pulld, Role::Vpnd];
    const S: Duration = Duration::from_secs(1);

    fn begin(alive: &[Role]) -> (Stopping, Vec<Action>) {
        Stopping::begin(alive.iter().copied().collect(), Duration::ZERO)
    }

    /// START-22 – START-25, REL-39: relayd goes first, without a deadline; the others follow.
    #[test]
    fn relayd_goes_first_and_as_long_as_it_takes() {
        let (mut stopping, actions) = begin(&ALL);
        assert_eq!(actions, [Action::Tell(Role::Relayd)]);
        assert_eq!(stopping.next_deadline(), None);
        assert_eq!(stopping.tick(3600 * S), []);
        let actions = stopping.ended(Role::Relayd, true, 20 * S);
        assert_eq!(actions, [Action::Tell(Role::Pulld), Action::Tell(Role::Vpnd)]);
        assert_eq!(stopping.next_deadline(), Some(25 * S));
        assert_eq!(stopping.ended(Role::Vpnd, true, 21 * S), []);
        assert_eq!(stopping.ended(Role::Pulld, true, 21 * S), [Action::Done { completed: true }]);
    }

    /// START-06: a start that failed is undone in reverse order.
    #[test]
    fn a_rollback_ends_the_last_part_first() {
        let (mut rollback, actions) = Stopping::rollback(ALL.into(), Duration::ZERO);
        assert_eq!(actions, [Action::Tell(Role::Vpnd), Action::Tell(Role::Pulld)]);
        assert_eq!(rollback.ended(Role::Pulld, true, S), []);
        assert_eq!(rollback.ended(Role::Vpnd, true, S), [Action::Tell(Role::Relayd)]);
        assert_eq!(rollback.tick(S + STOP_BOUND), [Action::Kill(Role::Relayd)]);
    }

    /// START-12, START-23: a worker that does not end is killed, and the stop has failed.
    #[test]
    fn a_worker_that_does_not_end_is_killed() {
        let (mut stopping, actions) = begin(&[Role::Vpnd]);
        assert_eq!(actions, [Action::Tell(Role::Vpnd)]);
        assert_eq!(stopping.tick(STOP_BOUND - S), []);
        assert_eq!(stopping.tick(STOP_BOUND), [Action::Kill(Role::Vpnd)]);
        assert_eq!(stopping.ended(Role::Vpnd, false, STOP_BOUND), [Action::Done { completed: false }]);
    }

    /// START-12: a worker that crashes while it stops makes the stop a failed one.
    #[test]
    fn a_crash_during_the_stop_is_a_failed_stop() {
        let (mut stopping, _) = begin(&[Role::Relayd]);
        assert_eq!(stopping.ended(Role::Relayd, false, S), [Action::Done { completed: false }]);
    }

    #[test]
    fn nothing_alive_is_done_at_once() {
        assert_eq!(begin(&[]).1, [Action::Done { completed: true }]);
    }
}
