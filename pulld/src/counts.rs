//! What pulld has open and what became of its exchanges, for an operator's look: numbers and nothing of what an
//! exchange carried.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// How many of something are open; clones count together.
#[derive(Clone, Default)]
pub(crate) struct OpenCount(Arc<AtomicU32>);

impl OpenCount {
    /// One more is open, until this is dropped.
    pub(crate) fn one(&self) -> Open {
        self.0.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    /// How many are open now.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One that is open and counted.
pub(crate) struct Open(OpenCount);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
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
