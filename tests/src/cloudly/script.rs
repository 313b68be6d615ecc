//! The script of a test: how Cloudly answers a method, or an upgrade, when not by itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::watch;

use crate::envelope::{Refusal, Retry};

/// The name under which a script knows the WebSocket upgrade.
pub const UPGRADE: &str = "(upgrade)";

/// How one request is answered.
#[derive(Clone)]
pub enum Step {
    /// As the contract says.
    Ordinary,
    /// With a refusal.
    Refuse(Refusal),
    /// With this JSON text as `response`.
    Answer(String),
    /// After a wait.
    Delay(Duration, Box<Step>),
    /// Once the test opens the gate.
    When(Gate, Box<Step>),
    /// Judged at once, sent after the answer to the next request of the same method: answers
    /// out of order.
    AfterNext(Box<Step>),
    /// Not at all.
    Never,
    /// With half of the ordinary answer, then a broken connection: half a frame on a socket, half
    /// of the stated length on the exchange. An upgrade is cut without an answer.
    CutMidAnswer,
    /// With `retry`.
    ComeAgain(Retry),
    /// On the exchange and the upgrade: with an HTML page and status 502. On a socket: not at all.
    HtmlBadGateway,
    /// On the exchange and the upgrade: with this status of 300 to 399 and this `location`. On a
    /// socket: not at all.
    Redirect(u16, String),
    /// On the exchange: with the ordinary answer in chunks of one byte, one each 250 ms, which is
    /// minutes. Elsewhere: not at all.
    Trickle,
}

impl Step {
    /// A refusal by name without data.
    pub fn refuse(text: &str) -> Self {
        Self::Refuse(Refusal::new(text))
    }
}

/// A gate that a test opens once.
#[derive(Clone)]
pub struct Gate {
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { open: watch::Sender::new(false) }
    }
}

impl Gate {
    /// Lets everything through, for good.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        let mut open = self.open.subscribe();
        // The gate itself is a sender, so the wait cannot fail.
        drop(open.wait_for(|open| *open).await);
    }
}

/// The steps of every method.
#[derive(Default)]
pub(crate) struct Script {
    queued: BTreeMap<String, VecDeque<Step>>,
    standing: BTreeMap<String, Step>,
}

impl Script {
    pub(crate) fn once(&mut self, method: &str, step: Step) {
        self.queued.entry(method.to_owned()).or_default().push_back(step);
    }

    pub(crate) fn always(&mut self, method: &str, step: Step) {
        self.standing.insert(method.to_owned(), step);
    }

    pub(crate) fn ordinary(&mut self, method: &str) {
        self.queued.remove(method);
        self.standing.remove(method);
    }

    pub(crate) fn next(&mut self, method: &str) -> Step {
        let queued = self.queued.get_mut(method).and_then(VecDeque::pop_front);
        queued.or_else(|| self.standing.get(method).cloned()).unwrap_or(Step::Ordinary)
    }
}
