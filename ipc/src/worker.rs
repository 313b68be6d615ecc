//! How a worker comes to life: arguments, confinement, hello, records, and an orderly end
//! (ARC-03, ARC-04, ARC-05, ARC-20, ARC-21, ARC-24).
//!
//! A worker's link to the supervisor is its standard input; standard output and error are a pipe for
//! last words. Everything else is closed, and the environment is empty.

use std::{
    ffi::CString,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    time::Duration,
};

use tokio::{sync::mpsc, time::timeout};
use tracing_subscriber::layer::SubscriberExt;

use crate::{
    confine::{Profile, Report, Started, confine},
    hello::{Hello, HelloError, Role},
    link::{self, Descriptors, LinkError},
    messages::{FromWorker, Message, ToWorker},
    record::{Level, Outlet, Record, RecordLayer, Verbosity},
    sys::{self, Signal},
};

mod life;

pub use life::{Life, Outbox, Told};

/// What a worker ignores: a terminal's interrupt, and a stop that is sent to every process of the unit. A worker ends
/// when it is told.
pub const IGNORED_SIGNALS: &[Signal] = &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// The supervisor's hello must come within this time.
const HELLO_BUDGET: Duration = Duration::from_secs(5);
/// What the supervisor passes as arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Process id of the supervisor: a worker whose parent is another process ends.
    pub supervisor: u32,
    /// The one TCP port that the worker may connect to, for a worker that connects.
    pub connect_port: Option<u16>,
}

impl Launch {
    /// The arguments of a worker.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--supervisor".to_owned(), self.supervisor.to_string()];
        if let Some(port) = self.connect_port {
            arguments.extend(["--connect-port".to_owned(), port.to_string()]);
        }
        arguments
    }

    /// Reads what [`Launch::arguments`] wrote.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, StartError> {
        let (mut supervisor, mut connect_port) = (None, None);
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(StartError::Arguments)?;
            match name.as_str() {
                "--supervisor" => supervisor = Some(value.parse().map_err(|_| StartError::Arguments)?),
                "--connect-port" => connect_port = Some(value.parse().map_err(|_| StartError::Arguments)?),
                _ => return Err(StartError::Arguments),
            }
        }
        Ok(Self { supervisor: supervisor.ok_or(StartError::Arguments)?, connect_port })
    }
}

/// Why a worker does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartError {
    /// It was started by hand, or by another build.
    Arguments,
    /// Its standard input is no link.
    NoLink,
    /// It could not be confined.
    Unconfined(String),
    /// The supervisor is of another build.
    Hello(HelloError),
    /// The link ended.
    Link(LinkError),
    /// The runtime did not start.
    Runtime(io::ErrorKind),
    /// What the worker itself cannot work with or without, by its name.
    Own(String),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Arguments => {
                f.write_str("worker-arguments-refused: a worker is started by coreflow, not by hand")
            }
            Self::NoLink => f.write_str("worker-link-missing: standard input is not the supervisor's link"),
            Self::Unconfined(why) => write!(f, "worker-unconfined: {why}"),
            Self::Hello(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
            Self::Runtime(kind) => write!(f, "worker-runtime-failed: {kind}"),
            Self::Own(cause) => f.write_str(cause),
        }
    }
}

impl std::error::Error for StartError {}

/// A worker that is confined and has not started its runtime.
pub struct Confined {
    link: OwnedFd,
    report: Report,
}

/// Confines this process; nothing of the worker's own runs before it.
pub fn enter(
    role: Role,
    profile: impl FnOnce(&Launch) -> Result<Profile, StartError>,
) -> Result<Confined, StartError> {
    // A process that was started by a descriptor has that number for its name.
    let name = CString::new(role.program()).expect("a program's name has no zero byte");
    let _ = sys::set_process_name(&name);
    let launch = Launch::parse(std::env::args().skip(1))?;
    let profile = profile(&launch)?;
    let link = io::stdin().as_fd().try_clone_to_owned().map_err(|_| StartError::NoLink)?;
    if !nix::sys::stat::fstat(&link).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFSOCK) {
        return Err(StartError::NoLink);
    }
    drop(link);
    // The supervisor has it begin so; a debugger that starts it does not.
    let _ = sys::ignore_signals(IGNORED_SIGNALS);
    let _ = sys::reset_signal_mask();
    let _ = nix::unistd::setsid();
    let report = confine(&profile, &Started { supervisor: launch.supervisor })
        .map_err(|error| StartError::Unconfined(error.to_string()))?;
    // Duplicated after the confinement, which closes everything above the three standard ones.
    let link = io::stdin().as_fd().try_clone_to_owned().map_err(|_| StartError::NoLink)?;
    Ok(Confined { link, report })
}

