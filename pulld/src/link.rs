//! The link to relayd: each pull is an exchange of its own, and all of them end with the link (PULL-29).

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use coreflow_ipc::{
    hello::Role,
    link::{Descriptors, LinkError, LinkReceiver},
    messages::pulls::{EXCHANGES, PullId, PulldToRelayd, RelaydToPulld},
    outgoing::outgoing,
    peer::greet,
};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tracing::{debug, warn};

use crate::{
    connections::Connections,
    constants::{EXCHANGE_END, LINK_QUEUE},
    exchange::{self, Shared},
    notices::Notices,
    waiting_streams::WaitingStreams,
};

/// Why a link is not served on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkEnd {
    /// It ended by itself.
    Ended(LinkError),
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
            Self::Hello => f.write_str("pull-link-out-of-order: a second hello"),
            Self::Number => f.write_str("pull-link-out-of-order: the number of another exchange"),
            Self::Exchanges => f.write_str("pull-link-out-of-order: more exchanges than may be under way"),
            Self::Streams => f.write_str("pull-link-out-of-order: more socket pairs than may wait"),
        }
    }
}

/// The registry's connections, from the latest configuration; none before the first.
pub(crate) type Configured = Mutex<Option<Arc<Connections>>>;

/// Serves the link whose end is `end` until it ends. Dropped, it ends every exchange.
pub(crate) async fn serve(end: OwnedFd, configured: Arc<Configured>, notices: Arc<Notices>) {
    let greeted =
        greet::<PulldToRelayd, RelaydToPulld>(end, Descriptors::Accepted, Role::Pulld, Role::Relayd).await;
    let (sender, receiver) = match greeted {
        Ok(greeted) => greeted,
        Err(why) => return warn!("the link to relayd was not greeted: {why}"),
    };
    debug!("the link to relayd is greeted");
    let (out, sending) = outgoing(sender, LINK_QUEUE);
    let shared = Arc::new(Shared { out, streams: WaitingStreams::default(), notices });
    let mut exchanges = Exchanges { configured, shared, tasks: JoinSet::new(), running: BTreeMap::new() };
    let end = tokio::select! {
        end = exchanges.serve(receiver) => end,
        sent = sending => LinkEnd::Ended(sent.err().unwrap_or(LinkError::Closed)),
    };
    match end {
        LinkEnd::Ended(LinkError::Closed) => debug!("the link to relayd ended"),
        end => warn!("the link to relayd is given up: {end}"),
    }
}

struct Exchanges {
    configured: Arc<Configured>,
    shared: Arc<Shared>,
    tasks: JoinSet<PullId>,
    running: BTreeMap<PullId, AbortHandle>,
}

impl Exchanges {
    async fn serve(&mut self, mut receiver: LinkReceiver<RelaydToPulld>) -> LinkEnd {
        loop {
            let received = tokio::select! {
                Some(ended) = self.tasks.join_next() => {
                    self.ended(ended.ok());
                    continue;
                }
                received = receiver.receive() => received,
            };
            let received = match received {
                Ok(received) => received,
                Err(error) => return LinkEnd::Ended(error),
            };
            match received.message {
                RelaydToPulld::Hello(_) => return LinkEnd::Hello,
                RelaydToPulld::Pull { id, request } => {
                    if !self.has_room().await {
                        return LinkEnd::Exchanges;
                    }
                    let connections = self.configured.lock().expect("no holder of it panics").clone();
                    let exchange = exchange::run(id, request, connections, Arc::clone(&self.shared));
                    let task = self.tasks.spawn(async move {
                        exchange.await;
                        id
                    });
                    if self.running.insert(id, task).is_some() {
                        return LinkEnd::Number;
                    }
                }
                RelaydToPulld::Cancel { id } => {
                    // It may have ended by itself meanwhile.
                    if let Some(task) = self.running.remove(&id) {
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

    /// Whether another exchange may begin. Relayd counts by what it was told, which may be a moment before the
    /// task has ended.
    async fn has_room(&mut self) -> bool {
        while self.tasks.len() >= EXCHANGES {
            match timeout(EXCHANGE_END, self.tasks.join_next()).await {
                Ok(Some(ended)) => self.ended(ended.ok()),
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// A task ended, by itself if it says of which exchange.
    fn ended(&mut self, exchange: Option<PullId>) {
        if let Some(id) = exchange {
            self.running.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
