//! When a worker is started, pinged, killed and started again (ARC-18), also by command, and pinged on until it has
//! ended with the relay: a machine per worker, without process or clock.

use std::time::Duration;

use coreflow_ipc::backoff::Backoff;

use crate::{
    constants::{HELLO_BOUND, PING_INTERVAL, PONG_BOUND, RESTART_FIRST, RESTART_LONGEST, RESTART_RESET},
    status::WorkerState,
};

/// What happens to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The relay needs it from here on.
    Wanted,
    /// It said a valid hello.
    Greeted,
    /// It answered a ping of this number.
    Ponged(u64),
    /// It died, or could not be started.
    Died,
    /// It broke a rule of its link.
    Failed,
    /// It cannot be started, and nobody tries again.
    Unwanted,
    /// The relay ends, and the process with it, each in its turn: it is not started again, and is judged until it has died.
    Last,
    /// It is to end in order within this time, and to be started again at once; no crash is counted.
    Restart(Duration),
    /// A deadline passed, or may have.
    Tick,
}

/// What the loop does for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start a process.
    Spawn,
    /// Send a ping.
    Ping(u64),
    /// Tell the process to end in order; its death follows as [`Event::Died`].
    Stop,
    /// Kill the process; its death follows as [`Event::Died`].
    Kill(Why),
}

/// Why a living worker is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It did not say hello in time.
    NoHello,
    /// It does not answer pings.
    NoPong,
    /// It did not end in time, of a restart by command.
    NoEnd,
    /// It broke a rule of its link.
    Failed,
}

impl Why {
    /// The reason in a log line.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoHello => "it said no hello in time",
            Self::NoPong => "it does not answer",
            Self::NoEnd => "it does not end in time",
            Self::Failed => "it broke a rule of its link",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unwanted,
    Starting {
        since: Duration,
    },
    Alive {
        since: Duration,
        pinged: u64,
        ping_at: Duration,
        heard: Duration,
    },
    Dying {
        since: Duration,
    },
    /// It was told to end, or killed, and is started again when it has died.
    Restarting {
        since: Duration,
        kill_at: Option<Duration>,
    },
    Waiting {
        until: Duration,
    },
}

/// The state of one worker.
#[derive(Debug)]
pub struct Supervision {
    phase: Phase,
    /// Whether it is not to be started again.
    last: bool,
    backoff: Backoff,
    restarts: u64,
}

impl Default for Supervision {
    fn default() -> Self {
        let backoff = Backoff::new(RESTART_FIRST, RESTART_LONGEST);
        Self { phase: Phase::Unwanted, last: false, backoff, restarts: 0 }
    }
}

