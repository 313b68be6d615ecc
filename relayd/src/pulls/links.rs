//! The newest link to pulld, on its way from the loop that is told of it to the thread that serves it.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// A place for one end of a link; one that nobody took gives way to a newer one.
#[derive(Clone, Default)]
pub struct PullLinks {
    end: Arc<Mutex<Option<OwnedFd>>>,
    came: Arc<Notify>,
}

impl PullLinks {
    /// Puts `end` there.
    pub fn put(&self, end: OwnedFd) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        self.came.notify_one();
    }

    /// Waits for an end.
    pub(super) async fn take(&self) -> OwnedFd {
        loop {
            if let Some(end) = self.end.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return end;
            }
            self.came.notified().await;
        }
    }
}
