//! Every requirement of an area that this version completes is cited where it is proved: in a test's
//! source, by its number, in full. A range proves nothing here, so that a search for a number finds
//! its tests (TST-04).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The completed areas and how many requirements each has.
const COMPLETE: [(&str, usize); 18] = [
    ("ARC", 24),
    ("CFG", 49),
    ("START", 31),
    ("SES", 21),
    ("PROT", 35),
    ("REG", 67),
    ("LIS", 28),
    ("FWD", 39),
    ("OUT", 21),
    ("RET", 9),
    ("LOG", 16),
    ("OPS", 11),
    ("REL", 39),
    ("ESC", 67),
    ("ING", 36),
    ("PULL", 31),
    ("VPN", 46),
    ("TST", 6),
];

/// Each fact about a peer that the relay relies on, and the source of the double that models it. Those of areas that are
/// still to be built are among them: their doubles come first.
const MODELLED: &[(&str, &[&str])] = &[
    (
        "tests/src/cloudly.rs",
        &["SES-06", "REG-07", "REG-30", "REG-36", "REG-63", "FWD-05", "FWD-37", "FWD-38", "VPN-13"],
    ),
    ("tests/src/cloudly/judgement.rs", &["PROT-34", "XTR-07"]),
    ("tests/src/cloudly/settings.rs", &["REG-18", "REG-31", "ESC-61"]),
    ("tests/src/cloudly/standing.rs", &["REG-24", "REG-25", "REG-64", "REG-65", "LIS-28"]),
    ("tests/src/cloudly/runtime.rs", &["PROT-16", "OUT-01", "OUT-18"]),
    ("tests/src/cloudly/serving.rs", &["OUT-16"]),
    ("tests/src/cloudly/leases.rs", &["ESC-60"]),
    ("tests/src/cloudly/vpn.rs", &["VPN-05", "XTR-06"]),
    ("tests/src/cloudly/ingress.rs", &["ING-01", "ING-13"]),
    ("tests/src/cloudly/recipients.rs", &["CST-22"]),
    ("tests/src/cloudly/platform.rs", &["PLT-20", "PLT-41", "PUB-04", "PUB-28", "PUB-29"]),
    ("tests/src/cloudly/closures.rs", &["BAK-14"]),
    ("tests/src/pallet.rs", &["FWD-35", "FWD-36", "OUT-15", "OUT-18"]),
    ("tests/src/pallet/workloads.rs", &["OUT-17", "OUT-18"]),
    ("tests/src/pallet/network.rs", &["ESC-45", "OUT-20"]),
    ("tests/src/ingress.rs", &["ING-01", "ING-19"]),
    ("tests/src/pull_clients/client.rs", &["PULL-04"]),
    ("tests/src/pull_clients/relayed.rs", &["PULL-03"]),
    ("tests/src/pull_clients/origin.rs", &["PULL-09"]),
    ("tests/src/corestore.rs", &["ISO-23"]),
    ("tests/src/corestore/store.rs", &["CST-01", "PLT-48"]),
    ("tests/src/corestore/restores.rs", &["ISO-07", "ISO-12", "ISO-16", "ISO-31"]),
];

/// Facts about Spark, which speaks to no relay: there is nothing that a double of it could do to one.
const OF_SPARK: [&str; 2] = ["REL-02", "OPS-08"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// Whether a file is source: Rust, the peers' JavaScript, or a part of the checks under systemd, which are scripts
/// with and without an extension.
fn is_source(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("rs" | "mjs") => true,
        Some("sh") | None => path.starts_with(root().join("tests/systemd")),
        Some(_) => false,
    }
}

/// The files below `directory` that a developer wrote.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a folder of the workspace can be read").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if !["target", "node_modules", ".git"].iter().any(|left_out| name == *left_out) {
                sources(&path, found);
            }
        } else if is_source(&path) {
            found.push(path);
        }
    }
}

/// The part of a file that is test code: all of it below a `tests` folder or in a `tests.rs`, else what
/// follows the file's own tests module. The doubles of `tests/src` say what they model, which proves nothing:
/// there the folder that counts is one of theirs.
fn test_code(path: &Path, text: &str) -> String {
    let below_tests = path.strip_prefix(root()).is_ok_and(|path| {
        let path = path.strip_prefix("tests/src").unwrap_or(path);
        path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")
    });
    if below_tests {
        return text.to_owned();
    }
    text.split_once("mod tests {").map(|(_, tests)| tests.to_owned()).unwrap_or_default()
}

/// The areas that are not complete and of which facts about peers are modelled already.
const TO_BE_BUILT: [&str; 7] = ["CST", "PLT", "PUB", "BAK", "ISO", "XTR", "INV"];

fn cited(text: &str, ids: &mut BTreeSet<String>) {
    for area in COMPLETE.iter().map(|(area, _)| *area).chain(TO_BE_BUILT) {
        let mut rest = text;
        while let Some(at) = rest.find(&format!("{area}-")) {
            let id: String = rest[at..].chars().take(area.len() + 3).collect();
            if id[area.len() + 1..].bytes().all(|byte| byte.is_ascii_digit()) {
                ids.insert(id);
            }
            rest = &rest[at + area.len()..];
        }
    }
}

/// TST-04: each number of a complete area appears in a test that proves it.
#[test]
fn each_requirement_of_a_complete_area_is_cited_by_a_test() {
    let (mut files, mut ids) = (Vec::new(), BTreeSet::new());
    sources(&root(), &mut files);
    for path in files.iter().filter(|path| !path.ends_with("tests/tests/requirements.rs")) {
        let text = fs::read_to_string(path).expect("a source file is text");
        cited(&test_code(path, &text), &mut ids);
    }
    // Proved by this file, whose tables name numbers that it does not prove.
    ids.extend(["TST-03".to_owned(), "TST-04".to_owned()]);
    let missing: Vec<String> = COMPLETE
        .iter()
        .flat_map(|(area, count)| (1..=*count).map(move |number| format!("{area}-{number:02}")))
        .filter(|id| !ids.contains(id))
        .collect();
    assert!(missing.is_empty(), "no test cites {}", missing.join(", "));
}

/// TST-03: each peer has a double, whose source says in the double's own code what it models, and a test shows each of it.
#[test]
fn each_fact_about_a_peer_is_modelled_and_shown() {
    let (mut files, mut shown) = (Vec::new(), BTreeSet::new());
    sources(&root(), &mut files);
    for path in files.iter().filter(|path| !path.ends_with("tests/tests/requirements.rs")) {
        cited(&test_code(path, &fs::read_to_string(path).expect("a source file is text")), &mut shown);
    }
    let facts: BTreeSet<&str> =
        MODELLED.iter().flat_map(|(_, facts)| facts.iter().copied()).chain(OF_SPARK).collect();
    assert_eq!(facts.len(), 54, "as many facts about peers as the requirements have: {facts:?}");
    for (double, facts) in MODELLED {
        let text =
            fs::read_to_string(root().join(double)).unwrap_or_else(|error| panic!("{double}: {error}"));
        let own = text.split("mod tests {").next().unwrap_or_default();
        for fact in *facts {
            assert!(own.contains(fact), "{double} does not say where it models {fact}");
        }
    }
    let unshown: Vec<&str> = facts.into_iter().filter(|fact| !shown.contains(*fact)).collect();
    assert!(unshown.is_empty(), "no test shows {}", unshown.join(", "));
}
