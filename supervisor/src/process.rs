//! One worker process as the loop holds it: a queue of messages to it, and tasks that turn its
//! messages, its last words and its death into events.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use coreflow_ipc::{
    hello::Role,
    link::{self, Descriptors, LinkError, LinkReceiver, LinkSender},
    messages::{FromWorker, Message, ToWorker, pulld::*, relayd::*, vpnd::*},
    record::Budget,
    sys::{self, Signal},
};
use tokio::{
    io::unix::AsyncFd,
    net::unix::pipe,
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    constants::{
        DRAIN_BOUND, LAST_WORDS, RECORD_BURST, RECORDS_PER_SECOND, TRACED_BOUND, TRACED_HOLD, WORKER_QUEUE,
    },
    permitted::{Gate, Kind, Phase},
    spawn::{Death, Spawned, reap},
    trace::{Direction, Tap, Traceable},
};

/// A message of any worker.
pub enum Said {
    /// What relayd alone may say.
    Relayd(FromRelayd),
    /// What pulld alone may say.
    Pulld(FromPulld),
    /// What vpnd alone may say.
    Vpnd(FromVpnd),
}

impl Said {
    /// The message's row in the table of what is permitted.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Relayd(FromRelayd::Worker(message))
            | Self::Pulld(FromPulld::Worker(message))
            | Self::Vpnd(FromVpnd::Worker(message)) => match message {
                FromWorker::Hello(_) => Kind::Hello,
                FromWorker::Confined(_) => Kind::Confined,
                FromWorker::Record(_) => Kind::Record,
                FromWorker::Pong(_) => Kind::Pong,
                FromWorker::Stopped => Kind::Stopped,
            },
            Self::Relayd(FromRelayd::AskIdentity { .. }) => Kind::AskIdentity,
            Self::Relayd(FromRelayd::AskAddresses { .. }) => Kind::AskAddresses,
            Self::Relayd(FromRelayd::AskListenerFacts { .. }) => Kind::AskListenerFacts,
            Self::Relayd(FromRelayd::AskListener { .. }) => Kind::AskListener,
            Self::Relayd(FromRelayd::Waiting { .. }) => Kind::Waiting,
            Self::Relayd(FromRelayd::Open) => Kind::Open,
            Self::Relayd(FromRelayd::Keep(_)) => Kind::Keep,
            Self::Relayd(FromRelayd::Readiness { .. }) => Kind::Readiness,
            Self::Relayd(FromRelayd::AnswerStanding { .. })
            | Self::Pulld(FromPulld::AnswerStanding { .. }) => Kind::AnswerStanding,
            Self::Relayd(FromRelayd::AnswerNodes { .. }) => Kind::AnswerNodes,
            Self::Relayd(FromRelayd::LinkLost { .. }) => Kind::LinkLost,
            Self::Relayd(FromRelayd::StartFailed { .. }) => Kind::StartFailed,
            Self::Pulld(FromPulld::AskConnection { .. }) => Kind::AskConnection,
            Self::Vpnd(FromVpnd::AskSocket { .. }) => Kind::AskSocket,
            Self::Vpnd(FromVpnd::Report(_)) => Kind::Report,
        }
    }
}

/// What happened to a process.
pub enum Happened {
    /// It said something.
    Said(Said),
    /// Its link ended, in order or by a broken frame.
    LinkEnded(LinkError),
    /// It died; comes after everything that it said.
    Died {
        /// How.
        death: Death,
        /// The end of what it wrote to its standard output and error.
        last_words: String,
    },
}

/// Which process it happened to: a role is filled by many processes, one after the other.
pub struct Event {
    /// The role.
    pub role: Role,
    /// The process among those of the role.
    pub process: u64,
    /// What happened.
    pub happened: Happened,
}

/// A message to a worker, and the descriptors beside it.
type Queued<M> = (M, Vec<OwnedFd>);

enum Queue {
    Relayd(mpsc::Sender<Queued<ToRelayd>>),
    Pulld(mpsc::Sender<Queued<ToPulld>>),
    Vpnd(mpsc::Sender<Queued<ToVpnd>>),
}

