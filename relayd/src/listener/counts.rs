//! What happened at the listener: counted where it happens, on the listener's thread, and read by the core's.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since this relayd started.
#[derive(Default)]
pub struct Counts {
    refused: AtomicU64,
    pulls: AtomicU64,
    pulls_refused: AtomicU64,
}

impl Counts {
    /// A connection, or an upgrade, is not taken.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A pull is answered with what the registry said.
    pub(super) fn pull(&self) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
    }

    /// The relay answers a request under `/v2/` itself.
    pub(super) fn refuse_pull(&self) {
        self.pulls_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that ended in their handshake or before it, and upgrades that found no place.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Pulls that were answered with what the registry said.
    pub fn pulls(&self) -> u64 {
        self.pulls.load(Ordering::Relaxed)
    }

    /// Requests under `/v2/` that the relay answered itself.
    pub fn pulls_refused(&self) -> u64 {
        self.pulls_refused.load(Ordering::Relaxed)
    }
}
