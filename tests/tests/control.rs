//! The control socket of a real relay against whoever connects to it: its file, its peers, its bounds, and that
//! no worker has it.
//!
//! Connecting as another user takes root. Without it that test fails; none is left out.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coreflow_tests::authority::Authority;
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::Cloudly;
use coreflow_tests::control::{Asker, STATUS, coreflowctl, coreflowctl_as, say};
use coreflow_tests::relay::{Relay, RelaySetup};
use coreflow_tests::waiting::{BOUND, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::UnixStream;

/// Most connections that are served at once.
const CONNECTIONS: usize = 8;
/// Longest exchange.
const EXCHANGE: Duration = Duration::from_secs(5);
/// A user that is neither root nor the relay's.
const STRANGER: u32 = 48_211;

async fn bed() -> (Cloudly, RelaySetup) {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority).notified().controlled();
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup.facing(&cloudly);
    (cloudly, setup)
}

async fn opened() -> (Cloudly, Relay) {
    let (cloudly, setup) = bed().await;
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    (cloudly, relay)
}

async fn stops(relay: &mut Relay) {
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(BOUND).await.unwrap(), 0);
}

/// The name of the error in an answer.
fn error(answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("no JSON: {answer:?}"));
    assert_eq!(answer.as_object().unwrap().len(), 1);
    answer["error"].as_str().unwrap().split(": ").next().unwrap().to_owned()
}

fn is_status(answer: &str) -> bool {
    serde_json::from_str::<Value>(answer).is_ok_and(|answer| answer["status"]["pid"].is_u64())
}

/// The socket is the owner's alone, answers in one line, and goes with the relay.
#[tokio::test]
async fn the_socket_is_the_owners_alone_and_goes_with_the_relay() {
    let (_cloudly, mut relay) = opened().await;
    let socket = relay.control_socket().to_owned();
    let metadata = socket.symlink_metadata().unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, nix::unistd::geteuid().as_raw()));
    let answer = say(&socket, STATUS).await.unwrap();
    assert!(is_status(&answer) && answer.ends_with("}\n") && answer.lines().count() == 1, "{answer}");
    stops(&mut relay).await;
    assert!(socket.symlink_metadata().is_err(), "the file is left behind");
}

/// The unit's runtime directory is the place of the socket, and `coreflowctl` looks there.
#[tokio::test]
async fn the_runtime_directory_of_the_unit_is_where_both_look() {
    let (_cloudly, mut setup) = bed().await;
    let directory = tempfile::tempdir().unwrap();
    setup.control_socket = None;
    let relay = setup.variable("RUNTIME_DIRECTORY", directory.path().to_str().unwrap()).start();
    relay.wait_open().await.unwrap();
    let program = binaries().join("coreflowctl");
    let asker = Asker { program: &program, user: None, runtime_directory: Some(directory.path()) };
    let said = coreflowctl_as(asker, &["status"]).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.contains(&format!(", pid {}, ", relay.pid())), "{}", said.stdout);
    assert!(directory.path().join("control.sock").exists());
}

/// A checkout has no socket: it is not a unit, and was told no place.
#[tokio::test]
async fn a_checkout_has_no_socket() {
    let (_cloudly, mut setup) = bed().await;
    setup.control_socket = None;
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    let files = std::fs::read_dir(relay.home()).unwrap().flatten();
    let sockets = files.filter(|file| file.file_type().unwrap().is_socket()).map(|file| file.file_name());
    assert_eq!(sockets.collect::<Vec<_>>(), ["notify"]);
}

