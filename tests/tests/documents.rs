//! What the documents and the unit promise, held against the tree: commands that exist, settings that
//! the requirements fix, and no bearer where everybody can read it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The directives of the unit, each with its values in order, and those of the service that stand under no comment.
fn directives() -> (BTreeMap<String, Vec<String>>, Vec<String>) {
    let (mut values, mut uncommented) = (BTreeMap::<String, Vec<String>>::new(), Vec::new());
    let (mut commented, mut service) = (false, false);
    for line in read("systemd/coreflow.service").lines() {
        match line.split_once('=') {
            _ if line.starts_with('#') => commented = true,
            Some((name, value)) => {
                if service && !commented {
                    uncommented.push(line.to_owned());
                }
                values.entry(name.to_owned()).or_default().push(value.to_owned());
            }
            // A heading or an empty line; directives under one comment may stand together.
            None => {
                commented = false;
                service = if line.starts_with('[') { line == "[Service]" } else { service };
            }
        }
    }
    (values, uncommented)
}

/// START-25, CFG-47, CFG-48: the unit bounds the stop, passes the bearer as a credential of its exact
/// name and never through the environment. REL-27, REL-31, REL-33, REL-34, REL-35, REL-37: what else it is to have;
/// `tests/systemd` has a systemd run it.
#[test]
fn the_unit_is_what_the_requirements_fix() {
    let (unit, _) = directives();
    for (name, expected) in [
        ("Type", "notify"),
        ("KillMode", "mixed"),
        ("DynamicUser", "yes"),
        ("Restart", "always"),
        ("LoadCredentialEncrypted", "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION"),
        ("MemoryDenyWriteExecute", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("RuntimeDirectory", "coreflow"),
        ("RuntimeDirectoryMode", "0700"),
    ] {
        assert_eq!(unit.get(name).map(Vec::as_slice), Some(&[expected.to_owned()][..]), "{name}");
    }
    assert!(
        unit["TimeoutStopSec"][0].strip_suffix('s').is_some_and(|seconds| seconds.parse::<u32>().is_ok())
    );
    assert!(unit["ExecStart"][0].ends_with("/coreflow"), "no arguments: {:?}", unit["ExecStart"]);
    let environment = unit.get("Environment").into_iter().flatten();
    assert!(environment.clone().all(|value| !value.contains("AUTHORIZATION")));
    let calls = unit["SystemCallFilter"].join(" ");
    for call in
        ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp", "memfd_secret"]
    {
        assert!(calls.contains(call), "the unit's filter takes {call} away");
    }
}

/// Each directive of the service says what it buys.
#[test]
fn each_directive_of_the_unit_stands_under_a_comment() {
    let (unit, uncommented) = directives();
    assert!(unit.len() > 30, "the unit was read");
    assert!(uncommented.is_empty(), "{uncommented:?}");
}

/// START-29: the commands for installing, building, watching, testing, packaging and starting have a
/// stated equivalent, and the aliases and folders that they name exist.
#[test]
fn the_readme_states_its_commands() {
    let readme = read("README.md");
    let first_screen: String = readme.lines().take(40).collect::<Vec<_>>().join("\n");
    for command in ["cargo demo", "cargo test --workspace"] {
        assert!(first_screen.contains(command), "{command}");
    }
    for row in ["installing dependencies", "building", "watching", "testing", "packaging", "starting"] {
        assert!(readme.contains(&format!("| {row}")), "no row for {row}");
    }
    assert!(read(".cargo/config.toml").contains("demo = "));
    for file in ["tests/peers/package-lock.json", "tests/peers/run.mjs", "qenv.yml", "LICENSE"] {
        assert!(root().join(file).is_file(), "{file}");
    }
}

/// Each refusal that relayd states or recognises is in the operator guide, in a row of a table: who meets one looks it
/// up there.
#[test]
fn the_guide_has_each_refusal_by_its_name() {
    let (table, guide) = (read("relayd/src/refusals.rs"), read("docs/operator-guide.md"));
    let stated = table.lines().filter_map(|line| line.split_once(": &str = \"")?.1.strip_suffix("\";"));
    let names: Vec<&str> = stated.filter(|text| !text.contains(' ')).collect();
    assert!(names.len() > 40, "the table was read: {names:?}");
    let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with('|')).collect();
    let has = |name: &str| {
        let ends = |rest: &str| rest.starts_with(['`', ':']);
        rows.iter().any(|row| row.match_indices(name).any(|(at, _)| ends(&row[at + name.len()..])))
    };
    let missing: Vec<&str> = names.into_iter().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "the guide lacks {missing:?}");
}

/// So is each name by which the control socket, `coreflowctl` or the start refuses, and each by which an exchange's TLS
/// fails.
#[test]
fn the_guide_has_each_name_that_an_operator_is_answered() {
    let guide = read("docs/operator-guide.md");
    let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with('|')).collect();
    let mut names = BTreeSet::new();
    for file in [
        "supervisor/src/control/asking.rs",
        "supervisor/src/control/protocol.rs",
        "supervisor/src/coreflowctl/restart.rs",
        "supervisor/src/exchange/failure.rs",
        "supervisor/src/relay.rs",
        "supervisor/src/command.rs",
    ] {
        let source = read(file);
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for text in code.split('"').skip(1).step_by(2) {
            let text = text.strip_prefix("the start failed: ").unwrap_or(text);
            let name = text.split(':').next().unwrap_or_default();
            let of_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
            if name.contains('-') && !name.ends_with('-') && name.bytes().all(of_name) {
                names.insert(name.to_owned());
            }
        }
    }
    assert!(names.len() > 25, "the names were read: {names:?}");
    let before = ["`", ": "];
    let has = |name: &String| {
        rows.iter().any(|row| before.iter().any(|lead| row.contains(&format!("{lead}{name}"))))
    };
    let missing: Vec<&String> = names.iter().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "the guide lacks {missing:?}");
}

/// The documents that the README and each other send a reader to exist.
#[test]
fn links_between_documents_lead_somewhere() {
    let documents = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/architecture.md",
        "docs/benchmarks.md",
        "docs/configuration.md",
        "docs/contract.md",
        "docs/isolation.md",
        "docs/operator-guide.md",
        "docs/vpn-protocol.md",
        "systemd/README.md",
        "tests/peers/README.md",
        "tests/systemd/README.md",
    ];
    let mut links = 0;
    for document in documents {
        let text = read(document);
        let folder = root().join(document).parent().expect("a document lies in a folder").to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            links += 1;
            assert!(folder.join(path).exists(), "{document} leads to {path}");
        }
    }
    assert!(links > 10, "only {links} links were found");
}
