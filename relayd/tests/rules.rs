//! Rules of the source tree that no compiler checks, each as a test over the files.
#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The packages of the workspace whose sources the rules are about.
const PACKAGES: [&str; 7] = ["ipc", "supervisor", "relayd", "pulld", "vpnd", "release", "tests"];

/// The files that decide and may not act.
const MACHINES: [&str; 13] = [
    "session.rs",
    "certificate/renewal.rs",
    "registration.rs",
    "forwarder.rs",
    "ingress.rs",
    "hub.rs",
    "continuity.rs",
    "escrow.rs",
    "readiness.rs",
    "protocol.rs",
    "pending.rs",
    "cluster.rs",
    "core.rs",
];

/// The machines whose every part decides alone; beside `session.rs` lies its dialler, which acts.
const MACHINE_DIRECTORIES: [&str; 6] =
    ["registration/", "forwarder/", "escrow/", "ingress/", "hub/", "core/"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

/// A Rust source file: its path from the workspace, and its text.
struct Source {
    path: String,
    text: String,
}

fn collect(directory: &Path, root: &Path, into: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                collect(&path, root, into);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            into.push(Source { path, text });
        }
    }
}

fn sources() -> Vec<Source> {
    let root = workspace();
    let mut sources = Vec::new();
    for package in PACKAGES {
        let before = sources.len();
        collect(&root.join(package), &root, &mut sources);
        assert!(sources.len() > before, "{package} has sources");
    }
    sources
}

impl Source {
    fn of_tests(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// The lines before the file's own test module, with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
        lines.enumerate().map(|(at, line)| (at + 1, without_comment(line)))
    }
}

/// The line up to a comment; a `//` inside a string literal is none.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'/' if !quoted && line[at..].starts_with("//") => return &line[..at],
            _ => {}
        }
    }
    line
}

/// Whether `word` stands in the line as an identifier of its own.
fn names(line: &str, word: &str) -> bool {
    let part = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// The text of each string literal of a line.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// TST-05: time, sockets, files and tasks are the wiring's; a machine is driven by events alone, which say
/// what time it is, so each of its decisions (backoff, pacing, budgets) is tested against a clock in the test's
/// hand.
#[test]
fn machines_know_no_runtime_clock_socket_or_file() {
    let sources = sources();
    for machine in MACHINES {
        let path = format!("relayd/src/{machine}");
        assert!(sources.iter().any(|source| source.path == path), "{path} is listed and does not exist");
    }
    let machine = |source: &&Source| {
        let path = source.path.strip_prefix("relayd/src/");
        path.is_some_and(|path| {
            MACHINES.contains(&path)
                || MACHINE_DIRECTORIES.iter().any(|directory| path.starts_with(directory))
                    && !source.of_tests()
        })
    };
    for source in sources.iter().filter(machine) {
        let path = &source.path;
        for (number, line) in source.code() {
            for word in ["tokio", "Instant", "SystemTime", "TcpStream", "UdpSocket", "TcpListener"] {
                assert!(!names(line, word), "{path}:{number} names {word}");
            }
            for text in ["std::fs", "fs::", "std::net", "std::thread", "spawn(", "async ", ".await"] {
                assert!(!line.contains(text), "{path}:{number} names {text}");
            }
        }
    }
}

/// A machine that is added is listed above: whatever of relayd's machines has a directory of scripts has.
#[test]
fn each_machine_with_scripts_is_listed() {
    for source in sources() {
        let Some(rest) = source.path.strip_prefix("relayd/src/") else { continue };
        let Some(machine) = rest.strip_suffix("/tests.rs") else { continue };
        if source.text.contains("struct Script") {
            assert!(MACHINES.contains(&format!("{machine}.rs").as_str()), "{machine} is no listed machine");
        }
    }
}

/// The names that a refusal's text begins with, by their first part.
const PREFIXES: [&str; 8] = [
    "relay-",
    "runtime-session-",
    "escrow-",
    "protocol-refused",
    "coreflow-retired",
    "cluster-",
    "pull-",
    "vpn-",
];

/// The refusal's name that a literal begins with, if it is one: what stands before `: `.
fn refusal_name(literal: &str) -> Option<&str> {
    let name = literal.split(':').next()?;
    let kebab = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && name.contains('-');
    (kebab && PREFIXES.iter().any(|prefix| name.starts_with(prefix))).then_some(name)
}

/// Every refusal that relayd states or recognises stands in the one table.
#[test]
fn every_refusal_stands_in_the_table() {
    let sources = sources();
    let stated = |source: &Source| -> Vec<(usize, String)> {
        let of = |(number, line)| {
            let names: Vec<String> = literals(line).filter_map(refusal_name).map(str::to_owned).collect();
            names.into_iter().map(move |name| (number, name))
        };
        source.code().flat_map(of).collect()
    };
    let table = sources.iter().find(|source| source.path == "relayd/src/refusals.rs").unwrap();
    let table: BTreeSet<String> = stated(table).into_iter().map(|(_, name)| name).collect();
    assert!(table.len() >= 14, "{table:?}");
    let mut missing = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("relayd/src/") && !source.of_tests())
    {
        for (number, name) in stated(source) {
            if !table.contains(&name) {
                missing.push(format!("{}:{number} {name}", source.path));
            }
        }
    }
    assert!(missing.is_empty(), "not in refusals.rs: {missing:#?}");
}

/// A file is one capability; at 500 lines it is two.
#[test]
fn no_source_file_exceeds_500_lines() {
    let lines = |source: &Source| source.text.lines().count();
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| lines(source) > 500)
        .map(|source| format!("{}: {} lines", source.path, lines(source)))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// ARC-23 and house rule: `unsafe` stands where a system call needs it, under one module, and in tests;
/// each use says why it is sound, and its file says why it is there.
#[test]
fn unsafe_code_is_confined_and_documented() {
    let mut uses = 0;
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        let tests_from = lines.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(lines.len());
        for (at, line) in lines.iter().enumerate() {
            // A literal is what is talked about, not what is done.
            let code: String = without_comment(line).split('"').step_by(2).collect();
            if !names(&code, "unsafe") {
                continue;
            }
            uses += 1;
            let place = format!("{}:{}", source.path, at + 1);
            let allowed = source.path.starts_with("ipc/src/sys/") || source.of_tests() || at > tests_from;
            assert!(allowed, "{place} is outside ipc/src/sys and tests");
            let before = &lines[at.saturating_sub(8)..at];
            assert!(before.iter().any(|line| line.contains("// SAFETY:")), "{place} has no SAFETY line");
            let expected = source.text.contains("[expect(unsafe_code, reason = \"");
            assert!(expected, "{place}: the file does not expect unsafe_code with a reason");
        }
    }
    assert!(uses > 20, "the rule sees the uses there are: {uses}");
}

/// The rules' own readers.
#[test]
fn the_readers_of_the_rules_read() {
    assert_eq!(without_comment(r#"a("http://x"); // tokio"#), r#"a("http://x"); "#);
    assert_eq!(without_comment(r#"'\\' "\"//" /"#), r#"'\\' "\"//" /"#);
    assert!(names("use std::time::{Duration, Instant};", "Instant") && !names("fn Instantly()", "Instant"));
    assert!(!names("#![expect(unsafe_code)]", "unsafe") && names("unsafe{ f() }", "unsafe"));
    assert_eq!(refusal_name("relay-node-unknown: {node}"), Some("relay-node-unknown"));
    assert_eq!(refusal_name("relay.origin: x"), None);
    assert_eq!(refusal_name("relay"), None);
}
