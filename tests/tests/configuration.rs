//! Where the relay's configuration comes from and how a mistake in it is told (CFG, OPS-04): real
//! boots of the real binaries.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use coreflow_tests::authority::Authority;
use coreflow_tests::cloudly::{Cloudly, Step};
use coreflow_tests::free_port::free_port;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::relay::{BearerPlace, RelaySetup};
use coreflow_tests::waiting::BOUND;
use serde_json::json;

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const BEARER: &str = "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION";
const OPEN: &str = "the relay is open for Cloudly dispatch";

/// Starts a relay that does not get up; gives every line it wrote.
async fn refused(setup: &RelaySetup) -> String {
    let mut relay = setup.start();
    let code = relay.wait_exit(BOUND).await.expect("the relay ends");
    let lines: Vec<String> = relay.lines().into_iter().map(|line| line.text).collect();
    let told = lines.join("\n");
    assert_eq!(code, 1, "{told}");
    assert!(!told.contains(OPEN), "{told}");
    told
}

/// A relay that faces a Cloudly, not started.
async fn facing() -> (Cloudly, RelaySetup) {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority).notified();
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup.facing(&cloudly);
    (cloudly, setup)
}

fn with(setup: &RelaySetup, change: impl FnOnce(&mut RelaySetup)) -> RelaySetup {
    let mut setup = setup.clone();
    change(&mut setup);
    setup
}

fn without_bearer(setup: &RelaySetup) -> RelaySetup {
    with(setup, |setup| setup.bearer_place = BearerPlace::Nowhere)
}

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().expect("a file has a directory")).expect("creating a directory");
    std::fs::write(path, text).expect("writing a file");
}

/// CFG-01, CFG-04, CFG-12, CFG-37, SES-03: the bearer boots the relay from each of its places.
#[tokio::test]
async fn the_relay_boots_with_its_bearer_from_each_source() {
    for place in [BearerPlace::Environment, BearerPlace::Overlay, BearerPlace::Credential] {
        let scene = Scene::start(|_, setup| with(&setup, |setup| setup.bearer_place = place)).await;
        scene.relay.wait_open().await.unwrap();
        let node = scene.node("node-1").await;
        scene.assert_carried(&node).await;
        assert_eq!(scene.cloudly.exchanges(), 1, "{place:?}");
    }
}

/// CFG-36, CFG-21, CFG-17, CFG-19, LIS-25: the overlay of the example, four variables in `env.yml`;
/// the port is 8443 by itself.
#[tokio::test]
async fn four_variables_in_the_overlay_boot_a_relay_on_port_8443() {
    let authority = Authority::new();
    let mut setup = RelaySetup::new(&authority);
    setup.port = 8443;
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let mut setup = setup.facing(&cloudly);
    // An address of this process alone, so that no other relay of the host has its port 8443.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 86, high, low);
    let overlay = format!(
        "CLOUDLY_URL: {}\n{BEARER}: {}\nCOREFLOW_NODE_ID: relay-node\nCOREFLOW_RELAY_BIND_HOSTNAME: {address}\n",
        cloudly.url(),
        setup.bearer,
    );
    setup.variables = BTreeMap::new();
    setup.bearer_place = BearerPlace::Nowhere;
    setup.files.insert(".nogit/env.yml".to_owned(), overlay);
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    let registered = cloudly.calls_of("registerClusterRelay")[0].body_json();
    assert_eq!(registered["relay"]["listenAddress"], json!(address.to_string()));
    assert_eq!(registered["relay"]["listenPort"], json!(8443));
    let mut target = setup.target();
    target.address = SocketAddr::from((address, 8443));
    PalletNode::start(Setup::new(target, "node-1")).wait_registered(1).await.unwrap();
}

