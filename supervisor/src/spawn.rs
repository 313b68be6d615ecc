//! Starts a worker process: an empty environment, its link as standard input, a pipe for last words,
//! and nothing else (ARC-03 – ARC-05). The one file that makes processes.

use std::{
    ffi::CString,
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStringExt, net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
};

use coreflow_ipc::{
    hello::Role,
    sys,
    worker::{IGNORED_SIGNALS, Launch},
};
use nix::{
    sys::wait::{Id, WaitPidFlag, WaitStatus, waitid},
    unistd::geteuid,
};

use crate::programs::Program;

/// The users, and groups of the same numbers, of the workers when the supervisor was started as root: numbers without a
/// name, of a range that neither distributions nor service managers hand out (decision "Separate users").
pub const WORKER_USERS: [(Role, u32); 3] =
    [(Role::Relayd, 60_801), (Role::Pulld, 60_802), (Role::Vpnd, 60_803)];

/// Each worker's own user, where the supervisor was started as root and gives them some; for the log.
pub fn separate_users() -> Option<String> {
    let users = WORKER_USERS.map(|(worker, user)| format!("{} as {user}", worker.name()));
    geteuid().is_root().then(|| users.join(", "))
}

/// A process that was started, before anything is known of it.
pub struct Spawned {
    /// Its process id.
    pub pid: u32,
    /// Names this very process, also after the number was given to another one.
    pub pidfd: OwnedFd,
    /// The supervisor's end of its link.
    pub link: OwnedFd,
    /// What it writes to its standard output and error.
    pub last_words: OwnedFd,
}

/// Starts `role`. Must be called on a thread that lives as long as the process: the parent-death
/// signal of the worker follows the thread.
pub fn spawn(role: Role, program: &Program, connect_port: Option<u16>) -> io::Result<Spawned> {
    let (ours, theirs) = UnixStream::pair()?;
    let (words, write_words) = io::pipe()?;
    let mut command = Command::new(program.path());
    command
        .env_clear()
        .current_dir("/")
        // The socket pair's other end and the pipe are copied to 0, 1 and 2; all else is close-on-exec,
        // and the worker closes what is left before it does anything.
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(write_words.try_clone()?)
        .stderr(write_words);
    if geteuid().is_root() {
        let user = WORKER_USERS.iter().find(|(worker, _)| *worker == role).map(|(_, user)| *user);
        let user = user.expect("each worker has a user");
        // Without supplementary groups: the standard library drops them with the user.
        command.uid(user).gid(user);
    }
    let mut arguments = vec![role.program().to_owned()];
    arguments.extend(Launch { supervisor: std::process::id(), connect_port }.arguments());
    let arguments: Result<_, _> = arguments.into_iter().map(CString::new).collect();
    // A terminal's ^C is for the supervisor, which ends its workers in order, also those that only begin (START-10).
    sys::begin_apart(&mut command, IGNORED_SIGNALS);
    // No shell reads a file that is no executable: it is refused by name.
    sys::execute_exactly(&mut command, CString::new(program.path().into_os_string().into_vec())?, arguments?);
    let child = command.spawn()?;
    // The child is not reaped before its descriptor is open, so the number is still its own.
    let pidfd = sys::pidfd_open(child.id())?;
    Ok(Spawned { pid: child.id(), pidfd, link: ours.into(), last_words: words.into() })
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// It ended with this exit status.
    Exited(i32),
    /// It was ended by a signal.
    Killed(nix::sys::signal::Signal),
    /// It ended, and a debugger that traces it has not let it go: how it ended is that one's to see.
    Traced,
    /// The kernel did not say.
    Unknown,
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with {status}"),
            Self::Killed(signal) => write!(f, "killed by {signal}"),
            Self::Traced => f.write_str("ended under a debugger, which holds it"),
            Self::Unknown => f.write_str("ended in an unknown way"),
        }
    }
}

/// Reaps a process that has ended; `None` while a debugger has not seen its end, before whom nobody is told.
pub fn reap(pidfd: &OwnedFd) -> Option<Death> {
    use std::os::fd::AsFd;
    match waitid(Id::PIDFd(pidfd.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Exited(_, status)) => Some(Death::Exited(status)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(Death::Killed(signal)),
        Ok(WaitStatus::StillAlive) => None,
        Ok(_) | Err(_) => Some(Death::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;

    /// START-10, START-23: before a worker's own program has done anything it is the leader of a session, which no
    /// terminal and no signal to the supervisor's group reach, and ignores the signals of a stop.
    #[test]
    fn a_worker_begins_apart_from_the_terminal_of_its_supervisor() {
        // A program that does nothing of its own, and stays to be looked at until it is reaped.
        let program = Program::open(Path::new("/bin/true")).unwrap();
        let spawned = spawn(Role::Pulld, &program, None).unwrap();
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::PIDFd(spawned.pidfd.as_fd()), ended).unwrap();
        let stat = read_to_string(format!("/proc/{}/stat", spawned.pid)).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let numbers: Vec<&str> = fields.split_whitespace().collect();
        let (group, session, own) = (numbers[2], numbers[3], spawned.pid.to_string());
        assert_eq!((group, session), (own.as_str(), own.as_str()));
        let status = read_to_string(format!("/proc/{}/status", spawned.pid)).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        for signal in IGNORED_SIGNALS {
            assert_ne!(ignored & (1 << (*signal as u32 - 1)), 0, "{signal} in {ignored:x}");
        }
        assert_eq!(reap(&spawned.pidfd), Some(Death::Exited(0)));
    }
}
