//! How the relay starts and stops: the steps and their order, what fails a start and what does not, and what
//! each signal leads to. START-01 to START-27, START-30, START-31, CFG-07, CFG-16, CFG-22, CFG-41, CFG-42,
//! LIS-08 to LIS-16, REL-38, REL-39.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use coreflow_tests::authority::{Authority, Flaw};
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::{Cloudly, Front, Gate, Settings, Step};
use coreflow_tests::envelope;
use coreflow_tests::free_port::free_port;
use coreflow_tests::offer::Offer;
use coreflow_tests::pallet::{PalletNode, Reaction, Setup};
use coreflow_tests::processes::is_alive;
use coreflow_tests::relay::{BearerPlace, Relay, RelaySetup};
use coreflow_tests::waiting::{BOUND, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::json;

const OPEN: &str = "the relay is open for Cloudly dispatch";
/// A stop that waits for nobody.
const STOP: Duration = Duration::from_secs(5);

async fn bed() -> (Cloudly, RelaySetup) {
    bed_with(|_, _| {}).await
}

/// A Cloudly whose facts `change` made other than the ordinary ones, and the setup of its relay.
async fn bed_with(change: impl FnOnce(&mut Settings, &Authority)) -> (Cloudly, RelaySetup) {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority).notified();
    let mut settings = setup.cloudly_settings();
    change(&mut settings, &authority);
    let cloudly = Cloudly::start(&authority, settings).await;
    let setup = setup.facing(&cloudly);
    (cloudly, setup)
}

fn hub(setup: RelaySetup) -> RelaySetup {
    setup
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string())
}

fn accepts(setup: &RelaySetup) -> bool {
    TcpStream::connect(setup.target().address).is_ok()
}

fn count(relay: &Relay, part: &str) -> usize {
    relay.lines().iter().filter(|line| line.text.contains(part)).count()
}

fn notified(relay: &Relay, assignment: &str) -> usize {
    let messages = relay.notify().expect("the setup has a notify socket").messages();
    messages.iter().flat_map(|message| message.lines()).filter(|line| *line == assignment).count()
}

/// The start fails with exit 1, the cause goes to standard error, no listener was open, nothing is left
/// running, and systemd was not told that it is ready (START-06, START-15, START-16). Gives the cause.
async fn fails(setup: &RelaySetup, cause: &str) -> String {
    let mut relay = setup.start();
    let code = relay.wait_exit(BOUND).await;
    assert_eq!(code, Ok(1), "{:#?}", relay.lines());
    let line = relay.wait_line("the start failed: ").await.unwrap();
    assert!(line.stderr && line.text.contains(cause), "{line:?}");
    assert_eq!((count(&relay, OPEN), relay.workers()), (0, BTreeMap::new()));
    if relay.notify().is_some() {
        assert_eq!(notified(&relay, "READY=1"), 0);
    }
    line.text
}

/// Stops the relay with `signal` and expects exit 0 and no process (START-10, START-11).
async fn stops(relay: &mut Relay, signal: Signal) {
    let workers = relay.workers();
    relay.signal(signal);
    let code = relay.wait_exit(STOP).await;
    assert_eq!(code, Ok(0), "{:#?}", relay.lines());
    assert!(workers.values().all(|pid| !is_alive(*pid)), "a worker is left");
    relay.wait_line("INFO supervisor: the relay stopped").await.unwrap();
}

/// START-16, START-17, CFG-07: everything that is missing is named at once.
#[tokio::test]
async fn missing_launch_facts_fail_the_start_and_are_named_together() {
    let (_cloudly, mut setup) = bed().await;
    setup.bearer_place = BearerPlace::Nowhere;
    let line = fails(&setup.without("CLOUDLY_URL"), "missing ").await;
    assert!(line.contains("CLOUDLY_URL") && line.contains("SERVEZONE_CLUSTER_RELAY_AUTHORIZATION"), "{line}");
    let (_cloudly, setup) = bed().await;
    let setup = setup.without("COREFLOW_NODE_ID").without("COREFLOW_RELAY_BIND_HOSTNAME");
    let line = fails(&setup, "missing ").await;
    assert!(line.contains("COREFLOW_NODE_ID") && line.contains("COREFLOW_RELAY_BIND_HOSTNAME"), "{line}");
}