/// Another user is kept out by the file's mode; where somebody opened the file and its directory to all, the
/// peer's credentials refuse by name, and one line counts them.
#[tokio::test]
async fn another_user_is_refused_twice() {
    assert!(nix::unistd::geteuid().is_root(), "this test asks as another user: run it as root");
    let (_cloudly, relay) = opened().await;
    let open = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    // A directory and an executable that the stranger can reach.
    let (home, socket) = (relay.home(), relay.control_socket());
    open(&home, 0o711);
    let program: PathBuf = home.join("coreflowctl");
    std::fs::copy(binaries().join("coreflowctl"), &program).unwrap();
    open(&program, 0o755);
    let stranger = Asker { program: &program, user: Some(STRANGER), runtime_directory: Some(&home) };
    let said = coreflowctl_as(stranger, &["status"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(said.stderr.starts_with("control-unreachable: ") && said.stderr.contains("permission denied"));
    assert!(!relay.lines().iter().any(|line| line.text.contains("control socket refused")));

    open(socket, 0o666);
    for _ in 0..3 {
        let said = coreflowctl_as(stranger, &["status", "--json"]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
        let refused = format!("control-peer-refused: user {STRANGER} is neither root nor the relay's own\n");
        assert_eq!(said.stderr, refused);
    }
    let line = relay.wait_line("the control socket refused 1 connections of other users").await.unwrap();
    assert!(line.text.contains(&format!("user={STRANGER}")), "{line:?}");
    let told = relay.lines().iter().filter(|line| line.text.contains("control socket refused")).count();
    assert_eq!(told, 1, "one line for the three");
    assert_eq!(relay.status().await.code, Some(0), "the relay's own user is served");
}

/// Eight that say nothing have all the places; a ninth is told so at once, and each of the eight is given up
/// in time. Neither costs the watchdog a feeding.
#[tokio::test]
async fn silent_clients_cost_their_places_for_a_bounded_time() {
    let (_cloudly, setup) = bed().await;
    let mut relay = setup.variable("WATCHDOG_USEC", "400000").start();
    relay.wait_open().await.unwrap();
    let socket = relay.control_socket().to_owned();
    let fed = || {
        let messages = relay.notify().unwrap().messages();
        messages.iter().filter(|message| message.contains("WATCHDOG=1")).count()
    };
    let (began, before) = (Instant::now(), fed());
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        silent.push(UnixStream::connect(&socket).await.unwrap());
    }
    assert_eq!(error(&say(&socket, STATUS).await.unwrap()), "control-busy");
    for mut stream in silent {
        let mut answer = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
        assert_eq!(error(&answer), "control-request-late");
    }
    assert!(began.elapsed() >= EXCHANGE);
    assert!(is_status(&say(&socket, STATUS).await.unwrap()));
    // One in 200 ms, of which a busy machine may miss most.
    assert!(fed() >= before + 5, "{} feedings in five seconds", fed() - before);
    stops(&mut relay).await;
}

/// Clients that say nothing, or read nothing, hold back no stop.
#[tokio::test]
async fn clients_that_hang_hold_back_no_stop() {
    let (_cloudly, mut relay) = opened().await;
    let mut hanging = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = UnixStream::connect(relay.control_socket()).await.unwrap();
        if number % 2 == 0 {
            tokio::io::AsyncWriteExt::write_all(&mut stream, &STATUS[..9]).await.unwrap();
        }
        hanging.push(stream);
    }
    stops(&mut relay).await;
    assert!(relay.control_socket().symlink_metadata().is_err());
    drop(hanging);
}

/// What is no request is refused by name, and the relay serves on.
#[tokio::test]
async fn garbage_is_refused_by_name() {
    let (_cloudly, relay) = opened().await;
    let socket = relay.control_socket();
    let endless = vec![b'x'; 1 << 20];
    for (request, name) in [
        (&b"\n"[..], "control-request-malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", "control-request-malformed"),
        (b"\xff\xfe\x00\x01\n", "control-request-malformed"),
        (b"[\"status\"]\n", "control-request-malformed"),
        (b"{\"command\":\"status\",\"more\":1}\n", "control-request-malformed"),
        (b"{\"command\":\"restart\"}\n", "control-request-malformed"),
        (b"{\"command\":\"restart\",\"worker\":\"supervisor\"}\n", "control-request-malformed"),
        (b"{\"command\":\"log\",\"worker\":\"relayd\",\"level\":\"loud\"}\n", "control-request-malformed"),
        (b"{\"command\":\"stop\"}\n", "control-command-unknown"),
        (&endless, "control-request-too-long"),
    ] {
        assert_eq!(error(&say(socket, request).await.unwrap()), name);
    }
    for _ in 0..50 {
        drop(UnixStream::connect(socket).await.unwrap());
    }
    let served = || std::os::unix::net::UnixStream::connect(socket).ok().map(drop);
    poll(BOUND, "place for another connection", served).await.unwrap();
    assert_eq!(relay.workers().len(), 2, "relayd and pulld run on");
    relay.wait_status_json("a relay that serves", |status| status["state"] == json!("open")).await.unwrap();
}

/// ARC-05: the inode of the listening socket is open in the supervisor, and in no worker; the same for a
/// connection that is open while a worker is started.
#[tokio::test]
async fn no_worker_has_the_socket_or_a_connection() {
    assert!(nix::unistd::geteuid().is_root(), "this test reads other users' descriptors: run it as root");
    let (_cloudly, relay) = opened().await;
    let socket = relay.control_socket();
    let _connection = UnixStream::connect(socket).await.unwrap();
    let killed = relay.kill_worker("pulld");
    relay.wait_worker("pulld", killed).await.unwrap();
    let inodes = inodes_of(socket);
    assert!(inodes.len() >= 2, "the listening socket and the connection: {inodes:?}");
    assert!(
        sockets_of(relay.pid()).iter().any(|open| inodes.contains(open)),
        "the search finds nothing at all"
    );
    for (role, pid) in relay.workers() {
        let open = sockets_of(pid);
        assert!(!open.is_empty(), "{role} has its link");
        assert!(open.iter().all(|open| !inodes.contains(open)), "{role}: {open:?}");
    }
}

/// The inodes of the sockets that are bound to `path`, connections among them.
fn inodes_of(path: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let named = table.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
    named.filter_map(|line| line.split_whitespace().nth(6)).map(str::to_owned).collect()
}

/// The inodes of the sockets that a process has open.
fn sockets_of(pid: u32) -> Vec<String> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inode = |target: PathBuf| {
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(inode.to_owned())
    };
    targets.filter_map(inode).collect()
}

