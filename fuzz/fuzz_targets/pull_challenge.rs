//! The rewriting of a challenge: the line is cut at the origin of its realms and nowhere else, so that it parses as
//! before with the relay's origin in the registry's place (PULL-10, PULL-11, PULL-12, PULL-13).
#![no_main]

use coreflow_fuzz::memory::peak_of;
use coreflow_pulld::{
    challenge::{Realm, rewritten},
    origin::Origin,
};
use libfuzzer_sys::fuzz_target;

const REGISTRY: &str = "https://registry.test";
const RELAY: &str = "https://relay.test:8443";
/// Bytes that a line costs in memory, in multiples of its own: a realm without its escapes has a place for each byte.
const MULTIPLE: usize = 48;
const LEAST: usize = 4 << 10;

/// Whether `line` becomes `moved` by `count` cuts, each of which puts the relay's origin where bytes of the line
/// stood: the shortest of an origin are those of the registry in plain.
fn is_cut(line: &[u8], moved: &[u8], count: usize) -> bool {
    if count == 0 {
        return line == moved;
    }
    let common = line.iter().zip(moved).take_while(|(one, other)| one == other).count();
    (0..=common.min(moved.len())).rev().any(|at| {
        let Some(behind) = moved[at..].strip_prefix(RELAY.as_bytes()) else { return false };
        let most = line.len() - at;
        (REGISTRY.len()..=most).any(|cut| is_cut(&line[at + cut..], behind, count - 1))
    })
}

fn moved(line: &[u8], registry: &Origin) -> (Vec<u8>, Vec<Realm>) {
    let ((out, found), peak) = peak_of(|| rewritten(line, registry, RELAY));
    assert!(peak <= MULTIPLE * line.len() + LEAST, "{peak} bytes for a line of {}", line.len());
    (out, found)
}

fuzz_target!(|line: &[u8]| {
    let registry = Origin::parse(REGISTRY).expect("the registry's is an origin");
    let relay = Origin::parse(RELAY).expect("the relay's is an origin");
    let (out, found) = moved(line, &registry);
    let own = found.iter().filter(|realm| matches!(realm, Realm::Own { .. })).count();
    if own == 0 {
        assert_eq!(out, line, "without a realm of its own a line stays");
    } else if own <= 2 && line.len() <= 400 {
        assert!(is_cut(line, &out, own), "{:?} -> {:?}", line.escape_ascii(), out.escape_ascii());
    }
    // Read once more, each realm that was the registry's is the relay's, in its place, and the others are as they were.
    let (again, still) = moved(&out, &registry);
    assert_eq!(again, out, "nothing of the registry's is left");
    assert_eq!(still.len(), found.len());
    for (before, after) in found.iter().zip(&still) {
        match before {
            Realm::Own { .. } => assert_eq!(*after, Realm::Foreign(relay.clone())),
            Realm::Foreign(_) => assert_eq!(after, before),
        }
    }
    // And back: the relay's origin is one of the same line.
    let (_, own_again) = moved(&out, &relay);
    let served = |found: &[Realm]| -> Vec<bool> {
        let own = found.iter().filter_map(|realm| match realm {
            Realm::Own { served } => Some(*served),
            Realm::Foreign(_) => None,
        });
        own.collect()
    };
    if !found.contains(&Realm::Foreign(relay)) {
        assert_eq!(
            served(&own_again),
            served(&found),
            "a realm leads below the relay's origin as below the registry's"
        );
    }
});
