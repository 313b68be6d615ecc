//! The relay as a whole: what a command line runs, and what an embedding caller starts and stops
//! (START-20, START-21, START-28).

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Mutex,
    thread::JoinHandle,
};

use coreflow_ipc::sys::{self, Protection, Signal};
use nix::sys::signal::SigSet;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tracing::{debug, error, info, warn};

use crate::{
    configuration::{ConfigurationReader, Sources},
    control::{self, ControlSocket},
    log::Log,
    notify::Notify,
    options::Options,
    programs::Programs,
    run::{Command, Ended, Inputs, Supervisor},
    spawn::separate_users,
    trust::TrustAnchors,
};

/// Certificates of a trust store that fit the message which hands them to a worker, in bytes.
const TRUST_BYTES: usize = 1_000_000;
/// Commands that may wait for the loop.
const COMMANDS: usize = 16;

/// Where the relay runs: its options, and where its executables and its checkout are.
#[derive(Debug, Clone)]
pub struct Place {
    /// The launch options.
    pub options: Options,
    /// The directory of the executable, with the workers beside it and, in a host release, `qenv.yml`.
    pub executables: PathBuf,
    /// The working directory, where a checkout has its `qenv.yml` and `.nogit`.
    pub working_directory: PathBuf,
}

impl Place {
    /// The place of this very process.
    pub fn of_process(options: Options) -> io::Result<Self> {
        let executable = std::env::current_exe()?;
        let executables = executable.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { options, executables, working_directory: std::env::current_dir()? })
    }
}

/// A relay that was constructed and not started: configuration read, bearer in custody.
pub struct Relay {
    inputs: Inputs,
    log: Log,
}

/// Whether the relay listens to the process's signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signals {
    /// `SIGTERM` and `SIGINT` stop it (START-10), `SIGUSR1` switches the log level.
    Handled,
    /// The process's owner keeps them.
    Left,
}

impl Relay {
    /// Reads the launch facts and opens the workers' executables. Single-threaded: the bearer's
    /// environment copy is wiped here.
    ///
    /// # Errors
    /// The cause of a start that failed, naming everything that is missing; it is on standard error too.
    pub fn construct(place: &Place) -> Result<Self, String> {
        // Before the bearer is read: nobody may look into this process from here on (ARC-23).
        sys::set_dumpable_off().map_err(|errno| without_log(format!("process-not-hardened: {errno}")))?;
        let sources = Sources::from_process(&place.options, &place.executables, &place.working_directory)
            .map_err(|error| without_log(error.to_string()))?;
        let journal_stream = sources.environment.journal_stream();
        let mut reader = ConfigurationReader::open(sources);
        let facts = reader.launch_facts().map_err(|error| error.to_string());
        let trust = TrustAnchors::load(reader.environment()).map_err(|error| error.to_string());
        let programs = Programs::open(&place.executables, place.options.vpn_daemon_path())
            .map_err(|error| format!("worker-missing: {error}"));
        let control = control_socket(place, &reader);
        let control =
            control.as_deref().map(ControlSocket::bind).transpose().map_err(|error| error.to_string());
        // The log's thread starts after the last step that needs the process to have one.
        let log = Log::start(journal_stream.as_deref());
        let notify = Notify::of_process(reader.environment().notify_socket());
        info!("coreflow {} starts", coreflow_ipc::VERSION);
        let (facts, trust, programs, control) = match (facts, trust, programs, control) {
            (Ok(facts), Ok(trust), Ok(programs), Ok(control)) => (facts, trust, programs, control),
            (facts, trust, programs, control) => {
                // All mistakes at once: an operator mends them in one go.
                let causes = [facts.err(), trust.err(), programs.err(), control.err()];
                let cause = causes.into_iter().flatten().collect::<Vec<_>>().join("; ");
                log.failed(&cause);
                return Err(cause);
            }
        };
        let anchors: usize = trust.certificates.iter().map(Vec::len).sum();
        if anchors > TRUST_BYTES {
            let cause = format!("trust-store-too-large: {anchors} bytes of certificates, {TRUST_BYTES} fit");
            log.failed(&cause);
            return Err(cause);
        }
        if trust.bundled {
            warn!("the host has no trust store: the bundled certificates are used");
        }
        if facts.bearer.ends_with_line_break() {
            warn!("the stored bearer ends with a line break, which is part of its value");
        }
        match facts.bearer.protection() {
            held @ Protection::SecretMemory => info!("the bearer is held in {held}"),
            held @ (Protection::Locked | Protection::Unlocked) => {
                warn!("the bearer is held in {held}: the kernel or the unit gives no secret memory");
            }
        }
        if let Some(users) = separate_users() {
            warn!(
                "started as root, which the relay needs for nothing: each worker has a user of its own, {users}"
            );
        }
        match &control {
            Some(control) => debug!("the control socket is {}", control.file.path().display()),
            None => debug!("there is no control socket: no --control-socket and no RUNTIME_DIRECTORY"),
        }
        let inputs = Inputs {
            reader,
            cloudly: facts.cloudly_url,
            bearer: facts.bearer,
            trust,
            programs,
            notify,
            control,
            verbosity: log.verbosity.clone(),
        };
        Ok(Self { inputs, log })
    }

