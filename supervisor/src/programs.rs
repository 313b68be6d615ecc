//! The workers' executables: each is opened once, at the supervisor's start, and always that
//! descriptor is executed, so that a release which is swapped on disk never mixes versions.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use coreflow_ipc::hello::Role;
use nix::errno::Errno;

use crate::configuration::is_host_release;

/// The hub's executable in a host release, whose files have the names of the release contract (REL-13).
const HOST_RELEASE_HUB: &str = "coreflow-vpn";

/// Why a worker cannot be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramError {
    /// Where the executable should be.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: ProgramFault,
}

/// What is wrong with an executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramFault {
    /// There is none.
    Missing,
    /// What is there is no regular file with an execute permission, or none that this host executes.
    NotExecutable,
    /// It cannot be opened; the failure's class.
    Unreadable(io::ErrorKind),
}

impl ProgramError {
    /// The name under which a bind of the hub fails, and the reason (VPN-36).
    pub fn of_hub(&self) -> String {
        match self.fault {
            ProgramFault::Missing => format!("vpn-hub-executable-missing: {}", self.path.display()),
            ProgramFault::NotExecutable | ProgramFault::Unreadable(_) => {
                format!("vpn-hub-executable-refused: {self}")
            }
        }
    }
}

impl std::fmt::Display for ProgramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match self.fault {
            ProgramFault::Missing => f.write_str("the executable is missing"),
            ProgramFault::NotExecutable => f.write_str("not an executable file"),
            ProgramFault::Unreadable(kind) => f.write_str(&kind.to_string()),
        }
    }
}

impl std::error::Error for ProgramError {}

/// An executable, held open.
#[derive(Debug)]
pub struct Program {
    file: File,
    opened_at: PathBuf,
}

impl Program {
    /// Opens `path`, which must be a regular file with an execute permission.
    pub fn open(path: &Path) -> Result<Self, ProgramError> {
        let refuse = |fault| ProgramError { path: path.to_owned(), fault };
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refuse(ProgramFault::Missing),
            kind => refuse(ProgramFault::Unreadable(kind)),
        })?;
        let metadata = file.metadata().map_err(|error| refuse(ProgramFault::Unreadable(error.kind())))?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(refuse(ProgramFault::NotExecutable));
        }
        Ok(Self { file, opened_at: path.to_owned() })
    }

    /// What a failed execution says of the file, where it says that it is no executable for this host or for the
    /// worker's user, and not that the system lacks something.
    pub fn refused(&self, failure: &io::Error) -> Option<ProgramError> {
        let errno = Errno::from_raw(failure.raw_os_error()?);
        let of_the_file = matches!(errno, Errno::ENOEXEC | Errno::EACCES | Errno::ENOENT | Errno::ELIBBAD);
        of_the_file.then(|| ProgramError { path: self.opened_at.clone(), fault: ProgramFault::NotExecutable })
    }

    /// The path that executes the very file that was opened, whatever its name leads to by then.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// The three workers' executables.
#[derive(Debug)]
pub struct Programs {
    /// `coreflow-relayd`; without it nothing starts.
    pub relayd: Program,
    /// `coreflow-pulld`.
    pub pulld: Program,
    /// `coreflow-vpnd`, or why the hub cannot be bound (CFG-41); no other takes its place (CFG-42).
    pub vpnd: Result<Program, ProgramError>,
}

