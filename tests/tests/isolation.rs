//! What the workers cannot know and cannot reach, shown on the real processes: ARC-02 to ARC-08, ARC-10 to
//! ARC-12, ARC-14, ARC-23, LOG-01, LOG-14, VPN-02, VPN-03, VPN-09, VPN-37.
//!
//! Reading another process's memory takes root. Without it these tests fail; none of them is left out.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coreflow_tests::authority::Authority;
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::{Cloudly, Step, VpnNetwork};
use coreflow_tests::envelope::random_hex;
use coreflow_tests::free_port::free_port;
use coreflow_tests::link_tap::TappedRelease;
use coreflow_tests::memory::{SHORTEST_RUN, Scan, search};
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::relay::{BearerPlace, Relay, RelaySetup};
use coreflow_tests::sockets::is_udp_bound;
use coreflow_tests::tunnel::{NodeKey, Tunnel, crosses};
use coreflow_tests::waiting::{BOUND, poll};
use nix::sys::signal::Signal;

const ROLES: [&str; 3] = ["relayd", "pulld", "vpnd"];
const STOP: Duration = Duration::from_secs(10);
/// An identity that is renewed after three seconds.
const SHORT_IDENTITY: Duration = Duration::from_secs(4);

fn demand_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test reads the memory and descriptors of other users' processes: run it as root"
    );
}

/// A bearer that reads otherwise in base64 and percent-encoded, and like nothing else.
fn distinctive_bearer() -> String {
    format!("cb/{}+{}=", random_hex::<20>(), random_hex::<20>())
}

/// A Cloudly with this bearer and short-lived identities, and the setup of a relay with a hub.
async fn bed(bearer: &str, place: BearerPlace) -> (Cloudly, RelaySetup) {
    let authority = Authority::new();
    let mut setup = RelaySetup::new(&authority);
    let mut settings = setup.cloudly_settings();
    bearer.clone_into(&mut settings.bearer);
    settings.identity_lifetime = SHORT_IDENTITY;
    let cloudly = Cloudly::start(&authority, settings).await;
    setup.bearer_place = place;
    let setup = setup
        .facing(&cloudly)
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
    (cloudly, setup)
}

/// The three workers, once all of them run.
async fn all_workers(relay: &Relay) -> BTreeMap<String, u32> {
    let look = || Some(relay.workers()).filter(|workers| workers.len() == ROLES.len());
    poll(BOUND, "relayd, pulld and vpnd", look).await.unwrap()
}

fn scan(pid: u32, secret: &str) -> Scan {
    let scan = search(pid, secret.as_bytes()).expect("reading the memory of a worker");
    assert!(scan.read > 1 << 20, "only {} bytes of process {pid} could be read", scan.read);
    scan
}

fn assert_free_of(workers: &BTreeMap<String, u32>, bearer: &str, when: &str) {
    for (role, pid) in workers {
        assert_eq!(scan(*pid, bearer).found, [], "{role} holds a run of the bearer {when}");
    }
}

/// Follows a relay through start, renewal and a restart of relayd, and looks after each.
async fn no_worker_holds_the_bearer(place: BearerPlace) {
    demand_root();
    let bearer = distinctive_bearer();
    let (cloudly, setup) = bed(&bearer, place).await;
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    let first = all_workers(&relay).await;
    assert_free_of(&first, &bearer, "after the start");

    let renewal = cloudly.wait_for("registerCloudlyClientSession", 2).await.unwrap();
    assert_eq!(renewal.connection, Some(1), "renewed on the unbroken connection");
    cloudly.wait_accepted(2).await.unwrap();
    assert!(cloudly.exchanges() >= 2, "the supervisor exchanged the bearer again");
    assert_free_of(&relay.workers(), &bearer, "after a renewal");
    // The same search sees what relayd does hold.
    let held = cloudly.issued_jwts();
    let relayd = first["relayd"];
    let found = held.iter().any(|jwt| !scan(relayd, jwt).found.is_empty());
    assert!(found, "the search does not even find relayd's own identity");

    let killed = relay.kill_worker("relayd");
    assert_eq!(killed, Some(relayd));
    relay.wait_worker("relayd", killed).await.unwrap();
    relay.wait_line("relayd serves again").await.unwrap();
    let again = all_workers(&relay).await;
    assert_free_of(&again, &bearer, "after a restart of relayd");
    assert_eq!((again["pulld"], again["vpnd"]), (first["pulld"], first["vpnd"]));

    let supervisor = search(relay.pid(), bearer.as_bytes()).expect("reading the supervisor's memory");
    assert_eq!(supervisor.found, [], "the supervisor holds a copy beside the one that nobody can read");
}

