//! When which run is looked at: at a window's opening, on the wall clock, and at a repeat, on the
//! monotonic one. The two of a node stand side by side, and no node's delays another's (ESC-39, ESC-43).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coreflow_ipc::now::Now;

use crate::contract::values::Id;

/// The looks to come; empty while the session stands.
#[derive(Default)]
pub(super) struct Agenda {
    openings: BTreeSet<(u64, Id)>,
    repeats: BTreeSet<(Duration, Id)>,
    of: BTreeMap<Id, (u64, Option<Duration>)>,
}

impl Agenda {
    /// The node's next looks, in the place of those it had. `opening` is in Unix milliseconds.
    pub(super) fn set(&mut self, node: &Id, opening: u64, repeat: Option<Duration>) {
        self.remove(node);
        self.openings.insert((opening, node.clone()));
        self.repeats.extend(repeat.map(|at| (at, node.clone())));
        self.of.insert(node.clone(), (opening, repeat));
    }

    /// Another repeat of the node. Its opening and an earlier repeat stay, also where they have passed and
    /// were not looked at yet.
    pub(super) fn set_repeat(&mut self, node: &Id, at: Duration) {
        if let Some((opening, repeat)) = self.of.get(node).copied() {
            self.set(node, opening, Some(repeat.map_or(at, |earlier| earlier.min(at))));
        }
    }

    pub(super) fn remove(&mut self, node: &Id) {
        let Some((opening, repeat)) = self.of.remove(node) else { return };
        self.openings.remove(&(opening, node.clone()));
        if let Some(at) = repeat {
            self.repeats.remove(&(at, node.clone()));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes a node whose look is due.
    pub(super) fn due(&mut self, now: Now) -> Option<Id> {
        let opened = self.openings.first().filter(|(at, _)| *at <= now.wall).map(|(_, node)| node);
        let repeated = self.repeats.first().filter(|(at, _)| *at <= now.mono).map(|(_, node)| node);
        let node = opened.or(repeated)?.clone();
        self.remove(&node);
        Some(node)
    }

    /// When [`Agenda::due`] has something, on the monotonic clock, as long as the wall clock does not jump.
    pub(super) fn next_deadline(&self, now: Now) -> Option<Duration> {
        let opening = self
            .openings
            .first()
            .map(|(at, _)| now.mono.saturating_add(Duration::from_millis(at.saturating_sub(now.wall))));
        let repeat = self.repeats.first().map(|(at, _)| *at);
        [opening, repeat].into_iter().flatten().min()
    }
}
