//! How the supervisor keeps its workers, shown on the real processes: a death is named and healed, a worker
//! that lies is ended, and nothing outlives the supervisor. ARC-01, ARC-09, ARC-13, ARC-17 to ARC-20, ARC-22,
//! ARC-24, LIS-23, REG-13, REG-41, REG-44, REG-62.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use coreflow_ipc::hello::Role;
use coreflow_ipc::messages::Message;
use coreflow_ipc::messages::hub_report::HubReport;
use coreflow_ipc::messages::relayd::FromRelayd;
use coreflow_ipc::messages::vpnd::FromVpnd;
use coreflow_supervisor::constants::{HUB_ASK_BURST, HUB_REPORT_BURST, LINK_SPACING};
use coreflow_tests::authority::Authority;
use coreflow_tests::cloudly::Cloudly;
use coreflow_tests::dial;
use coreflow_tests::free_port::free_port;
use coreflow_tests::link_tap::{Injection, TappedRelease};
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::processes::is_alive;
use coreflow_tests::relay::{Relay, RelaySetup};
use coreflow_tests::waiting::{BOUND, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROLES: [&str; 3] = ["relayd", "pulld", "vpnd"];

async fn bed() -> (Cloudly, RelaySetup) {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority)
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup.facing(&cloudly);
    (cloudly, setup)
}

/// A relay that is open, accepted, and has all its workers.
async fn opened(cloudly: &Cloudly, setup: &RelaySetup) -> Relay {
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_for("getClusterConfig", 2).await.unwrap();
    all_workers(&relay).await;
    relay
}

async fn all_workers(relay: &Relay) -> BTreeMap<String, u32> {
    let look = || Some(relay.workers()).filter(|workers| workers.len() == ROLES.len());
    poll(BOUND, "relayd, pulld and vpnd", look).await.unwrap()
}

fn without(mut workers: BTreeMap<String, u32>, role: &str) -> BTreeMap<String, u32> {
    workers.remove(role);
    workers
}

/// The texts of the lines that contain `part`.
fn lines_with(relay: &Relay, part: &str) -> Vec<String> {
    let lines = relay.lines().into_iter().map(|line| line.text);
    lines.filter(|text| text.contains(part)).collect()
}

async fn wait_lines(relay: &Relay, part: &str, count: usize) -> Vec<String> {
    let look = || Some(lines_with(relay, part)).filter(|lines| lines.len() >= count);
    let waited = poll(BOUND, &format!("{count} lines of the relay with \"{part}\""), look).await;
    waited.unwrap_or_else(|late| panic!("{late} in {:#?}", relay.lines()))
}

