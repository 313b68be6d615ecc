//! What every part of a soak shares: the relay among its peers, the books, and what the faults did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::fleet::Fleet;
use super::journal::Journal;
use super::ledger::{Ledger, Party, Way};
use crate::cloudly::Cloudly;
use crate::dial::Target;
use crate::envelope::Message;
use crate::relay::Relay;

/// The stage.
pub struct Stage {
    /// The control plane.
    pub cloudly: Cloudly,
    /// The relay under test.
    pub relay: Relay,
    /// What a node dials.
    pub target: Target,
    /// The nodes.
    pub fleet: Fleet,
    /// The books.
    pub books: Arc<Mutex<Ledger>>,
    /// Whether nothing disturbs the relay.
    pub calm: AtomicBool,
    marks: AtomicU64,
    journal: Mutex<Journal>,
    killed: Mutex<BTreeSet<u32>>,
    done: Mutex<BTreeMap<String, u64>>,
    failures: Mutex<Vec<String>>,
}

impl Stage {
    /// A stage on which nothing has happened.
    pub fn new(
        cloudly: Cloudly,
        relay: Relay,
        target: Target,
        fleet: Fleet,
        books: Arc<Mutex<Ledger>>,
    ) -> Self {
        Self {
            cloudly,
            relay,
            target,
            fleet,
            books,
            calm: AtomicBool::new(false),
            marks: AtomicU64::new(0),
            journal: Mutex::default(),
            killed: Mutex::default(),
            done: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// A number for a message, never given twice.
    pub fn next_mark(&self) -> u64 {
        self.marks.fetch_add(1, Ordering::Relaxed)
    }

    /// The books.
    pub fn books(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.books)
    }

    /// Has `party` stand still in the books while `fault` lasts.
    pub async fn standing_still<T>(&self, party: Party, fault: impl Future<Output = T>) -> T {
        self.books().stand_still(party, Instant::now());
        let done = fault.await;
        self.books().go_on(party, Instant::now());
        done
    }

    /// Counts a fault that was done.
    pub fn done(&self, kind: String) {
        *lock(&self.done).entry(kind).or_default() += 1;
    }

    /// The faults that were done, by kind.
    pub fn faults_done(&self) -> BTreeMap<String, u64> {
        lock(&self.done).clone()
    }

    /// This process ends by a fault.
    pub fn kills(&self, pid: u32) {
        lock(&self.killed).insert(pid);
    }

    /// Keeps what went wrong.
    pub fn fail(&self, what: impl Into<String>) {
        lock(&self.failures).push(what.into());
    }

    /// What went wrong so far; it is forgotten.
    pub fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.failures))
    }

    /// What the relay wrote.
    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        let mut journal = lock(&self.journal);
        for line in self.relay.take_lines() {
            journal.read(&line.text);
        }
        journal
    }

    /// Enters what arrived at Cloudly and at the nodes into the books.
    pub fn collect(&self) {
        {
            let mut books = self.books();
            for call in self.cloudly.take_calls() {
                let Some(mark) = super::body::mark(call.body()) else { continue };
                books.arrive(Way::Up, Some(mark), call.body(), &call.message.ids.correlation, None);
            }
            for text in self.cloudly.take_strays() {
                let correlation = Message::parse(&text).map(|message| message.ids.correlation);
                books.stray(correlation.as_deref().unwrap_or_default(), &text);
            }
        }
        self.fleet.collect();
    }

    /// Every worker that died and was not killed by a fault, and every kill that no line names.
    pub fn unexplained_deaths(&self) -> Vec<String> {
        let journal = self.journal();
        let killed = lock(&self.killed).clone();
        let mut unnamed = killed.clone();
        let mut found = Vec::new();
        for death in journal.deaths() {
            unnamed.remove(&death.pid);
            if !killed.contains(&death.pid) || !death.line.contains("killed by SIGKILL") {
                found.push(format!("a worker died of itself: {}", death.line));
            }
        }
        found.extend(unnamed.iter().map(|pid| format!("no line names the death of process {pid}")));
        found
    }
}

/// Waits until `look` finds something that announces no change, asking at a pace that leaves the processor
/// to the relay. `None` when the bound passes first.
pub async fn look_until<T>(bound: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if begin.elapsed() >= bound {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
