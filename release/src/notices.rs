//! The third-party notices in both forms: every embedded component with its license, where its corresponding source
//! is obtained if its license asks for that, and every notice text in full (REL-15, REL-16).

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use crate::{
    digest::sha256,
    failure::Failure,
    licenses::{NoticeText, license_texts},
    linked::LinkedCrate,
    runtime::RuntimeComponent,
    source::Source,
    target::Target,
};

/// The notices of a set of executables, as their JSON form has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Notices {
    /// What made them.
    pub generator: Generator,
    /// What they are the notices of.
    pub binary: Binary,
    /// The target, as its bundle is called.
    pub target: &'static str,
    /// What is linked beside crates.
    pub runtime: Vec<RuntimeComponent>,
    /// The linked crates.
    pub packages: Vec<PackageNotice>,
}

/// What made the notices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Generator {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: String,
}

/// What the notices are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binary {
    /// The name of the whole.
    pub name: String,
    /// Its executables in the release.
    pub executables: Vec<String>,
    /// Their version.
    pub version: String,
    /// Their license.
    pub license: &'static str,
}

/// A linked crate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageNotice {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its license, as an SPDX expression.
    pub license: String,
    /// Where exactly this version's source is.
    pub source: String,
    /// Its license and notice texts.
    pub notices: Vec<NoticeText>,
}

/// The notices of the release's executables, or of one of them.
///
/// # Errors
/// A crate has no license text.
pub fn notices(
    source: &Source,
    target: Target,
    name: &str,
    executables: &[&str],
    runtime: &[RuntimeComponent],
    crates: &[LinkedCrate],
) -> Result<Notices, Failure> {
    let packages = crates.iter().zip(license_texts(crates)?).map(|(linked, notices)| PackageNotice {
        name: linked.name.clone(),
        version: linked.version.clone(),
        license: linked.license.clone(),
        source: format!("https://crates.io/crates/{}/{}", linked.name, linked.version),
        notices,
    });
    Ok(Notices {
        generator: Generator { name: env!("CARGO_PKG_NAME"), version: source.version.clone() },
        binary: Binary {
            name: name.to_owned(),
            executables: executables.iter().map(|name| (*name).to_owned()).collect(),
            version: source.version.clone(),
            license: "MIT",
        },
        target: target.name(),
        runtime: runtime.to_vec(),
        packages: packages.collect(),
    })
}

impl Notices {
    /// The form for programs.
    #[must_use]
    pub fn json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("texts and lists have a JSON form");
        json.push('\n');
        json
    }

    /// The form for people: the components first, then each text once, with its components by number.
    #[must_use]
    pub fn text(&self) -> String {
        let mut texts = Texts::default();
        let Binary { name, version, executables, .. } = &self.binary;
        let mut list = format!(
            "Third-party notices of {name} {version}, {}\n\nIn: {}\nEach component is named with its license and \
             the numbers of its texts, which follow below in full.\n",
            self.target,
            executables.join(", ")
        );
        list.push_str("\nRuntime\n");
        for part in &self.runtime {
            let _ = write!(
                list,
                "\n{}\n  version: {}\n  license: {}\n  corresponding source: {}\n  texts: {}\n",
                part.name,
                part.version,
                part.license,
                part.source,
                texts.numbers(&part.name, &part.notices)
            );
        }
        list.push_str("\nPackages\n");
        for package in &self.packages {
            let named = format!("{} {}", package.name, package.version);
            let _ = write!(
                list,
                "\n{named}\n  license: {}\n  source: {}\n  texts: {}\n",
                package.license,
                package.source,
                texts.numbers(&named, &package.notices)
            );
        }
        texts.append(&mut list);
        list
    }
}

/// Every text once, in the order of its first component.
#[derive(Default)]
struct Texts {
    number_by_digest: BTreeMap<String, usize>,
    texts: Vec<(String, String)>,
}

impl Texts {
    /// The numbers of these texts, in words.
    fn numbers(&mut self, component: &str, notices: &[NoticeText]) -> String {
        let numbers = notices.iter().map(|notice| {
            let number = *self.number_by_digest.entry(sha256(notice.text.as_bytes())).or_insert_with(|| {
                self.texts.push((format!("{} of {component}", notice.name), notice.text.clone()));
                self.texts.len()
            });
            format!("{number} ({})", notice.name)
        });
        numbers.collect::<Vec<_>>().join(", ")
    }

    fn append(self, list: &mut String) {
        for (at, (name, text)) in self.texts.into_iter().enumerate() {
            let _ = write!(list, "\n{}\nText {}: {name}\n\n{text}\n", "=".repeat(72), at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, text: &str) -> NoticeText {
        NoticeText { name: name.to_owned(), text: text.to_owned() }
    }

    fn example() -> Notices {
        let package = |name: &str, notices| PackageNotice {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: "MIT".to_owned(),
            source: format!("https://crates.io/crates/{name}/1.0.0"),
            notices,
        };
        Notices {
            generator: Generator { name: "coreflow-release", version: "33.1.0".to_owned() },
            binary: Binary {
                name: "coreflow".to_owned(),
                executables: vec!["coreflow".to_owned()],
                version: "33.1.0".to_owned(),
                license: "MIT",
            },
            target: "linux-amd64",
            runtime: vec![RuntimeComponent {
                name: "glibc".to_owned(),
                version: "2.36".to_owned(),
                purl: "pkg:generic/glibc@2.36".to_owned(),
                license: "LGPL-2.1-or-later".to_owned(),
                source: "where it is obtained".to_owned(),
                notices: vec![text("LGPL-2.1", "the lesser license")],
            }],
            packages: vec![
                package("one", vec![text("LICENSE", "the shared text")]),
                package("two", vec![text("LICENSE-MIT", "the shared text"), text("NOTICE", "its own")]),
            ],
        }
    }

    /// REL-16: the form for programs has the five keys of the contract.
    #[test]
    fn the_json_form_has_the_contracts_keys() {
        let json: serde_json::Value = serde_json::from_str(&example().json()).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["binary", "generator", "packages", "runtime", "target"]);
        assert_eq!(json["packages"][1]["notices"][0]["text"], "the shared text");
    }

    /// REL-15: the form for people names each component with its license, the source that a license asks for, and
    /// has every text in full, once.
    #[test]
    fn the_text_form_has_each_component_and_each_text() {
        let shown = example().text();
        assert!(shown.contains("glibc\n  version: 2.36\n  license: LGPL-2.1-or-later\n"), "{shown}");
        assert!(shown.contains("  corresponding source: where it is obtained\n"));
        assert!(shown.contains("one 1.0.0\n  license: MIT\n"));
        assert!(shown.contains("  texts: 2 (LICENSE-MIT), 3 (NOTICE)\n"), "{shown}");
        for text in ["the lesser license", "the shared text", "its own"] {
            assert_eq!(shown.matches(text).count(), 1, "{text}");
        }
    }
}
