//! The bill of materials beside an archive, in the JSON form of CycloneDX 1.5: what is linked, its license, its
//! digest in the registry, and what uses what.

use serde_json::{Value, json};

use crate::{linked::LinkedCrate, manifest::PACKAGE, runtime::Linkage, source::Source, target::Target};

/// The reference of the release itself.
const WHOLE: &str = "coreflow";

/// The bill of materials of the release for `target`. It names no time but the commit's, so that it is the same in
/// every build.
#[must_use]
pub fn bill_of_materials(source: &Source, target: Target, linkage: &Linkage) -> String {
    let Linkage { crates, runtime } = linkage;
    let mut components: Vec<Value> = crates.iter().map(component).collect();
    components.extend(runtime.iter().map(|part| {
        json!({
            "type": "library",
            "bom-ref": part.purl,
            "purl": part.purl,
            "name": part.name,
            "version": part.version,
            "licenses": [{"expression": part.license}],
        })
    }));
    let used: Vec<&(String, String)> = crates.iter().flat_map(|linked| &linked.uses).collect();
    let direct = crates.iter().filter(|linked| {
        used.iter().all(|(name, version)| (name, version) != (&linked.name, &linked.version))
    });
    let mut of_whole: Vec<String> = direct.map(|linked| url(&linked.name, &linked.version)).collect();
    of_whole.extend(runtime.iter().map(|part| part.purl.clone()));
    let mut dependencies = vec![json!({"ref": WHOLE, "dependsOn": of_whole})];
    dependencies.extend(crates.iter().map(|linked| {
        let uses: Vec<String> = linked.uses.iter().map(|(name, version)| url(name, version)).collect();
        json!({"ref": url(&linked.name, &linked.version), "dependsOn": uses})
    }));
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": WHOLE,
                "name": PACKAGE,
                "version": source.version,
                "licenses": [{"license": {"id": "MIT"}}],
                "properties": [
                    {"name": "coreflow:commit", "value": source.commit},
                    {"name": "coreflow:target", "value": target.triple()},
                    {"name": "coreflow:compiler", "value": source.compiler},
                ],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    let mut text = serde_json::to_string_pretty(&bill).expect("a JSON value has a text");
    text.push('\n');
    text
}

fn url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn component(linked: &LinkedCrate) -> Value {
    let url = url(&linked.name, &linked.version);
    let mut component = json!({
        "type": "library",
        "bom-ref": url,
        "purl": url,
        "name": linked.name,
        "version": linked.version,
        // Older packages separate alternatives by a slash, which SPDX does not know.
        "licenses": [{"expression": linked.license.replace('/', " OR ")}],
        "scope": "required",
    });
    if let Some(checksum) = &linked.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &linked.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use crate::runtime::RuntimeComponent;

    fn linked(name: &str, license: &str, uses: &[&str]) -> LinkedCrate {
        LinkedCrate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.to_owned(),
            repository: None,
            checksum: Some("ab".repeat(32)),
            folder: Path::new("/nowhere").to_owned(),
            license_file: None,
            linked_into: BTreeSet::new(),
            uses: uses.iter().map(|name| ((*name).to_owned(), "1.0.0".to_owned())).collect(),
        }
    }

    #[test]
    fn a_bill_names_what_is_linked_and_what_uses_it() {
        let source = Source {
            root: "/nowhere".into(),
            version: "33.1.0".to_owned(),
            commit: "0123".to_owned(),
            committed_at: 1,
            compiler: "1.95.0".to_owned(),
            unpublishable: Vec::new(),
        };
        let crates = vec![linked("above", "MIT/Apache-2.0", &["below"]), linked("below", "ISC", &[])];
        let glibc = RuntimeComponent {
            name: "glibc".to_owned(),
            version: "as it says".to_owned(),
            purl: "pkg:generic/glibc@2.36".to_owned(),
            license: "LGPL-2.1-or-later".to_owned(),
            source: String::new(),
            notices: Vec::new(),
        };
        let linkage = Linkage { crates, runtime: vec![glibc] };
        let bill: Value =
            serde_json::from_str(&bill_of_materials(&source, Target::LinuxAmd64, &linkage)).unwrap();
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/above@1.0.0");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "ab".repeat(32));
        assert_eq!(bill["components"][2]["purl"], "pkg:generic/glibc@2.36");
        assert_eq!(
            bill["dependencies"],
            json!([
                {"ref": "coreflow", "dependsOn": ["pkg:cargo/above@1.0.0", "pkg:generic/glibc@2.36"]},
                {"ref": "pkg:cargo/above@1.0.0", "dependsOn": ["pkg:cargo/below@1.0.0"]},
                {"ref": "pkg:cargo/below@1.0.0", "dependsOn": []},
            ])
        );
    }
}
