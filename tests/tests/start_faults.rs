//! Faults of the launch, and signals at each step of the start.
//!
//! | fault | test |
//! | --- | --- |
//! | one variable missing | [`each_variable_that_is_missing_is_named_alone`] |
//! | several missing at once, with and without `qenv.yml` | `configuration.rs`: `everything_that_is_missing_is_named_at_once`, `start_stop.rs`: `missing_launch_facts_fail_the_start_and_are_named_together` |
//! | an empty bearer, from each source | [`an_empty_bearer_is_a_missing_one`] |
//! | a bearer with a trailing newline | `configuration.rs`: `a_line_break_at_the_end_of_the_credential_is_part_of_the_bearer`, `start_stop.rs`: `a_refused_bearer_fails_the_start` |
//! | a value that cannot be used | [`a_value_that_cannot_be_used_is_named_and_not_repeated`] |
//! | `http:` Cloudly outside loopback | `configuration.rs`: `a_cloudly_without_tls_is_refused_unless_it_is_loopback` |
//! | a bind address that the host lacks, a taken port | `start_stop.rs`: `a_listener_that_cannot_be_bound_fails_the_start` |
//! | a port that is taken for a moment | [`a_port_that_became_free_is_bound_by_the_next_start`] |
//! | another port in the origin, an unknown member in the block | `start_stop.rs`: `a_relay_block_that_cannot_be_served_fails_the_start` |
//! | `SIGTERM` while TCP, TLS, the exchange, the upgrade, the session, the config or the certificate is waited for, before the bind, right after the opening, at the first line | [`a_signal_at_each_step_of_the_start_ends_it_with_zero`] |
//! | `SIGTERM` while nobody listens; `SIGINT` | `start_stop.rs`: `a_signal_during_the_start_stops_it` |
//! | `SIGTERM` twice at each of these | [`a_second_signal_at_any_step_ends_it_at_once_with_one`] |
//! | `SIGTERM` while a renewal's exchange is in flight, while its answer is announced, while a registration is, while parked | [`a_signal_to_a_relay_that_waits_for_cloudly_ends_it_with_zero`] |
//! | `SIGTERM` while a failed start is undone | [`a_signal_while_a_failed_start_is_undone_leaves_nothing`] |
//! | a service manager or a container that refuses `seccomp`, or Landlock's calls | [`a_relay_without_its_filter_serves_nobody`] |
//! | faults of the certificate, of the exchange, of the session | `certificate_faults.rs`, `exchange_faults.rs`, `cloudly_faults.rs` |
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use coreflow_tests::attacks::refuse_on_this_thread;
use coreflow_tests::authority::{Authority, Flaw};
use coreflow_tests::cloudly::{Cloudly, Front, Gate, Stage, Step, UPGRADE};
use coreflow_tests::processes::{is_alive, signal};
use coreflow_tests::relay::{BearerPlace, Relay, RelaySetup};
use coreflow_tests::silent::SilentPort;
use coreflow_tests::waiting::{BOUND, poll};
use futures_util::future::join_all;
use nix::sys::signal::Signal;

const BEARER: &str = "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION";
const OPEN: &str = "the relay is open for Cloudly dispatch";
const EXCHANGE: &str = "getIdentityByToken";
const SESSION: &str = "registerCloudlyClientSession";
const REGISTRATION: &str = "registerClusterRelay";
const CONFIG: &str = "getClusterConfig";
const CERTIFICATE: &str = "getCertificateForDomain";
/// A stop that waits for nobody, on a host with other work.
const STOP: Duration = Duration::from_secs(8);

async fn bed() -> (Cloudly, RelaySetup) {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority).notified();
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup.facing(&cloudly);
    (cloudly, setup)
}

fn count(relay: &Relay, part: &str) -> usize {
    relay.lines().iter().filter(|line| line.text.contains(part)).count()
}

/// The start fails with exit 1 and the cause on standard error; nothing was asked of Cloudly's session, nothing
/// is left running. Gives everything that was written.
async fn fails(setup: &RelaySetup, cause: &str) -> String {
    let mut relay = setup.start();
    assert_eq!(relay.wait_exit(BOUND).await, Ok(1), "{cause}: {:?}", relay.lines());
    let line = relay.wait_line("the start failed: ").await.unwrap();
    assert!(line.stderr && line.text.contains(cause), "{cause} in {line:?}");
    assert_eq!((count(&relay, OPEN), relay.workers()), (0, BTreeMap::new()));
    relay.lines().into_iter().map(|line| line.text + "\n").collect()
}

