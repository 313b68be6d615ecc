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
        atomic::{AtomicUsize, Ordering},
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

use crate::constants::{PULL_ANSWER_BUDGET, PULL_QUEUE};

mod answer;
mod body;
mod links;
mod request;

pub use answer::{refusal, respond, unavailable};
pub use body::{Cut, PullBody};
pub use links::PullLinks;
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

/// An exchange under way.
enum Exchange {
    /// The answer is awaited.
    Asked(oneshot::Sender<Result<Answered, RegistryFailure>>),
    /// The body comes over a stream.
    Streaming(oneshot::Sender<()>),
}

/// The link to the pulld that serves now.
struct Link {
    outgoing: Outgoing<RelaydToPulld>,
    exchanges: BTreeMap<PullId, Exchange>,
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
    link: Mutex<Option<(u64, Link)>>,
    next: Mutex<PullId>,
    most: AtomicUsize,
}

impl Default for Pulls {
    fn default() -> Self {
        Self { link: Mutex::new(None), next: Mutex::new(0), most: AtomicUsize::new(EXCHANGES) }
    }
}

impl Pulls {
    /// At most so many exchanges are under way from here on, and never more than [`EXCHANGES`].
    pub fn limit(&self, most: usize) {
        self.most.store(most.min(EXCHANGES), Ordering::Relaxed);
    }

    /// Serves one link to pulld after the other. A new one takes the place of a former one, whose exchanges
    /// end.
    pub async fn serve(self: Arc<Self>, links: PullLinks) {
        loop {
            self.linked(links.take().await);
        }
    }

    fn linked(self: &Arc<Self>, end: OwnedFd) {
        let pulls = Arc::clone(self);
        tokio::spawn(async move {
            let greeted =
                greet::<RelaydToPulld, PulldToRelayd>(end, Descriptors::Refused, Role::Relayd, Role::Pulld);
            match greeted.await {
                Ok((sender, receiver)) => {
                    let (outgoing, sending) = outgoing(sender, PULL_QUEUE);
                    let number = pulls.begin(outgoing, tokio::spawn(sending).abort_handle());
                    debug!("pulld serves");
                    pulls.receive(number, receiver).await;
                }
                Err(why) => warn!("the link to pulld was not greeted: {why}"),
            }
        });
    }

    /// Asks the registry through pulld.
    ///
    /// Dropping the future ends the exchange, and so does dropping the body.
    ///
    /// # Errors
    /// [`PullFailure`].
    pub async fn exchange(
        self: &Arc<Self>,
        request: PullRequest,
    ) -> Result<(PullAnswer, PullBody), PullFailure> {
        let head = request.head;
        let (under_way, answered) = self.ask(request)?;
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
    ) -> Result<(UnderWay, oneshot::Receiver<Result<Answered, RegistryFailure>>), PullFailure> {
        let mut held = self.held();
        let (number, link) = held.as_mut().ok_or(PullFailure::WorkerUnavailable)?;
        if link.exchanges.len() >= self.most.load(Ordering::Relaxed) {
            return Err(PullFailure::Full);
        }
        let id = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next
        };
        // As many fit as exchanges may be under way: a full queue is that of a pulld which reads nothing.
        if link.outgoing.offer(RelaydToPulld::Pull { id, request }, None).is_err() {
            return Err(PullFailure::WorkerUnavailable);
        }
        let (answer, answered) = oneshot::channel();
        link.exchanges.insert(id, Exchange::Asked(answer));
        Ok((UnderWay { pulls: Arc::clone(self), link: *number, id }, answered))
    }

    fn held(&self) -> MutexGuard<'_, Option<(u64, Link)>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, outgoing: Outgoing<RelaydToPulld>, task: AbortHandle) -> u64 {
        let mut held = self.held();
        let number = held.as_ref().map_or(0, |(number, _)| number + 1);
        let mut link =
            Link { outgoing, exchanges: BTreeMap::new(), streams: BTreeMap::new(), next_stream: 0, task };
        link.fill();
        if let Some((_, former)) = held.replace((number, link)) {
            former.task.abort();
        }
        number
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
        let ended = self.held().take_if(|(current, _)| *current == number);
        if let Some((_, link)) = ended {
            link.task.abort();
            let under_way = link.exchanges.len();
            warn!(under_way, "the link to pulld ended: {why}; pulls are refused until it is back");
        }
    }

    fn received(&self, number: u64, message: PulldToRelayd) -> Result<(), OutOfOrder> {
        let mut held = self.held();
        let Some((_, link)) = held.as_mut().filter(|(current, _)| *current == number) else {
            return Err(OutOfOrder::Message);
        };
        match message {
            PulldToRelayd::Hello(_) => Err(OutOfOrder::Message),
            PulldToRelayd::Answer { id, answer } => link.answered(id, answer),
            PulldToRelayd::Failed { id, failure } => match link.exchanges.remove(&id) {
                Some(Exchange::Asked(waiting)) => {
                    let _ = waiting.send(Err(failure));
                    Ok(())
                }
                // The node left meanwhile.
                None => Ok(()),
                Some(Exchange::Streaming(_)) => Err(OutOfOrder::Message),
            },
            PulldToRelayd::Ended { id } => link.ended(id, true),
            PulldToRelayd::Cut { id } => link.ended(id, false),
        }
    }
}

impl Link {
    /// Sends pulld new pairs in the place of those that are used up. Where none can be made, for want of
    /// descriptors, the next answer tries again.
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

    fn ended(&mut self, id: PullId, whole: bool) -> Result<(), OutOfOrder> {
        match self.exchanges.remove(&id) {
            Some(Exchange::Streaming(ended)) => {
                if whole {
                    let _ = ended.send(());
                }
                Ok(())
            }
            // The node left meanwhile, or has all that it was promised.
            None => Ok(()),
            Some(Exchange::Asked(_)) => Err(OutOfOrder::Message),
        }
    }

    fn answered(&mut self, id: PullId, answer: PullAnswer) -> Result<(), OutOfOrder> {
        let stream = match answer.body {
            AnswerBody::Stream(stream) => {
                let stream = self.streams.remove(&stream).ok_or(OutOfOrder::Stream)?;
                self.fill();
                Some(stream)
            }
            AnswerBody::Nothing | AnswerBody::Whole(_) => None,
        };
        let waiting = match self.exchanges.remove(&id) {
            Some(Exchange::Asked(waiting)) => waiting,
            // The node left meanwhile; the pair is closed with `stream`.
            None => return Ok(()),
            Some(Exchange::Streaming(_)) => return Err(OutOfOrder::Message),
        };
        let stream = stream.map(|stream| {
            let (ended, ends) = oneshot::channel();
            self.exchanges.insert(id, Exchange::Streaming(ended));
            (stream, ends)
        });
        let _ = waiting.send(Ok(Answered { answer, stream }));
        Ok(())
    }
}

/// An exchange that ends when this is dropped.
struct UnderWay {
    pulls: Arc<Pulls>,
    link: u64,
    id: PullId,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut held = self.pulls.held();
        let Some((_, link)) = held.as_mut().filter(|(current, _)| *current == self.link) else { return };
        if let Some(Exchange::Asked(_)) = link.exchanges.remove(&self.id) {
            // Without room the answer comes to nobody, and costs no more than that.
            let _ = link.outgoing.offer(RelaydToPulld::Cancel { id: self.id }, None);
        }
    }
}

#[cfg(test)]
mod tests;
