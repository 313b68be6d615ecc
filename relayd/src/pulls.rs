//! Image pulls as relayd sees them: it takes a node's request head, refuses by name what is no pull, and
//! hands the exchange to pulld (PULL-01, PULL-15, PULL-16, PULL-17, PULL-29, PULL-30).
//!
//! Heads cross the link between the workers. A body that is not small and whole at once comes over a socket
//! pair, which the node's own pace empties. The pairs are relayd's, a few wait at pulld in advance, and each
//! carries one body: relayd takes no descriptor from a worker that speaks to the outside.

use std::{
    collections::BTreeMap,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

use coreflow_ipc::{
    hello::Role,
    link::{Descriptors, LinkReceiver},
    messages::pulls::{
        AnswerBody, EXCHANGES, PullAnswer, PullId, PullRequest, PulldToRelayd, RegistryFailure,
        RelaydToPulld, StreamId, WAITING_STREAMS,
    },
    outgoing::{Outgoing, outgoing},
    peer::greet,
};
use tokio::{sync::oneshot, task::AbortHandle, time::timeout};
use tracing::{debug, warn};

use crate::{
    constants::{PULL_ANSWER_BUDGET, PULL_QUEUE},
    listener::Source,
};

mod answer;
mod body;
mod request;

pub use answer::{failed, passed, refusal, unavailable};
pub use body::{Cut, PullBody, WholeBody};
pub use request::{Asked, judge};

/// Why a pull got no answer of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullFailure {
    /// Pulld does not serve, or ended before the answer.
    WorkerUnavailable,
    /// As many exchanges are under way as may.
    Full,
    /// The registry was not reached.
    Registry(RegistryFailure),
}

/// What pulld brought for one exchange.
struct Answered {
    answer: PullAnswer,
    /// The receiving end of the pair over which the body comes, and who says that its end is the body's.
    stream: Option<(StdStream, oneshot::Receiver<()>)>,
}

/// An exchange under way: from its question to the end of its body at the node.
struct Exchange {
    source: Source,
    stage: Stage,
}

enum Stage {
    /// The answer is awaited.
    Asked(oneshot::Sender<Result<Answered, RegistryFailure>>),
    /// The body comes over a stream; pulld will say how it ended.
    Streaming(oneshot::Sender<()>),
    /// Pulld is done; the node has not taken all of the body.
    Draining,
    /// The node left before the answer, and pulld could not be told.
    Abandoned,
}

/// The link to the pulld that serves now.
struct Link {
    number: u64,
    outgoing: Outgoing<RelaydToPulld>,
    exchanges: BTreeMap<PullId, Exchange>,
    /// How many of them are of each source.
    sources: BTreeMap<Source, usize>,
    /// Receiving ends of the pairs whose other ends wait at pulld.
    streams: BTreeMap<StreamId, StdStream>,
    next_stream: StreamId,
    task: AbortHandle,
}

/// Why the link to pulld was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutOfOrder {
    /// A second hello, an answer to nothing, or a second one.
    Message,
    /// An answer names a stream that does not wait.
    Stream,
}

/// The pulls of this relayd.
pub struct Pulls {
    link: Mutex<Option<Link>>,
    next: AtomicU64,
    most: AtomicUsize,
    under_way: AtomicU32,
}

impl Default for Pulls {
    fn default() -> Self {
        Self {
            link: Mutex::new(None),
            next: AtomicU64::new(1),
            most: AtomicUsize::new(EXCHANGES),
            under_way: AtomicU32::new(0),
        }
    }
}

impl Pulls {
    /// At most so many exchanges are under way from here on, and never more than [`EXCHANGES`]; a fourth of
    /// them for one source.
    pub fn limit(&self, most: usize) {
        self.most.store(most.min(EXCHANGES), Ordering::Relaxed);
    }