/// CFG-03: environment before overlay before credential, and a value that is wrong there is not
/// replaced by a right one further down.
#[tokio::test]
async fn the_environment_wins_over_the_overlay_and_that_over_the_credential() {
    let (_cloudly, setup) = facing().await;
    let right = setup.bearer.clone();
    let place = |environment: Option<&str>, overlay: &str, credential: &str| {
        let credentials = tempfile::tempdir().unwrap();
        write(credentials.path(), BEARER, credential);
        let mut setup = setup
            .clone()
            .variable("CREDENTIALS_DIRECTORY", credentials.path().to_str().unwrap())
            .variable("COREFLOW_RELAY_BIND_PORT", &setup.port.to_string());
        setup.bearer_place = BearerPlace::Nowhere;
        if let Some(environment) = environment {
            setup = setup.variable(BEARER, environment);
        }
        setup.files.insert(".nogit/env.json".to_owned(), json!({BEARER: overlay}).to_string());
        (setup, credentials)
    };
    for (environment, overlay) in [(Some(right.as_str()), "wrong-2"), (None, right.as_str())] {
        let (setup, _credentials) = place(environment, overlay, "wrong-3");
        let mut relay = setup.start();
        relay.wait_open().await.unwrap();
        relay.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(relay.wait_exit(BOUND).await.unwrap(), 0);
    }
    for (environment, overlay, credential) in
        [(Some("wrong-1"), right.as_str(), right.as_str()), (None, "wrong-2", right.as_str())]
    {
        let (setup, _credentials) = place(environment, overlay, credential);
        let told = refused(&setup).await;
        assert!(told.contains("Cloudly refused SERVEZONE_CLUSTER_RELAY_AUTHORIZATION"), "{told}");
        assert!(!told.contains("wrong-") && !told.contains(&right), "{told}");
    }
}

/// CFG-38, CFG-39: with `--qenv-directory` that directory's `qenv.yml` counts and no overlay is read.
#[tokio::test]
async fn a_named_qenv_directory_replaces_the_working_directory_and_its_overlay() {
    let (_cloudly, setup) = facing().await;
    let named = tempfile::tempdir().unwrap();
    write(named.path(), "qenv.yml", setup.qenv.as_ref().unwrap());
    let mut setup = setup;
    setup.arguments = vec!["--qenv-directory".to_owned(), named.path().to_str().unwrap().to_owned()];
    setup.qenv = None;
    let overlay = with(&setup, |setup| setup.bearer_place = BearerPlace::Overlay);
    let told = refused(&overlay).await;
    assert!(told.contains(&format!("missing {BEARER}")), "{told}");

    // An overlay that could not even be parsed is none of its business.
    setup.files.insert(".nogit/env.yml".to_owned(), "- [".to_owned());
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    drop(relay);

    write(named.path(), "qenv.yml", "required:\n  - CLOUDLY_URL\n  - COREFLOW_NODE_ID\n");
    let told = refused(&setup).await;
    assert!(told.contains("qenv.yml requires COREFLOW_NODE_ID"), "{told}");
}

/// CFG-35: a `.env` file is no overlay.
#[tokio::test]
async fn a_dot_env_file_is_not_read() {
    let (_cloudly, mut setup) = facing().await;
    for name in [".env", ".nogit/.env", ".nogit/env"] {
        setup.files.insert(name.to_owned(), format!("{BEARER}={}\n", setup.bearer));
    }
    setup.bearer_place = BearerPlace::Nowhere;
    let told = refused(&setup).await;
    assert!(told.contains(&format!("missing {BEARER}")), "{told}");
}

/// CFG-40, CFG-43, CFG-44: an option that is unknown or whose value is no absolute, normalized path
/// ends the start by the option's name, never by its value.
#[tokio::test]
async fn a_wrong_option_is_refused_by_its_name() {
    let (cloudly, setup) = facing().await;
    for (arguments, name) in [
        (vec!["--token=a-private-text"], "--token"),
        (vec!["--qenv-directory", "a-private-text"], "--qenv-directory"),
        (vec!["--qenv-directory=/a-private-text/.."], "--qenv-directory"),
        (vec!["--vpn-daemon-path", "/a-private-text//vpnd"], "--vpn-daemon-path"),
        (vec!["--vpn-daemon-path"], "--vpn-daemon-path"),
    ] {
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let mut relay = with(&setup, |setup| setup.arguments = arguments).start();
        assert_ne!(relay.wait_exit(BOUND).await.unwrap(), 0);
        let told = relay.wait_line(name).await.unwrap();
        assert!(told.stderr && !told.text.contains("a-private-text"), "{told:?}");
    }
    assert_eq!(cloudly.exchanges(), 0);
}

/// CFG-05 – CFG-10, CFG-14: what is missing is named, all of it at once, with `qenv.yml` and without.
#[tokio::test]
async fn everything_that_is_missing_is_named_at_once() {
    let (_cloudly, setup) = facing().await;
    let setup = without_bearer(&setup.without("CLOUDLY_URL"));
    let without = with(&setup, |setup| setup.qenv = None);
    for setup in [setup, without] {
        let told = refused(&setup).await;
        assert!(told.contains(&format!("missing CLOUDLY_URL, {BEARER}")), "{told}");
    }
}

