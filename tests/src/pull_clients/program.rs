//! The programs of others that a run starts: which they are, one that runs to its end, and one that runs
//! until it is dropped. Each is the leader of a process group of its own and is ended with all of it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Failure;
use crate::waiting::poll;

/// The programs and the Debian packages they come in.
const PROGRAMS: [(&str, &str); 6] = [
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("podman", "podman"),
    ("buildah", "buildah"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
];

/// How long a program may take to end once it was asked to.
const END: Duration = Duration::from_secs(5);

/// How much of what a program said goes into a failure, in bytes.
const LAST_WORDS: usize = 2000;

/// Succeeds when every program is there.
///
/// # Errors
/// [`Failure`] that names each missing program and its package.
pub(super) fn present() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing: Vec<String> = PROGRAMS
        .iter()
        .filter(|(program, _)| !found(program))
        .map(|(program, package)| format!("{program} (Debian package {package})"))
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("missing programs: {}", missing.join(", ")))),
    }
}

/// A command with nothing of this process's environment but its `PATH`; what it keeps, it keeps below
/// `home`. A proxy variable would lead it elsewhere.
pub(super) fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("TMPDIR", home).env("XDG_RUNTIME_DIR", home).current_dir(home);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// A program that runs. Dropping it ends its whole process group and waits for its end.
pub(super) struct Running {
    name: String,
    child: Child,
    said: PathBuf,
}

impl Running {
    /// Starts it with both its streams going into the file `said`.
    ///
    /// # Errors
    /// [`Failure`] when it cannot be executed.
    pub(super) fn start(mut command: Command, said: &Path) -> Result<Self, Failure> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| Failure::new(format!("{name} was not started: {error}"));
        let output = File::create(said).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Self { name, child, said: said.to_owned() })
    }

    /// Waits until `ready` says so while the program runs.
    ///
    /// # Errors
    /// [`Failure`] when it ends before, or is not ready within `bound`.
    pub(super) async fn wait_ready(
        &mut self,
        bound: Duration,
        ready: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let look = || match self.child.try_wait() {
            Ok(None) if ready() => Some(Ok(())),
            Ok(None) => None,
            Ok(Some(status)) => Some(Err(status.to_string())),
            Err(error) => Some(Err(error.to_string())),
        };
        let why = match poll(bound, "sign that it serves", look).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(ended)) => ended,
            Err(late) => late.to_string(),
        };
        Err(Failure::new(format!("{}: {why}: {}", self.name, self.last_words())))
    }

    async fn wait_end(&mut self, bound: Duration) -> Result<ExitStatus, Failure> {
        let look = || self.child.try_wait().transpose();
        let ended = poll(bound, "end", look).await;
        let ended = ended.map_err(|late| Failure::new(format!("{}: {late}", self.name)))?;
        ended.map_err(|error| Failure::new(format!("{}: {error}", self.name)))
    }

    fn last_words(&self) -> String {
        let said = std::fs::read(&self.said).unwrap_or_default();
        let from = said.len().saturating_sub(LAST_WORDS);
        String::from_utf8_lossy(&said[from..]).trim().to_owned()
    }

    fn signal(&self, which: Signal) {
        let group = i32::try_from(self.child.id()).expect("a process id fits");
        // A group that is gone is what is wanted.
        let _ = killpg(Pid::from_raw(group), which);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let begin = Instant::now();
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::SIGTERM);
            while begin.elapsed() < END && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.signal(Signal::SIGKILL);
        drop(self.child.wait());
    }
}

/// How a program ended.
pub(super) struct Ended {
    /// Whether with exit 0.
    pub(super) succeeded: bool,
    /// Its status and the last of what it said.
    pub(super) words: String,
}

/// Runs a command to its end.
///
/// # Errors
/// [`Failure`] when it cannot be executed or takes longer than `bound`.
pub(super) async fn run(command: Command, said: &Path, bound: Duration) -> Result<Ended, Failure> {
    let mut running = Running::start(command, said)?;
    let status = running.wait_end(bound).await?;
    Ok(Ended { succeeded: status.success(), words: format!("{status}: {}", running.last_words()) })
}
