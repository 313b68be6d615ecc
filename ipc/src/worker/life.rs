//! A worker's link while it lives: what it is told, what waits to be sent, and in which order
//! (ARC-18, ARC-20, ARC-22).

use std::{os::fd::OwnedFd, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::{FromAnyWorker, ToAnyWorker};
use crate::{
    codec::CodecError,
    hello::Role,
    link::{LinkError, LinkReceiver, LinkSender},
    messages::{FromWorker, Message, ToWorker},
    record::{Record, Verbosity},
};

/// Records that may wait for the link.
pub(super) const RECORD_QUEUE: usize = 1024;
/// Messages that may wait for the link.
const MESSAGE_QUEUE: usize = 1024;
/// After so many messages in a row a record that waits is sent.
const MESSAGES_IN_A_ROW: usize = 64;
/// What is queued at the end is sent within this time; what is left then is dropped.
const FLUSH_BUDGET: Duration = Duration::from_secs(1);
/// The last message is sent within this time after that.
const STOPPED_BUDGET: Duration = Duration::from_secs(1);

/// The worker's side of its link, open and greeted.
pub struct Life<Out, In> {
    /// Sends to the supervisor; clones share one queue.
    pub outbox: Outbox<Out>,
    inbox: LinkReceiver<In>,
    verbosity: Verbosity,
    /// The number of the last ping: the latest alone is to be answered, and needs no room in a queue.
    pinged: watch::Sender<u64>,
    /// What has to run beside the worker's own for a ping to be answered.
    through: Option<Handle>,
    finish: oneshot::Sender<()>,
    writer: JoinHandle<()>,
}

/// Queues messages for the supervisor.
pub struct Outbox<Out>(mpsc::Sender<Out>);

impl<Out> Clone for Outbox<Out> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Out: Message> Outbox<Out> {
    /// Queues `message`, waiting for room; a link that ended takes everything.
    pub async fn send(&self, message: Out) {
        let _ = self.0.send(message).await;
    }

    /// Queues `message` if there is room at once; says whether there was. For what its asker does without.
    pub fn offer(&self, message: Out) -> bool {
        self.0.try_send(message).is_ok()
    }
}

/// What a worker is told that is its own to act on.
pub enum Told<In> {
    /// The worker's end of its link to another worker.
    Peer(Role, OwnedFd),
    /// A message of this link alone, with what came beside it.
    Message(In, Vec<OwnedFd>),
    /// End in order.
    Stop,
}

impl<Out: FromAnyWorker, In: ToAnyWorker> Life<Out, In> {
    /// Life on a link that is greeted, with the records that are to be sent over it.
    pub(super) fn begin(
        sender: LinkSender<Out>,
        inbox: LinkReceiver<In>,
        records: mpsc::Receiver<Record>,
        verbosity: Verbosity,
    ) -> Self {
        let (outbox, messages) = mpsc::channel(MESSAGE_QUEUE);
        let (pinged, pings) = watch::channel(0);
        let (finish, finished) = oneshot::channel();
        let queues = Queues { pings, messages, records, finish: finished };
        let writer = tokio::spawn(queues.write(sender));
        Self { outbox: Outbox(outbox), inbox, verbosity, pinged, through: None, finish, writer }
    }

    /// From now on a ping is answered by `runtime`, after the worker's own was told it: a worker of two threads of which
    /// one stands still does not answer.
    pub fn answer_pings_through(&mut self, runtime: Handle) {
        self.through = Some(runtime);
    }

    /// The next thing that is the worker's own to act on; pings and the log level are seen to here.
    /// May be cancelled without losing any.
    ///
    /// # Errors
    /// The link ended; so does the worker.
    pub async fn told(&mut self) -> Result<Told<In>, LinkError> {
        loop {
            let received = self.inbox.receive().await?;
            match received.message.for_worker() {
                // Answered from here, where the worker acts on what it is told: that is what is asked for.
                Ok(ToWorker::Ping(number)) => match &self.through {
                    None => drop(self.pinged.send_replace(number)),
                    Some(runtime) => {
                        let pinged = self.pinged.clone();
                        runtime.spawn(async move { pinged.send_replace(number) });
                    }
                },
                Ok(ToWorker::LogLevel(level)) => self.verbosity.set(level),
                Ok(ToWorker::PeerLink { role }) => {
                    let end = received.descriptors.into_iter().next().ok_or(LinkError::Descriptors)?;
                    return Ok(Told::Peer(role, end));
                }
                Ok(ToWorker::Stop) => return Ok(Told::Stop),
                Ok(ToWorker::Hello(_)) => return Err(LinkError::Codec(CodecError::Malformed)),
                Err(message) => return Ok(Told::Message(message, received.descriptors)),
            }
        }
    }

    /// Sends what is still queued, within a bound, and says last that the worker stopped.
    pub async fn stopped(self) {
        let _ = self.finish.send(());
        let _ = timeout(FLUSH_BUDGET + STOPPED_BUDGET, self.writer).await;
    }
}

/// What waits for a worker's link.
struct Queues<Out> {
    pings: watch::Receiver<u64>,
    messages: mpsc::Receiver<Out>,
    records: mpsc::Receiver<Record>,
    finish: oneshot::Receiver<()>,
}

impl<Out: FromAnyWorker> Queues<Out> {
    /// Sends what waits, each kind within a bound: the answer to a ping and the end are next; then messages,
    /// so that what a record states has reached the supervisor before it, while no more than
    /// [`MESSAGES_IN_A_ROW`] wait; then records. A message waits for one record at most, a record for
    /// [`MESSAGES_IN_A_ROW`] messages.
    async fn write(mut self, mut sender: LinkSender<Out>) {
        let mut in_a_row = 0;
        while let Some(message) = self.next(&mut in_a_row).await {
            if sender.send(&message, &[]).await.is_err() {
                return;
            }
        }
        let until = Instant::now() + FLUSH_BUDGET;
        for _ in 0..MESSAGE_QUEUE + RECORD_QUEUE {
            let left = self.messages.try_recv().ok().or_else(|| self.records.try_recv().ok().map(record));
            let Some(message) = left.filter(|_| Instant::now() < until) else { break };
            if sender.send(&message, &[]).await.is_err() {
                return;
            }
        }
        let _ = sender.send(&Out::of_worker(FromWorker::Stopped), &[]).await;
    }

    /// What is sent next; `None` once the worker ends. `in_a_row` counts messages since the last record.
    async fn next(&mut self, in_a_row: &mut usize) -> Option<Out> {
        let a_records_turn = *in_a_row >= MESSAGES_IN_A_ROW && !self.records.is_empty();
        tokio::select! {
            biased;
            Ok(()) = self.pings.changed() => {
                Some(Out::of_worker(FromWorker::Pong(*self.pings.borrow_and_update())))
            }
            _ = &mut self.finish => None,
            Some(message) = self.messages.recv(), if !a_records_turn => {
                // Only an unbroken row counts: a message that waits alone goes before the record about it.
                *in_a_row = if self.messages.is_empty() { 0 } else { *in_a_row + 1 };
                Some(message)
            }
            Some(recorded) = self.records.recv() => {
                *in_a_row = 0;
                Some(record(recorded))
            }
        }
    }
}

fn record<Out: FromAnyWorker>(record: Record) -> Out {
    Out::of_worker(FromWorker::Record(record))
}

#[cfg(test)]
mod tests;
