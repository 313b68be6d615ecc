//! The manual pages of the tree are those of the command lines.

use std::{collections::BTreeSet, fs, path::Path};

#[path = "../examples/man_pages.rs"]
#[allow(dead_code, reason = "the example writes what is compared here")]
mod man_pages;

/// A command line that was changed has its pages written anew, and none is left of a command that is gone.
#[test]
fn the_manual_pages_are_those_of_the_command_lines() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man");
    let anew = "write them anew: cargo run -p coreflow-supervisor --example man_pages docs/man";
    let pages = man_pages::pages().expect("pages are written to memory");
    for name in ["coreflow.8", "coreflowctl.8", "coreflowctl-status.8", "coreflowctl-trace.8"] {
        assert!(pages.contains_key(name), "{name} of {:?}", pages.keys());
    }
    let there = fs::read_dir(&directory).expect("the pages lie in docs/man");
    let there: BTreeSet<String> =
        there.map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(there, pages.keys().cloned().collect(), "{anew}");
    for (name, page) in &pages {
        let text = fs::read(directory.join(name)).expect("it was listed");
        assert!(text == *page, "{name} is stale; {anew}");
    }
}

/// What the help of `coreflow` lists is in its page, each option with its words.
#[test]
fn the_page_of_the_relay_has_each_option() {
    let pages = man_pages::pages().expect("pages are written to memory");
    let page = String::from_utf8(pages["coreflow.8"].clone()).expect("a page is text").replace('\\', "");
    for part in
        ["--qenv-directory", "--vpn-daemon-path", "--control-socket", "--version", "and no .nogit overlay"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = String::from_utf8(pages["coreflowctl-status.8"].clone()).expect("a page is text");
    assert!(page.contains("Exit status: 0 ready, 3 not ready"), "{page}");
}
