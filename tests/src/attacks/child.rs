//! The attacker: `coreflow-attacks` once more, told its role and its attempt by the environment, with its link as
//! descriptor 0 and its last words on a pipe, as a worker has them, and confined by the very call that confines one.
#![expect(clippy::unwrap_used, reason = "what surprises an attacker or its judge fails the attack by name")]

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use coreflow_ipc::codec;
use coreflow_ipc::confine::{Layer, Profile, Report, Started, State, confine};
use coreflow_ipc::sys::{Errno, Signal};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::attempts;
use super::wall::{Layers, switch_off};
use crate::binaries::profile_directory;

/// How long a test waits for a child before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a worker says before it answers bytes; no report and no word holds these.
pub(crate) const MARK: [u8; 4] = [0xff, 0xfe, 0xfd, 0xfc];

/// The most bytes a report takes.
const REPORT_LIMIT: usize = 4096;

const ROLE: &str = "CONFINEMENT_ROLE";
const ATTEMPT: &str = "CONFINEMENT_ATTEMPT";
const ARGUMENT: &str = "CONFINEMENT_ARGUMENT";
const PORT: &str = "CONFINEMENT_PORT";
const SUPERVISOR: &str = "CONFINEMENT_SUPERVISOR";
const VICTIM: &str = "CONFINEMENT_VICTIM";
const WITHOUT: &str = "CONFINEMENT_WITHOUT";
/// The executable that an attacker is.
const PROGRAM: &str = "coreflow-attacks";
/// A variable whose value the wiping of the environment is tested on.
pub(crate) const SECRET: (&str, &str) = ("CONFINEMENT_SECRET", "a-value-nobody-should-see");

/// Under which profile an attacker makes its attempt, and on whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    name: &'static str,
    port: u16,
    supervisor: Option<u32>,
    victim: Option<u32>,
    without: Layers,
}

const fn role(name: &'static str) -> Role {
    Role { name, port: 9, supervisor: None, victim: None, without: Layers::NONE }
}

/// No profile at all: the control.
pub const BARE: Role = role("bare");
/// relayd's profile.
pub const RELAYD: Role = role("relayd");
/// pulld's profile.
pub const PULLD: Role = role("pulld");
/// vpnd's profile.
pub const VPND: Role = role("vpnd");

impl Role {
    /// The role's name: `bare` or the worker's.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    /// The same role against the process `victim`; its parent is one otherwise.
    #[must_use]
    pub(crate) fn against(self, victim: u32) -> Self {
        Self { victim: Some(victim), ..self }
    }

    /// The same role on a kernel that swallows `layers`.
    #[must_use]
    pub(crate) fn without(self, layers: Layers) -> Self {
        Self { without: layers, ..self }
    }

    /// The same role with `port` as the one that its profile may dial, if any.
    #[must_use]
    pub fn dialling(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// The supervisor the child is told of, where that is not the process that starts it.
    #[must_use]
    pub fn started_by(self, supervisor: u32) -> Self {
        Self { supervisor: Some(supervisor), ..self }
    }

    /// The most open files of its profile.
    ///
    /// # Panics
    /// When it is no worker.
    #[must_use]
    pub fn open_files(self) -> u64 {
        profile(self.name, self.port).expect("a worker").open_files
    }
}

fn profile(name: &str, port: u16) -> Option<Profile> {
    match name {
        "bare" => None,
        "relayd" => Some(Profile::relayd(port)),
        "pulld" => Some(Profile::pulld()),
        "vpnd" => Some(Profile::vpnd()),
        other => panic!("no role {other}"),
    }
}

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It succeeded, with a word on what it got.
    Done(String),
    /// The kernel refused it.
    Refused(Errno),
    /// The process was ended by a signal.
    Killed(Signal),
    /// The process ended without a word: it became another program.
    Silent,
}

