//! The search of what processes wrote for secrets that a test marked (LOG-14): each as it is and in the
//! forms that a program might write it in, whole or in part.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::envelope::random_hex;
use crate::memory::SHORTEST_RUN;

/// A run of a form: the secret's name, and the form's.
type Origin = (String, &'static str);

/// The marked secrets of one test.
#[derive(Default)]
pub struct Marks {
    /// Every run that counts as found, by its length and itself.
    runs: BTreeMap<usize, BTreeMap<Vec<u8>, Origin>>,
    names: BTreeSet<String>,
}

impl Marks {
    /// Makes a secret that reads like nothing else and is looked for under `name`. Base64 of it differs
    /// from itself, and so does its percent-encoding.
    pub fn secret(&mut self, name: &str) -> String {
        let value = format!("mk/{}+{}=", random_hex::<16>(), random_hex::<16>());
        self.add(name, &value);
        value
    }

    /// Looks for `value`, which is at least [`SHORTEST_RUN`] bytes long, under `name`.
    ///
    /// # Panics
    /// When the value is too short to be told from other text.
    pub fn add(&mut self, name: &str, value: &str) {
        assert!(value.len() >= SHORTEST_RUN, "{name} is too short to be looked for");
        self.names.insert(name.to_owned());
        for (form, text, run) in forms(value.as_bytes()) {
            let runs = self.runs.entry(run).or_default();
            for window in text.windows(run) {
                runs.entry(window.to_vec()).or_insert_with(|| (name.to_owned(), form));
            }
        }
    }

    /// How many secrets are looked for.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Which secrets `text` holds a run of, each with the form it has there.
    pub fn found_in(&self, text: &str) -> BTreeSet<(String, &'static str)> {
        let mut found = BTreeSet::new();
        for (run, runs) in &self.runs {
            found.extend(text.as_bytes().windows(*run).filter_map(|window| runs.get(window)).cloned());
        }
        found
    }
}

/// Forms of a secret, each with the length of a run of it that counts: [`SHORTEST_RUN`] bytes of the secret,
/// or fewer where a form takes several characters for one.
fn forms(secret: &[u8]) -> Vec<(&'static str, Vec<u8>, usize)> {
    let mut forms = vec![("plain", secret.to_vec(), SHORTEST_RUN)];
    let reversed: Vec<u8> = secret.iter().rev().copied().collect();
    forms.push(("reversed", reversed, SHORTEST_RUN));
    for lead in 0..3 {
        let text = [&vec![0; lead][..], secret].concat();
        for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
            // The first group depends on what stands before, the last one on what follows.
            forms.push(("base64", encoded.as_bytes()[4..encoded.len() - 4].to_vec(), 16));
        }
    }
    let mut each = |name, run, write: fn(&u8) -> String| {
        forms.push((name, secret.iter().map(write).collect::<String>().into_bytes(), run));
    };
    each("hex", 24, |byte| format!("{byte:02x}"));
    each("hex", 24, |byte| format!("{byte:02X}"));
    each("percent", 24, |byte| format!("%{byte:02x}"));
    each("percent", 24, |byte| format!("%{byte:02X}"));
    each("json escape", 36, |byte| format!("\\u{byte:04x}"));
    each("json escape", 36, |byte| format!("\\u{byte:04X}"));
    each("decimal", 36, |byte| format!("{byte}, "));
    each("decimal", 36, |byte| format!("{byte},"));
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LOG-14: the search finds a secret in every form, whole and in part, wherever it stands; and nothing
    /// in a text without one.
    #[test]
    fn a_secret_is_found_in_every_form() {
        let mut marks = Marks::default();
        let (secret, other) = (marks.secret("one"), marks.secret("other"));
        marks.add("line", "a line of a key, base64 by itself");
        assert_eq!(marks.count(), 3);
        let bytes = secret.as_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let escaped: String = bytes.iter().map(|byte| format!("\\u{byte:04x}")).collect();
        let percent: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
        for (form, written) in [
            ("plain", secret.clone()),
            ("plain", secret[20..20 + SHORTEST_RUN].to_owned()),
            ("reversed", secret.chars().rev().collect()),
            ("base64", STANDARD.encode(&secret)),
            ("base64", URL_SAFE.encode(format!("user:{secret}\n"))),
            ("base64", STANDARD.encode(format!("u:{secret}"))[20..40].to_owned()),
            ("hex", hex.clone()),
            ("hex", hex.to_uppercase()[31..60].to_owned()),
            ("json escape", escaped),
            ("percent", percent),
            ("decimal", format!("{bytes:?}")),
        ] {
            let found = marks.found_in(&format!("before {written} after"));
            assert_eq!(found, BTreeSet::from([("one".to_owned(), form)]), "{written}");
        }
        assert_eq!(marks.found_in(&format!("{other}{secret}")).len(), 2);
        assert_eq!(marks.found_in("INFO relayd: node node-1 is carried"), BTreeSet::new());
    }
}