impl Programs {
    /// Opens the workers beside the supervisor, and the hub at `vpn_daemon` where that is given
    /// (CFG-40, CFG-49). Beside the supervisor of a host release the hub is `coreflow-vpn` (REL-19), and beside
    /// that of a checkout what cargo builds.
    pub fn open(directory: &Path, vpn_daemon: Option<&Path>) -> Result<Self, ProgramError> {
        let beside = |role: Role| directory.join(role.program());
        let hub_beside =
            || if is_host_release(directory) { directory.join(HOST_RELEASE_HUB) } else { beside(Role::Vpnd) };
        Ok(Self {
            relayd: Program::open(&beside(Role::Relayd))?,
            pulld: Program::open(&beside(Role::Pulld))?,
            vpnd: Program::open(&vpn_daemon.map_or_else(hub_beside, Path::to_owned)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn executable(path: &Path, content: &str) {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn release(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            executable(&directory.path().join(name), name);
        }
        directory
    }

    const ALL: [&str; 3] = ["coreflow-relayd", "coreflow-pulld", "coreflow-vpnd"];

    /// A release that is swapped under a running supervisor does not mix versions.
    #[test]
    fn the_file_that_was_opened_is_the_one_that_is_executed() {
        let release = release(&ALL);
        let programs = Programs::open(release.path(), None).unwrap();
        let path = release.path().join("coreflow-relayd");
        fs::remove_file(&path).unwrap();
        executable(&path, "another version");
        assert_eq!(fs::read_to_string(programs.relayd.path()).unwrap(), "coreflow-relayd");
    }

    /// CFG-40, CFG-49: the hub is the one that was built with the supervisor, or exactly the given one.
    #[test]
    fn the_hub_is_the_given_one_or_the_one_beside() {
        let directory = release(&ALL);
        let other = release(&["other-vpn"]);
        let beside = Programs::open(directory.path(), None).unwrap();
        assert_eq!(fs::read_to_string(beside.vpnd.unwrap().path()).unwrap(), "coreflow-vpnd");
        let given = Programs::open(directory.path(), Some(&other.path().join("other-vpn"))).unwrap();
        assert_eq!(fs::read_to_string(given.vpnd.unwrap().path()).unwrap(), "other-vpn");
    }

    /// REL-13, REL-19: beside the supervisor of a host release, which a `qenv.yml` there makes it, the hub is
    /// `coreflow-vpn`, and a hub of a checkout's name does not take its place (CFG-42).
    #[test]
    fn the_hub_of_a_host_release_has_the_name_of_the_contract() {
        let directory = release(&ALL);
        fs::write(directory.path().join("qenv.yml"), "required: []\n").unwrap();
        let error = Programs::open(directory.path(), None).unwrap().vpnd.unwrap_err();
        let staged = directory.path().join("coreflow-vpn");
        assert_eq!(error.of_hub(), format!("vpn-hub-executable-missing: {}", staged.display()));
        executable(&staged, "the staged hub");
        let programs = Programs::open(directory.path(), None).unwrap();
        assert_eq!(fs::read_to_string(programs.vpnd.unwrap().path()).unwrap(), "the staged hub");
    }

    /// CFG-41, CFG-42, VPN-36: an absent hub, or one without the execute permission, fails by name, opens the
    /// rest, and no other takes its place.
    #[test]
    fn an_unusable_hub_is_named_and_not_replaced() {
        let directory = release(&ALL);
        let absent = directory.path().join("absent");
        let programs = Programs::open(directory.path(), Some(&absent)).unwrap();
        let error = programs.vpnd.unwrap_err();
        assert!(error.to_string().ends_with("absent: the executable is missing"));
        assert_eq!(error.of_hub(), format!("vpn-hub-executable-missing: {}", absent.display()));
        let plain = directory.path().join("plain");
        fs::write(&plain, "no execute permission").unwrap();
        let programs = Programs::open(directory.path(), Some(&plain)).unwrap();
        let error = programs.vpnd.unwrap_err();
        assert_eq!(
            error.of_hub(),
            format!("vpn-hub-executable-refused: {}: not an executable file", plain.display())
        );
    }

    /// VPN-36: an execution that failed by the file is the file's fault; one that failed for want of memory or
    /// processes is tried again.
    #[test]
    fn what_cannot_be_executed_is_told_from_what_cannot_be_now() {
        let directory = release(&ALL);
        let vpnd = Programs::open(directory.path(), None).unwrap().vpnd.unwrap();
        let failure = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        for errno in [Errno::ENOEXEC, Errno::EACCES, Errno::ENOENT] {
            let error = vpnd.refused(&failure(errno)).unwrap();
            let path = directory.path().join("coreflow-vpnd");
            assert_eq!(
                error.of_hub(),
                format!("vpn-hub-executable-refused: {}: not an executable file", path.display())
            );
        }
        for errno in [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE] {
            assert_eq!(vpnd.refused(&failure(errno)), None);
        }
    }

    #[test]
    fn a_missing_relayd_or_pulld_is_named() {
        for missing in ["coreflow-relayd", "coreflow-pulld"] {
            let names: Vec<&str> = ALL.into_iter().filter(|name| *name != missing).collect();
            let error = Programs::open(release(&names).path(), None).unwrap_err();
            assert!(error.to_string().contains(missing), "{error}");
        }
    }
}
