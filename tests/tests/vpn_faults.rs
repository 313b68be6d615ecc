//! The managed VPN when something is missing, refused, killed or stopped: what the hub's bind needs, whose death ends
//! which tunnels, and that nothing of a network outlives the relay (VPN, and what ARC and START say of it).

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::{Step, VpnNetwork};
use coreflow_tests::envelope::Refusal;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::relay::Relay;
use coreflow_tests::sockets::is_udp_bound;
use coreflow_tests::tunnel::{NodeKey, Tunnel, crosses};
use coreflow_tests::vpn_bed::VpnBed;
use coreflow_tests::waiting::{BOUND, poll};
use coreflow_vpnd::node::Why;
use coreflow_vpnd::protocol::close::Close;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const READ: &str = "getClusterVpnNetwork";
const STOP: Duration = Duration::from_secs(10);

/// A relay whose hub serves a pair of nodes that may reach each other.
struct Pair {
    bed: VpnBed,
    keys: [NodeKey; 2],
    network: VpnNetwork,
    tunnels: [Tunnel; 2],
}

fn network_of(keys: &[NodeKey; 2]) -> VpnNetwork {
    let public = keys.each_ref().map(NodeKey::public);
    let members = ["node-a", "node-b"].into_iter().zip(public.iter().map(String::as_str));
    VpnNetwork::of(members).linking("node-a", "node-b")
}

impl Pair {
    async fn open() -> Self {
        let bed = VpnBed::open().await;
        let keys = [(); 2].map(|()| NodeKey::default());
        let network = network_of(&keys);
        bed.apply(&network).await;
        let tunnels = dialled(&bed, &keys).await;
        Self { bed, keys, network, tunnels }
    }

    async fn cross(&mut self) {
        let [a, b] = &mut self.tunnels;
        crosses(a, b, b"there").await;
        crosses(b, a, b"and back").await;
    }
}

async fn dialled(bed: &VpnBed, keys: &[NodeKey; 2]) -> [Tunnel; 2] {
    let [one, other] = keys;
    [bed.dial(one).await, bed.dial(other).await].map(|dial| dial.expect("a member is admitted"))
}

async fn asks_its_credential(node: &PalletNode, binding: &str) {
    let body = format!(r#"{{"session":{binding}}}"#);
    let answer = node.request("getRuntimeManagedVpnCredential", &body).await.expect("an answer");
    answer.outcome().expect("Cloudly's answer");
}

/// Waits until the hub's address is free.
async fn freed(bed: &VpnBed) {
    poll(BOUND, "hub that is gone", || (!bed.is_bound()).then_some(())).await.expect("the address is freed");
}

/// Every file below `root`, with its content.
fn files(root: &Path) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let (mut found, mut left) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("listing a directory").flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    found.insert((entry.path(), std::fs::read(entry.path()).expect("reading a file")));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    found
}

