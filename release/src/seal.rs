//! Seals the staged directories into the set `coreflow-relay`: the archives, the manifest, the checksums (REL-06,
//! REL-07, REL-08), and a bill of materials beside each archive, which the manifest vouches for. A set for publication
//! has both archives and comes from the clean source of its version's tag (REL-05); a draft may lack either, and says so.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    archive::archive,
    bill::bill_of_materials,
    declared::{DAEMON, DeclaredFile, PROVENANCE, declared, demand_declared},
    digest::{sha256, sha256_of_file},
    failure::Failure,
    manifest::{Bundle, BundleFile, CHECKSUMS, MANIFEST, Manifest, SET, bundle_name, checksums},
    provenance::Provenance,
    runtime::Linkage,
    source::Source,
    target::Target,
};

/// Whether a set may be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It is published: everything is demanded of it.
    Publication,
    /// It is for tests: what is staged is sealed, and no consumer takes it for a release.
    Draft,
}

/// A staged directory to seal.
pub struct Staged {
    /// Its target.
    pub target: Target,
    /// Where it is.
    pub directory: PathBuf,
    /// What is linked into its executables.
    pub linkage: Linkage,
}

/// Seals `staged` into the folder `into` and returns the SHA-256 of the manifest, which a consumer pins.
///
/// # Errors
/// [`Failure::NotPublishable`] for what a publication lacks; a directory that is not the declared set.
pub fn seal(source: &Source, purpose: Purpose, staged: &[Staged], into: &Path) -> Result<String, Failure> {
    if purpose == Purpose::Publication {
        source.demand_publishable()?;
        demand_all(staged)?;
    }
    let declared = declared(&source.root)?;
    clear(into)?;
    let mut files = Vec::new();
    let mut bundles = Vec::new();
    for Staged { target, directory, linkage } in staged {
        demand_declared(directory, &declared)?;
        demand_of(source, *target, directory)?;
        let name = bundle_name(&source.version, *target);
        let bytes = archive(directory, &declared, &name, source.committed_at)?;
        let file = format!("{name}.tar.gz");
        write(&into.join(&file), &bytes)?;
        let (bill, bill_file) = (bill_of_materials(source, *target, linkage), format!("{name}.cdx.json"));
        write(&into.join(&bill_file), bill.as_bytes())?;
        let digest = sha256(&bytes);
        files.push((file.clone(), digest.clone()));
        bundles.push(Bundle {
            id: target.name().to_owned(),
            archive: file,
            sha256: digest,
            bill: bill_file,
            bill_sha256: sha256(bill.as_bytes()),
            directory: name,
            files: contents(directory, &declared)?,
        });
    }
    let publishable = purpose == Purpose::Publication;
    let manifest = Manifest::new(&source.version, &source.commit, publishable, bundles).json();
    write(&into.join(MANIFEST), manifest.as_bytes())?;
    let digest = sha256(manifest.as_bytes());
    files.insert(0, (MANIFEST.to_owned(), digest.clone()));
    write(&into.join(CHECKSUMS), checksums(&files).as_bytes())?;
    Ok(digest)
}

/// Refuses a directory that was staged of another commit or for another target, or whose daemon is not the one that its
/// provenance is of.
pub(crate) fn demand_of(source: &Source, target: Target, directory: &Path) -> Result<(), Failure> {
    let path = directory.join(PROVENANCE);
    let bytes = fs::read(&path).map_err(Failure::file(&path))?;
    let stated: Provenance =
        serde_json::from_slice(&bytes).map_err(|error| Failure::Answer(PROVENANCE, error.to_string()))?;
    let expected = Provenance::of(source, target, sha256_of_file(&directory.join(DAEMON))?);
    if stated == expected {
        return Ok(());
    }
    let why = format!("{PROVENANCE} is of commit {} and not of what is sealed", stated.commit);
    Err(Failure::NotDeclared(directory.to_owned(), vec![why]))
}

fn demand_all(staged: &[Staged]) -> Result<(), Failure> {
    let lacks = Target::ALL.into_iter().filter(|target| staged.iter().all(|one| one.target != *target));
    let lacks: Vec<String> = lacks.map(|target| format!("{} is not staged", target.name())).collect();
    if lacks.is_empty() { Ok(()) } else { Err(Failure::NotPublishable(lacks)) }
}

fn contents(directory: &Path, declared: &[DeclaredFile]) -> Result<Vec<BundleFile>, Failure> {
    let described = declared.iter().map(|file| {
        let path = directory.join(&file.path);
        Ok(BundleFile {
            path: file.path.clone(),
            mode: format!("{:04o}", file.mode),
            size: path.metadata().map_err(Failure::file(&path))?.len(),
            sha256: sha256_of_file(&path)?,
        })
    });
    described.collect()
}

/// Removes the archives and bills of a former set, which the new manifest does not vouch for: a folder that is published
/// whole would publish them too.
fn clear(into: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(into).map_err(Failure::file(into))? {
        let path = entry.map_err(Failure::file(into))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let of_a_set = name.strip_prefix(SET).is_some_and(|rest| rest.starts_with('-'));
        if of_a_set && [".tar.gz", ".cdx.json"].iter().any(|end| name.ends_with(end)) {
            fs::remove_file(&path).map_err(Failure::file(&path))?;
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(Failure::file(path))
}
