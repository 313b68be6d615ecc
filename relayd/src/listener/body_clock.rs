//! When the body of a pull last moved towards its node: a node that takes nothing for [`PULL_STALL`] ends it
//! (PULL-30).

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tracing::debug;

use crate::constants::PULL_STALL;

/// The clock of one body at a time.
#[derive(Default)]
pub(super) struct BodyClock {
    moved: Mutex<Option<Instant>>,
    began: Notify,
}

impl BodyClock {
    /// When the body that is on its way last moved.
    pub(super) fn last(&self) -> Option<Instant> {
        *self.moved()
    }

    /// A body is on its way, or goes on.
    pub(super) fn moves(&self) {
        if self.moved().replace(Instant::now()).is_none() {
            self.began.notify_one();
        }
    }

    /// The body ended.
    pub(super) fn ends(&self) {
        *self.moved() = None;
    }

    /// Ends when a body stands still for too long.
    async fn stalled(&self) {
        loop {
            let Some(last) = self.last() else {
                self.began.notified().await;
                continue;
            };
            let due = last + PULL_STALL;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    fn moved(&self) -> MutexGuard<'_, Option<Instant>> {
        self.moved.lock().expect("no holder of the time panics")
    }
}

tokio::task_local! {
    static CLOCK: Arc<BodyClock>;
}

/// The clock of the stream of HTTP/2 whose task this is called in.
pub(super) fn of_this_stream() -> Option<Arc<BodyClock>> {
    CLOCK.try_with(Arc::clone).ok()
}

/// Runs each stream of HTTP/2 under a clock of its own: hyper asks a body whose node opens no window for
/// nothing, so that only the stream's task can end it, and the connection's other streams go on.
#[derive(Clone, Copy)]
pub(super) struct Streams;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let clock = Arc::new(BodyClock::default());
        tokio::spawn(async move {
            tokio::select! {
                () = CLOCK.scope(Arc::clone(&clock), stream) => {}
                () = clock.stalled() => debug!("a node takes nothing of a pull; its stream is reset"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    /// PULL-30: a body that moves is bounded by nothing, one that stands still by the constant, and between
    /// bodies no time counts.
    #[tokio::test(start_paused = true)]
    async fn only_a_body_that_stands_still_is_stalled() {
        let (clock, began) = (BodyClock::default(), Instant::now());
        let moving = async {
            sleep(10 * PULL_STALL).await;
            for _ in 0..100 {
                clock.moves();
                sleep(PULL_STALL - Duration::from_secs(1)).await;
            }
            clock.ends();
            sleep(10 * PULL_STALL).await;
            clock.moves();
            began.elapsed()
        };
        let (last, ()) = tokio::join!(moving, clock.stalled());
        assert_eq!(began.elapsed(), last + PULL_STALL);
    }
}