/// ARC-02, ARC-03, ARC-07, ARC-08, ARC-14, TST-06: with the bearer as a credential file.
#[tokio::test(flavor = "multi_thread")]
async fn no_worker_holds_a_bearer_that_came_as_a_credential() {
    no_worker_holds_the_bearer(BearerPlace::Credential).await;
}

/// ARC-02, ARC-03, ARC-07, ARC-08, ARC-14: with the bearer in the supervisor's environment.
#[tokio::test(flavor = "multi_thread")]
async fn no_worker_holds_a_bearer_that_came_by_the_environment() {
    no_worker_holds_the_bearer(BearerPlace::Environment).await;
}

/// ARC-02: the same search, on a process of another user with an empty environment, finds a secret there:
/// whole, in base64, and of it the shortest run that counts.
#[tokio::test]
async fn a_planted_secret_is_found() {
    demand_root();
    let secret = distinctive_bearer();
    let planted =
        [secret.clone(), STANDARD.encode(format!("t={secret}")), secret[9..9 + SHORTEST_RUN].into()];
    for (planted, form) in planted.iter().zip(["plain", "base64", "plain"]) {
        use std::os::unix::process::CommandExt;
        let script = r#"read -r held; echo held; read -r end; echo "$held""#;
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .env_clear()
            .uid(60_801)
            .gid(60_801)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        std::io::Write::write_all(&mut to, format!("{planted}\n").as_bytes()).unwrap();
        let mut held = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(from), &mut held).unwrap();
        let found = search(child.id(), secret.as_bytes()).unwrap().found;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().any(|place| place.form == form), "{form}: {found:?}");
    }
}

fn proc_of(pid: u32, name: &str) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/{name}")).expect("reading a file of the process table")
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// What a process's descriptors lead to, by number.
fn descriptors(pid: u32) -> BTreeMap<u32, String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("listing a worker's descriptors");
    let lead = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, target.to_string_lossy().into_owned()))
    };
    entries.filter_map(lead).collect()
}

/// Every file and directory below `root`.
fn listing(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("listing a directory").flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
            found.insert(entry.path().strip_prefix(root).expect("it is below the root").to_owned());
        }
    }
    found
}

/// Inodes in a column of a socket table of `/proc/net`, of the rows that `which` picks by their columns.
fn inodes(table: &str, column: usize, which: impl Fn(&[&str]) -> bool) -> BTreeSet<String> {
    let rows = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    let rows = rows.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| which(row)).filter_map(|row| row.get(column).map(|inode| (*inode).to_owned())).collect()
}