/// START-18, CFG-16: a bearer that Cloudly refuses fails the start; one that was stored with a line break is
/// sent as it is, and the cause names the line break.
#[tokio::test]
async fn a_refused_bearer_fails_the_start() {
    let (cloudly, mut setup) = bed().await;
    let right = std::mem::replace(&mut setup.bearer, "not-the-bearer-of-this-cluster".to_owned());
    let line = fails(&setup, "identity-token-refused").await;
    assert!(!line.contains("line break") && !line.contains(&setup.bearer), "{line}");
    setup.bearer = format!("{right}\n");
    let line = fails(&setup, "identity-token-refused").await;
    assert!(line.contains("the stored bearer ends with a line break") && !line.contains(&right), "{line}");
    let sent = cloudly.calls_of("getIdentityByToken").pop().unwrap().body_json();
    assert_eq!(sent["token"], format!("{right}\n"));
}

/// START-19: an address that the host lacks, and a port that is taken.
#[tokio::test]
async fn a_listener_that_cannot_be_bound_fails_the_start() {
    let (_cloudly, setup) = bed().await;
    let elsewhere = setup.clone().variable("COREFLOW_RELAY_BIND_HOSTNAME", "192.0.2.1");
    let line = fails(&elsewhere, "listener-bind-failed: 192.0.2.1:").await;
    assert!(line.contains("COREFLOW_RELAY_BIND_HOSTNAME"), "{line}");
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, setup.port)).unwrap();
    fails(&setup, "listener-bind-failed: 127.0.0.1:").await;
}

/// CFG-22, LIS-09, LIS-10, LIS-11: a relay block that cannot be served fails the start.
#[tokio::test]
async fn a_relay_block_that_cannot_be_served_fails_the_start() {
    for (block, cause) in [
        (json!({"origin": "https://relay.localhost.test:1"}), "relay-origin-port-foreign"),
        (json!({"origin": "http://relay.localhost.test"}), "relay-block-invalid: relay.origin"),
        (json!({"origin": "https://relay.localhost.test", "more": 1}), "relay-block-invalid"),
        (json!({}), "relay-block-invalid"),
    ] {
        let (cloudly, setup) = bed_with(|settings, _| settings.relay_block = Some(block)).await;
        fails(&setup, cause).await;
        assert_eq!(cloudly.calls_of("getCertificateForDomain").len(), 0, "{cause}");
        cloudly.wait_open_connections(0).await.unwrap();
    }
}

/// LIS-13 to LIS-16: a certificate that cannot be served fails the start; the cause names the domain and
/// quotes no material.
#[tokio::test]
async fn a_certificate_that_cannot_be_served_fails_the_start() {
    for flaw in [Some(Flaw::Expired), Some(Flaw::NotYetValid), Some(Flaw::ForeignKey), None] {
        let (cloudly, setup) = bed_with(|settings, authority| {
            let issued = match flaw {
                Some(flaw) => authority.issue_flawed(&["relay.localhost.test"], flaw),
                None => authority.issue(&["other.localhost.test"]),
            };
            settings.certificates.insert("relay.localhost.test".to_owned(), issued);
        })
        .await;
        let line = fails(&setup, "relay-certificate-refused: relay.localhost.test: ").await;
        let issued = cloudly.change(|settings| settings.certificates["relay.localhost.test"].clone());
        for pem in [issued.chain_pem, issued.key_pem] {
            assert!(pem.lines().all(|material| !line.contains(material)), "{line}");
        }
    }
}

/// START-01, START-02, START-04, LIS-08: without a relay block no listener opens and none of its facts is
/// needed; the relay is ready.
#[tokio::test]
async fn without_a_relay_block_there_is_no_listener() {
    let (cloudly, setup) = bed_with(|settings, _| settings.relay_block = None).await;
    let setup = setup.without("COREFLOW_NODE_ID").without("COREFLOW_RELAY_BIND_HOSTNAME");
    let mut relay = setup.start();
    relay.wait_open().await.unwrap();
    relay.wait_line("its nodes target Cloudly directly, and no listener opens").await.unwrap();
    relay.notify().unwrap().wait("READY=1").await.unwrap();
    assert!(!accepts(&setup));
    assert_eq!(relay.workers().into_keys().collect::<Vec<_>>(), ["relayd"]);
    let methods: Vec<String> = cloudly.calls().into_iter().map(|call| call.method).collect();
    assert_eq!(methods, ["getIdentityByToken", "registerCloudlyClientSession", "getClusterConfig"]);
    stops(&mut relay, Signal::SIGTERM).await;
}

