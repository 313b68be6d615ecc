//! The provenance of the hub's daemon: what it was built from, for which target, and its digest (REL-14).

use serde::{Deserialize, Serialize};

use crate::{
    declared::{DAEMON, DAEMON_NOTICES},
    source::Source,
    target::Target,
};

/// The provenance of the hub's daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// The project that it is built from.
    pub project: String,
    /// The package of that project.
    pub package: String,
    /// Its version.
    pub version: String,
    /// The commit of its source.
    pub commit: String,
    /// The target, as rustc calls it.
    pub target: String,
    /// The compiler's release.
    pub compiler: String,
    /// The executable in the release.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
    /// The inventory of its license and notices, from the release directory (REL-18).
    pub notices: Vec<String>,
}

impl Provenance {
    /// That of a daemon with this digest.
    #[must_use]
    pub fn of(source: &Source, target: Target, sha256: String) -> Self {
        Self {
            project: env!("CARGO_PKG_REPOSITORY").to_owned(),
            package: "coreflow-vpnd".to_owned(),
            version: source.version.clone(),
            commit: source.commit.clone(),
            target: target.triple().to_owned(),
            compiler: source.compiler.clone(),
            file: DAEMON.to_owned(),
            sha256,
            notices: DAEMON_NOTICES.map(str::to_owned).into(),
        }
    }

    /// The file's content.
    #[must_use]
    pub fn json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("texts and lists have a JSON form");
        json.push('\n');
        json
    }
}