/// VPN-10, VPN-33, VPN-34, VPN-35, VPN-37: a push whose bind the host refuses is answered as failed, with the class, and
/// logged as one error; nothing is held by it and nothing taken from the nodes, whose requests and pushes cross after each
/// of them on the sockets that they had; and the next push binds.
#[tokio::test]
async fn a_refused_bind_fails_its_push_and_the_next_one_binds() {
    let bed = VpnBed::open().await;
    let keys = [(); 2].map(|()| NodeKey::default());
    let network = network_of(&keys);
    let node = PalletNode::start(Setup::new(bed.setup.target(), "node-1"));
    let binding = node.wait_registered(1).await.unwrap();
    let holder = UdpSocket::bind(bed.address).expect("the hub is not bound before the first network");
    for pushes in 1..=2 {
        let failed = bed.push(&network).await.unwrap();
        assert_eq!((&failed["state"], &failed["revision"]), (&json!("failed"), &json!(null)), "{failed}");
        let reason = failed["reason"].as_str().unwrap();
        assert!(reason.starts_with("vpn-hub-bind-refused: the port is in use"), "{reason}");
        let line =
            format!("ERROR vpnd: the managed VPN hub cannot be bound: {}: the port is in use", bed.address);
        let said = || (bed.lines(&line) == pushes).then_some(());
        poll(BOUND, "error line of the refused bind", said).await.unwrap();
        assert_eq!(
            bed.lines("ERROR "),
            pushes,
            "one line for each: what is told to Cloudly is logged by nobody else"
        );
        asks_its_credential(&node, &binding).await;
        let assignment = format!(r#"{{"session":{binding},"assignment":{{"replicas":{pushes}}}}}"#);
        bed.cloudly.push("applyRuntimeAssignment", &assignment).await.unwrap().outcome().unwrap();
    }
    let refused = |hub: &Value| hub["refused"] == json!("vpn-hub-bind-refused: the port is in use");
    let hub = bed.status("a refused bind", refused).await;
    assert!(hub["report"]["bound"].is_null(), "{hub}");
    assert_eq!(bed.relay.status().await.code, Some(0), "the relay is ready without its hub");

    drop(holder);
    // A program that another test starts has a copy of it until it runs.
    poll(BOUND, "port that is free again", || (!bed.is_bound()).then_some(())).await.unwrap();
    bed.apply(&network).await;
    let [mut a, mut b] = dialled(&bed, &keys).await;
    crosses(&mut a, &mut b, b"after all").await;
    asks_its_credential(&node, &binding).await;
    assert_eq!(
        (node.registrations().len(), node.closes().len()),
        (1, 0),
        "the node's socket is the one it had"
    );
    assert_eq!((bed.cloudly.acceptances(), bed.cloudly.open_connections()), (1, 1));
    bed.status("no refused bind any more", |hub| {
        hub["refused"].is_null() && hub["report"]["bound"].is_string()
    })
    .await;
}

/// VPN-33, VPN-34, REG-21: an address that the host does not have is advertised as it is configured and refused by its
/// class.
#[tokio::test]
async fn an_address_of_another_host_fails_each_push() {
    let bed = VpnBed::start(|setup, _| {
        // An address of documentation (RFC 5737).
        setup.variables.insert("COREFLOW_VPN_BIND_HOSTNAME".to_owned(), "192.0.2.16".to_owned());
    })
    .await;
    bed.relay.wait_open().await.unwrap();
    assert_eq!(bed.hub().await.address.to_string(), "192.0.2.16");
    // It registered, and is selected only where the plan's prefix has it.
    for (prefix, selected) in [([192, 0, 2, 0], true), ([198, 51, 100, 0], false)] {
        bed.cloudly.change(|facts| facts.hub_prefix = Some((prefix.into(), 24)));
        assert_eq!(bed.cloudly.platform_endpoint().is_ok(), selected);
    }
    let failed = bed.push(&VpnNetwork::of([("node-a", NodeKey::default().public().as_str())])).await.unwrap();
    assert_eq!(failed["state"], json!("failed"));
    let reason = failed["reason"].as_str().unwrap();
    assert!(reason.starts_with("vpn-hub-bind-refused: the address is none of this host"), "{reason}");
}

/// VPN-36, CFG-41, START-30, REG-23: an executable that is missing, or is none, advertises no hub and fails a push under
/// a name of its own; no shell reads what the kernel refuses to execute, and the relay is ready without it.
#[tokio::test]
async fn a_hub_without_an_executable_fails_by_a_name_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "no execute permission").unwrap();
    let (text, sign) = (directory.path().join("text"), directory.path().join("a-shell-ran"));
    std::fs::write(&text, format!("echo ran > {}\n", sign.display())).unwrap();
    std::fs::set_permissions(&text, Permissions::from_mode(0o755)).unwrap();
    // Whatever user the worker is, it could write the sign.
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    for (path, name) in [
        (directory.path().join("absent"), "vpn-hub-executable-missing"),
        (plain, "vpn-hub-executable-refused"),
        (text, "vpn-hub-executable-refused"),
    ] {
        let bed = VpnBed::start(|setup, _| {
            setup.arguments.push(format!("--vpn-daemon-path={}", path.display()));
        })
        .await;
        bed.relay.wait_open().await.unwrap();
        bed.cloudly.wait_accepted(1).await.unwrap();
        assert_eq!(bed.cloudly.platform_endpoint(), Err("relay-vpn-hub-absent"));
        let cause = format!("{name}: {}", path.display());
        let line = format!("the managed VPN hub cannot be bound: {cause}");
        bed.relay.wait_line(&line).await.unwrap();
        let network = VpnNetwork::of([("node-a", NodeKey::default().public().as_str())]);
        let failed = bed.push(&network).await.unwrap();
        assert_eq!((&failed["state"], &failed["revision"]), (&json!("failed"), &json!(null)));
        assert!(failed["reason"].as_str().unwrap().starts_with(&cause), "{failed}");
        let hub = bed.status("why there is no hub", |hub| hub["refused"].is_string()).await;
        assert!(hub["refused"].as_str().unwrap().starts_with(&cause), "{hub}");
        let said = bed.relay.status().await;
        assert!(said.code == Some(0) && said.stdout.contains(&format!("not bound: {cause}")), "{said:?}");
        assert!(!bed.relay.workers().contains_key("vpnd"));
        for call in bed.cloudly.calls_of("registerClusterRelay") {
            assert!(call.body_json()["relay"].get("vpnHub").is_none(), "{}", call.body());
        }
    }
    assert!(!sign.exists(), "a shell read the text");
}