/// ARC-21: a relay whose workers may load no system call filter does not become ready, and says why; one without Landlock
/// says what is missing and runs.
#[tokio::test]
async fn a_relay_without_its_filter_serves_nobody() {
    let start = |call: i64| async move {
        let (cloudly, setup) = bed().await;
        let setup = setup.controlled();
        // A filter binds a thread and what it starts.
        let refused = move || {
            refuse_on_this_thread(call, nix::libc::EPERM);
            setup.start()
        };
        (cloudly, std::thread::spawn(refused).join().unwrap())
    };
    let (cloudly, relay) = start(nix::libc::SYS_seccomp).await;
    relay.wait_line("worker-unconfined: the system call filter was refused (EPERM").await.unwrap();
    let status = relay.status().await;
    assert!(status.code == Some(3) && status.stdout.contains("not ready"), "{status:?}");
    assert_eq!((count(&relay, OPEN), cloudly.acceptances()), (0, 0));

    let (_cloudly, relay) = start(nix::libc::SYS_landlock_create_ruleset).await;
    relay.wait_open().await.unwrap();
    relay.wait_line("confinement is degraded: landlock is absent").await.unwrap();
}

/// CFG-08, CFG-10, CFG-12, CFG-14, CFG-17, CFG-18, CFG-19, CFG-20, START-15, START-16, START-17: each mandatory
/// variable by itself.
#[tokio::test]
async fn each_variable_that_is_missing_is_named_alone() {
    let (cloudly, setup) = bed().await;
    let mut nowhere = setup.clone();
    nowhere.bearer_place = BearerPlace::Nowhere;
    let without = |name| (setup.clone().without(name), name);
    for (setup, name) in [without("CLOUDLY_URL"), (nowhere, BEARER)] {
        let told = fails(&setup, &format!("missing {name}")).await;
        assert!(!told.contains(&format!("{name},")) && !told.contains(&setup.bearer), "{told}");
        assert_eq!(cloudly.exchanges(), 0, "{name}");
    }
    for (setup, name) in [without("COREFLOW_NODE_ID"), without("COREFLOW_RELAY_BIND_HOSTNAME")] {
        let told = fails(&setup, &format!("missing {name}")).await;
        assert!(!told.contains(&format!("{name},")), "{told}");
        assert_eq!(cloudly.calls_of(REGISTRATION).len(), 0, "{name}");
    }
}

/// CFG-03, CFG-12, CFG-14, START-17: an empty bearer is none, whichever source holds it; one further down is
/// then used.
#[tokio::test]
async fn an_empty_bearer_is_a_missing_one() {
    let (cloudly, setup) = bed().await;
    for place in [BearerPlace::Credential, BearerPlace::Environment, BearerPlace::Overlay] {
        let mut empty = setup.clone();
        empty.bearer_place = place;
        empty.bearer.clear();
        fails(&empty, &format!("missing {BEARER}")).await;
    }
    assert_eq!(cloudly.exchanges(), 0);
    let relay = setup.variable(BEARER, "").start();
    relay.wait_open().await.unwrap();
    assert_eq!(cloudly.exchanges(), 1);
}

/// CFG-07, CFG-21, START-17, LOG-01: what is there and cannot be used ends the start by its name.
#[tokio::test]
async fn a_value_that_cannot_be_used_is_named_and_not_repeated() {
    let (cloudly, setup) = bed().await;
    for (name, value) in [
        ("COREFLOW_RELAY_BIND_PORT", "a-private-text"),
        ("COREFLOW_RELAY_BIND_PORT", "65536"),
        ("COREFLOW_RELAY_BIND_PORT", "0"),
        ("COREFLOW_RELAY_BIND_HOSTNAME", "a private text"),
        ("COREFLOW_NODE_ID", "a private text\n"),
    ] {
        let told = fails(&setup.clone().variable(name, value), name).await;
        assert!(!told.contains("private"), "{told}");
        assert_eq!(cloudly.calls_of(REGISTRATION).len(), 0, "{name}");
    }
    let setup = setup.variable("CLOUDLY_URL", "https://user:a-private-text@localhost");
    assert!(!fails(&setup, "CLOUDLY_URL").await.contains("private"));
}

