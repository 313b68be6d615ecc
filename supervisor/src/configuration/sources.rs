//! Where the configuration comes from: the modes a relay is started in and the places each of them names
//! (CFG-37..CFG-39, START-31, REL-19, REL-20).

use std::path::{Path, PathBuf};

use coreflow_ipc::sys::EnvironmentError;

use super::environment::Environment;
use crate::options::Options;

/// The list of launch facts, and the mark of a host release where it lies beside the executable.
pub(super) const LAUNCH_LIST: &str = "qenv.yml";
/// The overlay's directory, beside `qenv.yml`.
const OVERLAY: &str = ".nogit";
/// Where Docker mounts a service's secrets.
const SECRETS_DIRECTORY: &str = "/run/secrets";

/// The places the reader looks in, as one value.
pub struct Sources {
    /// The snapshot of the environment.
    pub environment: Environment,
    /// The directory that may hold `qenv.yml`.
    pub qenv_directory: PathBuf,
    /// The overlay's directory, where the mode has one.
    pub overlay: Option<PathBuf>,
    /// Where the unit's systemd credentials are.
    pub credentials_directory: Option<PathBuf>,
    /// Where the service's Docker secrets are.
    pub secrets_directory: PathBuf,
}

impl Sources {
    /// The sources of this process. Called once at start, while the process has one thread.
    ///
    /// # Errors
    /// The bearer could not be wiped from the environment block.
    pub fn from_process(
        options: &Options,
        executable_directory: &Path,
        working_directory: &Path,
    ) -> Result<Self, EnvironmentError> {
        Ok(Self::of(options, executable_directory, working_directory, Environment::of_process()?))
    }

    /// The sources for this environment:
    ///
    /// - with `--qenv-directory`: that directory and no overlay (CFG-38, CFG-39);
    /// - with a `qenv.yml` beside the executable, a host release: that directory, no overlay, nothing of the
    ///   working directory (START-31, REL-20);
    /// - otherwise, a checkout or an image: the working directory and its `.nogit` (CFG-37).
    #[must_use]
    pub fn of(
        options: &Options,
        executable_directory: &Path,
        working_directory: &Path,
        environment: Environment,
    ) -> Self {
        let (qenv_directory, overlay) = if let Some(directory) = options.qenv_directory() {
            (directory.to_owned(), None)
        } else if is_host_release(executable_directory) {
            (executable_directory.to_owned(), None)
        } else {
            (working_directory.to_owned(), Some(working_directory.join(OVERLAY)))
        };
        Self {
            credentials_directory: environment.credentials_directory(),
            environment,
            qenv_directory,
            overlay,
            secrets_directory: SECRETS_DIRECTORY.into(),
        }
    }
}

/// Whether the executables in `directory` are a host release: its launch list lies beside them.
#[must_use]
pub fn is_host_release(directory: &Path) -> bool {
    directory.join(LAUNCH_LIST).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(options: &Options, executable: &Path, working: &Path) -> (PathBuf, Option<PathBuf>) {
        let sources = Sources::of(options, executable, working, Environment::default());
        assert_eq!(sources.secrets_directory, Path::new("/run/secrets"));
        assert_eq!(sources.credentials_directory, None);
        (sources.qenv_directory, sources.overlay)
    }

    /// CFG-37, CFG-38, CFG-39, START-31, REL-19, REL-20.
    #[test]
    fn the_mode_decides_where_the_launch_facts_are() {
        let root = tempfile::tempdir().unwrap();
        let [executable, working, named] = ["bin", "work", "named"].map(|name| root.path().join(name));
        for directory in [&executable, &working, &named] {
            std::fs::create_dir(directory).unwrap();
        }
        let plain = Options::default();
        assert_eq!(modes(&plain, &executable, &working), (working.clone(), Some(working.join(".nogit"))));

        std::fs::write(executable.join("qenv.yml"), "required: []\n").unwrap();
        std::fs::write(working.join("qenv.yml"), "required: []\n").unwrap();
        assert_eq!(modes(&plain, &executable, &working), (executable.clone(), None));

        let options = Options::new(Some(named.clone()), None, None).unwrap();
        assert_eq!(modes(&options, &executable, &working), (named, None));
    }
}