    /// How many exchanges are under way, from the question to the end of the body at the node.
    pub fn under_way(&self) -> u32 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Serves the link of that number, of which `end` is this worker's, until it ends. It takes the place of a
    /// former one, whose exchanges end.
    pub async fn serve(&self, number: u64, end: OwnedFd) {
        let greeted =
            greet::<RelaydToPulld, PulldToRelayd>(end, Descriptors::Refused, Role::Relayd, Role::Pulld);
        let (sender, receiver) = match greeted.await {
            Ok(greeted) => greeted,
            Err(why) => return warn!("the link to pulld was not greeted: {why}"),
        };
        let (outgoing, sending) = outgoing(sender, PULL_QUEUE);
        self.begin(number, outgoing, tokio::spawn(sending).abort_handle());
        debug!("pulld serves");
        self.receive(number, receiver).await;
    }

    /// Asks the registry through pulld for a node at `source`.
    ///
    /// Dropping the future ends the exchange, and so does dropping the body.
    ///
    /// # Errors
    /// [`PullFailure`].
    pub async fn exchange(
        self: &Arc<Self>,
        request: PullRequest,
        source: Source,
    ) -> Result<(PullAnswer, PullBody), PullFailure> {
        let head = request.head;
        let (under_way, answered) = self.ask(request, source)?;
        let answered = match timeout(PULL_ANSWER_BUDGET, answered).await {
            Ok(Ok(answered)) => answered.map_err(PullFailure::Registry)?,
            // Pulld bounds its own waits below this, so that one which says nothing does not serve.
            Ok(Err(_)) | Err(_) => return Err(PullFailure::WorkerUnavailable),
        };
        let Answered { mut answer, stream } = answered;
        let content = std::mem::replace(&mut answer.body, AnswerBody::Nothing);
        match body::of(&answer, head, content, stream, under_way) {
            Some(body) => Ok((answer, body)),
            None => Err(PullFailure::Registry(RegistryFailure::Protocol)),
        }
    }

    /// Puts a request on the link.
    fn ask(
        self: &Arc<Self>,
        request: PullRequest,
        source: Source,
    ) -> Result<(UnderWay, oneshot::Receiver<Result<Answered, RegistryFailure>>), PullFailure> {
        let mut held = self.held();
        let link = held.as_mut().ok_or(PullFailure::WorkerUnavailable)?;
        link.fill();
        let most = self.most.load(Ordering::Relaxed);
        let own = link.sources.get(&source).copied().unwrap_or_default();
        if link.exchanges.len() >= most || own >= (most / 4).max(1) {
            return Err(PullFailure::Full);
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if link.outgoing.offer(RelaydToPulld::Pull { id, request }, None).is_err() {
            return Err(PullFailure::WorkerUnavailable);
        }
        let (answer, answered) = oneshot::channel();
        link.exchanges.insert(id, Exchange { source, stage: Stage::Asked(answer) });
        *link.sources.entry(source).or_default() += 1;
        Ok((UnderWay::begin(self, link.number, id), answered))
    }

    fn held(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, number: u64, outgoing: Outgoing<RelaydToPulld>, task: AbortHandle) {
        let mut link = Link {
            number,
            outgoing,
            exchanges: BTreeMap::new(),
            sources: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_stream: 0,
            task,
        };
        link.fill();
        if let Some(former) = self.held().replace(link) {
            former.task.abort();
        }
    }

    async fn receive(&self, number: u64, mut receiver: LinkReceiver<PulldToRelayd>) {
        let why = loop {
            match receiver.receive().await {
                Ok(received) => match self.received(number, received.message) {
                    Ok(()) => {}
                    Err(OutOfOrder::Message) => break "ipc-message-unpermitted".to_owned(),
                    Err(OutOfOrder::Stream) => break "ipc-stream-unknown".to_owned(),
                },
                Err(error) => break error.to_string(),
            }
        };
        let ended = self.held().take_if(|link| link.number == number);
        if let Some(link) = ended {
            link.task.abort();
            let under_way = link.exchanges.len();
            warn!(under_way, "the link to pulld ended: {why}; pulls are refused until it is back");
        }
    }

    fn received(&self, number: u64, message: PulldToRelayd) -> Result<(), OutOfOrder> {
        let mut held = self.held();
        // What a former link still brings is of exchanges that have ended.
        let Some(link) = held.as_mut().filter(|link| link.number == number) else { return Ok(()) };
        let taken = match message {
            PulldToRelayd::Hello(_) => Err(OutOfOrder::Message),
            PulldToRelayd::Answer { id, answer } => link.answered(id, answer),
            PulldToRelayd::Failed { id, failure } => link.failed(id, failure),
            PulldToRelayd::Ended { id } => link.ended(id, true),
            PulldToRelayd::Cut { id } => link.ended(id, false),
        };
        link.fill();
        taken
    }
}

impl Link {
    /// Sends pulld new pairs in the place of those that are used up. Where none can be made, for want of
    /// descriptors or of room, the next question or answer tries again.
    fn fill(&mut self) {
        while self.streams.len() < WAITING_STREAMS {
            let Ok((ours, theirs)) = StdStream::pair() else { return };
            let stream = self.next_stream;
            if self.outgoing.offer(RelaydToPulld::Stream { stream }, Some(theirs.into())).is_err() {
                return;
            }
            self.next_stream += 1;
            self.streams.insert(stream, ours);
        }
    }