/// START-19, LIS-25, START-06: a start that found its port taken leaves nothing behind: the next one binds it.
#[tokio::test]
async fn a_port_that_became_free_is_bound_by_the_next_start() {
    let (cloudly, setup) = bed().await;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, setup.port)).unwrap();
    fails(&setup, &format!("listener-bind-failed: 127.0.0.1:{}", setup.port)).await;
    cloudly.wait_open_connections(0).await.unwrap();
    drop(taken);
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
}

/// A step of the start at which the relay is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// The first line is written, nothing else is known.
    FirstLine,
    /// Nobody answers the dial.
    Tcp,
    /// TCP is accepted.
    Tls,
    /// TLS is done, and the exchange is not read.
    Silence,
    /// A request is not answered, or the upgrade.
    Answer(&'static str),
    /// The certificate is there and the socket not bound: the supervisor, which binds it, was frozen before.
    BeforeBind,
    /// The listener has just opened; its registration is under way.
    Open,
}

const STEPS: [Held; 11] = [
    Held::FirstLine,
    Held::Tcp,
    Held::Tls,
    Held::Silence,
    Held::Answer(EXCHANGE),
    Held::Answer(UPGRADE),
    Held::Answer(SESSION),
    Held::Answer(CONFIG),
    Held::Answer(CERTIFICATE),
    Held::BeforeBind,
    Held::Open,
];

/// A relay at one step, with what has to live as long.
struct Starting {
    held: Held,
    cloudly: Cloudly,
    relay: Relay,
    _silent: Option<SilentPort>,
}

impl Starting {
    async fn at(held: Held) -> Self {
        let (cloudly, mut setup) = bed().await;
        let (gate, mut silent) = (Gate::default(), None);
        match held {
            Held::FirstLine | Held::Open => {}
            Held::Tcp => {
                let port = SilentPort::open();
                setup = setup.variable("CLOUDLY_URL", &format!("https://127.0.0.1:{}", port.port()));
                silent = Some(port);
            }
            Held::Tls => cloudly.change(|settings| settings.front = Front::Silent),
            Held::Silence => cloudly.change(|settings| settings.front = Front::SilentInTls),
            Held::Answer(method) => cloudly.always(method, Step::Never),
            Held::BeforeBind => {
                cloudly.once(CERTIFICATE, Step::When(gate.clone(), Box::new(Step::Ordinary)));
            }
        }
        let relay = setup.start();
        match held {
            Held::FirstLine => drop(relay.wait_line(" starts").await.unwrap()),
            Held::Tcp => {
                let port = silent.as_ref().map(SilentPort::port).unwrap();
                poll(BOUND, "dial under way", || dials(port).then_some(())).await.unwrap();
            }
            Held::Tls => cloudly.wait_reached(Stage::Tcp, 1).await.unwrap(),
            Held::Silence => cloudly.wait_reached(Stage::Tls, 1).await.unwrap(),
            Held::Answer(UPGRADE) => cloudly.wait_reached(Stage::Upgrade, 1).await.unwrap(),
            Held::Answer(method) => drop(cloudly.wait_for(method, 1).await.unwrap()),
            Held::BeforeBind => {
                cloudly.wait_for(CERTIFICATE, 1).await.unwrap();
                relay.signal(Signal::SIGSTOP);
                gate.open();
            }
            Held::Open => relay.wait_open().await.unwrap(),
        }
        Self { held, cloudly, relay, _silent: silent }
    }
}

/// Whether a dial of 127.0.0.1 to `port` waits for its answer (state 02, `SYN_SENT`).
fn dials(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let target = format!("0100007F:{port:04X} 02 ");
    table.lines().any(|line| line.contains(&target))
}

/// START-10, START-11, START-14, START-22: wherever the start is, a signal ends it with 0 and within a bound;
/// no process is left and no connection to Cloudly.
#[tokio::test]
async fn a_signal_at_each_step_of_the_start_ends_it_with_zero() {
    for held in STEPS {
        let Starting { cloudly, mut relay, .. } = Starting::at(held).await;
        let workers = relay.workers();
        relay.signal(Signal::SIGTERM);
        relay.signal(Signal::SIGCONT);
        assert_eq!(relay.wait_exit(STOP).await, Ok(0), "{held:?}: {:?}", relay.lines());
        assert!(workers.values().all(|pid| !is_alive(*pid)), "{held:?}: a worker is left");
        relay.wait_line("INFO supervisor: the relay stopped").await.unwrap();
        assert_eq!(count(&relay, "ERROR "), 0, "{held:?}: {:?}", relay.lines());
        cloudly.wait_open_connections(0).await.unwrap();
        if held != Held::Open {
            assert_eq!(cloudly.calls_of(REGISTRATION).len(), 0, "{held:?}");
        }
    }
}

