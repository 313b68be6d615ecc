//! A held run and what became of its renewals: which one is due, how long its offers are repeated, and
//! what was acknowledged (ESC-26, ESC-27, ESC-35 – ESC-37, ESC-57).

use std::time::Duration;

use coreflow_ipc::now::Now;

use crate::{
    constants::{ADMISSION_MARGIN_MS, OFFER_REPEAT},
    contract::{
        renewal::{Hold, Renewal, Run},
        runtime::Binding,
    },
};

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No offer of it was refused or failed in this outage, and none acknowledged.
    Open,
    /// An offer was refused or failed in this outage; from when on the next is made.
    Repeats { from: Duration },
    /// It, or a later one, was acknowledged, or its repeats have ended.
    Done,
}

/// What a look at a run leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Offer the renewal of this index.
    Offer(usize),
    /// The repeats of the renewal of this index have ended.
    RepeatsEnded(usize),
    /// Nothing, until the next opening or repeat.
    Wait,
}

/// A run that is held for a session of a node.
pub(super) struct Held {
    /// Tells it from every run that was held before.
    pub(super) number: u64,
    pub(super) binding: Binding,
    pub(super) run: Run,
    /// The renewal whose offer the node has not answered yet.
    pub(super) in_flight: Option<usize>,
    end: u64,
    states: Vec<State>,
}

impl Held {
    /// What a hold hands over; `None` for an empty run, which gives custody up.
    pub(super) fn new(hold: Hold, number: u64) -> Option<Self> {
        let Hold { session: binding, run } = hold;
        let end = run.renewals.iter().map(|renewal| renewal.expires_at).max()?;
        let states = vec![State::Open; run.renewals.len()];
        Some(Self { number, binding, run, in_flight: None, end, states })
    }

    /// The renewal that is due by the wall clock, the latest where two are (ESC-26, ESC-27).
    pub(super) fn due(&self, wall: u64) -> Option<usize> {
        self.run.renewals.iter().rposition(|renewal| opening(renewal) <= wall && wall < renewal.expires_at)
    }

    /// How many of its windows have not ended.
    pub(super) fn windows(&self, wall: u64) -> usize {
        self.run.renewals.iter().filter(|renewal| wall < renewal.expires_at).count()
    }

    /// When the last of its windows ends, in Unix milliseconds.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether its last window has ended (ESC-57).
    pub(super) fn has_ended(&self, wall: u64) -> bool {
        self.end <= wall
    }

    /// When the run is to be looked at again: the next opening, or its end (ESC-30).
    pub(super) fn next_opening(&self, wall: u64) -> u64 {
        self.run.renewals.iter().map(opening).find(|at| *at > wall).unwrap_or(self.end)
    }

    /// When the renewal that is due is offered anew.
    pub(super) fn next_repeat(&self, now: Now) -> Option<Duration> {
        match self.states[self.due(now.wall)?] {
            State::Repeats { from } => (from > now.mono).then_some(from),
            State::Open | State::Done => None,
        }
    }

    /// What is due decides, not what is next (ESC-41).
    pub(super) fn step(&mut self, now: Now) -> Step {
        let Some(index) = self.due(now.wall).filter(|index| self.in_flight != Some(*index)) else {
            return Step::Wait;
        };
        match self.states[index] {
            State::Open => Step::Offer(index),
            State::Repeats { from } if from > now.mono => Step::Wait,
            State::Repeats { .. } if now.wall < self.repeats_end(index) => Step::Offer(index),
            State::Repeats { .. } => {
                self.states[index] = State::Done;
                Step::RepeatsEnded(index)
            }
            State::Done => Step::Wait,
        }
    }

    /// Repeats last while a node that kept up still has the window before; those of the renewal that
    /// opens the run, as long as its own (ESC-35, ESC-36).
    fn repeats_end(&self, index: usize) -> u64 {
        self.run.renewals[index.saturating_sub(1)].expires_at
    }

    /// The node acknowledged a renewal: it admits that one and those before it no more (ESC-37).
    pub(super) fn acknowledged(&mut self, index: usize) {
        self.in_flight = None;
        self.states[..=index].fill(State::Done);
    }

    /// The offer in flight was refused or failed; when it is made anew (ESC-34).
    pub(super) fn failed(&mut self, index: usize, now: Now) -> Duration {
        self.in_flight = None;
        let from = now.mono + OFFER_REPEAT;
        self.states[index] = State::Repeats { from };
        from
    }

    /// The session is back: what is due when it is lost again is offered in that moment, also where it was refused
    /// before; repeats that have ended by now stay ended (ESC-29, ESC-37, ESC-38).
    pub(super) fn pause(&mut self, wall: u64) {
        self.in_flight = None;
        for index in 0..self.states.len() {
            match self.states[index] {
                State::Repeats { .. } if wall < self.repeats_end(index) => self.states[index] = State::Open,
                State::Repeats { .. } => self.states[index] = State::Done,
                State::Open | State::Done => {}
            }
        }
    }
}

/// When a renewal may be offered first: the margin covers a node whose clock is behind (ESC-28).
fn opening(renewal: &Renewal) -> u64 {
    renewal.not_before + ADMISSION_MARGIN_MS
}