/// A living worker process.
pub struct Process {
    /// The process among those of its role.
    pub number: u64,
    /// Its process id.
    pub pid: u32,
    /// What it may say next.
    pub gate: Gate,
    /// How many records of it are written.
    pub budget: Budget,
    pidfd: Arc<OwnedFd>,
    queue: Queue,
}

/// How a process that has ended did so. One that a debugger holds beyond a moment is reaped once it is let go.
async fn reap_before_long(pidfd: &Arc<OwnedFd>) -> Death {
    let reaped = async |pidfd: &OwnedFd, pause| {
        loop {
            match reap(pidfd) {
                Some(death) => return death,
                None => sleep(pause).await,
            }
        }
    };
    // A debugger that looks at its process lets it go at once.
    if let Ok(death) = timeout(TRACED_BOUND, reaped(pidfd, TRACED_BOUND / 50)).await {
        return death;
    }
    let pidfd = Arc::clone(pidfd);
    tokio::spawn(async move { timeout(TRACED_HOLD, reaped(&pidfd, TRACED_BOUND)).await });
    Death::Traced
}

/// A worker that takes no messages any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotReading;

impl Process {
    /// Takes over a process that was started, and reports to `events`; what passes over its link passes `tap`.
    pub fn watch(
        role: Role,
        number: u64,
        spawned: Spawned,
        events: &mpsc::Sender<Event>,
        tap: &Tap,
    ) -> io::Result<Self> {
        let Spawned { pid, pidfd, link, last_words } = spawned;
        let pidfd = Arc::new(pidfd);
        let report = Report { role, process: number, pid, events: events.clone(), tap: tap.clone() };
        let (queue, reader) = match role {
            Role::Pulld => {
                let (queue, reader) = run_link(link, &report, Said::Pulld)?;
                (Queue::Pulld(queue), reader)
            }
            Role::Vpnd => {
                let (queue, reader) = run_link(link, &report, Said::Vpnd)?;
                (Queue::Vpnd(queue), reader)
            }
            Role::Relayd | Role::Supervisor => {
                let (queue, reader) = run_link(link, &report, Said::Relayd)?;
                (Queue::Relayd(queue), reader)
            }
        };
        let words = pipe::Receiver::from_owned_fd(last_words)?;
        #[expect(deprecated, reason = "the descriptor is owned and open as long as it is watched")]
        let watched = AsyncFd::new(Arc::clone(&pidfd))?;
        tokio::spawn(async move {
            let words = tokio::spawn(read_last_words(words));
            // Readable once the process has ended.
            let _ = watched.readable().await;
            let death = reap_before_long(watched.get_ref()).await;
            // Its last records and words are behind it in the link and the pipe.
            let _ = timeout(DRAIN_BOUND, reader).await;
            let last_words = match timeout(DRAIN_BOUND, words).await {
                Ok(Ok(words)) => words,
                Ok(Err(_)) | Err(_) => String::new(),
            };
            report.send(Happened::Died { death, last_words }).await;
        });
        Ok(Self {
            number,
            pid,
            gate: Gate::default(),
            budget: Budget::new(RECORD_BURST, RECORDS_PER_SECOND),
            pidfd,
            queue,
        })
    }

    /// Queues what is said to every worker.
    pub fn tell(&self, message: ToWorker, descriptors: Vec<OwnedFd>) -> Result<(), NotReading> {
        match &self.queue {
            Queue::Relayd(queue) => offer(queue, ToRelayd::Worker(message), descriptors),
            Queue::Pulld(queue) => offer(queue, ToPulld::Worker(message), descriptors),
            Queue::Vpnd(queue) => offer(queue, ToVpnd::Worker(message), descriptors),
        }
    }

    /// Queues a message for relayd.
    pub fn tell_relayd(&self, message: ToRelayd, descriptors: Vec<OwnedFd>) -> Result<(), NotReading> {
        match &self.queue {
            Queue::Relayd(queue) => offer(queue, message, descriptors),
            Queue::Pulld(_) | Queue::Vpnd(_) => Err(NotReading),
        }
    }

