//! The declared set of a release directory: each file, its mode and where its content comes from (REL-11 to
//! REL-18, REL-26), and the check that a directory holds exactly that (REL-24).
//!
//! The contract's set is extended by the workers, `coreflowctl`, the unit with its drop-ins, and the manual pages.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use crate::failure::Failure;

/// What a file of the set is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The executable that cargo built under this name.
    Executable(&'static str),
    /// The file of the tree at this path from its root.
    Tree(String),
    /// The provenance of the hub's daemon (REL-14).
    Provenance,
    /// The notices of everything that is linked, for people (REL-15).
    NoticesText,
    /// The same for programs (REL-16).
    NoticesJson,
    /// The notices of what is linked into the hub's daemon (REL-18).
    DaemonNotices,
}

/// A file of the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredFile {
    /// Its path from the release directory.
    pub path: String,
    /// Its permission bits.
    pub mode: u32,
    /// What it is made of.
    pub content: Content,
}

/// The hub's daemon, under the name that the contract gives it.
pub const DAEMON: &str = "coreflow-vpn";
/// The daemon's provenance.
pub const PROVENANCE: &str = "coreflow-vpn.tsrust-build.json";
/// The notices for people.
pub const NOTICES_TEXT: &str = "coreflow.third-party-notices.txt";
/// The notices for programs.
pub const NOTICES_JSON: &str = "coreflow.third-party-notices.json";
/// The daemon's own license and notices, which its provenance lists.
pub const DAEMON_NOTICES: [&str; 2] =
    ["notices/smartvpn/license", "notices/smartvpn/third-party-notices.txt"];

/// Executables: their name in the release and cargo's name.
const EXECUTABLES: [(&str, &str); 5] = [
    ("coreflow", "coreflow"),
    ("coreflow-pulld", "coreflow-pulld"),
    ("coreflow-relayd", "coreflow-relayd"),
    (DAEMON, "coreflow-vpnd"),
    ("coreflowctl", "coreflowctl"),
];

/// Files that are taken from the tree as they are: their name in the release and in the tree.
const TAKEN: [(&str, &str); 7] = [
    ("license", "LICENSE"),
    (DAEMON_NOTICES[0], "LICENSE"),
    ("qenv.yml", "qenv.yml"),
    ("systemd/README.md", "systemd/README.md"),
    ("systemd/coreflow.service", "systemd/coreflow.service"),
    ("systemd/debug.conf", "systemd/debug.conf"),
    ("systemd/privileged-port.conf", "systemd/privileged-port.conf"),
];

/// Folders of the tree whose files are part of the set where the tree has them: the folder's name in the release
/// and in the tree.
const FOLDERS: [(&str, &str); 1] = [("man", "docs/man")];

const EXECUTABLE_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// The set that the tree at `root` declares, in the order of the paths.
///
/// # Errors
/// A folder of the tree cannot be read.
pub fn declared(root: &Path) -> Result<Vec<DeclaredFile>, Failure> {
    let file = |path: &str, content| DeclaredFile { path: path.to_owned(), mode: FILE_MODE, content };
    let mut set = vec![
        file(PROVENANCE, Content::Provenance),
        file(NOTICES_TEXT, Content::NoticesText),
        file(NOTICES_JSON, Content::NoticesJson),
        file(DAEMON_NOTICES[1], Content::DaemonNotices),
    ];
    set.extend(EXECUTABLES.map(|(path, name)| DeclaredFile {
        path: path.to_owned(),
        mode: EXECUTABLE_MODE,
        content: Content::Executable(name),
    }));
    set.extend(TAKEN.map(|(path, from)| file(path, Content::Tree(from.to_owned()))));
    for (folder, from) in FOLDERS {
        let directory = root.join(from);
        if !directory.is_dir() {
            continue;
        }
        for name in names(&directory)? {
            set.push(file(&format!("{folder}/{name}"), Content::Tree(format!("{from}/{name}"))));
        }
    }
    set.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(set)
}

