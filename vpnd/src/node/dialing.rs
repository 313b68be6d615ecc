//! When a node dials, and when it waits: decided here alone, without a socket, a clock or a task.
//!
//! A dial is bounded. After it, or after a session, the next waits as the reason asks for: a node that was
//! superseded or is no member stays away, one whose hub fell silent or stops tries again soon and then less
//! and less often, never in step with the others.

use std::time::Duration;

use coreflow_ipc::backoff::Backoff;

use super::why::Why;
use crate::{
    constants::{DIAL_BUDGET, REDIAL_FIRST, REDIAL_LONGEST, REFUSED_HOLD, SESSION_PROVEN, SUPERSEDED_HOLD},
    protocol::close::Close,
};

/// Numbers the dials of a node; an event of an older one is stale.
pub type Dial = u64;

/// What happens to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It starts.
    Started,
    /// A dial led to a session.
    Admitted(Dial),
    /// A dial came to nothing, or its session ended.
    Ended(Dial, Why),
    /// The local address changed.
    Moved,
    /// It stops.
    Stop,
    /// A deadline passed, or may have.
    Tick,
}

/// What the driver does, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Begin this dial.
    Dial(Dial),
    /// Give it up: whatever becomes of it is of no interest.
    Abandon(Dial),
    /// Close the session, with code 0.
    Hangup(Dial),
    /// Tell the host that the session is there.
    TellUp(Dial),
    /// Tell the host that it is not, and why.
    TellDown(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Dialing {
        dial: Dial,
        until: Duration,
    },
    Up {
        dial: Dial,
        since: Duration,
    },
    /// `held`: the hub had a reason for it, which a new local address does not change.
    Waiting {
        until: Duration,
        held: bool,
    },
    Stopped,
}

/// How long a reason keeps a node away.
enum Pace {
    /// At least so long.
    Held(Duration),
    /// As soon as it can be, once; then as [`Pace::Backoff`].
    Soon,
    /// Twice as long each time.
    Backoff,
}

/// The state of a node's dialling. Times are durations on one monotonic clock.
#[derive(Debug)]
pub struct Dialing {
    phase: Phase,
    dials: Dial,
    attempts: u64,
    /// A session that ends may be followed by a quick dial.
    quick: bool,
    backoff: Backoff,
}

impl Default for Dialing {
    fn default() -> Self {
        let backoff = Backoff::new(REDIAL_FIRST, REDIAL_LONGEST);
        Self { phase: Phase::Idle, dials: 0, attempts: 0, quick: true, backoff }
    }
}

impl Dialing {
    /// Takes an event at `now`; `random` draws the jitter of a wait.
    pub fn handle(&mut self, event: Event, now: Duration, random: u32) -> Vec<Action> {
        match (event, self.phase) {
            (Event::Started, Phase::Idle) => vec![self.dial(now)],
            (Event::Tick, Phase::Waiting { until, .. }) if now >= until => vec![self.dial(now)],
            (Event::Moved, Phase::Waiting { held: false, .. }) => vec![self.dial(now)],
            (Event::Tick, Phase::Dialing { dial, until }) if now >= until => {
                self.wait(&Why::Unanswered, false, now, random);
                vec![Action::Abandon(dial), Action::TellDown(Why::Unanswered)]
            }
            (Event::Admitted(of), Phase::Dialing { dial, .. }) if of == dial => {
                self.phase = Phase::Up { dial, since: now };
                vec![Action::TellUp(dial)]
            }
            (Event::Ended(of, why), Phase::Dialing { dial, .. }) if of == dial => {
                self.wait(&why, false, now, random);
                vec![Action::TellDown(why)]
            }
            (Event::Ended(of, why), Phase::Up { dial, since }) if of == dial => {
                if now.saturating_sub(since) >= SESSION_PROVEN {
                    self.backoff.reset();
                    (self.attempts, self.quick) = (0, true);
                }
                self.wait(&why, true, now, random);
                vec![Action::TellDown(why)]
            }
            (Event::Stop, phase) => {
                self.phase = Phase::Stopped;
                match phase {
                    Phase::Dialing { dial, .. } => vec![Action::Abandon(dial)],
                    Phase::Up { dial, .. } => vec![Action::Hangup(dial)],
                    Phase::Idle | Phase::Waiting { .. } | Phase::Stopped => Vec::new(),
                }
            }
            // Stale, early, or without a meaning in this phase.
            (
                Event::Started | Event::Admitted(_) | Event::Ended(..) | Event::Moved | Event::Tick,
                Phase::Idle
                | Phase::Dialing { .. }
                | Phase::Up { .. }
                | Phase::Waiting { .. }
                | Phase::Stopped,
            ) => Vec::new(),
        }
    }

    /// When [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Dialing { until, .. } | Phase::Waiting { until, .. } => Some(until),
            Phase::Idle | Phase::Up { .. } | Phase::Stopped => None,
        }
    }

    /// Dials since the last session that stood for a minute.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    fn dial(&mut self, now: Duration) -> Action {
        self.dials += 1;
        self.attempts += 1;
        self.phase = Phase::Dialing { dial: self.dials, until: now + DIAL_BUDGET };
        Action::Dial(self.dials)
    }

    fn wait(&mut self, why: &Why, stood: bool, now: Duration, random: u32) {
        let pace = pace(why);
        let held = matches!(pace, Pace::Held(_));
        let wait = match pace {
            Pace::Held(least) => least + (least / 10).mul_f64(f64::from(random) / f64::from(u32::MAX)),
            Pace::Soon if stood && self.quick => {
                self.quick = false;
                Backoff::new(REDIAL_FIRST, REDIAL_FIRST).advance_jittered(random)
            }
            Pace::Soon | Pace::Backoff => self.backoff.advance_jittered(random),
        };
        self.phase = Phase::Waiting { until: now + wait, held };
    }
}

fn pace(why: &Why) -> Pace {
    match why {
        Why::Closed(Close::Superseded) => Pace::Held(SUPERSEDED_HOLD),
        Why::Closed(Close::NotAdmitted | Close::Expired | Close::Malformed | Close::Version)
        | Why::Unknown(_) => Pace::Held(REFUSED_HOLD),
        // One that was withdrawn may have been given another address; if not, it is told so by the next dial.
        Why::Closed(Close::Stopping | Close::Withdrawn) | Why::Lost => Pace::Soon,
        Why::Closed(Close::Ended | Close::Busy | Close::Late)
        | Why::Unanswered
        | Why::Refused
        | Why::NotTheHub
        | Why::Malformed(_)
        | Why::Local(_) => Pace::Backoff,
    }
}

#[cfg(test)]
mod tests;
