//! What a consumer of a sealed set does (REL-09): it pins version, commit and the manifest's SHA-256, takes the
//! manifest, the checksums and its own archive, verifies all of it, and only then writes the release directory.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use tar::{Archive, EntryType};

use crate::{
    digest::sha256,
    failure::Failure,
    manifest::{Bundle, CHECKSUMS, MANIFEST, Manifest, PACKAGE, SET, checksums},
    seal::Purpose,
    stage::set_mode,
    target::Target,
};

/// What a consumer knows of a release beforehand.
#[derive(Debug, Clone)]
pub struct Pin {
    /// The version.
    pub version: String,
    /// The commit.
    pub commit: String,
    /// The SHA-256 of the manifest.
    pub manifest: String,
    /// A draft is taken for tests alone.
    pub purpose: Purpose,
}

/// Bytes that a file of a release has at most; one that says more is none.
const LARGEST_FILE: u64 = 256 * 1024 * 1024;
const DIRECTORY_MODE: u32 = 0o755;

/// Verifies the bundle for `target` of the set in `set`, writes it below `into` and returns the release directory, which
/// appears whole or not at all and is merged with nothing that was there.
///
/// # Errors
/// [`Failure::NotAsPinned`], upon which nothing was written; [`Failure::File`] for a directory that is there already.
pub fn extract(set: &Path, target: Target, pin: &Pin, into: &Path) -> Result<PathBuf, Failure> {
    let read = |name: &str| {
        let path = set.join(name);
        fs::read(&path).map_err(Failure::file(&path))
    };
    let manifest = read(MANIFEST)?;
    demand(sha256(&manifest) == pin.manifest, || format!("{MANIFEST} has another digest"))?;
    let manifest = Manifest::read(&manifest)?;
    demand_pinned(&manifest, pin)?;
    let named: Vec<(String, String)> = std::iter::once((MANIFEST.to_owned(), pin.manifest.clone()))
        .chain(manifest.bundles.iter().map(|bundle| (bundle.archive.clone(), bundle.sha256.clone())))
        .collect();
    demand(read(CHECKSUMS)? == checksums(&named).as_bytes(), || {
        format!("{CHECKSUMS} does not list the manifest and its archives")
    })?;
    let bundle = manifest.bundles.iter().find(|bundle| bundle.id == target.name());
    let bundle =
        bundle.ok_or_else(|| Failure::NotAsPinned(format!("there is no bundle {}", target.name())))?;
    demand(is_plain_name(&bundle.archive) && is_plain_name(&bundle.directory), || {
        "a bundle's archive and directory are names without a folder".to_owned()
    })?;
    let archive = read(&bundle.archive)?;
    demand(sha256(&archive) == bundle.sha256, || format!("{} has another digest", bundle.archive))?;
    let files = verified(&archive, bundle)?;

    let directory = into.join(&bundle.directory);
    if directory.symlink_metadata().is_ok() {
        return Err(Failure::File(directory, ErrorKind::AlreadyExists));
    }
    let make = |folder: &Path| {
        fs::create_dir_all(folder).map_err(Failure::file(folder))?;
        set_mode(folder, DIRECTORY_MODE)
    };
    fs::create_dir_all(into).map_err(Failure::file(into))?;
    let written =
        tempfile::Builder::new().prefix(".coreflow-").tempdir_in(into).map_err(Failure::file(into))?;
    for (path, (mode, bytes)) in files {
        let path = written.path().join(path);
        let folder = path.parent().expect("a file lies in its directory");
        if folder != written.path() {
            make(folder)?;
        }
        fs::write(&path, bytes).map_err(Failure::file(&path))?;
        set_mode(&path, mode)?;
    }
    set_mode(written.path(), DIRECTORY_MODE)?;
    fs::rename(written.path(), &directory).map_err(Failure::file(&directory))?;
    // What it would remove has another name now.
    let _ = written.keep();
    Ok(directory)
}

fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::NotAsPinned(otherwise())) }
}

fn demand_pinned(manifest: &Manifest, pin: &Pin) -> Result<(), Failure> {
    for (what, stated, wanted) in [
        ("package", manifest.package.as_str(), PACKAGE),
        ("name", &manifest.name, SET),
        ("version", &manifest.version, &pin.version),
        ("commit", &manifest.commit, &pin.commit),
    ] {
        demand(stated == wanted, || format!("the {what} is {stated} and not {wanted}"))?;
    }
    demand(manifest.publishable || pin.purpose == Purpose::Draft, || "the set is a draft".to_owned())
}

/// The files of an archive by their path from its directory, each as the manifest lists it, none missing and none
/// beside them.
fn verified(archive: &[u8], bundle: &Bundle) -> Result<BTreeMap<String, (u32, Vec<u8>)>, Failure> {
    let unreadable = |error: std::io::Error| Failure::NotAsPinned(format!("{}: {error}", bundle.archive));
    let mut listed: BTreeMap<&str, _> = bundle.files.iter().map(|file| (file.path.as_str(), file)).collect();
    let mut files = BTreeMap::new();
    let mut archive = Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let within = path.strip_prefix(&bundle.directory).and_then(|path| path.strip_prefix('/'));
        let within =
            within.ok_or_else(|| Failure::NotAsPinned(format!("{path} is outside the directory")))?;
        match entry.header().entry_type() {
            EntryType::Directory => continue,
            EntryType::Regular => {}
            other => return Err(Failure::NotAsPinned(format!("{path} is no file but {other:?}"))),
        }
        let Some(file) = listed.remove(within) else {
            return Err(Failure::NotAsPinned(format!(
                "{path} is not in the manifest, or twice in the archive"
            )));
        };
        demand(within.split('/').all(|part| !part.is_empty() && part != "." && part != ".."), || {
            format!("{path} leads out of the directory")
        })?;
        let mode = entry.header().mode().map_err(unreadable)?;
        demand(format!("{mode:04o}") == file.mode, || format!("{path} has another mode"))?;
        demand(entry.size() == file.size && file.size <= LARGEST_FILE, || {
            format!("{path} has another size")
        })?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(unreadable)?;
        demand(sha256(&bytes) == file.sha256, || format!("{path} has another digest"))?;
        files.insert(within.to_owned(), (mode, bytes));
    }
    match listed.into_keys().next() {
        None => Ok(files),
        Some(path) => Err(Failure::NotAsPinned(format!("{path} is not in the archive"))),
    }
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}
