//! Stages a release directory out of built executables and the tree, under `dist_relay/<target>` (REL-23), and
//! refuses one that is not the declared set (REL-24).

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    declared::{Content, DAEMON, declared, demand_declared},
    digest::sha256_of_file,
    failure::Failure,
    linked::LinkedCrate,
    notices::{Notices, notices},
    provenance::Provenance,
    runtime::Linkage,
    source::Source,
    target::Target,
};

/// The folder of the tree that everything is staged in; git does not look at it.
pub const STAGED: &str = "dist_relay";
/// The package that the hub's daemon is built from.
const DAEMON_PACKAGE: &str = "coreflow-vpnd";
const DIRECTORY_MODE: u32 = 0o755;

/// Where the release directory for `target` is staged.
#[must_use]
pub fn staged_directory(source: &Source, target: Target) -> PathBuf {
    source.root.join(STAGED).join(target.name())
}

/// Makes the release directory `directory` anew, with the executables out of `binaries`, and checks it.
///
/// # Errors
/// Anything that the set needs is missing, or the directory is not the declared set.
pub fn assemble(
    source: &Source,
    target: Target,
    linkage: &Linkage,
    binaries: &Path,
    directory: &Path,
) -> Result<(), Failure> {
    let declared = declared(&source.root)?;
    let executables: Vec<&str> = declared
        .iter()
        .filter(|file| matches!(file.content, Content::Executable(_)))
        .map(|file| file.path.as_str())
        .collect();
    let Linkage { crates, runtime } = linkage;
    let of_all: Notices = notices(source, target, "coreflow", &executables, runtime, crates)?;
    let daemons: Vec<LinkedCrate> =
        crates.iter().filter(|linked| linked.linked_into.contains(DAEMON_PACKAGE)).cloned().collect();
    let of_daemon = notices(source, target, DAEMON, &[DAEMON], runtime, &daemons)?;

    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::file(directory)(error));
        }
        Ok(()) | Err(_) => {}
    }
    make_directory(directory)?;
    for file in &declared {
        let path = directory.join(&file.path);
        let folder = path.parent().expect("a file of the set lies in its directory");
        if folder != directory {
            make_directory(folder)?;
        }
        let copy = |from: &Path| fs::copy(from, &path).map(drop).map_err(Failure::file(from));
        let write = |text: &str| fs::write(&path, text).map_err(Failure::file(&path));
        match &file.content {
            Content::Executable(name) => copy(&binaries.join(name))?,
            Content::Tree(from) => copy(&source.root.join(from))?,
            Content::Provenance => {
                let digest = sha256_of_file(&binaries.join(DAEMON_PACKAGE))?;
                write(&Provenance::of(source, target, digest).json())?;
            }
            Content::NoticesText => write(&of_all.text())?,
            Content::NoticesJson => write(&of_all.json())?,
            Content::DaemonNotices => write(&of_daemon.text())?,
        }
        set_mode(&path, file.mode)?;
    }
    demand_declared(directory, &declared)
}

/// Assembles the release directory for `target` in `dist_relay`.
///
/// # Errors
/// As [`assemble`].
pub fn stage(source: &Source, target: Target, binaries: &Path) -> Result<PathBuf, Failure> {
    let directory = staged_directory(source, target);
    assemble(source, target, &Linkage::of(source, target)?, binaries, &directory)?;
    Ok(directory)
}

/// Makes a directory and what it lies in, with the mode of a release whatever the umask is.
fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(Failure::file(path))?;
    set_mode(path, DIRECTORY_MODE)
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Failure::file(path))
}
