//! The supervisor holds the bearer, so what is linked into it is watched: the smallest tree of all
//! processes, without WebSocket, QUIC or HTTP/2.

use std::{collections::BTreeSet, process::Command};

/// Crates that may not be linked into the supervisor.
const REFUSED: [&str; 7] =
    ["tungstenite", "tokio-tungstenite", "quinn", "h2", "x509-parser", "openssl-sys", "aws-lc-rs"];

/// Most crates that may be; raised only with a reason in the commit.
const MOST: usize = 130;

/// The names of the crates that are linked into `package`.
fn linked(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--package",
            package,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo is what runs this test");
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    assert!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_supervisor_s_tree_is_small_and_without_what_it_does_not_speak() {
    let supervisor = linked("coreflow-supervisor");
    assert!(supervisor.contains("rustls") && supervisor.contains("hyper"), "{supervisor:?}");
    let refused: Vec<_> = REFUSED.iter().filter(|name| supervisor.contains(**name)).collect();
    assert!(refused.is_empty(), "{refused:?} are linked into the supervisor");
    assert!(supervisor.len() <= MOST, "{} crates: {supervisor:?}", supervisor.len());
    // The list finds what it looks for: relayd speaks WebSocket and HTTP/2.
    let relayd = linked("coreflow-relayd");
    assert!(relayd.contains("tungstenite") && relayd.contains("h2"));
}
