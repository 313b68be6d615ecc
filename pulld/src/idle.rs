//! How long nothing has moved: the one bound of a body that has none in all.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Instant, sleep_until};

use crate::constants::BODY_IDLE;

/// The clock of one body. Movement costs a reading of the clock, and no timer.
pub(crate) struct Idle {
    began: Instant,
    /// Milliseconds after that.
    moved: AtomicU64,
}

impl Default for Idle {
    fn default() -> Self {
        Self { began: Instant::now(), moved: AtomicU64::new(0) }
    }
}

impl Idle {
    /// Something moved now.
    pub(crate) fn moved(&self) {
        let passed = self.began.elapsed().as_millis();
        self.moved.store(u64::try_from(passed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Nothing has moved for [`BODY_IDLE`].
    pub(crate) async fn over(&self) {
        loop {
            let moved = std::time::Duration::from_millis(self.moved.load(Ordering::Relaxed));
            let due = self.began + moved + BODY_IDLE;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    /// What moves now and then is never over; what does not is after the bound.
    #[tokio::test(start_paused = true)]
    async fn only_standing_still_is_over() {
        let (idle, began) = (Idle::default(), Instant::now());
        let moving = async {
            for _ in 0..100 {
                sleep(BODY_IDLE - Duration::from_secs(1)).await;
                idle.moved();
            }
            began.elapsed()
        };
        let (moved, ()) = tokio::join!(moving, idle.over());
        assert_eq!(began.elapsed(), moved + BODY_IDLE);
    }
}