/// START-01, START-03, START-04, START-05, START-07, START-08, START-09, REL-38: the listener is the last step
/// and the line comes with it; before it the port refuses; nothing else is asked of Cloudly, no credential and no
/// binding; the registration follows, and a refused one changes nothing.
#[tokio::test]
async fn the_listener_opens_last_and_does_not_wait_for_the_registration() {
    let (cloudly, setup) = bed().await;
    let (config, certificate) = (Gate::default(), Gate::default());
    cloudly.once("getClusterConfig", Step::When(config.clone(), Box::new(Step::Ordinary)));
    cloudly.once("getCertificateForDomain", Step::When(certificate.clone(), Box::new(Step::Ordinary)));
    cloudly.always("registerClusterRelay", Step::refuse("relay-node-unknown: not enrolled"));
    let mut relay = setup.start();
    for (method, gate) in [("getClusterConfig", &config), ("getCertificateForDomain", &certificate)] {
        cloudly.wait_for(method, 1).await.unwrap();
        assert!(!accepts(&setup) && count(&relay, OPEN) == 0, "{method} is not answered");
        assert_eq!(cloudly.calls_of("registerClusterRelay").len(), 0);
        gate.open();
    }
    relay.wait_open().await.unwrap();
    assert!(accepts(&setup), "the line comes with the listener");
    relay.wait_line("registration refused: relay-node-unknown: not enrolled").await.unwrap();
    let methods: Vec<String> = cloudly.calls().into_iter().map(|call| call.method).collect();
    let order = ["getIdentityByToken", "registerCloudlyClientSession", "getClusterConfig"];
    assert_eq!(methods[..3], order);
    assert_eq!(methods[3..], ["getCertificateForDomain", "registerClusterRelay"]);
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    assert_eq!((count(&relay, OPEN), notified(&relay, "READY=1")), (1, 1));
    stops(&mut relay, Signal::SIGINT).await;
}

/// START-09: a registration that is never answered leaves the relay serving, and stoppable.
#[tokio::test]
async fn a_registration_without_an_answer_does_not_hold_the_start() {
    let (cloudly, setup) = bed().await;
    cloudly.always("registerClusterRelay", Step::Never);
    let mut relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_for("registerClusterRelay", 1).await.unwrap();
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    stops(&mut relay, Signal::SIGTERM).await;
}

/// START-14: a signal at each step of a start leads to an orderly stop.
#[tokio::test]
async fn a_signal_during_the_start_stops_it() {
    let (cloudly, setup) = bed().await;
    cloudly.go_away().await;
    let mut relay = setup.start();
    relay.wait_line("no identity: ").await.unwrap();
    stops(&mut relay, Signal::SIGTERM).await;

    // Something accepts and never says a word.
    let (_cloudly, setup) = bed_with(|settings, _| settings.front = Front::Silent).await;
    let mut relay = setup.start();
    relay.wait_worker("relayd", None).await.unwrap();
    relay.wait_line("INFO supervisor: the bearer is held in").await.unwrap();
    stops(&mut relay, Signal::SIGINT).await;

    for method in
        ["getIdentityByToken", "registerCloudlyClientSession", "getClusterConfig", "getCertificateForDomain"]
    {
        let (cloudly, setup) = bed().await;
        cloudly.always(method, Step::Never);
        let mut relay = setup.start();
        cloudly.wait_for(method, 1).await.unwrap();
        stops(&mut relay, Signal::SIGTERM).await;
        assert_eq!((count(&relay, OPEN), notified(&relay, "READY=1")), (0, 0), "{method}");
        cloudly.wait_open_connections(0).await.unwrap();
    }
}