/// VPN-36: an executable that is none any more when vpnd is to be started again fails a push under that name too.
#[tokio::test]
async fn a_hub_whose_executable_loses_its_permission_fails_by_that_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coreflow-vpnd");
    let bed = VpnBed::start(|setup, _| {
        std::fs::copy(binaries().join("coreflow-vpnd"), &path).unwrap();
        setup.arguments.push(format!("--vpn-daemon-path={}", path.display()));
    })
    .await;
    bed.relay.wait_open().await.unwrap();
    bed.hub().await;
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert!(bed.relay.kill_worker("vpnd").is_some());
    let cause = format!("vpn-hub-executable-refused: {}", path.display());
    bed.relay.wait_line(&format!("the managed VPN hub cannot be bound: {cause}")).await.unwrap();
    let failed = bed.push(&VpnNetwork::of([("node-a", NodeKey::default().public().as_str())])).await.unwrap();
    assert_eq!((&failed["state"], &failed["revision"]), (&json!("failed"), &json!(null)));
    assert!(failed["reason"].as_str().unwrap().starts_with(&cause), "{failed}");
}

/// VPN-45, REG-23, CFG-27: a relay without the pair advertises no hub, runs none, and refuses a network by name.
#[tokio::test]
async fn a_relay_without_a_hub_refuses_a_network_by_name() {
    let bed = VpnBed::start(|setup, _| {
        setup.variables.retain(|name, _| !name.starts_with("COREFLOW_VPN_"));
    })
    .await;
    bed.relay.wait_open().await.unwrap();
    bed.cloudly.wait_accepted(1).await.unwrap();
    let registered = bed.cloudly.calls_of("registerClusterRelay")[0].body_json();
    assert!(registered["relay"].get("vpnHub").is_none(), "{registered}");
    let refused = bed.push(&VpnNetwork::of([("node-a", NodeKey::default().public().as_str())])).await;
    assert_eq!(refused.as_ref().map_err(Refusal::name), Err("vpn-hub-absent"));
    assert!(!bed.relay.workers().contains_key("vpnd"));
    assert_eq!(bed.status("no hub", Value::is_null).await, json!(null));
    assert!(bed.relay.status().await.stdout.contains("vpn hub       not configured\n"));
}

/// VPN-27, VPN-28, VPN-29, VPN-42, VPN-43, ARC-19, REG-66: a vpnd that is killed takes its network and its key along: the
/// relay registers again with the new key and reads the network, upon which tunnels to the new key are admitted, and
/// to the former one are not. A node's session is not the hub's: its credential is asked for all the while.
#[tokio::test]
async fn a_killed_vpnd_is_replaced_under_a_new_key_and_given_the_network_again() {
    let mut pair = Pair::open().await;
    pair.cross().await;
    let bed = &pair.bed;
    let former = bed.hub().await;
    let (acceptances, reads) = (bed.cloudly.acceptances(), bed.cloudly.calls_of(READ).len());
    // A relay that still held the network would take the same one for a repeat; so no read brings it meanwhile.
    bed.cloudly.always(READ, Step::refuse("vpn-network-not-now"));
    let node = PalletNode::start(Setup::new(bed.setup.target(), "node-1"));
    let binding = node.wait_registered(1).await.unwrap();
    let killed = bed.relay.kill_worker("vpnd");
    asks_its_credential(&node, &binding).await;
    let hub = bed.cloudly.wait_hub(Some(&former.public_key)).await.unwrap();
    assert_eq!((hub.address, hub.quic_port), (former.address, former.quic_port));
    bed.relay.wait_worker("vpnd", killed).await.unwrap();
    bed.cloudly.wait_accepted(acceptances + 1).await.unwrap();
    bed.wait_read(reads + 1).await;
    assert!(!bed.is_bound(), "bound without a network");
    bed.status("a hub without a network", |hub| hub["report"]["bound"].is_null()).await;
    asks_its_credential(&node, &binding).await;
    bed.apply(&pair.network).await;
    let old = Tunnel::dial(&pair.keys[0], &former).await.err();
    assert!(old.is_some(), "the former key is served");
    pair.tunnels = dialled(bed, &pair.keys).await;
    pair.cross().await;

    // The next time the read brings it.
    let bed = &pair.bed;
    bed.cloudly.ordinary(READ);
    bed.relay.kill_worker("vpnd");
    let again = bed.cloudly.wait_hub(Some(&hub.public_key)).await.unwrap();
    assert_ne!(again.public_key, former.public_key);
    bed.wait_bound().await;
    pair.tunnels = dialled(bed, &pair.keys).await;
    pair.cross().await;
    assert_eq!(pair.bed.cloudly.open_connections(), 1, "the session is not the hub's");
}