/// START-15, START-19: what a killed relay left is replaced; while a relay lives, another one of the same socket
/// is a start that fails by name, and so is one whose socket would take the place of a file.
#[tokio::test]
async fn an_abandoned_socket_is_replaced_and_a_living_one_is_not() {
    let (_cloudly, mut setup) = bed().await;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    setup.control_socket = Some(socket.clone());
    let mut first = setup.start();
    first.wait_open().await.unwrap();
    first.signal(Signal::SIGKILL);
    first.wait_exit(BOUND).await.unwrap();
    assert!(socket.symlink_metadata().is_ok(), "a killed relay leaves its file");
    let error = coreflowctl(&["status", "--socket", socket.to_str().unwrap()]).await;
    assert_eq!(error.code, Some(1));
    assert!(error.stderr.contains("the relay that made this socket is gone"), "{}", error.stderr);

    let second = setup.start();
    second.wait_open().await.unwrap();
    let mut third = setup.start();
    assert_eq!(third.wait_exit(BOUND).await.unwrap(), 1);
    third.wait_line("the start failed: control-socket-served: another process answers on ").await.unwrap();
    assert!(is_status(&say(&socket, STATUS).await.unwrap()), "the living one is as it was");
    assert_eq!(second.status().await.code, Some(0));

    let file = directory.path().join("precious");
    std::fs::write(&file, "kept").unwrap();
    setup.control_socket = Some(file.clone());
    let mut fourth = setup.start();
    assert_eq!(fourth.wait_exit(BOUND).await.unwrap(), 1);
    fourth.wait_line("the start failed: control-socket-occupied: ").await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}

/// The exit status of `coreflowctl` tells wrong usage from a relay that does not answer; the help and the completions
/// of each shell need no relay.
#[tokio::test]
async fn coreflowctl_tells_what_went_wrong() {
    for arguments in [&[][..], &["restart"], &["status", "--socket"], &["status", "--watch", "0"]] {
        let said = coreflowctl(arguments).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(said.stderr.contains("For more information, try '--help'."), "{}", said.stderr);
    }
    for (arguments, part) in [
        (&["--help"][..], "Usage: coreflowctl <COMMAND>"),
        (
            &["status", "--help"],
            "Exit status: 0 ready, 3 not ready, 1 the relay does not answer, 2 wrong usage.",
        ),
        (&["restart", "--help"], "relayd: every connection of a node and of a pull ends"),
        (&["restart", "--help"], "3 it was restarted and is not back (restart-not-back)"),
        (&["--version"], "coreflowctl 33.1.0\n"),
        (&["completions", "bash"], "complete -F _coreflowctl"),
        (&["completions", "zsh"], "#compdef coreflowctl"),
        (&["completions", "fish"], "complete -c coreflowctl"),
    ] {
        let said = coreflowctl(arguments).await;
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(said.stdout.contains(part), "{}", said.stdout);
    }
    let said = coreflowctl(&["status", "--socket", "/nowhere/control.sock"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    assert!(said.stderr.starts_with("control-unreachable: /nowhere/control.sock: "), "{}", said.stderr);
}