/// All that is known of a child that ended.
#[derive(Debug)]
pub struct Outcome {
    /// What the confinement said of its layers.
    pub report: Option<Report>,
    /// How the attempt ended.
    pub answer: Answer,
    /// How the process ended.
    pub status: ExitStatus,
    /// What it wrote to its standard error.
    pub last_words: String,
}

impl Outcome {
    /// The reported state of `layer`.
    ///
    /// # Panics
    /// When there is no report, or it leaves the layer out.
    #[must_use]
    pub fn state(&self, layer: Layer) -> State {
        let report = self.report.as_ref().expect("a confined child reports");
        report
            .layers
            .iter()
            .find(|entry| entry.layer == layer)
            .expect("every layer is reported")
            .state
            .clone()
    }
}

/// A child that runs.
pub struct Running {
    process: Child,
    link: UnixStream,
}

/// Has `role` make an attempt, and waits for its end.
///
/// # Panics
/// When the attacker cannot be started or does not end.
#[must_use]
pub fn run(role: Role, attempt: &str, argument: &str) -> Outcome {
    run_in(None, role, attempt, argument)
}

/// The same in a directory, where a core file would be left.
pub(crate) fn run_in(directory: Option<&Path>, role: Role, attempt: &str, argument: &str) -> Outcome {
    begin(directory, role, attempt, argument).finish()
}

/// Starts an attempt.
///
/// # Panics
/// When the attacker cannot be started.
#[must_use]
pub fn start(role: Role, attempt: &str, argument: &str) -> Running {
    begin(None, role, attempt, argument)
}

fn begin(directory: Option<&Path>, role: Role, attempt: &str, argument: &str) -> Running {
    let (link, theirs) = UnixStream::pair().unwrap();
    link.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = command(role, attempt, argument, theirs.into());
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let process = command.spawn().unwrap();
    Running { process, link }
}

/// The executable of the attackers: the own one, or the one beside the test that runs.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    if own.file_name() == Some(PROGRAM.as_ref()) {
        return own;
    }
    profile_directory(&own).map(|directory| directory.join(PROGRAM)).unwrap()
}

/// An attacker with `link` as its descriptor 0.
pub(crate) fn command(role: Role, attempt: &str, argument: &str, link: OwnedFd) -> Command {
    let mut command = Command::new(program());
    command.env(ROLE, role.name).env(ATTEMPT, attempt).env(ARGUMENT, argument);
    command.env(PORT, role.port.to_string());
    command.env(SUPERVISOR, role.supervisor.unwrap_or(std::process::id()).to_string());
    command.env(WITHOUT, role.without.names());
    command.env(SECRET.0, SECRET.1);
    if let Some(victim) = role.victim {
        command.env(VICTIM, victim.to_string());
    }
    command.stdin(Stdio::from(link)).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Running {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The other end of its link.
    pub fn link(&mut self) -> &mut UnixStream {
        &mut self.link
    }

    /// Reads over the reports on the link until a worker says that it answers bytes.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn await_mark(&mut self) {
        let mut last = [0; MARK.len()];
        while last != MARK {
            last.rotate_left(1);
            let end = last.len() - 1;
            self.link.read_exact(&mut last[end..]).expect("the worker says that it is there");
        }
    }

    /// Sends a byte and waits for the answer; `None` when the link has ended, on either side of the send.
    ///
    /// # Panics
    /// When it neither answers nor ends within [`PATIENCE`].
    pub fn echo(&mut self, byte: u8) -> Option<u8> {
        let sent = self.link.write_all(&[byte]);
        let mut answer = [0];
        match self.link.read(&mut answer) {
            Ok(0) => None,
            Ok(_) => Some(answer[0]),
            // The byte was still unread when the last holder of the other end died.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer and no end of the link: {error}, sent: {sent:?}"),
        }
    }

    /// Kills the child itself and waits for its end.
    ///
    /// # Panics
    /// When it is no child any more.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for the child's own end.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        let mut said = Vec::new();
        if let Err(error) = self.link.read_to_end(&mut said) {
            // A process that died with our bytes unread resets the link; what it said before has been read.
            if error.kind() != std::io::ErrorKind::ConnectionReset {
                let killed = self.process.kill();
                panic!("the child does not end: {error} ({killed:?})");
            }
        }
        let output = self.process.wait_with_output().unwrap();
        let last_words = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = output.status;
        let (report, answer) = understand(&said);
        let answer = match status.signal() {
            Some(signal) => Answer::Killed(Signal::try_from(signal).unwrap()),
            None => answer,
        };
        Outcome { report, answer, status, last_words }
    }
}

