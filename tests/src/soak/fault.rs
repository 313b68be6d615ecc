//! The faults of a soak: what each peer, worker, stranger or operator does, and for how long.

use std::fmt;
use std::time::Duration;

/// A worker process of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The relay's own work.
    Relayd,
    /// Image pulls.
    Pulld,
    /// The VPN hub.
    Vpnd,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Relayd, Self::Pulld, Self::Vpnd];

    /// As the supervisor's lines and the process table name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relayd => "relayd",
            Self::Pulld => "pulld",
            Self::Vpnd => "vpnd",
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Of Cloudly.
    Cloudly(CloudlyFault),
    /// Of a worker process.
    Worker(Role, WorkerFault),
    /// Of the node with this number.
    Node(usize, NodeFault),
    /// Of somebody who is no node.
    Stranger(StrangerFault),
    /// SIGUSR1 at the supervisor, and again after this time.
    Trace(Duration),
}

/// What Cloudly does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudlyFault {
    /// Drops its connections without a word.
    Drop,
    /// Closes its connections with this code.
    Close(u16),
    /// Its port is closed for this time.
    GoAway(Duration),
    /// It accepts connections and says nothing for this time.
    Silent(Duration),
    /// A proxy answers in its place with an HTML page and 502 for this time.
    BadGateway(Duration),
    /// It neither reads nor writes for this time, its sockets open.
    StopReading(Duration),
    /// It reads and answers nothing for this time, then all of it.
    WithholdAnswers(Duration),
    /// It breaks off in the middle of the answer to a request of a node.
    BreakOff,
    /// It refuses exchanges for this time, and its connections end.
    RefuseExchange(Duration),
    /// It answers this method of the relay's own out of contract, once, on a new connection that ends after
    /// this time.
    OutOfContract(&'static str, Duration),
    /// It asks to be asked again, once.
    AskAgain,
    /// It sends what is no envelope, and answers to nothing.
    Garbage,
}

/// What happens to a worker process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerFault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP for this time, which the supervisor tolerates.
    Pause(Duration),
    /// SIGSTOP until the supervisor replaces it.
    Hang,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeFault {
    /// Cuts its socket.
    Cut,
    /// Closes its socket in order.
    Close,
    /// Neither reads, writes nor answers a ping for this time.
    HalfOpen(Duration),
    /// Reads a little now and then for this time.
    SlowReader(Duration),
    /// A second process of the node registers before the first one ends.
    RegisterTwice,
    /// Sends what is no envelope, and answers to nothing.
    Garbage,
}

/// What strangers do, each on so many sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrangerFault {
    /// Finish TLS and never upgrade, for this time.
    NeverUpgrade(usize, Duration),
    /// Connect and never speak TLS, for this time.
    NeverTls(usize, Duration),
    /// Connect all at once and leave.
    Flood(usize),
    /// Speak what is no TLS, no HTTP and no envelope.
    Garbage(usize),
    /// Ask for a message over the limit.
    TooLarge,
}