/// START-10, START-22, START-23, REL-39: a stop tells systemd, closes the session and ends every worker, the
/// VPN daemon among them.
#[tokio::test]
async fn a_stop_closes_the_session_and_ends_every_worker() {
    let (cloudly, setup) = bed().await;
    let setup = hub(setup);
    let mut relay = setup.start();
    relay.wait_open().await.unwrap();
    let vpnd = relay.wait_worker("vpnd", None).await.unwrap();
    relay.wait_worker("pulld", None).await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    stops(&mut relay, Signal::SIGTERM).await;
    assert!(!is_alive(vpnd));
    cloudly.wait_open_connections(0).await.unwrap();
    assert_eq!(count(&relay, "ERROR "), 0, "{:#?}", relay.lines());
    assert_eq!(notified(&relay, "STOPPING=1"), 1);
    assert!(!accepts(&setup));
}

/// A relay with a node that does not answer pushes by itself.
async fn with_silent_node() -> (Cloudly, RelaySetup, Relay, PalletNode, String) {
    let (cloudly, setup) = bed().await;
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.react("applyRuntimeAssignment", Reaction::Never);
    let binding = node.wait_registered(1).await.unwrap();
    let body = format!(r#"{{"session":{binding},"assignment":{{"workload":"web"}}}}"#);
    (cloudly, setup, relay, node, body)
}

/// START-24, START-25, START-22: a stop waits for a push of Cloudly that is in flight, and its answer reaches
/// Cloudly before the session is closed; meanwhile nobody else is let in.
#[tokio::test]
async fn a_stop_waits_for_what_cloudly_asked() {
    let (cloudly, setup, mut relay, node, body) = with_silent_node().await;
    let binding = node.binding().unwrap();
    let push = cloudly.push("applyRuntimeAssignment", &body);
    let stopped = async {
        let pushed = node.wait_push("applyRuntimeAssignment", 1).await.unwrap();
        relay.signal(Signal::SIGTERM);
        relay.wait_line("INFO supervisor: the relay stops").await.unwrap();
        poll(BOUND, "refused dial", || (!accepts(&setup)).then_some(())).await.unwrap();
        assert!(is_alive(relay.pid()) && cloudly.open_connections() == 1, "it waits");
        let acknowledged = format!(r#"{{"session":{binding},"admitted":"late"}}"#);
        let late = envelope::answer("applyRuntimeAssignment", &acknowledged, &pushed.message.ids);
        node.carrier().unwrap().send_text(late).await;
    };
    let (answer, ()) = tokio::join!(push, stopped);
    let answer = answer.expect("the answer reaches Cloudly").outcome().unwrap();
    assert!(answer.get().contains(r#""admitted":"late""#), "{answer}");
    assert_eq!(relay.wait_exit(STOP).await, Ok(0));
    cloudly.wait_open_connections(0).await.unwrap();
}

/// START-13: a second signal ends a stop that waits, at once and with exit 1, and takes the workers with it.
#[tokio::test]
async fn a_second_signal_ends_the_stop_at_once() {
    let (cloudly, _setup, mut relay, node, body) = with_silent_node().await;
    let workers = relay.workers();
    let ended = async {
        node.wait_push("applyRuntimeAssignment", 1).await.unwrap();
        relay.signal(Signal::SIGTERM);
        relay.wait_line("INFO supervisor: the relay stops").await.unwrap();
        relay.signal(Signal::SIGINT);
        assert_eq!(relay.wait_exit(Duration::from_secs(1)).await, Ok(1));
    };
    let (answer, ()) = tokio::join!(cloudly.push("applyRuntimeAssignment", &body), ended);
    assert!(answer.is_err(), "nobody answered");
    let left = || workers.values().all(|pid| !is_alive(*pid)).then_some(());
    poll(Duration::from_secs(2), "end of every worker", left).await.unwrap();
}

/// START-10, START-11, START-14, START-23: the interrupt of a terminal, which the whole foreground group gets, is a stop in
/// order: no worker ends by it, during the start neither, and none is started again.
#[tokio::test]
async fn an_interrupt_of_the_whole_group_stops_in_order() {
    for open in [true, false] {
        let (_cloudly, setup) = bed().await;
        let mut setup = hub(setup);
        setup.own_group = true;
        let mut relay = setup.start();
        relay.wait_worker("relayd", None).await.unwrap();
        if open {
            relay.wait_open().await.unwrap();
            relay.wait_worker("vpnd", None).await.unwrap();
            relay.wait_worker("pulld", None).await.unwrap();
        }
        let workers = relay.workers();
        nix::sys::signal::killpg(Pid::from_raw(i32::try_from(relay.pid()).unwrap()), Signal::SIGINT).unwrap();
        assert_eq!(relay.wait_exit(STOP).await, Ok(0), "{:#?}", relay.lines());
        assert!(workers.values().all(|pid| !is_alive(*pid)), "a worker is left");
        assert_eq!(count(&relay, "ERROR ") + count(&relay, "it is started again"), 0, "{:#?}", relay.lines());
    }
}

/// START-12, START-23, START-25: a relayd that hangs waits for nothing. It is killed by name, within the time of the unit,
/// the others end after it, and the stop has failed.
#[tokio::test]
async fn a_stop_does_not_wait_for_a_relayd_that_hangs() {
    let (_cloudly, _setup, mut relay, _node, _body) = with_silent_node().await;
    let workers = relay.workers();
    relay.signal_worker("relayd", workers["relayd"], Signal::SIGSTOP);
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(Duration::from_secs(60)).await, Ok(1), "{:#?}", relay.lines());
    relay.wait_line("WARN relayd: the worker is killed: it does not answer").await.unwrap();
    relay.wait_line("ERROR relayd: the worker killed by SIGKILL during the stop").await.unwrap();
    relay.wait_line("INFO supervisor: the relay stopped").await.unwrap();
    assert!(workers.values().all(|pid| !is_alive(*pid)), "a worker is left");
}

/// START-13: a second signal ends such a stop at once, names who was waited for, and leaves no worker.
#[tokio::test]
async fn a_second_signal_ends_a_relayd_that_hangs() {
    let (_cloudly, _setup, mut relay, _node, _body) = with_silent_node().await;
    let workers = relay.workers();
    relay.signal_worker("relayd", workers["relayd"], Signal::SIGSTOP);
    relay.signal(Signal::SIGTERM);
    relay.wait_line("INFO supervisor: the relay stops").await.unwrap();
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(STOP).await, Ok(1));
    let line = relay.wait_line("a second signal came while the relay stops: it ends at once").await.unwrap();
    assert!(line.text.contains("relayd"), "{line:?}");
    let left = || workers.values().all(|pid| !is_alive(*pid)).then_some(());
    poll(STOP, "end of every worker", left).await.unwrap();
}

/// START-12: a stop in which a worker dies instead of ending has failed.
#[tokio::test]
async fn a_stop_in_which_a_worker_dies_exits_with_1() {
    let (cloudly, _setup, mut relay, node, body) = with_silent_node().await;
    let ended = async {
        node.wait_push("applyRuntimeAssignment", 1).await.unwrap();
        relay.signal(Signal::SIGTERM);
        relay.wait_line("INFO supervisor: the relay stops").await.unwrap();
        relay.kill_worker("relayd");
        assert_eq!(relay.wait_exit(STOP).await, Ok(1));
    };
    let (answer, ()) = tokio::join!(cloudly.push("applyRuntimeAssignment", &body), ended);
    assert!(answer.is_err(), "nobody answered");
    relay.wait_line("ERROR relayd: the worker killed by SIGKILL during the stop").await.unwrap();
}

/// START-26, START-27: a Cloudly that refuses the protocol leaves the start standing and not ready, with the
/// refusal on the status; once it serves the offer the start goes on.
#[tokio::test]
async fn a_refused_protocol_leaves_the_start_waiting() {
    let (cloudly, setup) = bed_with(|settings, _| settings.offer = Offer::new("34.0.0", "34.0.0")).await;
    let mut relay = setup.start();
    relay.wait_line("not ready: waiting for Cloudly to accept the protocol offer").await.unwrap();
    cloudly.drop_connections();
    cloudly.wait_for("registerCloudlyClientSession", 2).await.unwrap();
    let offers = |part: &str| {
        let messages = relay.notify().unwrap().messages();
        messages.iter().any(|message| message.starts_with("STATUS=not ready: ") && message.contains(part))
    };
    let look = || offers("34.0.0").then_some(());
    poll(BOUND, "status with the refused offers", look).await.unwrap();
    assert!(is_alive(relay.pid()) && !accepts(&setup) && notified(&relay, "READY=1") == 0);
    assert_eq!(cloudly.calls_of("getClusterConfig").len(), 0);

    cloudly.change(|settings| settings.offer = Offer::new("33.1.0", "32.0.0"));
    cloudly.drop_connections();
    relay.wait_open().await.unwrap();
    relay.notify().unwrap().wait("READY=1").await.unwrap();
    relay.notify().unwrap().wait("STATUS=open for Cloudly dispatch").await.unwrap();
    stops(&mut relay, Signal::SIGTERM).await;
}

/// START-30, CFG-41, CFG-42: a daemon that is missing is named, no other takes its place, and the start
/// succeeds without it.
#[tokio::test]
async fn a_missing_vpn_daemon_leaves_the_start_successful() {
    let (cloudly, setup) = bed().await;
    let mut setup = hub(setup);
    setup.arguments = vec!["--vpn-daemon-path=/nonexistent/vpnd".to_owned()];
    let mut relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    relay.wait_line("cannot be bound: vpn-hub-executable-missing: /nonexistent/vpnd").await.unwrap();
    relay.wait_worker("pulld", None).await.unwrap();
    assert!(!relay.workers().contains_key("vpnd"));
    let registered = cloudly.calls_of("registerClusterRelay")[0].body_json();
    assert!(registered["relay"].get("vpnHub").is_none(), "{registered}");
    stops(&mut relay, Signal::SIGTERM).await;
}

/// A release directory with `qenv.yml`.
fn release() -> tempfile::TempDir {
    let release = tempfile::tempdir().unwrap();
    for name in ["coreflow", "coreflow-relayd", "coreflow-pulld", "coreflow-vpnd"] {
        std::fs::copy(binaries().join(name), release.path().join(name)).unwrap();
    }
    let qenv = "required:\n  - CLOUDLY_URL\n  - SERVEZONE_CLUSTER_RELAY_AUTHORIZATION\n";
    std::fs::write(release.path().join("qenv.yml"), qenv).unwrap();
    release
}

/// START-28, START-31: a host release takes its launch facts from beside its executable; the working
/// directory's `qenv.yml` and overlay are not looked at.
#[tokio::test]
async fn a_host_release_ignores_the_working_directory() {
    let (cloudly, mut setup) = bed().await;
    let release = release();
    setup.executables = Some(release.path().to_owned());
    setup.qenv = Some("this: [is, no, list, of, launch, facts".to_owned());
    let overlay = json!({"CLOUDLY_URL": "https://127.0.0.1:1", "COREFLOW_NODE_ID": "of-the-overlay"});
    setup.files.insert(".nogit/env.json".to_owned(), overlay.to_string());
    let foreign = setup.without("COREFLOW_NODE_ID");
    fails(&foreign, "missing COREFLOW_NODE_ID").await;
    let setup = foreign.variable("COREFLOW_NODE_ID", "relay-node");
    let mut relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    let exe = std::fs::read_link(format!("/proc/{}/exe", relay.pid())).unwrap();
    assert_eq!(exe.parent().map(Path::to_owned), release.path().canonicalize().ok());
    stops(&mut relay, Signal::SIGTERM).await;
}

/// REL-38: systemd is told `READY=1` once, a status line, and that the watchdog is fed; its restart of a
/// worker is no second readiness.
#[tokio::test]
async fn systemd_is_told_what_happens() {
    let (_cloudly, setup) = bed().await;
    let mut relay = setup.variable("WATCHDOG_USEC", "400000").start();
    let notify = relay.notify().unwrap();
    notify.wait("STATUS=starting: waiting for Cloudly").await.unwrap();
    notify.wait("READY=1").await.unwrap();
    notify.wait("STATUS=open for Cloudly dispatch").await.unwrap();
    let killed = relay.kill_worker("relayd");
    relay.wait_worker("relayd", killed).await.unwrap();
    relay.wait_line("relayd serves again").await.unwrap();
    let fed = notified(&relay, "WATCHDOG=1");
    let look = || (notified(&relay, "WATCHDOG=1") >= fed + 3).then_some(());
    poll(Duration::from_secs(3), "three feedings of the watchdog", look).await.unwrap();
    assert_eq!((notified(&relay, "READY=1"), notified(&relay, "STOPPING=1")), (1, 0));
    stops(&mut relay, Signal::SIGTERM).await;
    assert_eq!((notified(&relay, "READY=1"), notified(&relay, "STOPPING=1")), (1, 1));
}