fn sockets_of(pid: u32) -> BTreeSet<String> {
    let inode = |lead: &String| Some(lead.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    descriptors(pid).values().filter_map(inode).collect()
}

/// ARC-04, ARC-05, ARC-10, ARC-11, ARC-12, ARC-23, VPN-02, VPN-09, VPN-37: what the kernel shows of the processes, while the
/// hub serves a node: its one UDP socket is vpnd's alone, neither a device nor another socket is beside it, and the one TCP
/// listener of all of them is the nodes'.
#[tokio::test(flavor = "multi_thread")]
async fn the_processes_show_and_hold_nothing_of_the_bearer() {
    demand_root();
    let bearer = distinctive_bearer();
    let (cloudly, mut setup) = bed(&bearer, BearerPlace::Environment).await;
    let release = tempfile::tempdir().unwrap();
    for name in ["coreflow", "coreflow-relayd", "coreflow-pulld", "coreflow-vpnd"] {
        std::fs::copy(binaries().join(name), release.path().join(name)).unwrap();
    }
    setup.executables = Some(release.path().to_owned());
    let key = NodeKey::default();
    let network = VpnNetwork::of([("node-1", key.public().as_str())]);
    cloudly.change(|facts| facts.vpn_network = Some(network));
    let before = listing(release.path());
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    let workers = all_workers(&relay).await;
    let hub = cloudly.wait_hub(None).await.unwrap();
    let hub_address = SocketAddrV4::new(hub.address, hub.quic_port);
    poll(BOUND, "hub that is bound", || is_udp_bound(hub_address).then_some(())).await.unwrap();
    let tunnel = Tunnel::dial(&key, &hub).await.unwrap();

    for (role, pid) in &workers {
        let name = String::from_utf8(proc_of(*pid, "comm")).unwrap();
        assert_eq!(name.trim(), format!("coreflow-{role}"), "what a process list shows");
    }
    for file in ["environ", "cmdline"] {
        let shown = proc_of(relay.pid(), file);
        let runs = bearer.as_bytes().windows(SHORTEST_RUN).filter(|run| holds(&shown, run)).count();
        assert_eq!(runs, 0, "/proc/<supervisor>/{file} shows the bearer");
    }
    assert!(holds(&proc_of(relay.pid(), "environ"), b"CLOUDLY_URL="), "the environment was read at all");

    let listening_unix = inodes("unix", 6, |row| {
        row.get(3)
            .is_some_and(|flags| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x1_0000 != 0))
    });
    let named_unix = inodes("unix", 6, |row| row.len() > 7);
    let network: BTreeMap<&str, BTreeSet<String>> = [("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9)]
        .into_iter()
        .chain([("raw", 9), ("raw6", 9), ("packet", 8), ("netlink", 9)])
        .map(|(table, column)| (table, inodes(table, column, |_| true)))
        .collect();
    for (role, pid) in &workers {
        assert_eq!(proc_of(*pid, "environ"), b"", "{role} has an environment");
        let held = descriptors(*pid);
        assert!(held[&0].starts_with("socket:"), "{role}: 0 is {}", held[&0]);
        assert!(held[&1].starts_with("pipe:") && held[&1] == held[&2], "{role}: {held:?}");
        for (number, lead) in held.iter().filter(|(number, _)| **number > 2) {
            let expected = lead.starts_with("socket:")
                || ["anon_inode:[eventpoll]", "anon_inode:[eventfd]"].contains(&&**lead);
            assert!(expected, "{role}: descriptor {number} leads to {lead}");
        }
        let sockets = sockets_of(*pid);
        assert!(sockets.is_disjoint(&listening_unix), "{role} listens on a Unix socket");
        assert!(sockets.is_disjoint(&named_unix), "{role} has a Unix socket with a name");
        for (table, entries) in &network {
            let own = [("relayd", "tcp"), ("vpnd", "udp")].contains(&(role.as_str(), *table));
            assert!(own || sockets.is_disjoint(entries), "{role} has a socket in {table}");
        }
    }
    let listening_tcp = inodes("tcp", 9, |row| row.get(3) == Some(&"0A"));
    let listens: Vec<&String> =
        listening_tcp.iter().filter(|inode| sockets_of(workers["relayd"]).contains(*inode)).collect();
    assert_eq!(listens.len(), 1, "relayd listens at the relay's port alone");
    // Its other TCP sockets lead to Cloudly, none to another worker.
    let cloudlys = format!(":{:04X}", cloudly.port());
    let dials = inodes("tcp", 9, |row| row.get(2).is_some_and(|remote| remote.ends_with(&cloudlys)));
    let held = sockets_of(workers["relayd"]);
    for inode in network["tcp"].intersection(&held) {
        assert!(listens.contains(&inode) || dials.contains(inode), "relayd has another TCP socket");
    }
    let vpnds = sockets_of(workers["vpnd"]);
    let bound: BTreeSet<&String> = network["udp"].intersection(&vpnds).collect();
    assert_eq!(bound.len(), 1, "vpnd has the hub's socket and no other");
    let port = format!(":{:04X}", hub.quic_port);
    let hubs = inodes("udp", 9, |row| row.get(1).is_some_and(|local| local.ends_with(&port)));
    assert!(hubs.iter().any(|inode| bound.contains(inode)), "it is bound to the hub's port");
    assert!(tunnel.is_up());
    let supervisors = sockets_of(relay.pid());
    // The listener is kept for the next relayd.
    assert!(
        listening_tcp.intersection(&supervisors).all(|inode| listens.contains(&inode)),
        "another TCP listener"
    );
    assert!(supervisors.is_disjoint(&hubs), "the supervisor has kept a copy of the hub's socket");
    assert!(supervisors.is_disjoint(&listening_unix) && supervisors.is_disjoint(&named_unix));

    assert_eq!(listing(release.path()), before, "the release directory is as it was");
    let expected = ["authorities.pem", "qenv.yml"].map(PathBuf::from);
    assert_eq!(listing(&relay.home()), BTreeSet::from(expected), "the working directory is as it was");
}

/// The interfaces, routes and packet filters of this host's network, as names and rows.
fn network_of_host() -> BTreeMap<&'static str, Vec<String>> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let first = |text: &str| {
        text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    };
    let rows = |text: &str| text.lines().map(str::to_owned).collect::<Vec<String>>();
    BTreeMap::from([
        ("interfaces", first(&read("/proc/net/dev"))),
        ("routes", rows(&read("/proc/net/route"))),
        ("routes of IPv6", first(&read("/proc/net/ipv6_route"))),
        ("tables of filters", rows(&read("/proc/net/ip_tables_names"))),
    ])
}