impl Supervision {
    /// How often it was started again.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// How long until it is started again, when that is what it waits for.
    pub fn restarts_in(&self, mono: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { until } => Some(until.saturating_sub(mono)),
            Phase::Unwanted
            | Phase::Starting { .. }
            | Phase::Alive { .. }
            | Phase::Dying { .. }
            | Phase::Restarting { .. } => None,
        }
    }

    /// Whether its end was asked for, and it is started again when it has died.
    pub fn is_restarting(&self) -> bool {
        matches!(self.phase, Phase::Restarting { .. })
    }

    /// What the worker does, as a status states it.
    pub fn state(&self) -> WorkerState {
        match self.phase {
            Phase::Unwanted => WorkerState::Off,
            Phase::Starting { .. } | Phase::Alive { .. } if self.last => WorkerState::Ending,
            Phase::Starting { .. } => WorkerState::Starting,
            Phase::Alive { .. } => WorkerState::Running,
            Phase::Dying { .. } | Phase::Restarting { .. } => WorkerState::Ending,
            Phase::Waiting { .. } => WorkerState::Waiting,
        }
    }

    /// When [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Starting { since } => Some(since + HELLO_BOUND),
            Phase::Alive { ping_at, heard, .. } => Some(ping_at.min(heard + PONG_BOUND)),
            Phase::Waiting { until } => Some(until),
            Phase::Restarting { kill_at, .. } => kill_at,
            Phase::Unwanted | Phase::Dying { .. } => None,
        }
    }

    /// Takes an event at `mono`.
    pub fn handle(&mut self, event: Event, mono: Duration) -> Option<Action> {
        match (self.phase, event) {
            (_, Event::Wanted | Event::Restart(_)) if self.last => None,
            (Phase::Unwanted, Event::Wanted) => self.start(mono),
            (Phase::Starting { since }, Event::Greeted) => {
                self.phase = Phase::Alive { since, pinged: 0, ping_at: mono + PING_INTERVAL, heard: mono };
                None
            }
            (Phase::Alive { since, pinged, ping_at, .. }, Event::Ponged(number)) if number == pinged => {
                self.phase = Phase::Alive { since, pinged, ping_at, heard: mono };
                None
            }
            (_, Event::Unwanted) => {
                self.phase = Phase::Unwanted;
                None
            }
            (_, Event::Last) => {
                self.end(mono);
                None
            }
            (_, Event::Died) if self.last => {
                self.phase = Phase::Unwanted;
                None
            }
            (Phase::Starting { since } | Phase::Alive { since, .. }, Event::Failed) => {
                self.kill(since, Why::Failed)
            }
            (Phase::Starting { since } | Phase::Alive { since, .. }, Event::Restart(bound)) => {
                self.phase = Phase::Restarting { since, kill_at: Some(mono + bound) };
                Some(Action::Stop)
            }
            // It ends already, by a kill.
            (Phase::Dying { since }, Event::Restart(_)) => {
                self.phase = Phase::Restarting { since, kill_at: None };
                None
            }
            (Phase::Waiting { .. }, Event::Restart(_)) => self.start(mono),
            (Phase::Restarting { since, .. }, Event::Died) => {
                self.lived(since, mono);
                self.start(mono)
            }
            (Phase::Restarting { since, kill_at: Some(_) }, Event::Failed) => {
                self.kill_restarting(since, Why::Failed)
            }
            (Phase::Restarting { since, kill_at: Some(at) }, Event::Tick) if at <= mono => {
                self.kill_restarting(since, Why::NoEnd)
            }
            (
                Phase::Starting { since } | Phase::Alive { since, .. } | Phase::Dying { since },
                Event::Died,
            ) => {
                self.lived(since, mono);
                self.phase = Phase::Waiting { until: mono + self.backoff.advance() };
                None
            }
            (Phase::Starting { since }, Event::Tick) if since + HELLO_BOUND <= mono => {
                self.kill(since, Why::NoHello)
            }
            // Whoever was not looked at for so long was not asked either: the machine was paused, and what
            // the worker answered may still wait to be read.
            (Phase::Alive { since, pinged, ping_at, .. }, Event::Tick) if ping_at + PING_INTERVAL <= mono => {
                self.phase = Phase::Alive { since, pinged, ping_at, heard: mono };
                self.ping(mono)
            }
            (Phase::Alive { since, heard, .. }, Event::Tick) if heard + PONG_BOUND <= mono => {
                self.kill(since, Why::NoPong)
            }
            (Phase::Alive { ping_at, .. }, Event::Tick) if ping_at <= mono => self.ping(mono),
            (Phase::Waiting { until }, Event::Tick) if until <= mono => {
                self.restarts += 1;
                self.start(mono)
            }
            (
                Phase::Unwanted
                | Phase::Starting { .. }
                | Phase::Alive { .. }
                | Phase::Dying { .. }
                | Phase::Restarting { .. }
                | Phase::Waiting { .. },
                Event::Wanted
                | Event::Greeted
                | Event::Ponged(_)
                | Event::Died
                | Event::Failed
                | Event::Restart(_)
                | Event::Tick,
            ) => None,
        }
    }

    /// Whether it was killed and has not died yet: nothing that it still says counts.
    pub fn is_dying(&self) -> bool {
        matches!(self.phase, Phase::Dying { .. } | Phase::Restarting { kill_at: None, .. })
    }

    fn ping(&mut self, mono: Duration) -> Option<Action> {
        let Phase::Alive { pinged, ping_at, .. } = &mut self.phase else { return None };
        *pinged += 1;
        *ping_at = mono + PING_INTERVAL;
        Some(Action::Ping(*pinged))
    }

    fn start(&mut self, mono: Duration) -> Option<Action> {
        self.phase = Phase::Starting { since: mono };
        Some(Action::Spawn)
    }

    /// A worker that was alive for long starts the delays over, however it ended.
    fn lived(&mut self, since: Duration, mono: Duration) {
        if mono.saturating_sub(since) >= RESTART_RESET {
            self.backoff.reset();
        }
    }

    /// From here on its process is the last one.
    fn end(&mut self, mono: Duration) {
        self.last = true;
        match self.phase {
            Phase::Waiting { .. } => self.phase = Phase::Unwanted,
            // It ends in order already: of the time that a restart gave it the end takes nothing over (START-25).
            Phase::Restarting { since, kill_at: Some(_) } => {
                self.phase = Phase::Alive { since, pinged: 0, ping_at: mono, heard: mono };
            }
            Phase::Unwanted
            | Phase::Starting { .. }
            | Phase::Alive { .. }
            | Phase::Dying { .. }
            | Phase::Restarting { kill_at: None, .. } => {}
        }
    }

    fn kill_restarting(&mut self, since: Duration, why: Why) -> Option<Action> {
        self.phase = Phase::Restarting { since, kill_at: None };
        Some(Action::Kill(why))
    }

    fn kill(&mut self, since: Duration, why: Why) -> Option<Action> {
        self.phase = Phase::Dying { since };
        Some(Action::Kill(why))
    }
}

#[cfg(test)]
mod tests;
