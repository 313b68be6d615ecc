//! Every requirement of an area that this version completes is cited where it is proved: in a test's
//! source, by its number, in full. A range proves nothing here, so that a search for a number finds
//! its tests (TST-04).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The completed areas and how many requirements each has.
const COMPLETE: [(&str, usize); 17] = [
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
];

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

fn cited(text: &str, ids: &mut BTreeSet<String>) {
    for (area, _) in COMPLETE {
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
    let missing: Vec<String> = COMPLETE
        .iter()
        .flat_map(|(area, count)| (1..=*count).map(move |number| format!("{area}-{number:02}")))
        .filter(|id| !ids.contains(id))
        .collect();
    assert!(missing.is_empty(), "no test cites {}", missing.join(", "));
}