/// A child says: the length of its report in two bytes, the report, then its answer in words.
fn understand(said: &[u8]) -> (Option<Report>, Answer) {
    let Some((length, rest)) = said.split_first_chunk() else { return (None, Answer::Silent) };
    let (report, answer) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
    let report =
        (!report.is_empty()).then(|| codec::decode::<Report, REPORT_LIMIT>(report).expect("a whole report"));
    let answer = std::str::from_utf8(answer).unwrap();
    let answer = match answer.strip_prefix("errno ") {
        Some(number) => Answer::Refused(Errno::from_raw(number.parse().unwrap())),
        None if answer.is_empty() => Answer::Silent,
        None => Answer::Done(answer.to_owned()),
    };
    (report, answer)
}

/// What a child knows while it makes its attempt.
pub(crate) struct Attacker {
    pub(crate) link: UnixStream,
    pub(crate) argument: String,
    /// On whom the attempt is made: the process that started it, where nobody is named.
    pub(crate) victim: i32,
}

/// Becomes an attacker where the environment says so, and ends as one. Called first of all in `main`: a process with
/// threads is not confined.
///
/// # Panics
/// When the environment is not that of an attacker, or what surprises it happens: its judge sees that it died.
#[must_use]
pub fn is_attacker() -> bool {
    if std::env::var_os(ROLE).is_none() {
        return false;
    }
    attack();
    true
}

/// The child: confines itself as its role says, reports, makes its attempt, says how it was answered.
fn attack() {
    let read = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (role, attempt, argument) = (read(ROLE), read(ATTEMPT), read(ARGUMENT));
    let supervisor = read(SUPERVISOR).parse().unwrap();
    let profile = profile(&role, read(PORT).parse().unwrap());
    let prepared = attempts::prepare(&attempt);
    let attempt = attempts::named(&attempt);
    // Asked for here, as no worker may ask later.
    let parent = std::os::unix::process::parent_id();
    let victim = std::env::var(VICTIM).map_or(parent, |victim| victim.parse().unwrap()).cast_signed();
    // A host may have no core files to begin with; here their end is the confinement's work.
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
    setrlimit(Resource::RLIMIT_CORE, hard, hard).unwrap();
    switch_off(Layers::named(&read(WITHOUT)));
    let confined = profile.map(|profile| confine(&profile, &Started { supervisor }));
    // Opened only here: the confinement closes every descriptor but the first three.
    let mut link = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let report = match confined.transpose() {
        Ok(report) => report,
        Err(refusal) => {
            link.write_all(&[0, 0]).unwrap();
            return link.write_all(refusal.to_string().as_bytes()).unwrap();
        }
    };
    let bytes = report.map(|report| codec::encode::<_, REPORT_LIMIT>(&report).unwrap());
    let bytes = bytes.unwrap_or_default();
    link.write_all(&u16::try_from(bytes.len()).unwrap().to_be_bytes()).unwrap();
    link.write_all(&bytes).unwrap();
    let mut attacker = Attacker { link, argument, victim };
    // A host that refuses what leads up to it has refused it.
    let said = match prepared.and_then(|()| attempt(&mut attacker)) {
        Ok(said) => said,
        Err(errno) => format!("errno {}", errno as i32),
    };
    attacker.link.write_all(said.as_bytes()).unwrap();
}
