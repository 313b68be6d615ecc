//! Each reader of bytes that another process or the network sent has a fuzz target: a new one is not forgotten.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The packages whose readers are fuzzed.
const PACKAGES: [&str; 5] = ["ipc", "supervisor", "relayd", "pulld", "vpnd"];

/// Files with a reader, the target that feeds it, and the words by which the target does.
const FUZZED: [(&str, &str, &str); 38] = [
    ("ipc/src/codec.rs", "ipc_messages", "of_bytes("),
    ("ipc/src/frame.rs", "ipc_frames", "next_frame("),
    ("ipc/src/record.rs", "ipc_messages", "FromWorker::Record"),
    ("ipc/src/typedrequest.rs", "typedrequest", "read(&frame)"),
    ("pulld/src/answer.rs", "pull_answer", "selected("),
    ("pulld/src/challenge.rs", "pull_challenge", "rewritten("),
    ("pulld/src/origin.rs", "pull_challenge", "Origin::parse("),
    ("pulld/src/request.rs", "http_heads", "request::Asked::new("),
    ("relayd/src/certificate.rs", "certificate", "Loaded::check("),
    ("relayd/src/cluster.rs", "cluster_document", "cluster::read("),
    ("relayd/src/contract/cluster.rs", "cluster_document", "cluster::read("),
    ("relayd/src/contract/exact.rs", "route_table", "validate_cluster_route_table("),
    ("relayd/src/contract/identity.rs", "contract_bodies", "SessionRegistered"),
    ("relayd/src/contract/ingress.rs", "contract_bodies", "IngressRegistration"),
    ("relayd/src/contract/members.rs", "contract_bodies", "Bound"),
    ("relayd/src/contract/offer.rs", "contract_bodies", "Release::parse("),
    ("relayd/src/contract/registration.rs", "contract_bodies", "acceptance::read("),
    ("relayd/src/contract/renewal.rs", "renewal_run", "validate_hold("),
    ("relayd/src/contract/renewal/binders.rs", "renewal_run", "bind_projection_acknowledgement("),
    ("relayd/src/contract/route_table.rs", "route_table", "validate_cluster_route_table("),
    ("relayd/src/contract/runtime.rs", "contract_bodies", "Addressed"),
    ("relayd/src/contract/values.rs", "contract_bodies", "Id::parse("),
    ("relayd/src/contract/vpn_network.rs", "vpn_network", "validate_cluster_vpn_network("),
    ("relayd/src/hub/reading.rs", "contract_bodies", "read_carried("),
    ("relayd/src/listener/http.rs", "http_heads", "refuse_head("),
    ("relayd/src/protocol.rs", "contract_bodies", "protocol::judge("),
    ("relayd/src/pulls/request.rs", "http_heads", "pulls::judge("),
    ("relayd/src/registration/acceptance.rs", "contract_bodies", "acceptance::read("),
    ("relayd/src/websocket/unproven.rs", "node_messages", "inlet.bounded("),
    ("supervisor/src/configuration/cloudly_url.rs", "configuration", "CloudlyUrl::parse("),
    ("supervisor/src/control/command.rs", "control_socket", "Command::read("),
    ("supervisor/src/exchange/envelope.rs", "exchange_answer", "parse(body"),
    ("vpnd/src/hub/forwarding.rs", "vpn_packets", "judge("),
    ("vpnd/src/hub/network.rs", "vpn_snapshot", "Network::of("),
    ("vpnd/src/protocol/control.rs", "vpn_handshake", "Grant::decode("),
    ("vpnd/src/protocol/frame.rs", "vpn_packets", "Frame::decode("),
    ("vpnd/src/protocol/ipv4.rs", "vpn_packets", "Header::parse("),
    ("vpnd/src/protocol/noise.rs", "vpn_handshake", "Asked::read("),
];