/// VPN-18, VPN-22, VPN-28, ARC-17: a relayd that is killed touches no tunnel: packets cross while it is away, the next one
/// takes over what vpnd holds without being given it, advertises the same key, and knows a repeat from a stale network.
#[tokio::test]
async fn tunnels_go_on_through_a_killed_relayd() {
    let mut pair = Pair::open().await;
    let held = pair.network.clone().next();
    pair.bed.apply(&held).await;
    pair.cross().await;
    let former = pair.bed.hub().await;
    let (acceptances, reads) = (pair.bed.cloudly.acceptances(), pair.bed.cloudly.calls_of(READ).len());
    pair.bed.cloudly.always(READ, Step::refuse("vpn-network-not-now"));
    // A supervisor that stands still starts no other relayd: there is none while the packets cross.
    pair.bed.relay.signal(Signal::SIGSTOP);
    pair.bed.relay.kill_worker("relayd");
    let away = |relay: &Relay| !relay.workers().contains_key("relayd");
    poll(BOUND, "end of relayd", || away(&pair.bed.relay).then_some(())).await.unwrap();
    for _ in 0..20 {
        pair.cross().await;
    }
    assert!(away(&pair.bed.relay), "the packets crossed beside another relayd");
    pair.bed.relay.signal(Signal::SIGCONT);
    pair.bed.relay.wait_line("relayd serves again").await.unwrap();
    pair.bed.cloudly.wait_accepted(acceptances + 1).await.unwrap();
    pair.bed.wait_read(reads + 1).await;
    pair.cross().await;
    let repeated = pair.bed.push(&held).await;
    assert_eq!(repeated, Ok(json!({"state": "replayed", "revision": held.revision})));
    assert_eq!(pair.bed.hub().await, former);
    let stale = pair.bed.push(&pair.network).await;
    assert_eq!(stale.as_ref().map_err(Refusal::name), Err("vpn-network-revision-stale"));
    pair.cross().await;
    let next = held.next();
    pair.bed.apply(&next).await;
    pair.cross().await;
    let hub =
        pair.bed.status("the next network", |hub| hub["report"]["revision"] == json!(next.revision)).await;
    assert_eq!((&hub["report"]["admitted"], &hub["report"]["sessions"]), (&json!(2), &json!(2)));
}

/// VPN-46, VPN-37, START-23: a stop of the relay stops the hub: its nodes are told so, its address is free, and the relay
/// ends in order.
#[tokio::test]
async fn a_stop_ends_the_hub() {
    let mut pair = Pair::open().await;
    pair.cross().await;
    pair.bed.relay.signal(Signal::SIGTERM);
    for tunnel in &mut pair.tunnels {
        assert_eq!(tunnel.ended().await, Why::Closed(Close::Stopping));
    }
    assert_eq!(pair.bed.relay.wait_exit(STOP).await, Ok(0));
    assert!(!pair.bed.is_bound());
}

/// VPN-27, VPN-30, VPN-37: a relay that is started again has another key and, until Cloudly gives it one, no network: none
/// of the two is anywhere but in memory.
#[tokio::test]
async fn nothing_of_a_network_outlives_the_relay() {
    let bed = VpnBed::open().await;
    let before = files(&bed.relay.home());
    let keys = [(); 2].map(|()| NodeKey::default());
    bed.apply(&network_of(&keys)).await;
    let tunnels = dialled(&bed, &keys).await;
    assert_eq!(files(&bed.relay.home()), before, "the network or a key was written");
    let former = bed.hub().await;
    let (reads, address) = (bed.cloudly.calls_of(READ).len(), bed.address);
    bed.cloudly.change(|facts| facts.vpn_network = None);
    let mut bed = bed;
    bed.relay.signal(Signal::SIGTERM);
    assert_eq!(bed.relay.wait_exit(STOP).await, Ok(0));
    freed(&bed).await;
    drop(tunnels);
    let relay: Relay = bed.setup.start();
    relay.wait_open().await.unwrap();
    let hub = bed.cloudly.wait_hub(Some(&former.public_key)).await.unwrap();
    assert_eq!((hub.address, hub.quic_port), (former.address, former.quic_port));
    bed.wait_read(reads + 1).await;
    let seen = |status: &Value| {
        status["vpnHub"]["configured"].is_string() && status["readiness"]["ready"] == json!(true)
    };
    let status = relay.wait_status_json("a relay that is ready", seen).await.unwrap();
    assert!(status["vpnHub"]["report"]["revision"].is_null(), "{status}");
    assert!(!is_udp_bound(address), "bound by what a former relay held");
}