/// A forward and a push, there and back.
async fn works(cloudly: &Cloudly, node: &PalletNode) {
    let binding = node.binding().unwrap();
    let body = format!(r#"{{"session":{binding}}}"#);
    node.request("getRuntimeRegistryCredential", &body).await.unwrap().outcome().unwrap();
    let body = format!(r#"{{"session":{binding},"assignment":{{"workload":"web"}}}}"#);
    cloudly.push("applyRuntimeAssignment", &body).await.unwrap().outcome().unwrap();
}

/// ARC-18, ARC-19, LIS-23: each worker that is killed is named with its signal and started again; the others
/// keep their process, dials wait instead of failing, and the relay serves as before.
#[tokio::test]
async fn a_killed_worker_is_named_and_healed() {
    let (cloudly, setup) = bed().await;
    let relay = opened(&cloudly, &setup).await;
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    works(&cloudly, &node).await;
    let mut registered = 1;
    for role in ["vpnd", "pulld", "relayd"] {
        let before = all_workers(&relay).await;
        let killed = relay.kill_worker(role);
        assert_eq!(killed, before.get(role).copied());
        if role == "relayd" {
            let line = format!("ERROR {role}: the worker killed by SIGKILL");
            relay.wait_line(&line).await.unwrap();
            assert!(!relay.workers().contains_key(role), "dialled while nobody accepts");
            let target = setup.target();
            let dials = (0..8).map(|_| dial::tls(&target));
            for dialled in futures_util::future::join_all(dials).await {
                dialled.expect("a dial during the restart waits and is served");
            }
            registered += 1;
        }
        relay.wait_worker(role, killed).await.unwrap();
        node.wait_registered(registered).await.unwrap();
        let named = lines_with(&relay, &format!("ERROR {role}: the worker killed by SIGKILL"));
        let pid = killed.unwrap();
        assert!(named.len() == 1 && named[0].contains(&format!("pid={pid}")), "{named:?}");
        assert_eq!(without(relay.workers(), role), without(before, role), "the others keep running");
        works(&cloudly, &node).await;
    }
    assert_eq!(cloudly.open_connections(), 1);
}

/// How many milliseconds each restart of `role` was put off.
fn delays(relay: &Relay, role: &str) -> Vec<u64> {
    let named = lines_with(relay, &format!("ERROR {role}: the worker killed"));
    let delay = |line: &String| {
        let (_, rest) = line.split_once("it is started again in ")?;
        rest.split(' ').next()?.parse().ok()
    };
    named.iter().filter_map(delay).collect()
}

fn open_descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or_default()
}

/// Children of `parent` that ended and were not reaped.
fn zombies(parent: u32) -> usize {
    let stats = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        Some((fields.next()?.to_owned(), fields.next()?.parse::<u32>().ok()?))
    });
    stats.filter(|(state, of)| state == "Z" && *of == parent).count()
}

/// ARC-18: the delay doubles, for each worker on its own, and ten deaths leave neither a descriptor nor a
/// zombie behind.
#[tokio::test]
async fn repeated_deaths_are_paced_and_leave_nothing_behind() {
    let (cloudly, setup) = bed().await;
    let relay = opened(&cloudly, &setup).await;
    let settled = open_descriptors(relay.pid());
    for round in 1..=3 {
        let before = all_workers(&relay).await;
        for role in ROLES {
            relay.kill_worker(role);
        }
        for role in ROLES {
            relay.wait_worker(role, before.get(role).copied()).await.unwrap();
        }
        let reopened = format!("{round} reopenings of relayd");
        let look = || (lines_with(&relay, "relayd serves again").len() == round).then_some(());
        poll(BOUND, &reopened, look).await.unwrap();
    }
    all_workers(&relay).await;
    relay.kill_worker("vpnd");
    wait_lines(&relay, "ERROR vpnd: the worker killed", 4).await;
    all_workers(&relay).await;
    for role in ROLES {
        let delays = delays(&relay, role);
        let expected = [500, 1000, 2000, 4000];
        assert!(delays.len() >= 3, "{role}: {delays:?}");
        for (delay, expected) in delays.iter().zip(expected) {
            assert!((expected..expected + 50).contains(delay), "{role}: {delays:?}");
        }
    }
    // Ten deaths: one descriptor lost by each would be ten more. A few come and go with exchanges and links.
    let look = || (open_descriptors(relay.pid()) <= settled + 5).then_some(());
    poll(BOUND, &format!("state with {settled} descriptors of the supervisor"), look).await.unwrap();
    assert_eq!(zombies(relay.pid()), 0);
}

/// A worker that lives and does not answer is killed by name and replaced.
#[tokio::test]
async fn a_worker_that_does_not_answer_is_replaced() {
    let (cloudly, setup) = bed().await;
    let relay = opened(&cloudly, &setup).await;
    let before = relay.workers();
    let pulld = before["pulld"];
    kill(Pid::from_raw(i32::try_from(pulld).unwrap()), Signal::SIGSTOP).unwrap();
    let gone =
        poll(Duration::from_secs(30), "end of the stopped worker", || (!is_alive(pulld)).then_some(()));
    gone.await.unwrap();
    relay.wait_worker("pulld", Some(pulld)).await.unwrap();
    assert_eq!(lines_with(&relay, "WARN pulld: the worker is killed: it does not answer").len(), 1);
    assert_eq!(without(relay.workers(), "pulld"), without(before, "pulld"));
}