/// A message type that can say what every worker says.
pub trait FromAnyWorker: Message {
    /// Wraps it.
    fn of_worker(message: FromWorker) -> Self;
}

/// A message type that holds what is said to every worker.
pub trait ToAnyWorker: Message {
    /// What was said, if it was said to every worker.
    fn for_worker(self) -> Result<ToWorker, Self>;
}

struct RecordQueue(mpsc::Sender<Record>);

impl Outlet for RecordQueue {
    fn offer(&self, record: Record) -> Result<(), Record> {
        self.0.try_send(record).map_err(|error| match error {
            mpsc::error::TrySendError::Full(record) | mpsc::error::TrySendError::Closed(record) => record,
        })
    }
}

impl Confined {
    /// Greets the supervisor, reports the confinement, and sends records from here on. Inside the
    /// worker's runtime.
    pub async fn join<Out: FromAnyWorker, In: ToAnyWorker>(
        self,
        role: Role,
    ) -> Result<Life<Out, In>, StartError> {
        let opened = link::open::<Out, In>(self.link, Descriptors::Accepted);
        let (mut sender, mut inbox) = opened.map_err(|error| StartError::Runtime(error.kind()))?;
        for message in [FromWorker::Hello(Hello::of(role)), FromWorker::Confined(self.report)] {
            sender.send(&Out::of_worker(message), &[]).await.map_err(StartError::Link)?;
        }
        let first = timeout(HELLO_BUDGET, inbox.receive()).await;
        let first = first.map_err(|_| StartError::Hello(HelloError::Missing))?.map_err(StartError::Link)?;
        match first.message.for_worker() {
            Ok(ToWorker::Hello(hello)) => hello.check(Role::Supervisor).map_err(StartError::Hello)?,
            Ok(_) | Err(_) => return Err(StartError::Hello(HelloError::Missing)),
        }
        let verbosity = Verbosity::new(Level::Info);
        let (records, recorded) = mpsc::channel(life::RECORD_QUEUE);
        let layer = RecordLayer::new(RecordQueue(records), verbosity.clone());
        // A second worker in one process exists in tests alone, which keep the first one's.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer));
        Ok(Life::begin(sender, inbox, recorded, verbosity))
    }
}

/// Runs a worker: confine, start the runtime, serve. The cause of a failure goes to standard error,
/// where the supervisor reads last words.
pub fn main<F>(
    role: Role,
    profile: impl FnOnce(&Launch) -> Result<Profile, StartError>,
    runtime: impl FnOnce() -> io::Result<tokio::runtime::Runtime>,
    serve: impl FnOnce(Confined) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), StartError>>,
{
    let ran = enter(role, profile).and_then(|confined| {
        let runtime = runtime().map_err(|error| StartError::Runtime(error.kind()))?;
        let served = runtime.block_on(serve(confined));
        runtime.shutdown_background();
        served
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_come_back_as_they_were() {
        for connect_port in [None, Some(443)] {
            let launch = Launch { supervisor: 7, connect_port };
            assert_eq!(Launch::parse(launch.arguments()), Ok(launch));
        }
    }

    /// A worker started by hand says so and does nothing.
    #[test]
    fn other_arguments_are_refused() {
        for arguments in [&[][..], &["--supervisor"], &["--supervisor", "x"], &["--help", "me"]] {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned());
            assert_eq!(Launch::parse(arguments), Err(StartError::Arguments));
        }
    }
}
