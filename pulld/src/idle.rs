//! How long a body has stood still, by whom it waits for: the one bound of a body that has none in all (PULL-18,
//! PULL-30).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use crate::constants::{BODY_IDLE, NODE_IDLE};

/// Whom a body waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The registry, which is to send more.
    Registry,
    /// Relayd, which reads for its node.
    Node,
}

impl Side {
    fn bound(self) -> Duration {
        match self {
            Self::Registry => BODY_IDLE,
            Self::Node => NODE_IDLE,
        }
    }
}

/// The clock of one body. A wait that begins costs a reading of the clock, and no timer.
pub(crate) struct Idle {
    began: Instant,
    /// When the wait that is on is over, in milliseconds after that.
    due: AtomicU64,
}

impl Default for Idle {
    fn default() -> Self {
        let idle = Self { began: Instant::now(), due: AtomicU64::new(0) };
        idle.waits_for(Side::Registry);
        idle
    }
}

impl Idle {
    /// Something moved, and what comes next is waited for from now on.
    pub(crate) fn waits_for(&self, side: Side) {
        let due = (self.began.elapsed() + side.bound()).as_millis();
        self.due.store(u64::try_from(due).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A wait has lasted for its bound.
    pub(crate) async fn over(&self) {
        loop {
            let (now, due) = (Instant::now(), Duration::from_millis(self.due.load(Ordering::Relaxed)));
            let due = self.began + due;
            if due <= now {
                return;
            }
            // A wait that begins meanwhile is due no sooner than this.
            sleep_until(due.min(now + BODY_IDLE)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// PULL-18: what moves now and then is never over; what does not is after the bound of who is waited for.
    #[tokio::test(start_paused = true)]
    async fn only_standing_still_is_over() {
        for last in [Side::Registry, Side::Node] {
            let (idle, began) = (Idle::default(), Instant::now());
            let moving = async {
                for _ in 0..100 {
                    for side in [Side::Registry, Side::Node] {
                        idle.waits_for(side);
                        sleep(side.bound() - Duration::from_secs(1)).await;
                    }
                }
                idle.waits_for(last);
                began.elapsed()
            };
            let (moved, ()) = tokio::join!(moving, idle.over());
            assert_eq!(began.elapsed(), moved + last.bound());
        }
    }
}