/// A relayd whose listener stands still while its core runs is killed by name and replaced.
#[tokio::test]
async fn a_relayd_whose_listener_stands_still_is_replaced() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test stops a thread of a confined worker: run it as root"
    );
    let (cloudly, setup) = bed().await;
    let relay = opened(&cloudly, &setup).await;
    let relayd = relay.workers()["relayd"];
    let threads = std::fs::read_dir(format!("/proc/{relayd}/task")).unwrap().flatten();
    let named =
        |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "listener");
    let listener =
        threads.map(|thread| thread.path()).find(|path| named(path)).expect("its thread has a name");
    let thread: i32 = listener.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let (let_go, wait) = std::sync::mpsc::channel::<()>();
    let (stopped, begun) = tokio::sync::oneshot::channel();
    let debugger = std::thread::spawn(move || {
        use nix::sys::ptrace::{Options, interrupt, seize};
        let thread = Pid::from_raw(thread);
        stopped.send(seize(thread, Options::empty()).and_then(|()| interrupt(thread))).unwrap();
        let _ = wait.recv();
    });
    begun.await.unwrap().unwrap();
    let killed = || {
        let lines = lines_with(&relay, "WARN relayd: the worker is killed: it does not answer");
        (!lines.is_empty()).then_some(())
    };
    poll(Duration::from_secs(60), "end of a relayd that does not accept", killed).await.unwrap();
    let_go.send(()).unwrap();
    debugger.join().unwrap();
    relay.wait_worker("relayd", Some(relayd)).await.unwrap();
    relay.wait_line("relayd serves again").await.unwrap();
}

/// ARC-18: a worker that dies under a debugger which looks away is started again all the same, is said to be held, and
/// leaves no entry of the process table behind once the debugger is gone.
#[tokio::test]
async fn a_worker_that_dies_under_a_debugger_is_reaped_after_it() {
    assert!(nix::unistd::geteuid().is_root(), "this test traces a confined worker: run it as root");
    let (cloudly, setup) = bed().await;
    let relay = opened(&cloudly, &setup).await;
    let pulld = relay.workers()["pulld"];
    let process = Pid::from_raw(i32::try_from(pulld).unwrap());
    let (let_go, wait) = std::sync::mpsc::channel::<()>();
    let (seized, begun) = tokio::sync::oneshot::channel();
    // Who traces is a thread, and what it traces is let go with its end.
    let debugger = std::thread::spawn(move || {
        seized.send(nix::sys::ptrace::seize(process, nix::sys::ptrace::Options::empty())).unwrap();
        let _ = wait.recv();
    });
    begun.await.unwrap().unwrap();
    kill(process, Signal::SIGKILL).unwrap();
    relay.wait_line("ended under a debugger, which holds it").await.unwrap();
    relay.wait_worker("pulld", Some(pulld)).await.unwrap();
    assert_eq!(zombies(relay.pid()), 1, "the debugger holds it");
    let_go.send(()).unwrap();
    debugger.join().unwrap();
    poll(BOUND, "end of the entry", || (zombies(relay.pid()) == 0).then_some(())).await.unwrap();
}

/// ARC-20: no worker outlives a supervisor that is killed, whatever the worker is doing.
#[tokio::test]
async fn a_killed_supervisor_leaves_no_worker() {
    let (cloudly, setup) = bed().await;
    let mut relay = opened(&cloudly, &setup).await;
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    let workers = all_workers(&relay).await;
    // One that does not even run.
    kill(Pid::from_raw(i32::try_from(workers["vpnd"]).unwrap()), Signal::SIGSTOP).unwrap();
    relay.signal(Signal::SIGKILL);
    let left = || workers.values().all(|pid| !is_alive(*pid)).then_some(());
    poll(Duration::from_secs(2), "end of every worker", left).await.unwrap();
    assert_eq!(relay.wait_exit(BOUND).await, Ok(-9));
    cloudly.wait_open_connections(0).await.unwrap();
    assert!(std::net::TcpStream::connect(setup.target().address).is_err(), "nobody listens");
}

