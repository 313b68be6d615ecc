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

/// Why a worker cannot be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramError {
    /// Where the executable should be.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for ProgramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for ProgramError {}

/// An executable, held open.
#[derive(Debug)]
pub struct Program(File);

impl Program {
    /// Opens `path`, which must be a regular file with an execute permission.
    pub fn open(path: &Path) -> Result<Self, ProgramError> {
        let refuse = |reason: String| ProgramError { path: path.to_owned(), reason };
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refuse("the executable is missing".to_owned()),
            kind => refuse(kind.to_string()),
        })?;
        let metadata = file.metadata().map_err(|error| refuse(error.kind().to_string()))?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(refuse("not an executable file".to_owned()));
        }
        Ok(Self(file))
    }

    /// The path that executes the very file that was opened, whatever its name leads to by then.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
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
    /// (CFG-40, CFG-49).
    pub fn open(directory: &Path, vpn_daemon: Option<&Path>) -> Result<Self, ProgramError> {
        let beside = |role: Role| directory.join(role.program());
        Ok(Self {
            relayd: Program::open(&beside(Role::Relayd))?,
            pulld: Program::open(&beside(Role::Pulld))?,
            vpnd: Program::open(&vpn_daemon.map_or_else(|| beside(Role::Vpnd), Path::to_owned)),
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

    /// CFG-41, CFG-42: an absent hub, or one without the execute permission, fails by name, opens the
    /// rest, and no other takes its place.
    #[test]
    fn an_unusable_hub_is_named_and_not_replaced() {
        let directory = release(&ALL);
        let absent = directory.path().join("absent");
        let programs = Programs::open(directory.path(), Some(&absent)).unwrap();
        assert!(programs.vpnd.unwrap_err().to_string().ends_with("absent: the executable is missing"));
        let plain = directory.path().join("plain");
        fs::write(&plain, "no execute permission").unwrap();
        let programs = Programs::open(directory.path(), Some(&plain)).unwrap();
        assert!(programs.vpnd.unwrap_err().to_string().ends_with("plain: not an executable file"));
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