/// Files whose readers meet no bytes of another process, each with what they read.
const OF_THIS_SIDE: [(&str, &str); 4] = [
    ("ipc/src/sys/secret_pages.rs", "copies bytes and understands none"),
    ("ipc/src/worker.rs", "the arguments that the supervisor starts a worker with"),
    ("supervisor/src/options.rs", "the arguments that the operator starts the relay with"),
    ("vpnd/src/hub/admission.rs", "an address, which the kernel states"),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

fn text(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The Rust sources below `directory`, tests aside, as paths from the workspace.
fn sources(directory: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            into.push(path.strip_prefix(workspace()).unwrap().to_string_lossy().into_owned());
        }
    }
}

/// Whether code has a public function of a reader's name, as the house names them, or is a wire type of the contract.
fn has_reader(path: &str, text: &str) -> bool {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let functions = code.lines().filter_map(|line| line.trim().strip_prefix("pub fn "));
    let mut names = functions.filter_map(|line| line.split(['(', '<']).next());
    let reads = |name: &str| {
        ["read", "parse", "decode", "judge"].contains(&name)
            || ["read_", "parse_", "decode_", "validate_"].iter().any(|start| name.starts_with(start))
    };
    names.any(reads) || path.starts_with("relayd/src/contract/") && code.contains("Deserialize")
}

fn targets() -> BTreeSet<String> {
    let files = fs::read_dir(workspace().join("fuzz/fuzz_targets")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    names.map(|name| name.strip_suffix(".rs").expect("targets are Rust files").to_owned()).collect()
}

/// ARC-13: a reader of foreign bytes is fed by a fuzz target, or is listed as one that reads none.
#[test]
fn each_reader_of_foreign_bytes_has_a_target() {
    let mut paths = Vec::new();
    for package in PACKAGES {
        sources(&workspace().join(package).join("src"), &mut paths);
    }
    let listed: BTreeSet<&str> = FUZZED
        .iter()
        .map(|(path, ..)| *path)
        .chain(OF_THIS_SIDE.iter().map(|(path, what)| {
            assert!(!what.is_empty());
            *path
        }))
        .collect();
    let readers: Vec<&String> = paths.iter().filter(|path| has_reader(path, &text(path))).collect();
    assert!(readers.len() >= 20, "the names of readers are recognised: {readers:?}");
    let forgotten: Vec<_> = readers.into_iter().filter(|path| !listed.contains(path.as_str())).collect();
    assert!(forgotten.is_empty(), "without a fuzz target: {forgotten:?}");
    for path in listed {
        assert!(paths.iter().any(|other| other == path), "{path} is listed and does not exist");
    }
}

/// What is listed is so, and each target is built, has a corpus and feeds some reader.
#[test]
fn each_target_feeds_the_readers_that_are_listed() {
    let targets = targets();
    for (path, target, words) in FUZZED {
        assert!(
            text(&format!("fuzz/fuzz_targets/{target}.rs")).contains(words),
            "{target} does not feed {path}"
        );
    }
    let manifest = text("fuzz/Cargo.toml");
    let built: BTreeSet<String> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""))
        .map(str::to_owned)
        .collect();
    assert_eq!(built, targets);
    for target in &targets {
        let corpus = workspace().join("fuzz/corpus").join(target);
        assert!(
            fs::read_dir(&corpus).is_ok_and(|mut seeds| seeds.next().is_some()),
            "{target} has no corpus"
        );
    }
}

/// ARC-13: the messages of every direction of every link are decoded by the target of messages.
#[test]
fn each_direction_of_a_link_is_decoded_by_a_target() {
    let mut paths = Vec::new();
    sources(&workspace().join("ipc/src/messages"), &mut paths);
    let target = text("fuzz/fuzz_targets/ipc_messages.rs");
    let mut directions = 0;
    for path in paths {
        for line in text(&path).lines() {
            let Some(kind) = line.strip_prefix("message!(").and_then(|rest| rest.split(',').next()) else {
                continue;
            };
            directions += 1;
            let decoded =
                ["crosses::<", "Some("].iter().any(|before| target.contains(&format!("{before}{kind}")));
            assert!(decoded, "{kind} of {path} is decoded by no target");
        }
    }
    assert!(directions >= 10, "{directions} directions are found");
}
