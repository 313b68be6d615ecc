//! The snapshot of the process environment that the reader works on: the only place that reads the
//! environment (CFG-02), and it asks for no name beyond its list (CFG-30..CFG-34).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use coreflow_ipc::sys::{EnvironmentError, take_environment_variable};
use zeroize::Zeroizing;

use super::variable::Variable;

/// Where systemd mounts the unit's credentials.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
/// A PEM bundle that replaces the system's trust store.
const CERTIFICATE_FILE: &str = "SSL_CERT_FILE";
/// A directory of PEM files that replaces the system's trust store.
const CERTIFICATE_DIRECTORY: &str = "SSL_CERT_DIR";
/// Device and inode of the stream that systemd connected to the journal.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// The directories that systemd made for the unit below `/run`, separated by colons.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";
/// Where the service manager takes notifications.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Facts of the host that are asked for beside the seven variables.
const HOST_FACTS: [&str; 6] = [
    CREDENTIALS_DIRECTORY,
    CERTIFICATE_FILE,
    CERTIFICATE_DIRECTORY,
    JOURNAL_STREAM,
    RUNTIME_DIRECTORY,
    NOTIFY_SOCKET,
];

/// The first of the unit's runtime directories in this process's environment, for a program that asks for
/// nothing else.
#[must_use]
pub fn runtime_directory_of_process() -> Option<PathBuf> {
    first_directory(std::env::var_os(RUNTIME_DIRECTORY)?.as_bytes())
}

/// The first of several directories, if it is an absolute one.
fn first_directory(directories: &[u8]) -> Option<PathBuf> {
    let first = directories.split(|byte| *byte == b':').next()?;
    Some(PathBuf::from(OsStr::from_bytes(first))).filter(|directory| directory.is_absolute())
}

/// The values of the names that the reader knows; an empty value counts as missing. Copies are wiped on drop.
#[derive(Default)]
pub struct Environment {
    values: BTreeMap<&'static str, Zeroizing<Vec<u8>>>,
}

impl Environment {
    /// Takes the snapshot of this process and wipes the bearer's value in the process's own environment
    /// block, whichever source will win (CFG-13).
    ///
    /// # Errors
    /// The block could not be wiped, because the process has more than one thread or its threads cannot be
    /// counted.
    pub fn of_process() -> Result<Self, EnvironmentError> {
        let authorization = Variable::Authorization.name();
        let mut taken = take_environment_variable(authorization, |value| OsString::from_vec(value.to_vec()))?;
        Ok(Self::snapshot(|name| if name == authorization { taken.take() } else { std::env::var_os(name) }))
    }

    /// Takes the snapshot through `lookup`, which is asked once for every name of the list and for no other.
    pub fn snapshot(mut lookup: impl FnMut(&str) -> Option<OsString>) -> Self {
        let names = Variable::ALL.into_iter().map(Variable::name).chain(HOST_FACTS);
        let values = names
            .filter_map(|name| Some((name, Zeroizing::new(lookup(name)?.into_vec()))))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        Self { values }
    }

    /// Moves a variable's value out of the snapshot.
    pub(super) fn take(&mut self, variable: Variable) -> Option<Zeroizing<Vec<u8>>> {
        self.values.remove(variable.name())
    }

    /// A copy of a variable's value.
    pub(super) fn value(&self, variable: Variable) -> Option<Zeroizing<Vec<u8>>> {
        self.values.get(variable.name()).cloned()
    }

    /// `$CREDENTIALS_DIRECTORY`, as given.
    #[must_use]
    pub fn credentials_directory(&self) -> Option<PathBuf> {
        self.path(CREDENTIALS_DIRECTORY)
    }

    /// `SSL_CERT_FILE`, as given.
    #[must_use]
    pub fn certificate_file(&self) -> Option<PathBuf> {
        self.path(CERTIFICATE_FILE)
    }

    /// `SSL_CERT_DIR`, as given.
    #[must_use]
    pub fn certificate_directory(&self) -> Option<PathBuf> {
        self.path(CERTIFICATE_DIRECTORY)
    }

