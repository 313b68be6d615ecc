//! The search of a process's memory for a secret (TST-06, SES-17): every readable mapping, for
//! the secret as it is, in base64 and percent-encoded, and for any run of it of at least
//! [`SHORTEST_RUN`] bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// The shortest run of a secret, or of an encoded form of it, that counts as found.
pub const SHORTEST_RUN: usize = 12;

/// Bytes of a gram that is looked up at each step.
const GRAM: usize = 4;
/// With this step every run of [`SHORTEST_RUN`] bytes holds a whole gram at a looked-up place.
const STEP: usize = SHORTEST_RUN - GRAM + 1;
const CHUNK: u64 = 1024 * 1024;
const PAGE: u64 = 4096;

/// Where a run of the secret lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The mapping's name, such as `[heap]`; empty for an anonymous one.
    pub mapping: String,
    /// Bytes from the mapping's beginning.
    pub offset: u64,
    /// `plain`, `base64` or `percent`.
    pub form: &'static str,
    /// The run's length in bytes, as far as one read showed it.
    pub length: usize,
}

/// What a search saw.
#[derive(Debug, Default)]
pub struct Scan {
    /// Every run found.
    pub found: Vec<Place>,
    /// Bytes read.
    pub read: u64,
    /// Bytes the kernel refused to read, by mapping name (`[vvar]`, secret memory).
    pub skipped: BTreeMap<String, u64>,
}

struct Needle {
    forms: Vec<(&'static str, Vec<u8>)>,
    grams: BTreeMap<[u8; GRAM], Vec<(usize, usize)>>,
    first_bytes: [bool; 256],
}

impl Needle {
    fn new(secret: &[u8]) -> Self {
        let mut forms = vec![("plain", secret.to_vec())];
        // Base64 depends on where in a group of three the secret begins; the characters that
        // depend on neighbours are left out by the shortest run.
        for lead in 0..3 {
            let text = [&vec![0; lead][..], secret].concat();
            let own = |encoded: String| encoded.as_bytes()[(lead * 8).div_ceil(6)..].to_vec();
            forms.push(("base64", own(STANDARD.encode(&text))));
            forms.push(("base64", own(URL_SAFE.encode(&text))));
        }
        for upper in [true, false] {
            forms.push(("percent", percent(secret, upper)));
        }
        // A form that reads as an earlier one is that one; the plain form is the first.
        let mut distinct: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for (name, form) in forms {
            if distinct.iter().all(|(_, known)| *known != form) {
                distinct.push((name, form));
            }
        }
        let forms = distinct;
        let mut grams: BTreeMap<[u8; GRAM], Vec<(usize, usize)>> = BTreeMap::new();
        let mut first_bytes = [false; 256];
        for (number, (_, form)) in forms.iter().enumerate() {
            for (at, gram) in form.windows(GRAM).enumerate() {
                let gram: [u8; GRAM] = gram.try_into().expect("a window has its length");
                first_bytes[usize::from(gram[0])] = true;
                grams.entry(gram).or_default().push((number, at));
            }
        }
        Self { forms, grams, first_bytes }
    }

    fn search(&self, bytes: &[u8], mut found: impl FnMut(usize, &'static str, usize)) {
        for at in (0..bytes.len().saturating_sub(GRAM - 1)).step_by(STEP) {
            if !self.first_bytes[usize::from(bytes[at])] {
                continue;
            }
            for &(number, within) in self.grams.get(&bytes[at..at + GRAM]).into_iter().flatten() {
                let (name, form) = &self.forms[number];
                let same = |(one, other): &(&u8, &u8)| one == other;
                let before =
                    form[..within].iter().rev().zip(bytes[..at].iter().rev()).take_while(same).count();
                let after = form[within..].iter().zip(&bytes[at..]).take_while(same).count();
                if before + after >= SHORTEST_RUN {
                    found(at - before, name, before + after);
                }
            }
        }
    }
}

fn percent(secret: &[u8], upper: bool) -> Vec<u8> {
    let mut encoded = String::new();
    for byte in secret {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(*byte))
            }
            other if upper => encoded.push_str(&format!("%{other:02X}")),
            other => encoded.push_str(&format!("%{other:02x}")),
        }
    }
    encoded.into_bytes()
}

/// Searches the memory of process `pid` for `secret`. Mappings that vanish meanwhile count as
/// skipped.
///
/// # Errors
/// When the process is gone, or the caller may not read it (root may).
///
/// # Panics
/// When `secret` is shorter than [`SHORTEST_RUN`].
pub fn search(pid: u32, secret: &[u8]) -> io::Result<Scan> {
    assert!(secret.len() >= SHORTEST_RUN, "a secret under {SHORTEST_RUN} bytes cannot be told from chance");
    let needle = Needle::new(secret);
    let overlap = needle.forms.iter().map(|(_, form)| form.len()).max().unwrap_or(0) as u64;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut scan = Scan::default();
    for mapping in maps.lines().filter_map(Mapping::read) {
        let mut at = mapping.start;
        while at < mapping.end {
            let until = (at + CHUNK).min(mapping.end);
            // A run that begins in this chunk may end in the next.
            read_span(&memory, at, (until + overlap).min(mapping.end), until, &mut scan, &mapping, &needle)?;
            at = until;
        }
    }
    scan.found.sort();
    scan.found.dedup();
    Ok(scan)
}

