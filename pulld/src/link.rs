//! The link to relayd: each pull is an exchange of its own, and all of them end with the link (PULL-29).

use std::{
    collections::BTreeMap,
    future::pending,
    os::fd::OwnedFd,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use coreflow_ipc::{
    hello::Role,
    link::{Descriptors, LinkError, LinkReceiver},
    messages::pulls::{EXCHANGES, PullId, PullRequest, PulldToRelayd, RelaydToPulld},
    outgoing::outgoing,
    peer::greet,
};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::timeout,
};
use tracing::{debug, warn};

use crate::{
    connections::Connections,
    constants::{EXCHANGE_END, LINK_QUEUE, STOP_FLUSH},
    counts::{Exchanged, Open},
    exchange::{self, Shared},
    notices::Notices,
    waiting_streams::WaitingStreams,
};

/// Why a link is not served on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkEnd {
    /// It ended by itself.
    Ended(LinkError),
    /// Pulld is to end, and no exchange is under way.
    Stopped,
    /// A second hello came.
    Hello,
    /// A number was used again.
    Number,
    /// More exchanges than may be under way.
    Exchanges,
    /// More socket pairs than may wait.
    Streams,
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(error) => error.fmt(f),
            Self::Stopped => f.write_str("pulld ends"),
            Self::Hello => f.write_str("pull-link-out-of-order: a second hello"),
            Self::Number => f.write_str("pull-link-out-of-order: the number of another exchange"),
            Self::Exchanges => f.write_str("pull-link-out-of-order: more exchanges than may be under way"),
            Self::Streams => f.write_str("pull-link-out-of-order: more socket pairs than may wait"),
        }
    }
}

/// The registry's connections, from the latest configuration; none before the first.
pub(crate) type Configured = Mutex<Option<Arc<Connections>>>;

/// Serves the link whose end is `end` until it ends, or until `stopped` is set and no exchange is under way: what
/// those said last has been sent then. Dropped, it ends every exchange.
pub(crate) async fn serve(
    end: OwnedFd,
    configured: Arc<Configured>,
    notices: Arc<Notices>,
    exchanged: Arc<Exchanged>,
    mut stopped: watch::Receiver<bool>,
) {
    let greeting =
        greet::<PulldToRelayd, RelaydToPulld>(end, Descriptors::Accepted, Role::Pulld, Role::Relayd);
    let greeted = tokio::select! {
        biased;
        // Nothing was asked yet, so nothing is waited for.
        _ = stopped.wait_for(|stopped| *stopped) => return,
        greeted = greeting => greeted,
    };
    let (sender, receiver) = match greeted {
        Ok(greeted) => greeted,
        Err(why) => return warn!("the link to relayd was not greeted: {why}"),
    };
    debug!("the link to relayd is greeted");
    let (out, sending) = outgoing(sender, LINK_QUEUE);
    let open = exchanged.open.clone();
    let shared = Arc::new(Shared { out, streams: WaitingStreams::default(), notices, exchanged });
    let exchanges = Exchanges { configured, shared, running: Arc::default() };
    let mut sending = pin!(sending);
    let drained = async {
        // Pulld itself holds the other end, as long as it serves.
        if stopped.wait_for(|stopped| *stopped).await.is_err() {
            pending::<()>().await;
        }
        open.none().await;
    };
    let end = tokio::select! {
        end = exchanges.serve(receiver) => end,
        sent = &mut sending => LinkEnd::Ended(sent.err().unwrap_or(LinkError::Closed)),
        () = drained => LinkEnd::Stopped,
    };
    drop(exchanges);
    match end {
        LinkEnd::Stopped => {
            // The queue's last open end went with the exchanges.
            let sent = timeout(STOP_FLUSH, sending).await;
            debug!(is_sent = matches!(sent, Ok(Ok(()))), "the link to relayd has no exchange any more");
        }
        LinkEnd::Ended(LinkError::Closed) => debug!("the link to relayd ended"),
        end => warn!("the link to relayd is given up: {end}"),
    }
}

struct Exchanges {
    configured: Arc<Configured>,
    shared: Arc<Shared>,
    running: Arc<Running>,
}

/// The exchanges that have a task.
#[derive(Default)]
struct Running {
    tasks: Mutex<BTreeMap<PullId, AbortHandle>>,
    ended: Notify,
}

/// An exchange that is among those with a task until this is dropped.
struct Entry {
    id: PullId,
    running: Arc<Running>,
    _open: Open,
}

impl Running {
    fn tasks(&self) -> MutexGuard<'_, BTreeMap<PullId, AbortHandle>> {
        self.tasks.lock().expect("no holder of the tasks panics")
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.tasks().remove(&self.id);
        self.running.ended.notify_one();
    }
}

impl Drop for Exchanges {
    fn drop(&mut self) {
        let tasks: Vec<AbortHandle> = self.running.tasks().values().cloned().collect();
        for task in tasks {
            task.abort();
        }
    }
}

impl Exchanges {
    async fn serve(&self, mut receiver: LinkReceiver<RelaydToPulld>) -> LinkEnd {
        loop {
            let received = match receiver.receive().await {
                Ok(received) => received,
                Err(error) => return LinkEnd::Ended(error),
            };
            match received.message {
                RelaydToPulld::Hello(_) => return LinkEnd::Hello,
                RelaydToPulld::Pull { id, request } => {
                    if !self.has_room().await {
                        return LinkEnd::Exchanges;
                    }
                    if !self.begin(id, request) {
                        return LinkEnd::Number;
                    }
                }
                RelaydToPulld::Cancel { id } => {
                    // It may have ended by itself meanwhile.
                    let task = self.running.tasks().get(&id).cloned();
                    if let Some(task) = task {
                        task.abort();
                    }
                }
                RelaydToPulld::Stream { stream } => {
                    let end = received.descriptors.into_iter().next();
                    if !end.is_some_and(|end| self.shared.streams.add(stream, end)) {
                        return LinkEnd::Streams;
                    }
                }
            }
        }
    }

    /// Starts the task of an exchange; false when one of that number runs.
    fn begin(&self, id: PullId, request: PullRequest) -> bool {
        let connections = self.configured.lock().expect("no holder of it panics").clone();
        let shared = Arc::clone(&self.shared);
        let mut tasks = self.running.tasks();
        if tasks.contains_key(&id) {
            return false;
        }
        let _open = self.shared.exchanged.open.one();
        let entry = Entry { id, running: Arc::clone(&self.running), _open };
        let task = tokio::spawn(async move {
            let _entry = entry;
            exchange::run(id, request, connections, shared).await;
        });
        tasks.insert(id, task.abort_handle());
        true
    }

    /// Whether another exchange may begin. Relayd counts by what it was told, which may be a moment before the
    /// task has ended.
    async fn has_room(&self) -> bool {
        while self.running.tasks().len() >= EXCHANGES {
            if timeout(EXCHANGE_END, self.running.ended.notified()).await.is_err() {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