/// VPN-01, VPN-02, VPN-03: while packets cross by way of the hub, vpnd is no root, has no capability and can get none, and
/// the host's interfaces, routes and tables of packet filters are what they were before.
#[tokio::test(flavor = "multi_thread")]
async fn the_hub_serves_without_a_privilege_and_leaves_the_host_as_it_is() {
    let (cloudly, setup) = bed(&distinctive_bearer(), BearerPlace::Credential).await;
    let before = network_of_host();
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    let hub = cloudly.wait_hub(None).await.unwrap();
    let keys = [(); 2].map(|()| NodeKey::default());
    let [a, b] = keys.each_ref().map(NodeKey::public);
    let network =
        VpnNetwork::of([("node-1", a.as_str()), ("node-2", b.as_str())]).linking("node-1", "node-2");
    let applied = cloudly.push_vpn_network(&network).await.unwrap().unwrap();
    assert_eq!(applied["state"], "applied");
    let mut one = Tunnel::dial(&keys[0], &hub).await.unwrap();
    let mut other = Tunnel::dial(&keys[1], &hub).await.unwrap();
    crosses(&mut one, &mut other, b"there").await;
    crosses(&mut other, &mut one, b"and back").await;
    // What the hub made would stay as long as it serves; what another program makes and removes passes.
    let as_before = || (network_of_host() == before).then_some(());
    if let Err(late) = poll(BOUND, "network of the host as it was", as_before).await {
        panic!("{late}: {:?}, before {before:?}", network_of_host());
    }
    assert!(one.is_up() && other.is_up());

    let vpnd = all_workers(&relay).await["vpnd"];
    let status = String::from_utf8(proc_of(vpnd, "status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {status}")).trim().to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(of(set), "0000000000000000", "{set}");
    }
    assert_eq!((of("NoNewPrivs"), of("Seccomp")), ("1".to_owned(), "2".to_owned()));
    assert!(of("Uid").split_whitespace().all(|user| user != "0"), "{}", of("Uid"));
}

/// Whether `bytes` hold a run of twelve bytes of `secret`, or of its base64 one of sixteen characters.
fn holds_a_run(bytes: &[u8], secret: &[u8]) -> bool {
    let mut runs: BTreeSet<Vec<u8>> = secret.windows(SHORTEST_RUN).map(<[u8]>::to_vec).collect();
    let plain = bytes.windows(SHORTEST_RUN).any(|window| runs.contains(window));
    runs.clear();
    for lead in 0..3 {
        let encoded = STANDARD.encode([&vec![0; lead][..], secret].concat());
        // The first group depends on what stands before, the last one on what follows.
        let own = &encoded.as_bytes()[4..encoded.len() - 4];
        runs.extend(own.windows(16).map(<[u8]>::to_vec));
    }
    plain || bytes.windows(16).any(|window| runs.contains(window))
}