struct Mapping {
    start: u64,
    end: u64,
    name: String,
}

impl Mapping {
    /// A readable mapping of one line of `maps`.
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        if !fields.next()?.starts_with('r') {
            return None;
        }
        let name = fields.skip(3).collect::<Vec<_>>().join(" ");
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Self { start: number(start)?, end: number(end)?, name })
    }
}

/// Reads `start..end` whole, or page by page up to `until` where the kernel refuses a part.
fn read_span(
    memory: &File,
    start: u64,
    end: u64,
    until: u64,
    scan: &mut Scan,
    mapping: &Mapping,
    needle: &Needle,
) -> io::Result<()> {
    let mut bytes = vec![0; usize::try_from(end - start).expect("a chunk fits")];
    let found = &mut scan.found;
    let note = |base: u64, bytes: &[u8], found: &mut Vec<Place>| {
        needle.search(bytes, |at, form, length| {
            let offset = base + at as u64 - mapping.start;
            found.push(Place { mapping: mapping.name.clone(), offset, form, length });
        });
    };
    match memory.read_exact_at(&mut bytes, start) {
        Ok(()) => {
            scan.read += until - start;
            note(start, &bytes, found);
            return Ok(());
        }
        Err(error) if refused(&error) => {}
        Err(error) => return Err(error),
    }
    // Neighbouring readable pages are searched as one piece.
    let (mut piece, mut piece_start) = (Vec::new(), start);
    let mut at = start;
    while at < until {
        let mut page = vec![0; usize::try_from(PAGE).expect("a page fits")];
        match memory.read_exact_at(&mut page, at) {
            Ok(()) => {
                scan.read += PAGE;
                piece.extend_from_slice(&page);
            }
            Err(error) if refused(&error) => {
                *scan.skipped.entry(mapping.name.clone()).or_default() += PAGE;
                note(piece_start, &piece, found);
                piece.clear();
                piece_start = at + PAGE;
            }
            Err(error) => return Err(error),
        }
        at += PAGE;
    }
    note(piece_start, &piece, found);
    Ok(())
}

/// The kernel refuses memory that is not there or not to be read with EIO or EFAULT; a short
/// read stands for the same in the middle of a span.
fn refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(5 | 14)) || error.kind() == io::ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::envelope::random_hex;

    /// A secret planted in a child is found, one that is not there is not.
    #[test]
    fn a_planted_secret_is_found_in_a_child() {
        let (planted, absent) = (random_hex::<24>(), random_hex::<24>());
        let mut child = Command::new("cat").env("PLANTED", &planted).stdin(Stdio::piped()).spawn().unwrap();
        let there = search(child.id(), planted.as_bytes()).unwrap();
        let nowhere = search(child.id(), absent.as_bytes()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            there.found.iter().any(|place| place.form == "plain" && place.length == planted.len()),
            "{there:?}"
        );
        assert_eq!(nowhere.found, []);
        assert!(nowhere.read > 0);
    }

    /// A secret on the heap of a process is found there, also in base64.
    #[test]
    fn a_planted_secret_is_found_on_the_heap() {
        let secret = random_hex::<24>();
        let carried = STANDARD.encode(format!("token={secret}"));
        let forms: std::collections::BTreeSet<&str> = search(std::process::id(), secret.as_bytes())
            .unwrap()
            .found
            .iter()
            .map(|place| place.form)
            .collect();
        assert!(forms.contains("plain") && forms.contains("base64"), "{forms:?} of {}", carried.len());
    }

    /// Every form is found at every alignment, a run of twelve bytes too, one of eleven not.
    #[test]
    fn every_form_and_any_long_run_is_found() {
        let secret = b"aB3/+ x9!kQ7$mN2@pL5?";
        let needle = Needle::new(secret);
        let forms_in = |bytes: &[u8]| {
            let mut forms = Vec::new();
            needle.search(bytes, |_, form, _| forms.push(form));
            forms
        };
        for shift in 0..STEP {
            let at = |bytes: &[u8]| [&vec![b'.'; shift][..], bytes, b"...."].concat();
            assert!(forms_in(&at(&secret[4..16])).contains(&"plain"));
            assert_eq!(forms_in(&at(&secret[4..15])), [] as [&str; 0]);
            assert!(forms_in(&at(&percent(secret, true))).contains(&"percent"));
            let carried = [&vec![b'x'; shift][..], secret].concat();
            assert!(forms_in(STANDARD.encode(carried).as_bytes()).contains(&"base64"));
        }
    }
}
