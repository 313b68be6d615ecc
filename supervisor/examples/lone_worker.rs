//! Runs pulld or vpnd alone against a socket, for a session with a debugger: greets it as a supervisor does, and prints
//! each message of the link by name and the worker's records in full.
//!
//! ```sh
//! cargo run -p coreflow-supervisor --example lone_worker pulld target/debug/coreflow-pulld
//! cargo run -p coreflow-supervisor --example lone_worker vpnd strace -D -f target/debug/coreflow-vpnd
//! ```
//!
//! What follows the role is the command line that the worker is started by, as a child of this process. Lines of
//! standard input are what it is told: `standing`, `log LEVEL`, `stop`; their end is a stop as well.

use std::{
    env, io,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
};

use coreflow_ipc::{
    hello::{Hello, Role},
    link::{self, Descriptors, LinkError, LinkReceiver, LinkSender},
    messages::{
        FromWorker, Message, ToWorker,
        pulld::{FromPulld, PulldStart, ToPulld},
        pulls::RegistryFailure,
        vpnd::{FromVpnd, ToVpnd},
    },
    record::Level,
    worker::{FromAnyWorker, Launch},
};
use coreflow_supervisor::trace::Traceable;
use tokio::sync::mpsc;

/// Why an ask of the worker is refused.
const ALONE: &str = "the worker runs alone";

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let role = arguments.next();
    let (child, end) = start(arguments)?;
    println!("the worker is process {}", child.id());
    match role.as_deref() {
        Some("pulld") => life(child, end, &Pulld).await,
        Some("vpnd") => life(child, end, &Vpnd).await,
        _ => Err(io::Error::other("name pulld or vpnd, and the command line that starts it")),
    }
}

/// Starts the worker with one end of a socket pair as its standard input, and gives the other one.
fn start(mut command: impl Iterator<Item = String>) -> io::Result<(Child, OwnedFd)> {
    let program = command.next().ok_or_else(|| io::Error::other("name the worker's executable"))?;
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(program)
        .args(command)
        .args(Launch { supervisor: std::process::id(), connect_port: None }.arguments())
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    Ok((child, ours.into()))
}

/// What differs between the two.
trait Alone {
    type To: Message + Traceable;
    type From: Message + Traceable + FromAnyWorker;
    fn to_worker(message: ToWorker) -> Self::To;
    fn from_worker(message: &Self::From) -> Option<&FromWorker>;
    /// What it is told once it is confined.
    fn begin() -> Option<Self::To>;
    /// Asks how it stands, where it can be asked.
    fn standing(id: u64) -> Option<Self::To>;
    /// What it gets for what it asks.
    fn answer(message: &Self::From) -> Option<Self::To>;
}

struct Pulld;

impl Alone for Pulld {
    type To = ToPulld;
    type From = FromPulld;

    fn to_worker(message: ToWorker) -> ToPulld {
        ToPulld::Worker(message)
    }

    fn from_worker(message: &FromPulld) -> Option<&FromWorker> {
        match message {
            FromPulld::Worker(message) => Some(message),
            FromPulld::AskConnection { .. } | FromPulld::AnswerStanding { .. } => None,
        }
    }

    fn begin() -> Option<ToPulld> {
        let [registry_origin, relay_origin] =
            ["http://127.0.0.1:5000", "https://127.0.0.1:8443"].map(str::to_owned);
        Some(ToPulld::Start(PulldStart { registry_origin, relay_origin, trust_anchors: Vec::new() }))
    }

    fn standing(id: u64) -> Option<ToPulld> {
        Some(ToPulld::AskStanding { id })
    }

    fn answer(message: &FromPulld) -> Option<ToPulld> {
        match message {
            FromPulld::AskConnection { id } => {
                Some(ToPulld::AnswerConnection { id: *id, answer: Err(RegistryFailure::Connect) })
            }
            FromPulld::AnswerStanding { standing, .. } => {
                println!("     {standing:?}");
                None
            }
            FromPulld::Worker(_) => None,
        }
    }
}

struct Vpnd;

impl Alone for Vpnd {
    type To = ToVpnd;
    type From = FromVpnd;