/// CFG-17 – CFG-20: with a relay block the node's id and the bind address are needed, and neither is
/// guessed.
#[tokio::test]
async fn a_relay_block_needs_the_node_id_and_the_bind_address() {
    let (cloudly, setup) = facing().await;
    let setup = setup.without("COREFLOW_NODE_ID").without("COREFLOW_RELAY_BIND_HOSTNAME");
    let told = refused(&setup).await;
    assert!(told.contains("missing COREFLOW_NODE_ID, COREFLOW_RELAY_BIND_HOSTNAME"), "{told}");
    assert_eq!(cloudly.calls_of("registerClusterRelay").len(), 0);
}

/// CFG-26, CFG-28: half a pair of VPN variables ends the start of a cluster with a relay block.
#[tokio::test]
async fn half_a_vpn_pair_is_refused_by_the_name_of_the_missing_half() {
    let (_cloudly, setup) = facing().await;
    let (host, port) = ("COREFLOW_VPN_BIND_HOSTNAME", "COREFLOW_VPN_QUIC_PORT");
    for (present, value, missing) in [(host, "127.0.0.1", port), (port, "4433", host)] {
        let told = refused(&setup.clone().variable(present, value)).await;
        assert!(told.contains(&format!("{missing} is missing while {present} is set")), "{told}");
    }
}

/// CFG-29, CFG-17, CFG-19, LIS-08, REG-04: without a relay block none of the listener's variables is
/// read, no listener opens, and the relay never registers.
#[tokio::test]
async fn a_cluster_without_a_relay_block_reads_and_opens_nothing_of_a_listener() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.change(|settings| settings.relay_block = None);
        setup
            .without("COREFLOW_NODE_ID")
            .without("COREFLOW_RELAY_BIND_HOSTNAME")
            .variable("COREFLOW_VPN_QUIC_PORT", "no port")
    })
    .await;
    scene.relay.wait_line("its nodes target Cloudly directly, and no listener opens").await.unwrap();
    scene.wait_lines(OPEN, 1).await;
    scene.wait_status("open for Cloudly dispatch").await;
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, scene.setup.port)).is_err());
    // A reconnect is followed by no registration either; Cloudly's request proves that it stands.
    scene.cloudly.drop_connections();
    scene.cloudly.wait_for("registerCloudlyClientSession", 2).await.unwrap();
    let pushed = scene.cloudly.push("pushClusterConfig", &scene.cloudly.config()).await.unwrap();
    assert_eq!(pushed.outcome().unwrap().get(), "{}");
    assert_eq!(scene.cloudly.calls_of("registerClusterRelay").len(), 0);
}

/// CFG-27, REG-23: with neither VPN variable the registration has no `vpnHub`.
#[tokio::test]
async fn without_a_vpn_pair_no_hub_is_advertised() {
    let scene = Scene::open(|_| {}).await;
    let registered = scene.cloudly.calls_of("registerClusterRelay")[0].body_json();
    assert_eq!(registered["relay"].get("vpnHub"), None);
    assert!(!scene.relay.workers().contains_key("vpnd"));
}

/// CFG-30, CFG-31, CFG-32, CFG-34: names of former releases are read by nothing, whatever they hold.
#[tokio::test]
async fn variables_of_former_releases_change_nothing() {
    let internal = free_port();
    let scene = Scene::start(|_, setup| {
        setup
            .variable("COREFLOW_INTERNAL_HOSTNAME", "127.0.0.1")
            .variable("COREFLOW_INTERNAL_PORT", &internal.to_string())
            .variable("CORESTORE_CONTROL_URL", "not a url")
            .variable("CORESTORE_API_TOKEN", "a-corestore-token")
            .variable("JUMPCODE", "a-jump-code")
    })
    .await;
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, internal)).is_err());
    assert_eq!(scene.count("INTERNAL") + scene.count("a-corestore-token") + scene.count("a-jump-code"), 0);
}

