//! An owner that runs the relay inside its own process (START-20, START-21, START-28).
//!
//! A relay is constructed by a process of one thread, which neither a libtest process nor one with a Cloudly
//! in it is. So this test has no libtest harness, and runs the owner as a child: this very executable again,
//! told by a variable.

use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use coreflow_supervisor::options::Options;
use coreflow_supervisor::relay::{Place, Relay, Signals};
use coreflow_supervisor::run::Ended;
use coreflow_tests::authority::Authority;
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::Cloudly;
use coreflow_tests::processes::workers_of;
use coreflow_tests::relay::RelaySetup;
use nix::sys::signal::Signal;

const NAME: &str = "an_owner_starts_and_stops_the_relay_and_lives_on";
/// Where the owner finds the relay's executables; set for the owner alone.
const OWNER: &str = "COREFLOW_TEST_OWNER";
const PORT: &str = "COREFLOW_RELAY_BIND_PORT";
const BOUND: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    if let Some(executables) = std::env::var_os(OWNER) {
        own(executables.into());
        return ExitCode::SUCCESS;
    }
    if std::env::args().any(|argument| argument == "--list") {
        println!("{NAME}: test");
        return ExitCode::SUCCESS;
    }
    println!("\nrunning 1 test");
    match std::panic::catch_unwind(embedding) {
        Ok(()) => {
            println!("test {NAME} ... ok\n\ntest result: ok. 1 passed; 0 failed");
            ExitCode::SUCCESS
        }
        Err(_) => {
            println!("test {NAME} ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Cloudly's side, and the judgement of what the owner says of itself.
#[tokio::main]
async fn embedding() {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority);
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup.facing(&cloudly);
    let home = tempfile::tempdir().expect("creating the working directory");
    let authorities = home.path().join("authorities.pem");
    authority.write_ca(&authorities).expect("writing the authorities");
    let mut owner = tokio::process::Command::new(std::env::current_exe().expect("finding this executable"));
    owner
        .current_dir(home.path())
        .env_clear()
        .envs(&setup.variables)
        .env("SSL_CERT_FILE", &authorities)
        .env("SERVEZONE_CLUSTER_RELAY_AUTHORIZATION", &setup.bearer)
        .env(OWNER, binaries())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(BOUND * 2, owner.output()).await.expect("the owner ends in time");
    let ran = ran.expect("running the owner");
    let said = String::from_utf8_lossy(&ran.stdout);
    let all = format!("{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("the owner lives on"), "{all}");
    assert!(said.contains("INFO supervisor: the relay is open for Cloudly dispatch"), "{all}");
    assert!(said.contains("INFO supervisor: the relay stopped"), "{all}");
    assert!(!all.contains(&setup.bearer));
    cloudly.wait_open_connections(0).await.expect("the session was closed");
    assert_eq!(cloudly.calls_of("registerCloudlyClientSession").len(), 1);
}

/// The owner's process.
fn own(executables: std::path::PathBuf) {
    let working_directory = std::env::current_dir().expect("finding the working directory");
    let port: u16 = std::env::var(PORT).expect("the port is set").parse().expect("it is a number");
    assert_eq!(
        (caught(Signal::SIGTERM), caught(Signal::SIGINT)),
        (false, false),
        "the owner has no handlers"
    );
    let place = Place { options: Options::default(), executables, working_directory };
    let relay = Relay::construct(&place).unwrap_or_else(|cause| panic!("constructing the relay: {cause}"));
    let running = relay.start(Signals::Handled);
    until("open relay", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(caught(Signal::SIGTERM) && caught(Signal::SIGINT), "the relay handles both signals");
    assert!(workers_of(std::process::id()).contains_key("relayd"));

    assert_eq!(running.stop(), Ended::Stopped);
    // START-21: the next signal is the owner's business again.
    assert_eq!(
        (caught(Signal::SIGTERM), caught(Signal::SIGINT)),
        (false, false),
        "both handlers are removed"
    );
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the listener is closed");
    assert!(workers_of(std::process::id()).is_empty(), "no worker is left");
    assert_eq!(running.stop(), Ended::Stopped, "a second stop has nothing to do");
    println!("the owner lives on");
}

/// Whether this process has a handler for `signal`.
fn caught(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("reading the process's status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the kernel states it");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("it is hexadecimal");
    mask & (1 << (signal as i32 - 1)) != 0
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !look() {
        assert!(begin.elapsed() < BOUND, "no {what} within {} s", BOUND.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}