impl Fault {
    /// The longest time that the fault lasts.
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Cloudly(fault) => match fault {
                CloudlyFault::GoAway(time)
                | CloudlyFault::Silent(time)
                | CloudlyFault::BadGateway(time)
                | CloudlyFault::StopReading(time)
                | CloudlyFault::WithholdAnswers(time)
                | CloudlyFault::RefuseExchange(time)
                | CloudlyFault::OutOfContract(_, time) => *time,
                CloudlyFault::Drop
                | CloudlyFault::Close(_)
                | CloudlyFault::BreakOff
                | CloudlyFault::AskAgain
                | CloudlyFault::Garbage => Duration::ZERO,
            },
            Self::Worker(_, WorkerFault::Kill) => Duration::ZERO,
            Self::Worker(_, WorkerFault::Pause(time)) => *time,
            Self::Worker(_, WorkerFault::Hang) => HANG,
            Self::Node(_, NodeFault::HalfOpen(time) | NodeFault::SlowReader(time)) => *time,
            Self::Node(_, NodeFault::RegisterTwice) => REGISTER_TWICE,
            Self::Node(_, NodeFault::Cut | NodeFault::Close | NodeFault::Garbage) => Duration::ZERO,
            Self::Stranger(fault) => match fault {
                StrangerFault::NeverUpgrade(_, time) | StrangerFault::NeverTls(_, time) => *time,
                StrangerFault::Flood(_) | StrangerFault::Garbage(_) | StrangerFault::TooLarge => {
                    Duration::ZERO
                }
            },
            Self::Trace(time) => *time,
        }
    }

    /// Whether the fault ends the Cloudly session, so that nodes have to register again.
    pub fn ends_session(&self) -> bool {
        match self {
            Self::Cloudly(fault) => match fault {
                CloudlyFault::Drop
                | CloudlyFault::Close(_)
                | CloudlyFault::GoAway(_)
                | CloudlyFault::Silent(_)
                | CloudlyFault::BadGateway(_)
                | CloudlyFault::BreakOff
                | CloudlyFault::RefuseExchange(_)
                | CloudlyFault::OutOfContract(..) => true,
                CloudlyFault::StopReading(_)
                | CloudlyFault::WithholdAnswers(_)
                | CloudlyFault::AskAgain
                | CloudlyFault::Garbage => false,
            },
            Self::Worker(..) | Self::Node(..) | Self::Stranger(_) | Self::Trace(_) => false,
        }
    }

    /// What the fault is counted as.
    pub fn kind(&self) -> String {
        match self {
            Self::Cloudly(fault) => match fault {
                CloudlyFault::Drop => "Cloudly drops its connections".to_owned(),
                CloudlyFault::Close(_) => "Cloudly closes its connections".to_owned(),
                CloudlyFault::GoAway(_) => "Cloudly goes away".to_owned(),
                CloudlyFault::Silent(_) => "Cloudly says nothing".to_owned(),
                CloudlyFault::BadGateway(_) => "a proxy answers for Cloudly".to_owned(),
                CloudlyFault::StopReading(_) => "Cloudly stops reading".to_owned(),
                CloudlyFault::WithholdAnswers(_) => "Cloudly withholds answers".to_owned(),
                CloudlyFault::BreakOff => "Cloudly breaks off in an answer".to_owned(),
                CloudlyFault::RefuseExchange(_) => "Cloudly refuses exchanges".to_owned(),
                CloudlyFault::OutOfContract(method, _) => format!("Cloudly answers {method} out of contract"),
                CloudlyFault::AskAgain => "Cloudly asks to be asked again".to_owned(),
                CloudlyFault::Garbage => "Cloudly sends garbage".to_owned(),
            },
            Self::Worker(role, fault) => {
                let what = match fault {
                    WorkerFault::Kill => "killed",
                    WorkerFault::Pause(_) => "paused",
                    WorkerFault::Hang => "hangs until it is replaced",
                };
                format!("{} {what}", role.name())
            }
            Self::Node(_, fault) => match fault {
                NodeFault::Cut => "a node cuts its socket",
                NodeFault::Close => "a node closes its socket",
                NodeFault::HalfOpen(_) => "a node hangs",
                NodeFault::SlowReader(_) => "a node reads slowly",
                NodeFault::RegisterTwice => "a node registers twice",
                NodeFault::Garbage => "a node sends garbage",
            }
            .to_owned(),
            Self::Stranger(fault) => match fault {
                StrangerFault::NeverUpgrade(..) => "strangers never upgrade",
                StrangerFault::NeverTls(..) => "strangers never speak TLS",
                StrangerFault::Flood(_) => "strangers flood the port",
                StrangerFault::Garbage(_) => "strangers send garbage",
                StrangerFault::TooLarge => "a stranger sends too much",
            }
            .to_owned(),
            Self::Trace(_) => "an operator looks at everything".to_owned(),
        }
    }
}

/// The longest time in which the supervisor replaces a worker that hangs: 15 s without an answer, the
/// restart, and room.
pub const HANG: Duration = Duration::from_secs(22);

/// How long a second process of a node may take to register.
pub const REGISTER_TWICE: Duration = Duration::from_secs(3);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind())?;
        match self {
            Self::Node(number, _) => write!(f, " (node {number})")?,
            Self::Cloudly(CloudlyFault::Close(code)) => write!(f, " ({code})")?,
            Self::Stranger(
                StrangerFault::NeverUpgrade(sockets, _)
                | StrangerFault::NeverTls(sockets, _)
                | StrangerFault::Flood(sockets)
                | StrangerFault::Garbage(sockets),
            ) => write!(f, " ({sockets} sockets)")?,
            Self::Cloudly(_)
            | Self::Worker(..)
            | Self::Stranger(StrangerFault::TooLarge)
            | Self::Trace(_) => {}
        }
        match self.lasts() {
            Duration::ZERO => Ok(()),
            time => write!(f, ", {} ms at most", time.as_millis()),
        }
    }
}
