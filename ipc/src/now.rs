//! Both clocks, read together in one place.
//!
//! Windows and expiries follow wall time; paces, waits and backoff follow monotonic time. A jump of
//! the wall clock therefore moves only the former.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Unix milliseconds.
    pub wall: u64,
    /// Time since this process's [`Clock`] was made; never goes back.
    pub mono: Duration,
}

/// The process's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose monotonic side starts at zero.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Reads both clocks.
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { wall: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX), mono: self.origin.elapsed() }
    }

    /// The instant at which `mono` is reached, for timers.
    pub fn instant(&self, mono: Duration) -> Instant {
        self.origin + mono
    }
}