    /// `JOURNAL_STREAM`, as given.
    #[must_use]
    pub fn journal_stream(&self) -> Option<String> {
        self.values.get(JOURNAL_STREAM).and_then(|value| String::from_utf8(value.to_vec()).ok())
    }

    /// Where the service manager takes notifications, as given.
    #[must_use]
    pub fn notify_socket(&self) -> Option<&OsStr> {
        self.values.get(NOTIFY_SOCKET).map(|value| OsStr::from_bytes(value))
    }

    /// The first of the unit's runtime directories.
    #[must_use]
    pub fn runtime_directory(&self) -> Option<PathBuf> {
        self.values.get(RUNTIME_DIRECTORY).and_then(|value| first_directory(value))
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.values.get(name).map(|value| PathBuf::from(OsStr::from_bytes(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CFG-34, CFG-30, CFG-31, CFG-32, CFG-33: the seven variables and five facts of the host, nothing else;
    /// the removed names are not asked for, so a boot with them set is the boot without them.
    #[test]
    fn asks_for_the_listed_names_only() {
        let mut asked = Vec::new();
        let environment = Environment::snapshot(|name| {
            asked.push(name.to_owned());
            Some("x".into())
        });
        asked.sort();
        assert_eq!(
            asked,
            [
                "CLOUDLY_URL",
                "COREFLOW_NODE_ID",
                "COREFLOW_RELAY_BIND_HOSTNAME",
                "COREFLOW_RELAY_BIND_PORT",
                "COREFLOW_VPN_BIND_HOSTNAME",
                "COREFLOW_VPN_QUIC_PORT",
                "CREDENTIALS_DIRECTORY",
                "JOURNAL_STREAM",
                "NOTIFY_SOCKET",
                "RUNTIME_DIRECTORY",
                "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION",
                "SSL_CERT_DIR",
                "SSL_CERT_FILE",
            ]
        );
        for removed in [
            "COREFLOW_INTERNAL_HOSTNAME",
            "COREFLOW_INTERNAL_PORT",
            "CORESTORE_CONTROL_URL",
            "CORESTORE_API_TOKEN",
            "JUMPCODE",
        ] {
            assert!(!asked.contains(&removed.to_owned()), "{removed}");
            assert_eq!(Variable::of_name(removed), None);
        }
        assert_eq!(environment.values.len(), 13);
    }

    /// An empty value counts as missing, also for the facts of the host.
    #[test]
    fn an_empty_value_is_no_value() {
        let environment = Environment::snapshot(|_| Some(OsString::new()));
        assert!(environment.values.is_empty());
        assert_eq!(environment.credentials_directory(), None);
        assert_eq!(environment.runtime_directory(), None);
    }

    /// systemd separates several runtime directories by colons, and all of them are absolute.
    #[test]
    fn the_first_runtime_directory_counts() {
        for (stated, first) in [
            ("/run/coreflow", Some("/run/coreflow")),
            ("/run/coreflow:/run/other", Some("/run/coreflow")),
            ("coreflow", None),
            (":/run/other", None),
        ] {
            let environment =
                Environment::snapshot(|name| (name == RUNTIME_DIRECTORY).then(|| stated.into()));
            assert_eq!(environment.runtime_directory(), first.map(PathBuf::from), "{stated}");
        }
    }

    /// CFG-02: outside this file no source of the product's processes reads the process environment.
    #[test]
    fn nothing_else_reads_the_environment() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let here = root.join("supervisor/src/configuration/environment.rs");
        let mut directories: Vec<PathBuf> =
            ["supervisor", "ipc", "relayd", "pulld", "vpnd"].map(|name| root.join(name).join("src")).into();
        let (mut seen, mut offenders) = (0, Vec::new());
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && path != here
                    && !path.ends_with("tests.rs")
                {
                    seen += 1;
                    let text = std::fs::read_to_string(&path).unwrap();
                    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                    if ["env::var", "env::vars", "getenv("].iter().any(|call| code.contains(call)) {
                        offenders.push(path);
                    }
                }
            }
        }
        assert!(seen >= 9, "the walk found only {seen} files");
        assert_eq!(offenders, Vec::<PathBuf>::new());
    }
}