fn names(directory: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(directory).map_err(Failure::file(directory))?;
    entries
        .map(|entry| Ok(entry.map_err(Failure::file(directory))?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Refuses a directory that does not hold exactly the declared files, with their modes.
///
/// # Errors
/// [`Failure::NotDeclared`] with every difference.
pub fn demand_declared(directory: &Path, declared: &[DeclaredFile]) -> Result<(), Failure> {
    let mut found = BTreeMap::new();
    look(directory, "", &mut found)?;
    let mut differences = Vec::new();
    for file in declared {
        match found.remove(&file.path) {
            None => differences.push(format!("{} is missing", file.path)),
            Some(Found::File(mode)) if mode == file.mode => {}
            Some(Found::File(mode)) => {
                differences.push(format!("{} has mode {mode:04o} and not {:04o}", file.path, file.mode));
            }
            Some(Found::Other) => differences.push(format!("{} is no regular file", file.path)),
        }
    }
    differences.extend(found.into_keys().map(|path| format!("{path} is not declared")));
    if differences.is_empty() { Ok(()) } else { Err(Failure::NotDeclared(directory.to_owned(), differences)) }
}

/// What lies at a path.
enum Found {
    /// A regular file of one name, with these permission bits.
    File(u32),
    /// A link, a device, a second name of another file.
    Other,
}

fn look(directory: &Path, within: &str, found: &mut BTreeMap<String, Found>) -> Result<(), Failure> {
    for name in names(directory)? {
        let (path, shown) = (directory.join(&name), format!("{within}{name}"));
        let metadata = path.symlink_metadata().map_err(Failure::file(&path))?;
        if metadata.is_dir() {
            let before = found.len();
            look(&path, &format!("{shown}/"), found)?;
            if found.len() == before {
                found.insert(format!("{shown}/"), Found::Other);
            }
        } else if metadata.is_file() && metadata.nlink() == 1 {
            found.insert(shown, Found::File(metadata.permissions().mode() & 0o7777));
        } else {
            found.insert(shown, Found::Other);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// A directory with every declared file, empty.
    fn laid_out(set: &[DeclaredFile]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for file in set {
            let path = directory.path().join(&file.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).unwrap();
        }
        directory
    }

    /// REL-11, REL-12, REL-13, REL-14, REL-15, REL-16, REL-17, REL-18: every file of the contract is declared,
    /// with its mode. REL-26: and so are the workers, the operator's program and the unit, which extend the set.
    #[test]
    fn the_contracts_files_are_declared_with_their_modes() {
        let set = declared(root()).unwrap();
        let mode = |path: &str| set.iter().find(|file| file.path == path).map(|file| file.mode);
        for executable in ["coreflow", "coreflow-vpn", "coreflow-relayd", "coreflow-pulld", "coreflowctl"] {
            assert_eq!(mode(executable), Some(0o755), "{executable}");
        }
        for file in [
            "qenv.yml",
            "coreflow-vpn.tsrust-build.json",
            "coreflow.third-party-notices.txt",
            "coreflow.third-party-notices.json",
            "license",
            "notices/smartvpn/license",
            "systemd/coreflow.service",
        ] {
            assert_eq!(mode(file), Some(0o644), "{file}");
        }
        assert_eq!(mode("coreflow-vpnd"), None, "one daemon, under one name");
    }

    /// REL-24: each kind of difference is named, all of them at once.
    #[test]
    fn a_directory_that_differs_is_refused_by_each_difference() {
        let set = declared(root()).unwrap();
        let directory = laid_out(&set);
        demand_declared(directory.path(), &set).unwrap();

        let at = |path: &str| directory.path().join(path);
        fs::remove_file(at("license")).unwrap();
        fs::set_permissions(at("qenv.yml"), fs::Permissions::from_mode(0o664)).unwrap();
        fs::write(at("notes"), "").unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::remove_file(at("coreflowctl")).unwrap();
        std::os::unix::fs::symlink("coreflow", at("coreflowctl")).unwrap();
        let Failure::NotDeclared(_, differences) = demand_declared(directory.path(), &set).unwrap_err()
        else {
            panic!("refused for the difference");
        };
        assert_eq!(
            differences,
            [
                "coreflowctl is no regular file",
                "license is missing",
                "qenv.yml has mode 0664 and not 0644",
                "empty/ is not declared",
                "notes is not declared",
            ]
        );
    }
}
