//! Why a release is not made. Each failure names what is at fault, so that the last line of a build says what to do.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why a release is not made.
#[derive(Debug)]
pub enum Failure {
    /// A program that the release is made with cannot be run or failed: its command line, and what it said last.
    Program(String, String),
    /// A file cannot be read or written.
    File(PathBuf, io::ErrorKind),
    /// The target's standard library is not installed; its name and triple.
    TargetNotInstalled(&'static str, &'static str),
    /// There is no target of this name.
    TargetUnknown(String),
    /// A staged directory is not the declared set: the directory, and each difference.
    NotDeclared(PathBuf, Vec<String>),
    /// Linked crates without a license text.
    LicenseTextMissing(Vec<String>),
    /// The smoke check saw something else than a start that refuses for the missing launch facts.
    Smoke(String),
    /// Files that differ between two builds of the same source.
    NotReproducible(Vec<String>),
    /// What keeps this tree from being sealed for publication.
    NotPublishable(Vec<String>),
    /// What a program of the build answered cannot be understood.
    Answer(&'static str, String),
    /// A sealed set is not what its consumer pinned, or an archive not what the manifest says.
    NotAsPinned(String),
}

impl Failure {
    /// The failure of an operation on the file at `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| Self::File(path, error.kind())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(command, said) => write!(f, "program-failed: {command}: {said}"),
            Self::File(path, kind) => write!(f, "file-failed: {}: {kind}", path.display()),
            Self::TargetNotInstalled(name, triple) => {
                write!(f, "target-not-installed: {name}: rustc has no standard library for {triple}")
            }
            Self::TargetUnknown(name) => write!(f, "target-unknown: {name}"),
            Self::NotDeclared(directory, differences) => {
                write!(f, "not-the-declared-set: {}: {}", directory.display(), differences.join("; "))
            }
            Self::LicenseTextMissing(crates) => {
                write!(f, "license-text-missing: {}", crates.join(", "))?;
                f.write_str("; a reviewed text goes into CLARIFIED of release/src/licenses.rs")
            }
            Self::Smoke(saw) => write!(f, "smoke-check-failed: {saw}"),
            Self::NotReproducible(files) => write!(f, "not-reproducible: {}", files.join(", ")),
            Self::NotPublishable(reasons) => write!(f, "not-publishable: {}", reasons.join("; ")),
            Self::Answer(program, why) => write!(f, "answer-not-understood: {program}: {why}"),
            Self::NotAsPinned(why) => write!(f, "not-as-pinned: {why}"),
        }
    }
}

impl std::error::Error for Failure {}
