//! Bounded waits: a test waits for a condition, never for a time, and a wait that runs out
//! says what it waited for.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

/// How long a wait of a test lasts at most, where the test states no bound of its own.
pub const BOUND: Duration = Duration::from_secs(20);

/// Something did not happen within its bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// What was waited for, in words.
    pub what: String,
    /// How long it was waited for.
    pub after: Duration,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} within {} ms", self.what, self.after.as_millis())
    }
}

impl std::error::Error for Late {}

/// Awaits `future` for at most `bound`; `what` names it in the failure.
///
/// # Errors
/// [`Late`] when the bound passes first.
pub async fn within<T>(bound: Duration, what: &str, future: impl Future<Output = T>) -> Result<T, Late> {
    tokio::time::timeout(bound, future).await.map_err(|_| Late { what: what.to_owned(), after: bound })
}

/// Tells waiting tests that something they may be looking at has changed.
#[derive(Clone)]
pub struct Change {
    beat: watch::Sender<u64>,
}

impl Default for Change {
    fn default() -> Self {
        Self { beat: watch::Sender::new(0) }
    }
}

impl Change {
    /// Wakes every wait, which then looks again.
    pub fn announce(&self) {
        self.beat.send_modify(|beat| *beat += 1);
    }

    /// Waits until `look` finds something, looking again after each [`Change::announce`].
    ///
    /// # Errors
    /// [`Late`] when `look` finds nothing within `bound`.
    pub async fn until<T>(
        &self,
        bound: Duration,
        what: &str,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, Late> {
        let mut beat = self.beat.subscribe();
        let seen = async {
            loop {
                beat.borrow_and_update();
                if let Some(found) = look() {
                    return found;
                }
                if beat.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        within(bound, what, seen).await
    }
}

/// Waits until `look` finds something that announces no change (a process table), asking
/// every 10 ms.
///
/// # Errors
/// [`Late`] when `look` finds nothing within `bound`.
pub async fn poll<T>(bound: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Late> {
    let seen = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(bound, what, seen).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A wait sees what was announced while it slept, and one that sees nothing names it.
    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_a_change_or_a_name() {
        let change = Change::default();
        let value = Arc::new(AtomicU32::new(0));
        let (other, shared) = (change.clone(), value.clone());
        tokio::spawn(async move {
            shared.store(7, Ordering::SeqCst);
            other.announce();
        });
        let seen = change.until(BOUND, "seven", || (value.load(Ordering::SeqCst) == 7).then_some(())).await;
        assert_eq!(seen, Ok(()));

        let late = change.until(BOUND, "eight", || None::<()>).await.unwrap_err();
        assert_eq!(late.to_string(), "no eight within 20000 ms");
    }
}