/// CFG-33, OPS-04: neither of the former three replaces the bearer.
#[tokio::test]
async fn a_jumpcode_is_no_bearer() {
    let (cloudly, setup) = facing().await;
    let setup = setup
        .clone()
        .variable("JUMPCODE", &setup.bearer)
        .variable("CORESTORE_API_TOKEN", &setup.bearer)
        .variable("CORESTORE_CONTROL_URL", "http://127.0.0.1:1");
    let told = refused(&without_bearer(&setup)).await;
    assert!(told.contains(&format!("missing {BEARER}")), "{told}");
    assert_eq!(cloudly.exchanges(), 0);
}

/// CFG-22, LIS-11: a bind port that is not the origin's.
#[tokio::test]
async fn a_bind_port_other_than_the_origins_is_refused_by_name() {
    let (cloudly, setup) = facing().await;
    let other = free_port();
    let told = refused(&setup.clone().variable("COREFLOW_RELAY_BIND_PORT", &other.to_string())).await;
    let origin = setup.origin();
    let words = format!(
        "relay-origin-port-foreign: the cluster's relay origin {origin} names port {}, but \
         COREFLOW_RELAY_BIND_PORT is {other}",
        setup.port
    );
    assert!(told.contains(&words), "{told}");
    assert_eq!(cloudly.calls_of("registerClusterRelay").len(), 0);
}

/// CFG-10, CFG-11: Cloudly is reached over TLS, except on the host itself.
#[tokio::test]
async fn a_cloudly_without_tls_is_refused_unless_it_is_loopback() {
    let (cloudly, setup) = facing().await;
    for url in ["http://192.0.2.1", "http://cloudly.example.com:8080/path", "ftp://127.0.0.1", "cloudly"] {
        let told = refused(&setup.clone().variable("CLOUDLY_URL", url)).await;
        assert!(told.contains("CLOUDLY_URL (from the environment)"), "{told}");
    }
    assert_eq!(cloudly.exchanges(), 0);
    // On loopback it is taken: the relay starts and dials, and finds no HTTP there.
    let relay = setup.variable("CLOUDLY_URL", &format!("http://127.0.0.1:{}", cloudly.port())).start();
    relay.wait_line("no identity: ").await.unwrap();
}

/// CFG-45, REG-06, LOG-13: one compiled-in version, in the log and in the registration.
#[tokio::test]
async fn the_version_in_the_log_is_the_one_that_is_registered() {
    let scene = Scene::open(|_| {}).await;
    let version = env!("CARGO_PKG_VERSION");
    // A warning of the same moment comes by another pipe, and may be read before it.
    let first = scene.relay.lines().into_iter().find(|line| !line.stderr).unwrap().text;
    assert!(first.ends_with(&format!("coreflow {version} starts")), "{first}");
    let registered = scene.cloudly.calls_of("registerClusterRelay")[0].body_json();
    assert_eq!(registered["relay"]["version"], json!(version));
}

/// CFG-13, CFG-15: a rotated credential file is not read while the relay runs; the exchange goes on
/// with the bearer of the start.
#[tokio::test]
async fn a_rotated_credential_file_changes_nothing_while_the_relay_runs() {
    let scene = Scene::open(|_| {}).await;
    let stored = scene.relay.home().join("credentials").join(BEARER);
    for (number, change) in [Some("another-bearer-0123456789"), None].into_iter().enumerate() {
        match change {
            Some(text) => std::fs::write(&stored, text).unwrap(),
            None => std::fs::remove_file(&stored).unwrap(),
        }
        // A session that is refused needs a new identity.
        scene.cloudly.once("registerCloudlyClientSession", Step::refuse("identity-unverified"));
        scene.cloudly.drop_connections();
        let exchange = scene.cloudly.wait_for("getIdentityByToken", number + 2).await.unwrap();
        assert_eq!(exchange.body_json()["token"], json!(scene.setup.bearer));
        scene.cloudly.wait_accepted(number as u64 + 2).await.unwrap();
    }
}

/// CFG-16: a stored line break is part of the bearer, and a boot that fails for it says so.
#[tokio::test]
async fn a_line_break_at_the_end_of_the_credential_is_part_of_the_bearer() {
    let (cloudly, setup) = facing().await;
    let setup = with(&setup, |setup| setup.bearer.push('\n'));
    let told = refused(&setup).await;
    assert!(told.contains("the stored bearer ends with a line break, which is part of its value"), "{told}");
    cloudly.change(|settings| settings.bearer.clone_from(&setup.bearer));
    setup.start().wait_open().await.unwrap();
}
