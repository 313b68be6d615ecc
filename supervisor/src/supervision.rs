//! When a worker is started, pinged, killed and started again (ARC-18): a machine per worker, without
//! process or clock.

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
    /// It is to end and not to be started again.
    Unwanted,
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
    /// It broke a rule of its link.
    Failed,
}

impl Why {
    /// The reason in a log line.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoHello => "it said no hello in time",
            Self::NoPong => "it does not answer",
            Self::Failed => "it broke a rule of its link",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unwanted,
    Starting { since: Duration },
    Alive { since: Duration, pinged: u64, ping_at: Duration, heard: Duration },
    Dying { since: Duration },
    Waiting { until: Duration },
}

/// The state of one worker.
#[derive(Debug)]
pub struct Supervision {
    phase: Phase,
    backoff: Backoff,
    restarts: u64,
}

impl Default for Supervision {
    fn default() -> Self {
        Self { phase: Phase::Unwanted, backoff: Backoff::new(RESTART_FIRST, RESTART_LONGEST), restarts: 0 }
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
            Phase::Unwanted | Phase::Starting { .. } | Phase::Alive { .. } | Phase::Dying { .. } => None,
        }
    }

    /// What the worker does, as a status states it.
    pub fn state(&self) -> WorkerState {
        match self.phase {
            Phase::Unwanted => WorkerState::Off,
            Phase::Starting { .. } => WorkerState::Starting,
            Phase::Alive { .. } => WorkerState::Running,
            Phase::Dying { .. } => WorkerState::Ending,
            Phase::Waiting { .. } => WorkerState::Waiting,
        }
    }

    /// When [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Starting { since } => Some(since + HELLO_BOUND),
            Phase::Alive { ping_at, heard, .. } => Some(ping_at.min(heard + PONG_BOUND)),
            Phase::Waiting { until } => Some(until),
            Phase::Unwanted | Phase::Dying { .. } => None,
        }
    }

    /// Takes an event at `mono`.
    pub fn handle(&mut self, event: Event, mono: Duration) -> Option<Action> {
        match (self.phase, event) {
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
            (Phase::Starting { since } | Phase::Alive { since, .. }, Event::Failed) => {
                self.kill(since, Why::Failed)
            }
            (
                Phase::Starting { since } | Phase::Alive { since, .. } | Phase::Dying { since },
                Event::Died,
            ) => {
                if mono.saturating_sub(since) >= RESTART_RESET {
                    self.backoff.reset();
                }
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
                | Phase::Waiting { .. },
                Event::Wanted | Event::Greeted | Event::Ponged(_) | Event::Died | Event::Failed | Event::Tick,
            ) => None,
        }
    }

    /// Whether it was killed and has not died yet: nothing that it still says counts.
    pub fn is_dying(&self) -> bool {
        matches!(self.phase, Phase::Dying { .. })
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

    fn kill(&mut self, since: Duration, why: Why) -> Option<Action> {
        self.phase = Phase::Dying { since };
        Some(Action::Kill(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn started() -> Supervision {
        let mut worker = Supervision::default();
        assert_eq!(worker.handle(Event::Wanted, Duration::ZERO), Some(Action::Spawn));
        worker
    }

    /// ARC-18: the delay doubles from 0.5 s to 30 s.
    #[test]
    fn a_worker_that_dies_is_started_again_after_a_doubling_delay() {
        let mut worker = started();
        let mut now = Duration::ZERO;
        for delay in [500_u32, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            assert_eq!(worker.handle(Event::Died, now), None);
            assert_eq!(worker.handle(Event::Tick, now + (delay - 1) * MS), None);
            now += delay * MS;
            assert_eq!(worker.handle(Event::Tick, now), Some(Action::Spawn));
        }
        assert_eq!(worker.restarts(), 8);
    }

    /// ARC-18: the delays start over after a minute alive.
    #[test]
    fn a_minute_alive_starts_the_delays_over() {
        for (alive, delay) in [(59_999, 1000), (60_000, 500)] {
            let mut worker = started();
            worker.handle(Event::Died, Duration::ZERO);
            worker.handle(Event::Tick, 500 * MS);
            worker.handle(Event::Greeted, 501 * MS);
            let died = (500 + alive) * MS;
            worker.handle(Event::Died, died);
            assert_eq!(worker.restarts_in(died), Some(delay * MS), "alive for {alive} ms");
        }
    }

    #[test]
    fn a_worker_without_a_hello_is_killed() {
        let mut worker = started();
        assert_eq!(worker.handle(Event::Tick, HELLO_BOUND - MS), None);
        assert_eq!(worker.handle(Event::Tick, HELLO_BOUND), Some(Action::Kill(Why::NoHello)));
        assert_eq!(worker.handle(Event::Tick, HELLO_BOUND + MS), None, "killed once");
    }

    #[test]
    fn a_worker_that_stops_answering_is_killed() {
        let mut worker = started();
        worker.handle(Event::Greeted, Duration::ZERO);
        assert_eq!(worker.handle(Event::Tick, PING_INTERVAL), Some(Action::Ping(1)));
        worker.handle(Event::Ponged(1), PING_INTERVAL);
        assert_eq!(worker.handle(Event::Tick, 2 * PING_INTERVAL), Some(Action::Ping(2)));
        worker.handle(Event::Ponged(1), 2 * PING_INTERVAL);
        assert_eq!(worker.handle(Event::Tick, 3 * PING_INTERVAL), Some(Action::Ping(3)));
        let silent = PING_INTERVAL + PONG_BOUND;
        assert_eq!(worker.handle(Event::Tick, silent), Some(Action::Kill(Why::NoPong)));
    }

    /// A machine that was paused asks before it judges.
    #[test]
    fn a_pause_of_the_whole_machine_kills_nobody() {
        let mut worker = started();
        worker.handle(Event::Greeted, Duration::ZERO);
        assert_eq!(worker.handle(Event::Tick, PING_INTERVAL), Some(Action::Ping(1)));
        let resumed = 3600 * 1000 * MS;
        assert_eq!(worker.handle(Event::Tick, resumed), Some(Action::Ping(2)));
        assert_eq!(worker.handle(Event::Ponged(2), resumed + MS), None);
        let mut silent = resumed;
        let killed = loop {
            silent += PING_INTERVAL;
            match worker.handle(Event::Tick, silent) {
                Some(Action::Ping(_)) => {}
                other => break other,
            }
        };
        assert_eq!((killed, silent), (Some(Action::Kill(Why::NoPong)), resumed + 4 * PING_INTERVAL));
    }

    #[test]
    fn a_worker_that_breaks_a_rule_is_killed_once_and_started_again() {
        let mut worker = started();
        worker.handle(Event::Greeted, Duration::ZERO);
        assert_eq!(worker.handle(Event::Failed, MS), Some(Action::Kill(Why::Failed)));
        assert_eq!(worker.handle(Event::Failed, MS), None);
        worker.handle(Event::Died, 2 * MS);
        assert_eq!(worker.handle(Event::Tick, 502 * MS), Some(Action::Spawn));
    }

    #[test]
    fn an_unwanted_worker_stays_down() {
        let mut worker = started();
        worker.handle(Event::Unwanted, MS);
        worker.handle(Event::Died, MS);
        assert_eq!(worker.handle(Event::Tick, 60_000 * MS), None);
        assert_eq!(worker.next_deadline(), None);
    }
}
