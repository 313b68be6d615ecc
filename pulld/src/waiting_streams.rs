//! Relayd's socket pairs that wait for a body (PULL-18, PULL-30).

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard},
};

use coreflow_ipc::messages::pulls::{StreamId, WAITING_STREAMS};
use tokio::{net::UnixStream, sync::Semaphore};

/// The stock of one link.
pub(crate) struct WaitingStreams {
    ends: Mutex<VecDeque<(StreamId, OwnedFd)>>,
    count: Semaphore,
}

impl Default for WaitingStreams {
    fn default() -> Self {
        Self { ends: Mutex::default(), count: Semaphore::new(0) }
    }
}

impl WaitingStreams {
    /// One more waits; `false` if there are as many as may.
    pub(crate) fn add(&self, stream: StreamId, end: OwnedFd) -> bool {
        let mut ends = self.ends();
        if ends.len() >= WAITING_STREAMS {
            return false;
        }
        ends.push_back((stream, end));
        self.count.add_permits(1);
        true
    }

    /// The one that waited longest, once there is one: who comes first is served first. It is back in the
    /// stock if it is dropped unused.
    pub(crate) async fn take(&self) -> Taken<'_> {
        self.count.acquire().await.expect("the stock is never closed").forget();
        let taken = self.ends().pop_front().expect("each permit is an end");
        Taken { stock: self, taken: Some(taken) }
    }

    fn ends(&self) -> MutexGuard<'_, VecDeque<(StreamId, OwnedFd)>> {
        self.ends.lock().expect("no holder of the stock panics")
    }
}

/// An end that was taken and that relayd was not told of.
pub(crate) struct Taken<'a> {
    stock: &'a WaitingStreams,
    taken: Option<(StreamId, OwnedFd)>,
}

impl Taken<'_> {
    /// Its number.
    pub(crate) fn id(&self) -> StreamId {
        self.taken.as_ref().expect("it is there until it is used").0
    }

    /// Relayd is told: the end to write to.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub(crate) fn used(mut self) -> io::Result<UnixStream> {
        let (_, end) = self.taken.take().expect("it is there until it is used");
        let end = std::os::unix::net::UnixStream::from(end);
        end.set_nonblocking(true)?;
        UnixStream::from_std(end)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.stock.ends().push_front(taken);
            self.stock.count.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> OwnedFd {
        std::os::unix::net::UnixStream::pair().unwrap().0.into()
    }

    /// PULL-30: the stock is bounded, and an end that was not used waits on.
    #[tokio::test]
    async fn the_stock_is_bounded_and_what_is_not_used_waits_on() {
        let streams = WaitingStreams::default();
        let most = u64::try_from(WAITING_STREAMS).unwrap();
        for stream in 0..most {
            assert!(streams.add(stream, end()));
        }
        assert!(!streams.add(most, end()));
        assert_eq!(streams.take().await.id(), 0);
        let taken = streams.take().await;
        assert_eq!(taken.id(), 0);
        taken.used().unwrap();
        assert_eq!(streams.take().await.id(), 1);
        assert!(streams.add(most, end()));
        assert!(!streams.add(most + 1, end()));
    }
}