    fn failed(&mut self, id: PullId, failure: RegistryFailure) -> Result<(), OutOfOrder> {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return Ok(()) };
        match std::mem::replace(&mut exchange.stage, Stage::Draining) {
            Stage::Asked(waiting) => drop(waiting.send(Err(failure))),
            Stage::Abandoned => self.remove(id),
            Stage::Streaming(_) | Stage::Draining => return Err(OutOfOrder::Message),
        }
        Ok(())
    }

    fn ended(&mut self, id: PullId, whole: bool) -> Result<(), OutOfOrder> {
        // The node may have left meanwhile.
        let Some(exchange) = self.exchanges.get_mut(&id) else { return Ok(()) };
        match std::mem::replace(&mut exchange.stage, Stage::Draining) {
            Stage::Streaming(ended) => {
                if whole {
                    let _ = ended.send(());
                }
                Ok(())
            }
            Stage::Asked(_) | Stage::Draining | Stage::Abandoned => Err(OutOfOrder::Message),
        }
    }

    fn answered(&mut self, id: PullId, answer: PullAnswer) -> Result<(), OutOfOrder> {
        let stream = match answer.body {
            AnswerBody::Stream(stream) => Some(self.streams.remove(&stream).ok_or(OutOfOrder::Stream)?),
            AnswerBody::Nothing | AnswerBody::Whole(_) => None,
        };
        // The node may have left meanwhile; the pair is closed with `stream`.
        let Some(exchange) = self.exchanges.get_mut(&id) else { return Ok(()) };
        match std::mem::replace(&mut exchange.stage, Stage::Draining) {
            Stage::Asked(waiting) => {
                let stream = stream.map(|stream| {
                    let (ended, ends) = oneshot::channel();
                    exchange.stage = Stage::Streaming(ended);
                    (stream, ends)
                });
                let _ = waiting.send(Ok(Answered { answer, stream }));
            }
            Stage::Abandoned => self.remove(id),
            Stage::Streaming(_) | Stage::Draining => return Err(OutOfOrder::Message),
        }
        Ok(())
    }

    fn remove(&mut self, id: PullId) {
        let Some(exchange) = self.exchanges.remove(&id) else { return };
        if let Some(own) = self.sources.get_mut(&exchange.source) {
            *own -= 1;
            if *own == 0 {
                self.sources.remove(&exchange.source);
            }
        }
    }
}

/// An exchange that ends when this is dropped.
struct UnderWay {
    pulls: Arc<Pulls>,
    link: u64,
    id: PullId,
}

impl UnderWay {
    fn begin(pulls: &Arc<Pulls>, link: u64, id: PullId) -> Self {
        pulls.under_way.fetch_add(1, Ordering::Relaxed);
        Self { pulls: Arc::clone(pulls), link, id }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.pulls.under_way.fetch_sub(1, Ordering::Relaxed);
        let mut held = self.pulls.held();
        let Some(link) = held.as_mut().filter(|link| link.number == self.link) else { return };
        let Some(exchange) = link.exchanges.get_mut(&self.id) else { return };
        if let Stage::Asked(_) = exchange.stage
            && link.outgoing.offer(RelaydToPulld::Cancel { id: self.id }, None).is_err()
        {
            // It counts until pulld has answered, which goes on with it.
            exchange.stage = Stage::Abandoned;
            return;
        }
        link.remove(self.id);
    }
}

#[cfg(test)]
mod tests;
