//! The tap of a worker's link: which messages pass, when, which way, how long and with how many descriptors, for
//! `coreflowctl trace` (LOG-01).
//!
//! What a message says has no way into a trace: [`Traced`] holds numbers, and texts of this program alone. It is
//! made from a message by a match that names each message and each of its members ([`Traceable`]), so that a new
//! one does not compile before somebody has weighed it. While nobody looks nothing is made.

use std::sync::{Arc, Mutex, MutexGuard};

use coreflow_ipc::{hello::Role, now::Clock};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::constants::{CONTROL_TRACES, TRACE_KEPT};

mod shown;

pub use shown::{Shown, Traceable};

/// Which way a message passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    /// From the supervisor to the worker.
    ToWorker,
    /// From the worker to the supervisor.
    FromWorker,
}

/// One message that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traced {
    /// When, in Unix milliseconds.
    pub at: u64,
    /// The worker's process.
    pub pid: u32,
    /// Which way.
    pub direction: Direction,
    /// What it is, and what of it may be shown.
    #[serde(flatten)]
    pub shown: Shown,
    /// Bytes of its frame.
    pub bytes: usize,
    /// Descriptors beside it.
    pub descriptors: usize,
}

/// The traces of one worker's link, through all processes that fill its role. Clones are one tap.
#[derive(Debug, Clone)]
pub struct Tap {
    clock: Clock,
    /// There while somebody looks: what is kept for readers takes room.
    watchers: Arc<Mutex<Option<broadcast::Sender<Traced>>>>,
}

impl Tap {
    /// A tap that nobody looks at.
    pub fn new(clock: Clock) -> Self {
        Self { clock, watchers: Arc::default() }
    }

    /// Everything that passes from here on; who reads too slowly loses the oldest, and is told how many.
    pub fn watch(&self) -> broadcast::Receiver<Traced> {
        self.lock().get_or_insert_with(|| broadcast::Sender::new(TRACE_KEPT)).subscribe()
    }

    /// How many look.
    pub fn watchers(&self) -> usize {
        self.lock().as_ref().map_or(0, broadcast::Sender::receiver_count)
    }

    /// A message of the process `pid` passed.
    pub fn passed(
        &self,
        pid: u32,
        direction: Direction,
        message: &impl Traceable,
        bytes: usize,
        descriptors: usize,
    ) {
        let mut watchers = self.lock();
        let Some(sender) = watchers.as_ref() else { return };
        let at = self.clock.now().wall;
        let traced = Traced { at, pid, direction, shown: message.shown(), bytes, descriptors };
        if sender.send(traced).is_err() {
            // The last one is gone.
            *watchers = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<broadcast::Sender<Traced>>> {
        self.watchers.lock().expect("no holder of the watchers panics")
    }
}

/// The taps of all workers.
#[derive(Debug)]
pub struct Taps([(Role, Tap); 3]);

impl Taps {
    /// Taps that nobody looks at.
    pub fn new(clock: Clock) -> Self {
        Self(Role::WORKERS.map(|role| (role, Tap::new(clock))))
    }

    /// The tap of `role`.
    pub fn of(&self, role: Role) -> &Tap {
        let tap = self.0.iter().find(|(worker, _)| *worker == role).map(|(_, tap)| tap);
        tap.expect("each worker has a tap")
    }

    /// One more look at `role`; none while as many look as may.
    pub fn watch(&self, role: Role) -> Option<broadcast::Receiver<Traced>> {
        let watchers: usize = self.0.iter().map(|(_, tap)| tap.watchers()).sum();
        (watchers < CONTROL_TRACES).then(|| self.of(role).watch())
    }
}

#[cfg(test)]
mod tests {
    use coreflow_ipc::{
        messages::{ToWorker, relayd::*},
        record::Level,
        secret::SecretText,
    };
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    /// A trace has the form of the contract, and what the message says is not in it.
    #[tokio::test]
    async fn a_message_that_passes_is_seen_and_not_what_it_says() {
        let tap = Tap::new(Clock::start());
        let identity = Identity { document: SecretText::new("the-identity".to_owned()), expires_at: 77_001 };
        let answer = ToRelayd::AnswerIdentity { id: 3, answer: Ok(identity) };
        tap.passed(9, Direction::ToWorker, &answer, 812, 0);
        let mut seen = tap.watch();
        assert_eq!(seen.try_recv(), Err(TryRecvError::Empty), "what passed before is not kept");
        tap.passed(9, Direction::ToWorker, &answer, 812, 0);
        let traced = seen.try_recv().unwrap();
        let json = serde_json::to_value(traced).unwrap();
        let expected = serde_json::json!({
            "at": traced.at, "pid": 9, "direction": "toWorker", "kind": "AnswerIdentity", "id": 3,
            "note": "granted", "bytes": 812, "descriptors": 0,
        });
        assert_eq!(json, expected);
        assert!(!json.to_string().contains("identity\"") && !json.to_string().contains("77001"));
    }

    /// Who does not read loses the oldest messages and is told how many; who looks is bounded.
    #[tokio::test]
    async fn a_slow_watcher_is_told_what_it_lost() {
        let taps = Taps::new(Clock::start());
        let mut watchers: Vec<_> = Role::WORKERS.into_iter().map(|role| taps.watch(role).unwrap()).collect();
        watchers.push(taps.watch(Role::Relayd).unwrap());
        assert_eq!(watchers.len(), CONTROL_TRACES);
        assert!(taps.watch(Role::Vpnd).is_none());
        let message = ToRelayd::Worker(ToWorker::LogLevel(Level::Trace));
        for _ in 0..TRACE_KEPT + 5 {
            taps.of(Role::Relayd).passed(9, Direction::ToWorker, &message, 6, 0);
        }
        assert_eq!(watchers[0].try_recv(), Err(TryRecvError::Lagged(5)));
        assert_eq!(watchers[0].try_recv().unwrap().shown.kind, "LogLevel");
        assert_eq!(watchers[1].try_recv(), Err(TryRecvError::Empty), "another worker's link");
        watchers.clear();
        assert!(taps.watch(Role::Vpnd).is_some());
        // Nothing is kept for nobody.
        taps.of(Role::Relayd).passed(9, Direction::ToWorker, &message, 6, 0);
        assert!(taps.of(Role::Relayd).lock().is_none());
    }
}