    fn to_worker(message: ToWorker) -> ToVpnd {
        ToVpnd::Worker(message)
    }

    fn from_worker(message: &FromVpnd) -> Option<&FromWorker> {
        match message {
            FromVpnd::Worker(message) => Some(message),
            FromVpnd::AskSocket { .. } | FromVpnd::Report(_) => None,
        }
    }

    fn begin() -> Option<ToVpnd> {
        None
    }

    fn standing(_: u64) -> Option<ToVpnd> {
        None
    }

    fn answer(message: &FromVpnd) -> Option<ToVpnd> {
        match message {
            FromVpnd::AskSocket { id } => {
                Some(ToVpnd::AnswerSocket { id: *id, answer: Err(ALONE.to_owned()) })
            }
            FromVpnd::Report(_) | FromVpnd::Worker(_) => None,
        }
    }
}

/// Speaks with the worker until its link ends.
async fn life<A: Alone>(mut child: Child, end: OwnedFd, _: &A) -> io::Result<()> {
    let (mut sender, mut receiver): (LinkSender<A::To>, LinkReceiver<A::From>) =
        link::open(end, Descriptors::Refused)?;
    let (typed, mut lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if typed.blocking_send(line).is_err() {
                return;
            }
        }
    });
    tell::<A>(&mut sender, A::to_worker(ToWorker::Hello(Hello::of(Role::Supervisor))), None).await;
    let (mut asked, mut stopping, mut peers) = (0, false, Vec::new());
    loop {
        tokio::select! {
            line = lines.recv(), if !stopping => {
                asked += 1;
                let line = line.unwrap_or_else(|| "stop".to_owned());
                stopping = line == "stop";
                match read::<A>(&line, asked) {
                    Some(message) => tell::<A>(&mut sender, message, None).await,
                    None => println!("say standing, log LEVEL or stop"),
                }
            }
            received = receiver.receive() => match received {
                Ok(received) => {
                    let (message, shown) = (&received.message, received.message.shown());
                    println!("<- {} {} bytes {:?} {:?}", shown.kind, received.bytes, shown.id, shown.note);
                    match A::from_worker(message) {
                        Some(FromWorker::Record(record)) => println!("     {}", record.line()),
                        Some(FromWorker::Confined(report)) => {
                            report.layers.iter().for_each(|layer| println!("     {}: {}", layer.layer, layer.state));
                            if let Some(message) = A::begin() {
                                tell::<A>(&mut sender, message, None).await;
                            }
                            // The link to relayd, at whose other end nobody speaks.
                            let (ours, theirs) = UnixStream::pair()?;
                            peers.push(ours);
                            let peer = A::to_worker(ToWorker::PeerLink { role: Role::Relayd });
                            tell::<A>(&mut sender, peer, Some(theirs.into())).await;
                        }
                        Some(FromWorker::Hello(_) | FromWorker::Pong(_) | FromWorker::Stopped) | None => {}
                    }
                    if let Some(message) = A::answer(message) {
                        tell::<A>(&mut sender, message, None).await;
                    }
                }
                Err(LinkError::Closed) => break,
                Err(error) => {
                    println!("the link ended: {error}");
                    break;
                }
            },
        }
    }
    println!("the worker ended: {}", child.wait()?);
    Ok(())
}

/// What a line tells the worker.
fn read<A: Alone>(line: &str, id: u64) -> Option<A::To> {
    match line.split_once(' ') {
        Some(("log", level)) => Level::of_word(level).map(|level| A::to_worker(ToWorker::LogLevel(level))),
        None if line == "standing" => A::standing(id),
        None if line == "stop" => Some(A::to_worker(ToWorker::Stop)),
        Some(_) | None => None,
    }
}

async fn tell<A: Alone>(sender: &mut LinkSender<A::To>, message: A::To, descriptor: Option<OwnedFd>) {
    let shown = message.shown();
    let beside: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    match sender.send_counted(&message, &beside).await {
        Ok(bytes) => println!("-> {} {bytes} bytes {:?} {:?}", shown.kind, shown.id, shown.note),
        Err(error) => println!("-> {} not sent: {error}", shown.kind),
    }
}