    /// Queues a message for pulld.
    pub fn tell_pulld(&self, message: ToPulld, descriptors: Vec<OwnedFd>) -> Result<(), NotReading> {
        match &self.queue {
            Queue::Pulld(queue) => offer(queue, message, descriptors),
            Queue::Relayd(_) | Queue::Vpnd(_) => Err(NotReading),
        }
    }

    /// Queues a message to vpnd, and the descriptor beside it.
    pub fn tell_vpnd(&self, message: ToVpnd, descriptors: Vec<OwnedFd>) -> Result<(), NotReading> {
        match &self.queue {
            Queue::Vpnd(queue) => offer(queue, message, descriptors),
            Queue::Relayd(_) | Queue::Pulld(_) => Err(NotReading),
        }
    }

    /// Whether it said its last.
    pub fn has_stopped(&self) -> bool {
        self.gate.phase() == Phase::Stopped
    }

    /// Ends it at once.
    pub fn kill(&self) {
        // It may have ended already; its death is reported either way.
        let _ = sys::pidfd_send_signal(self.pidfd.as_fd(), Signal::SIGKILL);
    }
}

fn offer<M>(
    queue: &mpsc::Sender<Queued<M>>,
    message: M,
    descriptors: Vec<OwnedFd>,
) -> Result<(), NotReading> {
    queue.try_send((message, descriptors)).map_err(|_| NotReading)
}

#[derive(Clone)]
struct Report {
    role: Role,
    process: u64,
    pid: u32,
    events: mpsc::Sender<Event>,
    tap: Tap,
}

impl Report {
    async fn send(&self, happened: Happened) {
        let event = Event { role: self.role, process: self.process, happened };
        // The loop that listens ends after every process.
        let _ = self.events.send(event).await;
    }
}

/// The queue of a link's writer, and the task of its reader.
type Running<Out> = (mpsc::Sender<Queued<Out>>, tokio::task::JoinHandle<()>);

fn run_link<Out: Message + Traceable, In: Message + Traceable>(
    end: OwnedFd,
    report: &Report,
    said: fn(In) -> Said,
) -> io::Result<Running<Out>> {
    // No worker has a descriptor to give to the supervisor.
    let (sender, receiver) = link::open::<Out, In>(end, Descriptors::Refused)?;
    let (queue, queued) = mpsc::channel(WORKER_QUEUE);
    tokio::spawn(write(sender, queued, report.clone()));
    Ok((queue, tokio::spawn(read(receiver, report.clone(), said))))
}

async fn write<Out: Message + Traceable>(
    mut sender: LinkSender<Out>,
    mut queued: mpsc::Receiver<Queued<Out>>,
    report: Report,
) {
    while let Some((message, descriptors)) = queued.recv().await {
        let beside: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        match sender.send_counted(&message, &beside).await {
            Ok(bytes) => report.tap.passed(report.pid, Direction::ToWorker, &message, bytes, beside.len()),
            // The reader reports that, after what the worker said before.
            Err(LinkError::Closed) => return,
            Err(error) => {
                report.send(Happened::LinkEnded(error)).await;
                break;
            }
        }
    }
    // What is queued until the worker has ended goes nowhere; that the queue is full would hide why.
    while queued.recv().await.is_some() {}
}

async fn read<In: Message + Traceable>(mut receiver: LinkReceiver<In>, report: Report, said: fn(In) -> Said) {
    loop {
        match receiver.receive().await {
            Ok(received) => {
                report.tap.passed(report.pid, Direction::FromWorker, &received.message, received.bytes, 0);
                report.send(Happened::Said(said(received.message))).await;
            }
            Err(error) => return report.send(Happened::LinkEnded(error)).await,
        }
    }
}

/// Reads to the end of the pipe and keeps the end of what came.
async fn read_last_words(pipe: pipe::Receiver) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; LAST_WORDS];
    loop {
        if pipe.readable().await.is_err() {
            break;
        }
        match pipe.try_read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                kept.extend_from_slice(&chunk[..count]);
                kept.drain(..kept.len().saturating_sub(LAST_WORDS));
                // A worker that writes without end takes its turn like everybody.
                tokio::task::yield_now().await;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

#[cfg(test)]
mod tests;