fn sequences(cloudly: &Cloudly) -> Vec<u64> {
    let calls = cloudly.calls_of("registerClusterRelay");
    calls.iter().filter_map(|call| call.body_json()["registrationSequence"].as_u64()).collect()
}

/// ARC-17, REG-13, REG-41, REG-44: sequence, record and pinned credential outlive relayd. A new relayd goes on
/// with the next number, refuses a record that is not the last one's, and parks on another credential.
#[tokio::test]
async fn what_is_kept_outlives_relayd() {
    let (cloudly, setup) = bed().await;
    let relay = opened(&cloudly, &setup).await;
    let killed = relay.kill_worker("relayd");
    relay.wait_worker("relayd", killed).await.unwrap();
    // The second relayd's read after its acceptance: what it accepted is with the supervisor by then.
    cloudly.wait_for("getClusterConfig", 4).await.unwrap();
    assert_eq!(sequences(&cloudly), [0, 1]);

    cloudly.change(|settings| settings.registration_id = "another-record".to_owned());
    let killed = relay.kill_worker("relayd");
    relay.wait_worker("relayd", killed).await.unwrap();
    let refused =
        "record another-record generation 3, which does not advance relay-registration-1 generation 2";
    relay.wait_line(refused).await.unwrap();
    assert_eq!(sequences(&cloudly), [0, 1, 2]);

    cloudly.change(|settings| settings.credential_id = "another-credential".to_owned());
    let killed = relay.kill_worker("relayd");
    relay.wait_worker("relayd", killed).await.unwrap();
    let parked = "this relay is bound to cluster relay credential relay-credential-1 generation 1, which was";
    relay.wait_line(parked).await.unwrap();
    assert_eq!(sequences(&cloudly), [0, 1, 2, 3]);
    let pinned =
        lines_with(&relay, "this relay is bound to cluster relay credential relay-credential-1 generation 1");
    assert_eq!(pinned.len(), 2, "pinned once and parked once: {pinned:?}");
}

/// ARC-09, ARC-17, REG-62: a relay that is parked stays so when relayd is restarted: no exchange reaches
/// Cloudly any more, the parked line stands once, and the process lives.
#[tokio::test]
async fn a_parked_relay_stays_parked() {
    let (cloudly, setup) = bed().await;
    let mut relay = opened(&cloudly, &setup).await;
    relay.signal(Signal::SIGUSR1);
    relay.wait_line("the log level is TRACE").await.unwrap();
    cloudly.rotate_credential("the-bearer-of-the-next-generation");
    cloudly.drop_connections();
    let parked = "relay-credential-generation-stale: this relay is bound to";
    relay.wait_line(parked).await.unwrap();
    let (exchanges, registrations) = (cloudly.exchanges(), sequences(&cloudly).len());
    for count in 1..=2 {
        let killed = relay.kill_worker("relayd");
        relay.wait_worker("relayd", killed).await.unwrap();
        wait_lines(&relay, "relayd: the worker is confined by ", count).await;
    }
    assert_eq!((cloudly.exchanges(), sequences(&cloudly).len()), (exchanges, registrations));
    assert_eq!(lines_with(&relay, parked).len(), 1);
    assert!(is_alive(relay.pid()));
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(BOUND).await, Ok(0));
}

fn tap() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_coreflow-link-tap"))
}

