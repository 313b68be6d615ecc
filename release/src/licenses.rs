//! The license texts that a crate ships, each in full (REL-15, REL-22). A crate without any fails the release by
//! name, unless a reviewed clarification gives its text.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{failure::Failure, linked::LinkedCrate};

/// A text that belongs to a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoticeText {
    /// The file that it was found in, from the component's folder.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// Reviewed texts for crates that ship none: the crate, and what its author states elsewhere. Empty as long as
/// every linked crate ships its own.
const CLARIFIED: &[(&str, &str)] = &[];

/// How the names of files with license and notice texts begin, in lower case.
const BEGINNINGS: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];
/// Endings of files that are no texts, whatever their names begin with.
const NO_TEXTS: [&str; 4] = [".rs", ".toml", ".html", ".json"];

/// The texts of every crate, by its place in `crates`.
///
/// # Errors
/// [`Failure::LicenseTextMissing`] with every crate that has none, or whose license is not stated.
pub fn license_texts(crates: &[LinkedCrate]) -> Result<Vec<Vec<NoticeText>>, Failure> {
    let mut missing = Vec::new();
    let mut all = Vec::new();
    for linked in crates {
        let texts = texts_of(linked)?;
        if texts.is_empty() || linked.license.is_empty() && linked.license_file.is_none() {
            missing.push(format!("{} {}", linked.name, linked.version));
        }
        all.push(texts);
    }
    if missing.is_empty() { Ok(all) } else { Err(Failure::LicenseTextMissing(missing)) }
}

fn texts_of(linked: &LinkedCrate) -> Result<Vec<NoticeText>, Failure> {
    let mut found = BTreeMap::new();
    if let Some(named) = &linked.license_file {
        read(&linked.folder, named.clone(), &mut found)?;
    }
    collect(&linked.folder, Path::new(""), &mut found)?;
    if found.is_empty() {
        let clarified = CLARIFIED.iter().filter(|(name, _)| *name == linked.name);
        found.extend(clarified.map(|(_, text)| ("clarified".to_owned(), (*text).to_owned())));
    }
    Ok(found.into_iter().map(|(name, text)| NoticeText { name, text }).collect())
}

fn collect(folder: &Path, within: &Path, found: &mut BTreeMap<String, String>) -> Result<(), Failure> {
    let directory = folder.join(within);
    for entry in fs::read_dir(&directory).map_err(Failure::file(&directory))? {
        let entry = entry.map_err(Failure::file(&directory))?;
        let path = within.join(entry.file_name());
        if entry.file_type().map_err(Failure::file(&directory))?.is_dir() {
            collect(folder, &path, found)?;
            continue;
        }
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let is_text = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
            && !NO_TEXTS.iter().any(|ending| name.ends_with(ending));
        if is_text {
            read(folder, path, found)?;
        }
    }
    Ok(())
}

fn read(folder: &Path, path: PathBuf, found: &mut BTreeMap<String, String>) -> Result<(), Failure> {
    let file = folder.join(&path);
    let bytes = fs::read(&file).map_err(Failure::file(&file))?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if !text.is_empty() {
        found.insert(path.to_string_lossy().into_owned(), text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn crate_in(folder: &Path) -> LinkedCrate {
        LinkedCrate {
            name: "example".to_owned(),
            version: "1.2.3".to_owned(),
            license: "MIT".to_owned(),
            repository: None,
            checksum: None,
            folder: folder.to_owned(),
            license_file: None,
            linked_into: BTreeSet::new(),
            uses: BTreeSet::new(),
        }
    }

    /// REL-22: a crate that ships no license text, or an empty one, fails the release by its name.
    #[test]
    fn a_crate_without_a_license_text_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("license.rs"), "// how licenses are read").unwrap();
        fs::write(folder.path().join("LICENSE"), "\n \n").unwrap();
        let refused = license_texts(&[crate_in(folder.path())]).unwrap_err();
        assert!(refused.to_string().starts_with("license-text-missing: example 1.2.3;"), "{refused}");
        fs::write(folder.path().join("LICENSE"), "Permission is granted").unwrap();
        license_texts(&[crate_in(folder.path())]).unwrap();
        let unstated = LinkedCrate { license: String::new(), ..crate_in(folder.path()) };
        license_texts(&[unstated]).unwrap_err();
    }

    /// REL-15: the texts of parts that lie deeper, and of a license file with a name of its own, are there too.
    #[test]
    fn every_text_is_found_in_full() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("third_party/part")).unwrap();
        fs::write(folder.path().join("LICENSE-MIT"), "one\n\nof two lines\n").unwrap();
        fs::write(folder.path().join("third_party/part/COPYING"), "of a part").unwrap();
        fs::write(folder.path().join("terms.txt"), "under another name").unwrap();
        let linked = LinkedCrate { license_file: Some("terms.txt".into()), ..crate_in(folder.path()) };
        let found = license_texts(&[linked]).unwrap().remove(0);
        let found: Vec<_> = found.iter().map(|notice| (notice.name.as_str(), notice.text.as_str())).collect();
        assert_eq!(
            found,
            [
                ("LICENSE-MIT", "one\n\nof two lines"),
                ("terms.txt", "under another name"),
                ("third_party/part/COPYING", "of a part"),
            ]
        );
    }
}