    /// Runs the relay to its end, on the calling thread, which starts the workers and outlives them.
    pub fn run(self, signals: Signals) -> Ended {
        let (commands, received) = mpsc::channel(COMMANDS);
        self.run_with(signals, commands, received)
    }

    fn run_with(
        self,
        signals: Signals,
        commands: mpsc::Sender<Command>,
        mut received: mpsc::Receiver<Command>,
    ) -> Ended {
        let Self { inputs, log } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = match runtime {
            Ok(runtime) => {
                let ended = runtime.block_on(async {
                    if signals == Signals::Handled
                        && let Err(error) = forward_signals(&commands)
                    {
                        return Ended::StartFailed(format!("signals-not-handled: {}", error.kind()));
                    }
                    Supervisor::new(inputs).run(&mut received).await
                });
                // A resolver that does not answer holds back no stop (START-13).
                runtime.shutdown_background();
                ended
            }
            Err(error) => Ended::StartFailed(format!("runtime-failed: {}", error.kind())),
        };
        match &ended {
            Ended::StartFailed(cause) => log.failed(cause),
            Ended::StopFailed => error!("the stop failed"),
            Ended::Stopped | Ended::Interrupted => {}
        }
        log.flush();
        ended
    }

    /// Starts the relay on a thread of its own, for a caller that owns the process (START-20).
    pub fn start(self, signals: Signals) -> Running {
        let (commands, received) = mpsc::channel(COMMANDS);
        let sender = commands.clone();
        let thread = std::thread::spawn(move || self.run_with(signals, sender, received));
        Running { commands, thread: Mutex::new(Some(thread)) }
    }
}

/// Where the control socket is to be: where the option says, else in the unit's runtime directory.
fn control_socket(place: &Place, reader: &ConfigurationReader) -> Option<PathBuf> {
    let named = place.options.control_socket().map(Path::to_owned);
    named.or_else(|| reader.environment().runtime_directory().map(|directory| directory.join(control::FILE)))
}

/// States a cause before there is a log (START-16).
fn without_log(cause: String) -> String {
    let _ = writeln!(io::stderr(), "the start failed: {cause}");
    cause
}

/// A relay that an embedding caller started.
pub struct Running {
    commands: mpsc::Sender<Command>,
    thread: Mutex<Option<JoinHandle<Ended>>>,
}

impl Running {
    /// Stops the relay, leaves the process alive and releases both signals (START-20, START-21).
    pub fn stop(&self) -> Ended {
        // One caller at a time: a second command would be the second signal.
        let thread = self.thread.lock().expect("no holder of the thread panics").take();
        let Some(thread) = thread else { return Ended::Stopped };
        let _ = self.commands.try_send(Command::Stop);
        let ended = thread.join().unwrap_or(Ended::StopFailed);
        release_signals();
        ended
    }
}

/// The signals that stop the relay (START-10).
pub(crate) fn stop_signals() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT])
}

/// Gives the stop signals back to the kernel's default.
fn release_signals() {
    if let Err(errno) = sys::set_signal_default(&[Signal::SIGTERM, Signal::SIGINT]) {
        warn!("the stop signals are not released: {errno}");
    }
}

fn forward_signals(commands: &mpsc::Sender<Command>) -> io::Result<()> {
    for (kind, command) in [
        (SignalKind::terminate(), Command::Stop),
        (SignalKind::interrupt(), Command::Stop),
        (SignalKind::user_defined1(), Command::ToggleVerbosity),
    ] {
        let mut stream = signal(kind)?;
        let commands = commands.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if commands.send(command).await.is_err() {
                    return;
                }
            }
        });
    }
    // One that came before is delivered here.
    stop_signals().thread_unblock().map_err(io::Error::from)
}