/// ARC-24: a worker that states another version is refused by name and fails the start.
#[tokio::test]
async fn a_worker_of_another_version_fails_the_start() {
    let (cloudly, mut setup) = bed().await;
    let release = TappedRelease::lay_out(tap(), Some(("33.1.0", "33.1.9")));
    setup.executables = Some(release.directory());
    let mut relay = setup.start();
    assert_eq!(relay.wait_exit(BOUND).await, Ok(1));
    let line = relay.wait_line("the start failed: hello-version-refused: relayd").await.unwrap();
    assert!(line.stderr && line.text.contains("33.1.9") && line.text.contains("33.1.0"), "{line:?}");
    assert_eq!((cloudly.exchanges(), relay.workers()), (0, BTreeMap::new()));
}

/// ARC-13: a worker that breaks a rule of its link is named, ended and replaced, whatever it says: the relay
/// stands, and serves again.
#[tokio::test]
async fn a_worker_that_lies_is_ended_and_replaced() {
    let (cloudly, mut setup) = bed().await;
    let release = TappedRelease::lay_out(tap(), None);
    setup.executables = Some(release.directory());
    let relay = opened(&cloudly, &setup).await;
    let random: [u8; 64] = std::array::from_fn(|at| (at as u8).wrapping_mul(151) | 0x80);
    let lies: [(&str, Injection<'_>, &str); 6] = [
        ("vpnd", Injection::FirstFrameAgain, "ipc-message-repeated: Hello"),
        ("pulld", Injection::Bytes(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]), "ipc-frame-too-long: 2147483647"),
        // AskListener, a second time.
        ("relayd", Injection::Bytes(&[0, 0, 0, 2, 4, 0]), "ipc-message-repeated: AskListener"),
        ("vpnd", Injection::Bytes(&[0, 0, 0, 0]), "ipc-frame-empty"),
        ("pulld", Injection::Bytes(&[0, 0, 0, 3, 9, 9, 9]), "ipc-message-malformed"),
        ("relayd", Injection::Bytes(&random), "ipc-frame-too-long"),
    ];
    for pair in lies.chunks(3) {
        let before = all_workers(&relay).await;
        let reopened = lines_with(&relay, "relayd serves again").len();
        for (role, lie, _) in pair {
            release.inject(role, *lie);
        }
        for (role, _, name) in pair {
            let words = format!("ERROR {role}: the worker broke a rule of its link: {name}");
            relay.wait_line(&words).await.unwrap_or_else(|late| panic!("{late}: {:#?}", relay.lines()));
            relay.wait_worker(role, before.get(*role).copied()).await.unwrap();
        }
        wait_lines(&relay, "relayd serves again", reopened + 1).await;
    }
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    works(&cloudly, &node).await;
    // What it wrote before it was ended is named; nothing of it went into the log.
    assert_eq!(lines_with(&relay, "the worker is killed: it broke a rule of its link").len(), lies.len());
}

