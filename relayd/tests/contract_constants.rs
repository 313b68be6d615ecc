//! What the contract fixes stands in one place of the source, and everything that needs it reads it there.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{fs, path::Path};

/// The files of relayd with the code that is not a test's.
fn code() -> Vec<(String, String)> {
    fn collect(directory: &Path, into: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("tests") || path.ends_with("tests.rs") {
                continue;
            }
            if path.is_dir() {
                collect(&path, into);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
                let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
                into.push((name, code));
            }
        }
    }
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    files
}

/// PROT-28, PROT-29: `protocol.refusedOfferRetryIntervalMs` is five minutes, written once; the session and
/// the registration, which make refused offers again, both read that constant.
#[test]
fn the_interval_of_refused_offers_is_defined_once() {
    assert_eq!(coreflow_relayd::constants::REFUSED_OFFER_RETRY.as_millis(), 300_000);
    let files = code();
    assert!(files.len() > 20, "the sources were read");
    let with = |text: &str| -> Vec<&str> {
        let named = files.iter().filter(|(_, code)| code.contains(text));
        named.map(|(name, _)| name.as_str()).collect()
    };
    let written: usize = files.iter().map(|(_, code)| code.matches("300_000").count()).sum();
    assert_eq!((written, with("300_000")), (1, vec!["src/constants.rs"]));
    assert_eq!(with("300000"), Vec::<&str>::new());
    assert_eq!(with("const REFUSED_OFFER_RETRY"), ["src/constants.rs"]);
    for reader in ["src/session.rs", "src/registration.rs"] {
        assert!(with("REFUSED_OFFER_RETRY").contains(&reader), "{reader} reads it");
    }
}
