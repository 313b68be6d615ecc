//! The corpus that the fuzz targets start from is of the messages as they are: a seed of a former form is bytes that no
//! reader takes, and a minute of fuzzing then begins at nothing.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{collections::BTreeSet, fs, path::Path};

use bytes::Bytes;
use coreflow_ipc::messages::{
    Message,
    peers::{RelaydToVpnd, VpndToRelayd},
    pulld::{FromPulld, ToPulld},
    pulls::{PulldToRelayd, RelaydToPulld},
    relayd::{FromRelayd, ToRelayd},
    vpnd::{FromVpnd, ToVpnd},
};
use coreflow_supervisor::control::protocol::{Answer, Command};

/// A direction of a link, as the target `ipc_messages` numbers it: the file and the name of its messages, and whether
/// bytes are one of them.
type Direction = (&'static str, &'static str, fn(&Bytes) -> bool);

const DIRECTIONS: [Direction; 10] = [
    ("relayd", "ToRelayd", is_read::<ToRelayd>),
    ("relayd", "FromRelayd", is_read::<FromRelayd>),
    ("pulld", "ToPulld", is_read::<ToPulld>),
    ("pulld", "FromPulld", is_read::<FromPulld>),
    ("vpnd", "ToVpnd", is_read::<ToVpnd>),
    ("vpnd", "FromVpnd", is_read::<FromVpnd>),
    ("pulls", "RelaydToPulld", is_read::<RelaydToPulld>),
    ("pulls", "PulldToRelayd", is_read::<PulldToRelayd>),
    ("peers", "RelaydToVpnd", is_read::<RelaydToVpnd>),
    ("peers", "VpndToRelayd", is_read::<VpndToRelayd>),
];

fn is_read<M: Message>(bytes: &Bytes) -> bool {
    M::of_bytes(bytes).is_ok()
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The seeds of a target.
fn seeds(target: &str) -> impl Iterator<Item = Vec<u8>> {
    let folder = fs::read_dir(workspace().join("fuzz/corpus").join(target)).unwrap();
    folder.map(|seed| fs::read(seed.unwrap().path()).unwrap())
}

/// The names of an enum's variants, in the order by which the codec numbers them.
fn variants(file: &str, of: &str) -> Vec<String> {
    let source = fs::read_to_string(workspace().join(file)).unwrap();
    let (_, after) = source.split_once(&format!("pub enum {of} {{\n")).unwrap();
    let (inside, _) = after.split_once("\n}").unwrap();
    let lines = inside.lines().filter_map(|line| line.strip_prefix("    "));
    let named = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    named.map(|line| line.split(['(', ' ', ',']).next().unwrap().to_owned()).collect()
}

/// ARC-13: each message of each direction of each link has a seed that is read to its end.
#[test]
fn each_message_of_each_link_has_a_seed_that_is_read() {
    let mut read = BTreeSet::new();
    for seed in seeds("ipc_messages") {
        let [direction, message @ ..] = &seed[..] else { continue };
        let direction = usize::from(*direction) % DIRECTIONS.len();
        if DIRECTIONS[direction].2(&Bytes::copy_from_slice(message)) {
            read.insert((direction, usize::from(message[0])));
        }
    }
    let mut missing = Vec::new();
    for (direction, (file, of, _)) in DIRECTIONS.into_iter().enumerate() {
        let variants = variants(&format!("ipc/src/messages/{file}.rs"), of);
        assert!(variants.len() > 1, "the messages of {of} were found: {variants:?}");
        let without = variants.iter().enumerate().filter(|(at, _)| !read.contains(&(direction, *at)));
        missing.extend(without.map(|(_, name)| format!("{of}::{name}")));
    }
    assert!(missing.is_empty(), "without a seed that is read: {missing:?}");
}

/// PROT-22: so has each request and each answer of the control socket, both ends of which the target reads.
#[test]
fn each_line_of_the_control_socket_has_a_seed_that_is_read() {
    let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for seed in seeds("control_socket") {
        let Ok(line) = serde_json::from_slice::<serde_json::Value>(&seed) else { continue };
        if Command::read(&seed).is_ok() {
            asked.insert(line["command"].as_str().unwrap().to_owned());
        } else if serde_json::from_slice::<Answer>(&seed).is_ok() {
            answered.extend(line.as_object().unwrap().keys().next().cloned());
        }
    }
    for (file, of, read) in [
        ("supervisor/src/control/command.rs", "Command", asked),
        ("supervisor/src/control/protocol.rs", "Answer", answered),
    ] {
        let named: BTreeSet<String> = variants(file, of).iter().map(|name| name.to_lowercase()).collect();
        assert_eq!(read, named, "{of}");
    }
}