/// A vpnd that floods the supervisor with reports, or with asks for its socket, is ended by name and replaced; relayd and
/// its nodes notice nothing, and the next vpnd's reports are shown.
#[tokio::test]
async fn a_vpnd_that_floods_the_supervisor_is_ended_and_replaced() {
    let (cloudly, mut setup) = bed().await;
    let release = TappedRelease::lay_out(tap(), None);
    setup.executables = Some(release.directory());
    let relay = opened(&cloudly, &setup).await;
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    let before = all_workers(&relay).await;
    let mut former = before["vpnd"];
    for (ended, (said, many, name)) in [
        (FromVpnd::Report(HubReport::default()), 10 * HUB_REPORT_BURST, "ipc-message-too-often: Report"),
        (FromVpnd::AskSocket { id: 7 }, 2 * HUB_ASK_BURST, "ipc-message-too-often: AskSocket"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut flood = Vec::new();
        for _ in 0..many {
            said.append(&mut flood).unwrap();
        }
        // Before it is confined a vpnd breaks another rule by the first of them.
        let confined =
            || (lines_with(&relay, "INFO vpnd: the worker is confined").len() > ended).then_some(());
        poll(BOUND, "a vpnd that is confined", confined).await.unwrap();
        release.inject("vpnd", Injection::Bytes(&flood));
        relay.wait_line(&format!("ERROR vpnd: the worker broke a rule of its link: {name}")).await.unwrap();
        former = relay.wait_worker("vpnd", Some(former)).await.unwrap();
    }
    works(&cloudly, &node).await;
    assert_eq!((node.registrations().len(), relay.workers()["relayd"]), (1, before["relayd"]));
}

/// A relayd that gives up each link to vpnd as soon as it has it is given another one each time, and one a second at most;
/// a loss that it repeats is none.
#[tokio::test]
async fn a_link_that_is_lost_again_is_made_anew_at_a_pace() {
    let (cloudly, mut setup) = bed().await;
    let release = TappedRelease::lay_out(tap(), None);
    setup.executables = Some(release.directory());
    let relay = opened(&cloudly, &setup).await;
    let before = all_workers(&relay).await;
    relay.signal(Signal::SIGUSR1);
    relay.wait_line("the log level is TRACE").await.unwrap();
    let greeted = "DEBUG vpnd: the link to relayd is greeted";
    let begun = Instant::now();
    for number in 1..=3 {
        let mut lost = Vec::new();
        for _ in 0..20 {
            FromRelayd::LinkLost { role: Role::Vpnd, number }.append(&mut lost).unwrap();
        }
        release.inject("relayd", Injection::Bytes(&lost));
        wait_lines(&relay, greeted, number as usize).await;
    }
    assert!(begun.elapsed() >= 2 * LINK_SPACING, "made anew within {:?}", begun.elapsed());
    assert_eq!(lines_with(&relay, "the link between the workers ended and is made anew").len(), 3);
    assert_eq!(all_workers(&relay).await, before);
}

/// ARC-01: the top-level folders.
#[test]
fn the_folders_are_the_specified_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["supervisor", "relayd", "vpnd", "pulld", "ipc", "tests", "systemd"] {
        assert!(root.join(folder).is_dir(), "there is no folder {folder}");
    }
    for package in ["supervisor", "relayd", "vpnd", "pulld", "ipc", "tests"] {
        assert!(root.join(package).join("Cargo.toml").is_file(), "{package} is no package");
    }
}

/// ARC-22: with four processes writing at the most verbose level, each line is whole: a level, a process, and
/// one event.
#[tokio::test]
async fn lines_of_different_processes_never_mix() {
    let (cloudly, setup) = bed().await;
    let relay = opened(&cloudly, &setup).await;
    relay.signal(Signal::SIGUSR1);
    relay.wait_line("the log level is TRACE").await.unwrap();
    let nodes = ["node-1", "node-2"].map(|node| PalletNode::start(Setup::new(setup.target(), node)));
    for node in &nodes {
        node.wait_registered(1).await.unwrap();
    }
    for round in 2..=4 {
        cloudly.drop_connections();
        for node in &nodes {
            node.wait_registered(round).await.unwrap();
        }
    }
    for role in ["pulld", "vpnd"] {
        let killed = relay.kill_worker(role);
        relay.wait_worker(role, killed).await.unwrap();
        wait_lines(&relay, &format!("DEBUG {role}: the link to relayd is greeted"), 1).await;
    }
    let lines = relay.lines();
    for line in &lines {
        let whole = line.text.split_once(' ').is_some_and(|(level, rest)| {
            let process = rest.split_once(": ").map(|(process, _)| process);
            let levels = if line.stderr { &["ERROR", "WARN"][..] } else { &["INFO", "DEBUG", "TRACE"] };
            levels.contains(&level)
                && process.is_some_and(|name| name == "supervisor" || ROLES.contains(&name))
        });
        assert!(whole, "not one whole line: {line:?}");
    }
    let of = |role: &str| lines.iter().filter(|line| line.text.contains(&format!(" {role}: "))).count();
    assert!(ROLES.iter().all(|role| of(role) > 0) && of("supervisor") > 0);
}
