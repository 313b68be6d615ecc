//! `tspack-manifest.json` and `SHA256SUMS.txt` of a sealed set (REL-06, REL-07).
//!
//! The contract names what the manifest states; the names of the members of a bundle are this project's choice.

use serde::{Deserialize, Serialize};

use crate::{failure::Failure, target::Target};

/// The package whose release the set is.
pub const PACKAGE: &str = "@serve.zone/coreflow";
/// The name of the set.
pub const SET: &str = "coreflow-relay";
/// The manifest's file name.
pub const MANIFEST: &str = "tspack-manifest.json";
/// The checksums' file name.
pub const CHECKSUMS: &str = "SHA256SUMS.txt";
/// The form of the manifest that this version writes and reads.
const SCHEMA: u32 = 1;

/// The manifest of a sealed set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The form of this document.
    pub schema_version: u32,
    /// [`PACKAGE`].
    pub package: String,
    /// [`SET`].
    pub name: String,
    /// The version of the release.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// Whether it was built from the clean source of its version's tag, with both archives; a draft was not.
    pub publishable: bool,
    /// The archives.
    pub bundles: Vec<Bundle>,
}

/// An archive of the set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bundle {
    /// The target's name.
    pub id: String,
    /// The archive's file name.
    pub archive: String,
    /// The archive's SHA-256.
    pub sha256: String,
    /// The file name of the bill of materials beside it.
    pub bill: String,
    /// The bill's SHA-256.
    pub bill_sha256: String,
    /// The one directory in it.
    pub directory: String,
    /// The files in that directory, in the order of their paths.
    pub files: Vec<BundleFile>,
}

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BundleFile {
    /// Its path from the directory.
    pub path: String,
    /// Its permission bits, four octal digits.
    pub mode: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: String,
}

impl Manifest {
    /// The manifest of these bundles.
    #[must_use]
    pub fn new(version: &str, commit: &str, publishable: bool, bundles: Vec<Bundle>) -> Self {
        Self {
            schema_version: SCHEMA,
            package: PACKAGE.to_owned(),
            name: SET.to_owned(),
            version: version.to_owned(),
            commit: commit.to_owned(),
            publishable,
            bundles,
        }
    }

    /// The file's content.
    #[must_use]
    pub fn json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("texts and lists have a JSON form");
        json.push('\n');
        json
    }

    /// Reads a manifest of this form.
    ///
    /// # Errors
    /// It is another document, or of another form.
    pub fn read(json: &[u8]) -> Result<Self, Failure> {
        let manifest: Self = serde_json::from_slice(json)
            .map_err(|error| Failure::NotAsPinned(format!("{MANIFEST}: {error}")))?;
        if manifest.schema_version == SCHEMA {
            Ok(manifest)
        } else {
            Err(Failure::NotAsPinned(format!(
                "{MANIFEST}: form {} and not {SCHEMA}",
                manifest.schema_version
            )))
        }
    }
}

/// What an archive and the directory in it are called.
#[must_use]
pub fn bundle_name(version: &str, target: Target) -> String {
    format!("{SET}-{version}-{}", target.name())
}

/// The checksums of `files`, a name and its SHA-256 each, in the form that `sha256sum --check` reads.
#[must_use]
pub fn checksums(files: &[(String, String)]) -> String {
    files.iter().map(|(name, sha256)| format!("{sha256}  {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Manifest {
        let file = BundleFile {
            path: "coreflow".to_owned(),
            mode: "0755".to_owned(),
            size: 3,
            sha256: "ab".repeat(32),
        };
        let bundle = Bundle {
            id: "linux-amd64".to_owned(),
            archive: "coreflow-relay-33.1.0-linux-amd64.tar.gz".to_owned(),
            sha256: "cd".repeat(32),
            bill: "coreflow-relay-33.1.0-linux-amd64.cdx.json".to_owned(),
            bill_sha256: "ef".repeat(32),
            directory: "coreflow-relay-33.1.0-linux-amd64".to_owned(),
            files: vec![file],
        };
        Manifest::new("33.1.0", "0123456789abcdef", true, vec![bundle])
    }

    /// REL-06: package, name, version, commit, publishable, and of each archived file a digest and a mode.
    #[test]
    fn a_manifest_states_what_the_contract_names() {
        let json: serde_json::Value = serde_json::from_str(&example().json()).unwrap();
        assert_eq!(json["package"], "@serve.zone/coreflow");
        assert_eq!(json["name"], "coreflow-relay");
        assert_eq!(json["version"], "33.1.0");
        assert_eq!(json["commit"], "0123456789abcdef");
        assert_eq!(json["publishable"], true);
        let file = &json["bundles"][0]["files"][0];
        assert_eq!((&file["mode"], &file["sha256"]), (&"0755".into(), &"ab".repeat(32).into()));
        assert_eq!(Manifest::read(example().json().as_bytes()).unwrap(), example());
    }

    #[test]
    fn a_manifest_of_another_form_is_refused() {
        let another = example().json().replace("\"schemaVersion\": 1", "\"schemaVersion\": 2");
        assert!(Manifest::read(another.as_bytes()).unwrap_err().to_string().contains("form 2 and not 1"));
        assert!(Manifest::read(b"{}").is_err());
    }
}
