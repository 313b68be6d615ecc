//! The crates that are linked into each executable of a release: its normal dependencies on that target, with the
//! features that are used. What only builds or tests it is not in it, nor is a procedural macro.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::Deserialize;

use crate::{
    compile::PACKAGES,
    failure::Failure,
    program::{answer, cargo},
    source::Source,
    target::Target,
};

/// A linked crate that is not this project's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedCrate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its license, as an SPDX expression.
    pub license: String,
    /// Where its source is kept, as it says itself.
    pub repository: Option<String>,
    /// The SHA-256 of its package in the registry, as the lockfile pins it.
    pub checksum: Option<String>,
    /// The folder of its source.
    pub folder: PathBuf,
    /// The file that holds its license where it names one, from that folder.
    pub license_file: Option<PathBuf>,
    /// The packages of the workspace whose executables it is linked into.
    pub linked_into: BTreeSet<&'static str>,
    /// The linked crates that it uses, as name and version.
    pub uses: BTreeSet<(String, String)>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<PathBuf>,
    repository: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// The crates linked into the released executables for `target`, by name and version.
///
/// # Errors
/// cargo failed, or knows a crate in one answer and not in the other.
pub fn linked_crates(source: &Source, target: Target) -> Result<Vec<LinkedCrate>, Failure> {
    let mut linked_into: BTreeMap<(String, String), BTreeSet<&'static str>> = BTreeMap::new();
    for package in PACKAGES {
        let tree = answer(cargo().current_dir(&source.root).args([
            "tree",
            "--locked",
            "--edges=normal,no-proc-macro",
            "--prefix=none",
            "--format={p}",
            "--target",
            target.triple(),
            "--package",
            package,
        ]))?;
        for crate_of in named(&tree) {
            linked_into.entry(crate_of).or_default().insert(package);
        }
    }
    let metadata = answer(cargo().current_dir(&source.root).args([
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        target.triple(),
    ]))?;
    let metadata: Metadata = serde_json::from_str(&metadata)
        .map_err(|error| Failure::Answer("cargo metadata", error.to_string()))?;
    let lockfile = source.root.join("Cargo.lock");
    let lockfile = std::fs::read_to_string(&lockfile).map_err(Failure::file(&lockfile))?;
    described(&metadata, &checksums(&lockfile), linked_into)
}

/// The crates of cargo's tree, one a line: `name v1.2.3`, then a folder, or `(*)` where it was listed before.
fn named(tree: &str) -> impl Iterator<Item = (String, String)> {
    tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    })
}

fn described(
    metadata: &Metadata,
    checksums: &BTreeMap<(String, String), String>,
    mut linked_into: BTreeMap<(String, String), BTreeSet<&'static str>>,
) -> Result<Vec<LinkedCrate>, Failure> {
    let key = |package: &Package| (package.name.clone(), package.version.clone());
    let by_id: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let all: BTreeSet<(String, String)> = linked_into.keys().cloned().collect();
    let mut crates = Vec::new();
    for node in &metadata.resolve.nodes {
        let Some(package) = by_id.get(node.id.as_str()) else { continue };
        let Some(into) = linked_into.remove(&key(package)) else { continue };
        if package.source.is_none() {
            continue; // This project's own.
        }
        let normal = node.deps.iter().filter(|uses| uses.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        let uses = normal.filter_map(|uses| by_id.get(uses.pkg.as_str())).map(|package| key(package));
        crates.push(LinkedCrate {
            name: package.name.clone(),
            version: package.version.clone(),
            license: package.license.clone().unwrap_or_default(),
            repository: package.repository.clone(),
            checksum: checksums.get(&key(package)).cloned(),
            folder: package.manifest_path.parent().map(PathBuf::from).unwrap_or_default(),
            license_file: package.license_file.clone(),
            linked_into: into,
            uses: uses.filter(|used| all.contains(used)).collect(),
        });
    }
    if let Some((name, version)) = linked_into.into_keys().next() {
        return Err(Failure::Answer(
            "cargo metadata",
            format!("{name} {version} is linked and not described"),
        ));
    }
    crates.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(crates)
}

/// The pinned digest of each package of a lockfile.
fn checksums(lockfile: &str) -> BTreeMap<(String, String), String> {
    let value = |package: &str, key: &str| {
        let lead = format!("{key} = \"");
        package.lines().find_map(|line| Some(line.strip_prefix(&lead)?.strip_suffix('"')?.to_owned()))
    };
    let packages = lockfile.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            Some(((value(package, "name")?, value(package, "version")?), value(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_names_each_crate_with_its_version() {
        let tree = "coreflow-ipc v33.1.0 (/a folder/ipc)\nring v0.17.14\nring v0.17.14 (*)\n\n";
        let found: Vec<_> = named(tree).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], ("ring".to_owned(), "0.17.14".to_owned()));
    }

    /// REL-22: what is linked is told from what only builds or tests: rustls is, and the certificate generator of
    /// the supervisor's tests, its macros and its build scripts' crates are not in the supervisor.
    #[test]
    fn what_only_builds_or_tests_is_not_linked() {
        let source = Source::at(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
        let crates = linked_crates(&source, Target::LinuxAmd64).unwrap();
        let into =
            |name: &str| crates.iter().find(|linked| linked.name == name).map(|linked| &linked.linked_into);
        assert!(into("rustls").unwrap().contains("coreflow-supervisor"));
        assert!(!into("rcgen").unwrap().contains("coreflow-supervisor"));
        for absent in ["serde_derive", "cc", "proptest", "tempfile", "tar", "coreflow-ipc", "windows-sys"] {
            assert_eq!(into(absent), None, "{absent}");
        }
        let ring = crates.iter().find(|linked| linked.name == "ring").unwrap();
        assert_eq!(ring.checksum.as_ref().unwrap().len(), 64);
        assert!(ring.uses.iter().any(|(name, _)| name == "untrusted"), "{:?}", ring.uses);
    }
}
