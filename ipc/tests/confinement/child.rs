//! The process under attack: this binary again, told its role and its attempt by the environment, with its
//! link as descriptor 0 and its last words on a pipe, as a worker has them.
#![expect(unsafe_code, reason = "a child takes its way before the test harness starts a thread")]

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use coreflow_ipc::codec;
use coreflow_ipc::confine::{Layer, Profile, Report, Started, State, confine};
use coreflow_ipc::sys::{Errno, Signal};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::attempts;

/// How long a test waits for a child before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a worker says before it answers bytes; no report and no word holds these.
pub(crate) const MARK: [u8; 4] = [0xff, 0xfe, 0xfd, 0xfc];

/// The most bytes a report takes.
const REPORT_LIMIT: usize = 4096;

const ROLE: &str = "CONFINEMENT_ROLE";
const ATTEMPT: &str = "CONFINEMENT_ATTEMPT";
const ARGUMENT: &str = "CONFINEMENT_ARGUMENT";
const PORT: &str = "CONFINEMENT_PORT";
const SUPERVISOR: &str = "CONFINEMENT_SUPERVISOR";
/// A variable whose value the wiping of the environment is tested on.
pub(crate) const SECRET: (&str, &str) = ("CONFINEMENT_SECRET", "a-value-nobody-should-see");

/// Under which profile a child makes its attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Role {
    name: &'static str,
    port: u16,
    supervisor: Option<u32>,
}

const fn role(name: &'static str) -> Role {
    Role { name, port: 9, supervisor: None }
}

pub(crate) const BARE: Role = role("bare");
pub(crate) const RELAYD: Role = role("relayd");
pub(crate) const PULLD: Role = role("pulld");
pub(crate) const VPND: Role = role("vpnd");

impl Role {
    pub(crate) fn dialling(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// The supervisor the child is told of, where that is not the process that starts it.
    pub(crate) fn started_by(self, supervisor: u32) -> Self {
        Self { supervisor: Some(supervisor), ..self }
    }

    pub(crate) fn open_files(self) -> u64 {
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
pub(crate) enum Answer {
    Done(String),
    Refused(Errno),
    Killed(Signal),
    /// The process ended without a word: it became another program.
    Silent,
}

/// All that is known of a child that ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) report: Option<Report>,
    pub(crate) answer: Answer,
    pub(crate) status: ExitStatus,
    pub(crate) last_words: String,
}

impl Outcome {
    pub(crate) fn state(&self, layer: Layer) -> State {
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
pub(crate) struct Running {
    process: Child,
    link: UnixStream,
}

pub(crate) fn run(role: Role, attempt: &str, argument: &str) -> Outcome {
    start(role, attempt, argument).finish()
}

pub(crate) fn start(role: Role, attempt: &str, argument: &str) -> Running {
    let (link, theirs) = UnixStream::pair().unwrap();
    link.set_read_timeout(Some(PATIENCE)).unwrap();
    let process = command(role, attempt, argument, theirs.into()).spawn().unwrap();
    Running { process, link }
}

/// This binary as a child with `link` as its descriptor 0.
pub(crate) fn command(role: Role, attempt: &str, argument: &str, link: OwnedFd) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, role.name).env(ATTEMPT, attempt).env(ARGUMENT, argument);
    command.env(PORT, role.port.to_string());
    command.env(SUPERVISOR, role.supervisor.unwrap_or(std::process::id()).to_string());
    command.env(SECRET.0, SECRET.1);
    command.stdin(Stdio::from(link)).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Running {
    pub(crate) fn link(&mut self) -> &mut UnixStream {
        &mut self.link
    }

    /// Reads over the reports on the link until a worker says that it answers bytes.
    pub(crate) fn await_mark(&mut self) {
        let mut last = [0; MARK.len()];
        while last != MARK {
            last.rotate_left(1);
            let end = last.len() - 1;
            self.link.read_exact(&mut last[end..]).expect("the worker says that it is there");
        }
    }

    /// Sends a byte and waits for the answer; `None` when the link has ended, on either side of the send.
    pub(crate) fn echo(&mut self, byte: u8) -> Option<u8> {
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
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for the child's own end.
    pub(crate) fn finish(mut self) -> Outcome {
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
    pub(crate) parent: i32,
}

/// The C library calls this before `main`, like every constructor, while the process has one thread: the
/// harness would run a test on a second one, and a process with two is not confined.
#[used]
// SAFETY: the section holds pointers to functions of this type, which the C library calls once each; the
// standard library needs no preparation by `main` for what a child does.
#[unsafe(link_section = ".init_array")]
static BEFORE_THE_HARNESS: extern "C" fn() = become_child;

extern "C" fn become_child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    main();
    // SAFETY: ends the process at once; nothing is left to be flushed.
    unsafe { libc::_exit(0) };
}

/// The child: confines itself as its role says, reports, makes its attempt, says how it was answered.
fn main() {
    let read = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (role, attempt, argument) = (read(ROLE), read(ATTEMPT), read(ARGUMENT));
    let supervisor = read(SUPERVISOR).parse().unwrap();
    let profile = profile(&role, read(PORT).parse().unwrap());
    let attempt = attempts::named(&attempt);
    // Asked for here, as no worker may ask later.
    let parent = std::os::unix::process::parent_id().cast_signed();
    // A host may have no core files to begin with; here their end is the confinement's work.
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
    setrlimit(Resource::RLIMIT_CORE, hard, hard).unwrap();
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
    let mut attacker = Attacker { link, argument, parent };
    let said = match attempt(&mut attacker) {
        Ok(said) => said,
        Err(errno) => format!("errno {}", errno as i32),
    };
    attacker.link.write_all(said.as_bytes()).unwrap();
}