/// START-13, START-14, ARC-20: wherever the start is, a second signal does not wait for a worker that takes its
/// time (here: one that is frozen), ends the process at once with 1, and takes the workers along.
#[tokio::test]
async fn a_second_signal_at_any_step_ends_it_at_once_with_one() {
    for held in STEPS.into_iter().filter(|held| *held != Held::FirstLine) {
        let mut starting = Starting::at(held).await;
        let relay = &mut starting.relay;
        let relayd = relay.wait_worker("relayd", None).await.unwrap();
        let workers = relay.workers();
        signal(relayd, Signal::SIGSTOP);
        relay.signal(Signal::SIGTERM);
        relay.signal(Signal::SIGCONT);
        relay.wait_line("INFO supervisor: the relay stops").await.unwrap();
        relay.signal(Signal::SIGTERM);
        // The frozen worker would hold up the first signal's stop for ever (START-25).
        assert_eq!(relay.wait_exit(STOP).await, Ok(1), "{:?}", starting.held);
        let left = || workers.values().all(|pid| !is_alive(*pid)).then_some(());
        poll(STOP, "end of every worker", left).await.unwrap();
        starting.cloudly.wait_open_connections(0).await.unwrap();
    }
}

/// START-10, START-11, START-22, REG-62, SES-14: a relay that is open stops in order while it waits for Cloudly,
/// and while it is parked.
#[tokio::test]
async fn a_signal_to_a_relay_that_waits_for_cloudly_ends_it_with_zero() {
    let waits = [(EXCHANGE, 2), (SESSION, 2), (REGISTRATION, 1)].map(async |(method, count)| {
        let (cloudly, setup) = bed().await;
        // Renewed after four and a half seconds, which a start does not take.
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(6));
        for _ in 1..count {
            cloudly.once(method, Step::Ordinary);
        }
        cloudly.once(method, Step::Never);
        let mut relay = setup.start();
        relay.wait_open().await.unwrap();
        cloudly.wait_for(method, count).await.unwrap();
        stops(&cloudly, &mut relay).await;
    });
    join_all(waits).await;
    let (cloudly, setup) = bed().await;
    cloudly.always(REGISTRATION, Step::refuse("relay-credential-generation-stale"));
    let mut relay = setup.start();
    relay.wait_line("only a restart with the bearer of the current generation").await.unwrap();
    stops(&cloudly, &mut relay).await;
}

async fn stops(cloudly: &Cloudly, relay: &mut Relay) {
    let workers = relay.workers();
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(STOP).await, Ok(0), "{:?}", relay.lines());
    assert!(workers.values().all(|pid| !is_alive(*pid)), "a worker is left");
    assert_eq!(count(relay, "ERROR "), 0, "{:?}", relay.lines());
    cloudly.wait_open_connections(0).await.unwrap();
}

/// START-06, START-12, START-13, START-15: a signal while a start that cannot succeed is undone ends it at once;
/// the exit stays 1 and nothing is left.
#[tokio::test]
async fn a_signal_while_a_failed_start_is_undone_leaves_nothing() {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority).notified();
    let mut settings = setup.cloudly_settings();
    let expired = authority.issue_flawed(&[&setup.host_name], Flaw::Expired);
    settings.certificates.insert(setup.host_name.clone(), expired);
    let cloudly = Cloudly::start(&authority, settings).await;
    let gate = Gate::default();
    cloudly.once(CERTIFICATE, Step::When(gate.clone(), Box::new(Step::Ordinary)));
    let mut relay = setup.facing(&cloudly).start();
    cloudly.wait_for(CERTIFICATE, 1).await.unwrap();
    // A frozen pulld does not end, so that the start is still being undone when the signal comes.
    let pulld = relay.wait_worker("pulld", None).await.unwrap();
    let workers = relay.workers();
    signal(pulld, Signal::SIGSTOP);
    gate.open();
    relay.notify().unwrap().wait("STOPPING=1").await.unwrap();
    relay.signal(Signal::SIGTERM);
    // Without the signal pulld has five seconds.
    assert_eq!(relay.wait_exit(Duration::from_secs(4)).await, Ok(1), "{:?}", relay.lines());
    let left = || workers.values().all(|pid| !is_alive(*pid)).then_some(());
    poll(STOP, "end of every worker", left).await.unwrap();
    assert_eq!(count(&relay, OPEN), 0);
}