/// LOG-01, LOG-14: at the most verbose level, through a late start, registrations, a forward, a push,
/// a renewal and a restart of relayd, no line holds a bearer, an identity, a key, or a body.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_holds_a_secret() {
    let bearer = distinctive_bearer();
    let (cloudly, setup) = bed(&bearer, BearerPlace::Credential).await;
    let [pushed, sent, answered] = [(); 3].map(|()| random_hex::<16>());
    cloudly.always(
        "getRuntimeRegistryCredential",
        Step::Answer(format!(r#"{{"username":"u","password":"{answered}"}}"#)),
    );
    cloudly.go_away().await;
    let mut relay = setup.start();
    relay.wait_line("no identity").await.unwrap();
    relay.signal(Signal::SIGUSR1);
    relay.wait_line("the log level is TRACE").await.unwrap();
    cloudly.come_back().await.unwrap();
    relay.wait_open().await.unwrap();
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    let mut carried = 0;
    for round in 0..2 {
        let binding = node.binding().unwrap();
        let body = format!(r#"{{"session":{binding},"publicKey":"{sent}"}}"#);
        let answer = node.request("getRuntimeRegistryCredential", &body).await.unwrap();
        assert!(answer.outcome().unwrap().get().contains(&answered));
        let body = format!(r#"{{"session":{binding},"assignment":{{"workload":"{pushed}"}}}}"#);
        cloudly.push("applyRuntimeAssignment", &body).await.unwrap().outcome().unwrap();
        carried += 1;
        if round == 0 {
            let sessions = cloudly.calls_of("registerCloudlyClientSession").len();
            cloudly.wait_for("registerCloudlyClientSession", sessions + 1).await.unwrap();
            let killed = relay.kill_worker("relayd");
            relay.wait_worker("relayd", killed).await.unwrap();
            node.wait_registered(2).await.unwrap();
        }
    }
    assert_eq!(carried, 2);
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(STOP).await, Ok(0));
    relay.wait_line("the relay stopped").await.unwrap();

    let lines: Vec<String> = relay.lines().into_iter().map(|line| line.text).collect();
    let debug = |part: &str| lines.iter().any(|line| line.starts_with("DEBUG") && line.contains(part));
    assert!(ROLES.iter().all(|role| debug(role)), "the most verbose level was in force: {lines:#?}");
    let key = cloudly.change(|settings| settings.certificates[&setup.host_name].key_pem.clone());
    let mut secrets = vec![bearer, pushed, sent, answered, "pallet-bearer-of-node-1".to_owned()];
    secrets.extend(cloudly.issued_jwts());
    secrets.extend(key.lines().filter(|line| line.len() > 20).map(str::to_owned));
    assert!(secrets.len() > 8, "identities and key lines are among what is looked for");
    for secret in &secrets {
        let shown: Vec<&String> =
            lines.iter().filter(|line| holds_a_run(line.as_bytes(), secret.as_bytes())).collect();
        assert_eq!(shown, [] as [&String; 0], "lines show a secret");
    }
}

/// ARC-06, TST-06: every byte of every link, of a boot, a renewal, a forward, a push, a restart of relayd and a stop.
#[tokio::test(flavor = "multi_thread")]
async fn no_frame_carries_the_bearer() {
    demand_root();
    let release = TappedRelease::lay_out(Path::new(env!("CARGO_BIN_EXE_coreflow-link-tap")), None);
    let bearer = distinctive_bearer();
    let (cloudly, mut setup) = bed(&bearer, BearerPlace::Environment).await;
    setup.executables = Some(release.directory());
    let mut relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    all_workers(&relay).await;
    relay.signal(Signal::SIGUSR1);
    relay.wait_line("the log level is TRACE").await.unwrap();
    let node = PalletNode::start(Setup::new(setup.target(), "node-1"));
    let binding = node.wait_registered(1).await.unwrap();
    let body = format!(r#"{{"session":{binding}}}"#);
    node.request("reportRuntimeNetworkProtection", &body).await.unwrap().outcome().unwrap();
    let body = format!(r#"{{"session":{binding},"assignment":{{"workload":"web"}}}}"#);
    cloudly.push("applyRuntimeAssignment", &body).await.unwrap().outcome().unwrap();
    cloudly.wait_for("registerCloudlyClientSession", 2).await.unwrap();
    let killed = relay.kill_worker("relayd");
    relay.wait_worker("relayd", killed).await.unwrap();
    node.wait_registered(2).await.unwrap();
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait_exit(STOP).await, Ok(0));

    let captured = release.captured();
    let of = |start: &str, end: &str| -> Vec<u8> {
        let matching = captured.iter().filter(|(name, _)| name.starts_with(start) && name.ends_with(end));
        matching.flat_map(|(_, bytes)| bytes.clone()).collect()
    };
    for role in ROLES {
        for direction in ["-0.up", "-0.down"] {
            let bytes = of(role, direction);
            assert!(holds(&bytes, b"33.1.0"), "the hello of {role}{direction} was seen");
        }
        assert!(holds(&of(role, "-1.up"), b"33.1.0"), "a link of {role} to another worker was seen");
    }
    let jwts = cloudly.issued_jwts();
    let down = of("relayd", "-0.down");
    assert!(
        jwts.iter().any(|jwt| holds(&down, jwt.as_bytes())),
        "the identity was seen on its way to relayd"
    );
    for (name, bytes) in captured.iter().filter(|(name, _)| !name.starts_with("relayd")) {
        assert!(jwts.iter().all(|jwt| !holds(bytes, jwt.as_bytes())), "{name} carries an identity");
    }
    for (name, bytes) in &captured {
        assert!(!holds_a_run(bytes, bearer.as_bytes()), "{name} carries a run of the bearer");
    }
    let planted = format!("before {} after", STANDARD.encode(&bearer));
    assert!(
        holds_a_run(planted.as_bytes(), bearer.as_bytes())
            && holds_a_run(bearer.as_bytes(), bearer.as_bytes())
    );
}
