//! What pulld has open and what became of its exchanges, for an operator's look: numbers and nothing of what an
//! exchange carried.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// How many of something are open; clones count together.
#[derive(Clone, Default)]
pub(crate) struct OpenCount(Arc<Counted>);

#[derive(Default)]
struct Counted {
    open: AtomicU32,
    /// The last one was closed.
    none: Notify,
}

impl OpenCount {
    /// One more is open, until this is dropped.
    pub(crate) fn one(&self) -> Open {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    /// How many are open now.
    pub(crate) fn get(&self) -> u32 {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Waits until none is open; one waits at a time.
    pub(crate) async fn none(&self) {
        while self.get() > 0 {
            self.0.none.notified().await;
        }
    }
}

/// One that is open and counted.
pub(crate) struct Open(OpenCount);

impl Drop for Open {
    fn drop(&mut self) {
        if self.0.0.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.0.none.notify_one();
        }
    }
}

/// The exchanges of this process, whichever link they came by.
#[derive(Default)]
pub(crate) struct Exchanged {
    /// Those under way.
    pub(crate) open: OpenCount,
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Exchanged {
    /// The registry's answer goes to relayd.
    pub(crate) fn answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// There is no answer, or its body was cut.
    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Exchanges that the registry answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Exchanges that failed before or in their answer.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}
