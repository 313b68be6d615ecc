//! The managed VPN on the running relay: the hub is advertised, bound with the first network and serves exactly
//! that network, on live tunnels too (VPN).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coreflow_tests::cloudly::{VpnNetwork, in_milliseconds};
use coreflow_tests::link_tap::TappedRelease;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::tunnel::{NodeKey, Tunnel, crosses};
use coreflow_tests::vpn_bed::VpnBed;
use coreflow_tests::waiting::BOUND;
use coreflow_vpnd::node::Why;
use coreflow_vpnd::protocol::close::Close;
use coreflow_vpnd::protocol::noise::StaticKey;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use zeroize::Zeroizing;

const READ: &str = "getClusterVpnNetwork";
const NAMES: [&str; 3] = ["node-a", "node-b", "node-c"];

/// Three nodes with tunnels, in a network of which a test says the grants.
struct Three {
    bed: VpnBed,
    keys: [NodeKey; 3],
    network: VpnNetwork,
    tunnels: [Tunnel; 3],
}

/// The network of three keys, without a grant.
fn network_of(keys: &[NodeKey; 3]) -> VpnNetwork {
    let public = keys.each_ref().map(NodeKey::public);
    VpnNetwork::of(NAMES.into_iter().zip(public.iter().map(String::as_str)))
}

impl Three {
    async fn with(grants: impl FnOnce(VpnNetwork) -> VpnNetwork) -> Self {
        let bed = VpnBed::open().await;
        let keys = [(); 3].map(|()| NodeKey::default());
        let network = grants(network_of(&keys));
        bed.apply(&network).await;
        let [one, two, three] = &keys;
        let dials = [bed.dial(one).await, bed.dial(two).await, bed.dial(three).await];
        let tunnels = dials.map(|dial| dial.expect("a member is admitted"));
        Self { bed, keys, network, tunnels }
    }

    /// All three may reach each other.
    async fn linked() -> Self {
        Self::with(|network| {
            network.linking("node-a", "node-b").linking("node-b", "node-c").linking("node-a", "node-c")
        })
        .await
    }

    fn addresses(&self) -> [Ipv4Addr; 3] {
        NAMES.map(|name| self.network.address(name))
    }

    /// Packets cross between any two, both ways.
    async fn all_cross(&mut self) {
        let [a, b, c] = &mut self.tunnels;
        both(a, b).await;
        both(b, c).await;
        both(c, a).await;
    }

    /// The hub's report, of which `seen` holds.
    async fn report(&self, what: &str, seen: impl Fn(&Value) -> bool) -> Value {
        self.bed.status(what, |hub| seen(&hub["report"])).await["report"].clone()
    }
}

async fn both(one: &mut Tunnel, other: &mut Tunnel) {
    crosses(one, other, b"there").await;
    crosses(other, one, b"and back").await;
}

/// VPN-08, VPN-10, VPN-11, VPN-13, VPN-24, VPN-26, VPN-37, VPN-41, REG-20, REG-21: the acceptance reads no network, upon
/// which nothing is bound and the advertised key is there; the first network binds the advertised address, serves
/// its control prefix, and the hub proves the very key that was advertised before.
#[tokio::test]
async fn the_hub_is_advertised_at_once_and_bound_with_the_first_network() {
    let bed = VpnBed::open().await;
    let hub = bed.hub().await;
    assert_eq!((hub.address, hub.quic_port), (*bed.address.ip(), bed.address.port()));
    assert_eq!(bed.cloudly.calls_of(READ)[0].body(), "{}");
    let unbound = bed.status("a hub without a network", |hub| hub["configured"].is_string()).await;
    assert_eq!(
        (&unbound["configured"], &unbound["refused"]),
        (&json!(bed.address.to_string()), &json!(null))
    );
    assert!(unbound["report"]["bound"].is_null(), "{unbound}");
    assert!(!bed.is_bound(), "bound without a network");

    let key = NodeKey::default();
    let network = VpnNetwork::of([("node-a", key.public().as_str())]);
    bed.apply(&network).await;
    assert!(bed.is_bound());
    let tunnel = Tunnel::dial(&key, &hub).await.expect("the advertised key is the hub's");
    assert_eq!(tunnel.grant.address, network.address("node-a"));
    assert_eq!(tunnel.grant.control_prefix.to_string(), "100.100.0.0/24");
    assert_eq!((tunnel.grant.generation, tunnel.grant.revision), (1, 1));
    assert_eq!(bed.hub().await, hub, "advertised unchanged");
    let bound = bed.status("a bound hub", |hub| hub["report"]["sessions"] == json!(1)).await;
    assert_eq!(bound["report"]["bound"], bound["configured"]);
    assert_eq!(bound["report"]["controlPrefix"], json!("100.100.0.0/24"));
}

/// VPN-24, VPN-25, VPN-18, REG-66: the network that an acceptance reads is served as a pushed one is, and the
/// same network pushed afterwards is a repeat.
#[tokio::test]
async fn the_network_that_an_acceptance_reads_is_served() {
    let key = NodeKey::default();
    let network = VpnNetwork::of([("node-a", key.public().as_str())]);
    let compiled = network.clone();
    let bed = VpnBed::start(|_, cloudly| cloudly.change(|facts| facts.vpn_network = Some(compiled))).await;
    bed.relay.wait_open().await.unwrap();
    bed.wait_bound().await;
    bed.dial(&key).await.expect("a member of the network that was read");
    assert_eq!(bed.push(&network).await, Ok(json!({"state": "replayed", "revision": 1})));
    // A registration that Cloudly accepts anew reads it again.
    bed.cloudly.drop_connections();
    bed.wait_read(2).await;
}

/// VPN-01, VPN-04, VPN-06: packets cross both ways between members with grants, byte for byte, of any size up to the
/// tunnel's MTU; none crosses without a grant, in the direction that has none, and a key that is no member's is not
/// admitted.
#[tokio::test]
async fn packets_cross_by_the_grants_and_no_other_way() {
    let mut three =
        Three::with(|network| network.linking("node-a", "node-b").granting("node-c", "node-a")).await;
    let [at_a, at_b, at_c] = three.addresses();
    let [a, b, c] = &mut three.tunnels;
    for payload in [&b""[..], b"small", &[0x5a; 1200], &vec![0xa5; usize::from(a.grant.mtu) - 28]] {
        crosses(a, b, payload).await;
        crosses(b, a, payload).await;
    }
    crosses(c, a, b"one way").await;
    // What a may not send to c is dropped; what follows it to b is not, so the first was judged before.
    a.send(at_c, b"not granted");
    crosses(a, b, b"granted").await;
    b.send(at_c, b"not granted either");
    crosses(b, a, b"granted").await;
    c.send(at_b, b"not granted to c");
    crosses(c, a, b"the next one").await;

    let stranger = three.bed.dial(&NodeKey::default()).await.err();
    assert_eq!(stranger, Some(Why::Closed(Close::NotAdmitted)));
    let report = three
        .report("three drops and a stranger", |report| {
            report["dropped"]["no-grant"] == json!(3) && report["ended"]["not-admitted"] == json!(1)
        })
        .await;
    assert_eq!((&report["members"], &report["sessions"]), (&json!(3), &json!(3)));
    assert_eq!((&report["admissible"], &report["admitted"]), (&json!(3), &json!(3)));
    assert_eq!((report["forwardedPackets"].as_u64(), &report["revision"]), (Some(12), &json!(1)));
    // Nothing of what was dropped is on its way to c: the next that it gets is this.
    let again = three.network.clone().linking("node-a", "node-c").next();
    three.bed.apply(&again).await;
    let [a, _, c] = &mut three.tunnels;
    crosses(a, c, b"granted now").await;
    assert_eq!([at_a, at_b, at_c], NAMES.map(|name| again.address(name)));
}

/// VPN-06: a packet whose source is not its node's is dropped whoever it claims to be, and so is one to nobody, to the
/// hub itself and to many; what the node honestly sends goes on.
#[tokio::test]
async fn a_foreign_source_and_a_destination_of_nobody_are_dropped() {
    let mut three = Three::linked().await;
    let [at_a, at_b, at_c] = three.addresses();
    let [a, b, _] = &mut three.tunnels;
    let sources =
        [at_b, at_c, Ipv4Addr::new(100, 100, 0, 1), Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(8, 8, 8, 8)];
    for source in sources {
        a.send_packet(&a.packet_from(source, at_b, b"spoofed"));
    }
    for destination in [
        Ipv4Addr::new(100, 100, 0, 77),
        Ipv4Addr::new(8, 8, 8, 8),
        Ipv4Addr::new(100, 100, 0, 1),
        Ipv4Addr::new(100, 100, 0, 255),
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::LOCALHOST,
        at_a,
    ] {
        a.send(destination, b"to nobody");
    }
    crosses(a, b, b"honest").await;
    crosses(b, a, b"answered").await;
    let report = three
        .report("every drop", |report| report["dropped"]["source-foreign"] == json!(sources.len()))
        .await;
    let dropped: u64 = report["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(dropped, 13, "{report}");
    assert_eq!(report["forwardedPackets"], json!(2));
}

/// VPN-14, VPN-15, VPN-16, VPN-19: once a push is answered, what it leaves out is withdrawn from live tunnels: a grant
/// at once, and a member with its session, which is not admitted again; the others' tunnels stay as they are.
#[tokio::test]
async fn what_a_push_leaves_out_is_withdrawn_from_live_tunnels() {
    let mut three = Three::linked().await;
    three.all_cross().await;
    let [at_a, at_b, at_c] = three.addresses();
    let narrowed = three.network.clone().withdrawing_grant("node-a", "node-b");
    three.bed.apply(&narrowed).await;
    let [a, b, c] = &mut three.tunnels;
    a.send(at_b, b"withdrawn");
    a.send(at_c, b"still granted");
    c.expect(at_a, b"still granted").await;
    // The former was judged before the latter, and b gets what c then sends and nothing before it.
    c.send(at_b, b"from c");
    b.expect(at_c, b"from c").await;
    crosses(b, a, b"the other direction").await;

    // A network that never named b: no patch of the held one.
    let without = narrowed.withdrawing_member("node-b");
    three.bed.apply(&without).await;
    assert_eq!(b.ended().await, Why::Closed(Close::Withdrawn));
    a.send(at_b, b"to nobody any more");
    crosses(a, c, b"of the rest").await;
    crosses(c, a, b"undisturbed").await;
    assert_eq!(three.bed.dial(&three.keys[1]).await.err(), Some(Why::Closed(Close::NotAdmitted)));
    let report = three
        .report("two members", |report| {
            report["members"] == json!(2) && report["ended"]["not-admitted"] == json!(1)
        })
        .await;
    assert_eq!(
        (&report["admitted"], &report["sessions"], &report["ended"]["withdrawn"]),
        (&json!(3), &json!(2), &json!(1))
    );
    // Given back, it is admitted as before.
    let whole = VpnNetwork { revision: without.revision + 1, ..three.network.clone() };
    three.bed.apply(&whole).await;
    three.tunnels[1] = three.bed.dial(&three.keys[1]).await.unwrap();
    three.all_cross().await;
}

/// VPN-15: a key that a push changes and an address that it moves end the session that was admitted with the former.
#[tokio::test]
async fn a_changed_key_or_address_ends_its_session() {
    let mut three = Three::linked().await;
    let key = NodeKey::default();
    let moved = Ipv4Addr::new(100, 100, 0, 40);
    let changed = three
        .network
        .clone()
        .changing("node-a", |member| member.public_key = key.public())
        .changing("node-b", |member| member.address = moved)
        .next();
    three.bed.apply(&changed).await;
    let [a, b, c] = &mut three.tunnels;
    assert_eq!(a.ended().await, Why::Closed(Close::Withdrawn));
    assert_eq!(b.ended().await, Why::Closed(Close::Withdrawn));
    assert!(c.is_up());
    assert_eq!(three.bed.dial(&three.keys[0]).await.err(), Some(Why::Closed(Close::NotAdmitted)));
    *a = three.bed.dial(&key).await.unwrap();
    *b = three.bed.dial(&three.keys[1]).await.unwrap();
    assert_eq!(b.grant.address, moved);
    three.all_cross().await;
}

/// VPN-07, VPN-12, VPN-17, VPN-18, VPN-20, VPN-21, VPN-22, VPN-23: a repeat changes nothing, and a network that is
/// stale, of another authority, of another control prefix or none at all is refused by name; the served one and its
/// tunnels go on, through all of them.
#[tokio::test]
async fn what_is_not_admitted_leaves_the_served_network() {
    let mut three = Three::linked().await;
    let held = VpnNetwork { revision: 7, generation: 2, ..three.network.clone() };
    three.bed.apply(&held).await;
    let refused = |network: VpnNetwork| {
        let bed = &three.bed;
        async move { bed.cloudly.push_vpn_json(&network.json()).await.unwrap() }
    };
    assert_eq!(refused(held.clone()).await, Ok(json!({"state": "replayed", "revision": 7})));
    let mut other = held.clone().withdrawing_grant("node-a", "node-b");
    other.revision = held.revision;
    let moved = VpnNetwork {
        control_prefix: (Ipv4Addr::new(100, 101, 0, 0), 24),
        members: Vec::new(),
        grants: Vec::new(),
        ..held.clone().next()
    };
    for (network, name) in [
        (other, "vpn-network-revision-stale"),
        (VpnNetwork { revision: 6, ..held.clone() }, "vpn-network-revision-stale"),
        (VpnNetwork { generation: 1, revision: 8, ..held.clone() }, "vpn-network-revision-stale"),
        (
            VpnNetwork { authority: "another".to_owned(), ..held.clone().next() },
            "vpn-network-authority-foreign",
        ),
        (moved, "vpn-network-authority-foreign"),
    ] {
        let refusal = refused(network).await.expect_err(name);
        assert_eq!(refusal.name(), name, "{refusal}");
    }
    let valid = held.clone().next().json();
    type Spoil = fn(&mut Value);
    let spoils: [(Spoil, &str); 6] = [
        (|network| network["members"][0]["privateKey"] = json!("AA=="), "members[0]"),
        (
            |network| network["members"][1]["publicKey"] = network["members"][0]["publicKey"].clone(),
            "members[1]",
        ),
        (|network| network["members"][1]["address"] = json!("100.100.0.1"), "members[1]"),
        (|network| network["grants"][0]["to"] = json!("nobody"), "grants[0]"),
        (|network| network["schemaVersion"] = json!(1), "schemaVersion"),
        (|network| network["revision"] = json!("8"), "revision"),
    ];
    for (spoil, path) in spoils {
        let mut network = valid.clone();
        spoil(&mut network);
        let refusal = three.bed.cloudly.push_vpn_json(&network).await.unwrap().expect_err(path);
        assert_eq!(refusal.name(), "vpn-network-invalid", "{refusal}");
        assert!(refusal.text.contains(path), "{refusal}");
    }
    three.all_cross().await;
    let report = three.report("the held network", |report| report["revision"] == json!(7)).await;
    assert_eq!(
        (&report["admitted"], &report["sessions"]),
        (&json!(3), &json!(3)),
        "no session was made anew"
    );
    assert_eq!(report["ended"], json!({}));
    // A later generation of the same authority begins its revisions anew.
    let generation = VpnNetwork { generation: 3, revision: 1, ..held };
    three.bed.apply(&generation).await;
    three.all_cross().await;
}

/// A member whose time passes is withdrawn by the hub itself, without a push, and a longer time admits it again
/// (contract, section 6).
#[tokio::test]
async fn a_member_whose_time_passes_is_withdrawn_by_the_hub() {
    let bed = VpnBed::open().await;
    let keys = [(); 3].map(|()| NodeKey::default());
    let network = network_of(&keys).linking("node-a", "node-b");
    bed.apply(&network).await;
    let mut a = bed.dial(&keys[0]).await.unwrap();
    let b = bed.dial(&keys[1]).await.unwrap();
    let soon = in_milliseconds(Duration::from_secs(2));
    let network = network.next().changing("node-a", |member| member.expires_at = soon);
    bed.apply(&network).await;
    assert_eq!(a.ended().await, Why::Closed(Close::Expired));
    assert!(in_milliseconds(Duration::ZERO) >= soon);
    assert_eq!(bed.dial(&keys[0]).await.err(), Some(Why::Closed(Close::NotAdmitted)));
    assert!(b.is_up());
    let seen = |hub: &Value| hub["report"]["admissible"] == json!(2);
    let hub = bed.status("a member less", seen).await;
    assert_eq!(hub["report"]["members"], json!(3));
    let later = in_milliseconds(Duration::from_secs(600));
    let network = network.next().changing("node-a", |member| member.expires_at = later);
    bed.apply(&network).await;
    let (mut a, mut b) = (bed.dial(&keys[0]).await.unwrap(), b);
    crosses(&mut a, &mut b, b"back").await;
}

/// VPN-40: listener and hub have the same address and the same port, as TCP and UDP.
#[tokio::test]
async fn listener_and_hub_share_an_address() {
    let bed = VpnBed::start(|setup, _| {
        let port = setup.port.to_string();
        setup.variables.insert("COREFLOW_VPN_QUIC_PORT".to_owned(), port);
    })
    .await;
    bed.relay.wait_open().await.unwrap();
    bed.hub().await;
    let key = NodeKey::default();
    bed.apply(&VpnNetwork::of([("node-a", key.public().as_str())])).await;
    assert_eq!(bed.address.port(), bed.setup.port);
    let tunnel = bed.dial(&key).await.unwrap();
    let node = PalletNode::start(Setup::new(bed.setup.target(), "node-1"));
    node.wait_registered(1).await.unwrap();
    assert!(tunnel.is_up());
}

/// OPS-02: the one look at a hub that serves: what is bound and held, each session with what it carried, and
/// what was dropped; no key is among it.
#[tokio::test]
async fn the_status_shows_the_hub_and_its_sessions() {
    let mut three = Three::linked().await;
    three.all_cross().await;
    let report = three
        .report("every packet", |report| {
            let listed = report["listed"].as_array().map(Vec::as_slice).unwrap_or_default();
            listed.len() == 3 && listed.iter().all(|session| session["sentPackets"] == json!(2))
        })
        .await;
    assert_eq!(report["forwardedPackets"], json!(6));
    for (session, name) in report["listed"].as_array().unwrap().iter().zip(NAMES) {
        assert_eq!(
            (&session["nodeId"], &session["address"]),
            (&json!(name), &json!(three.network.address(name)))
        );
        assert_eq!(
            (&session["receivedPackets"], &session["receivedBytes"]),
            (&json!(2), &session["sentBytes"])
        );
    }
    let said = three.bed.relay.status().await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let hub = format!("vpn hub       UDP {}, revision 1, prefix 100.100.0.0/24\n", three.bed.address);
    assert!(said.stdout.contains(&hub), "{}", said.stdout);
    for part in
        ["members 3, admissible 3, sessions 3", "forwarded 6 packets, ", "node-b  100.100.0.3  127.0.0.1:"]
    {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    let advertised = three.bed.hub().await.public_key;
    for key in three.keys.iter().map(NodeKey::public).chain([advertised]) {
        assert!(!said.stdout.contains(&key) && !report.to_string().contains(&key), "a key is shown");
        assert_eq!(three.bed.lines(&key), 0, "a key is logged");
    }
}

/// Whether 32 bytes in a row are the private half of `public`.
fn holds_private_half(bytes: &[u8], public: &[u8; 32]) -> bool {
    let rows: BTreeSet<&[u8]> = bytes.windows(32).collect();
    rows.into_iter().any(|row| {
        let private = Zeroizing::new(row.try_into().expect("a window has its length"));
        StaticKey::of_bytes(private).public() == *public
    })
}

/// ARC-16, VPN-27: vpnd states its key's public half on its link to relayd, to the next relayd too, and of all that it
/// says on either link, while it serves tunnels, ends one by a push and stops, no 32 bytes are the private half.
#[tokio::test]
async fn the_hubs_private_key_crosses_no_link() {
    let release = TappedRelease::lay_out(Path::new(env!("CARGO_BIN_EXE_coreflow-link-tap")), None);
    let directory = release.directory();
    let mut bed = VpnBed::start(|setup, _| setup.executables = Some(directory)).await;
    bed.relay.wait_open().await.unwrap();
    bed.wait_read(1).await;
    let keys = [(); 3].map(|()| NodeKey::default());
    let network = network_of(&keys).linking("node-a", "node-b");
    bed.apply(&network).await;
    let (mut a, mut b) = (bed.dial(&keys[0]).await.unwrap(), bed.dial(&keys[1]).await.unwrap());
    both(&mut a, &mut b).await;
    bed.status("two sessions", |hub| hub["report"]["sessions"] == json!(2)).await;
    let hub = bed.hub().await;
    bed.relay.kill_worker("relayd");
    bed.relay.wait_line("relayd serves again").await.unwrap();
    bed.wait_read(2).await;
    let next = network.next().withdrawing_member("node-b");
    bed.apply(&next).await;
    assert_eq!(bed.hub().await, hub, "another vpnd would have another key");
    bed.relay.signal(Signal::SIGTERM);
    assert_eq!(bed.relay.wait_exit(BOUND).await, Ok(0));

    let public: [u8; 32] = STANDARD.decode(&hub.public_key).unwrap().try_into().unwrap();
    let said: Vec<_> = release
        .captured()
        .into_iter()
        .filter(|(name, _)| name.starts_with("vpnd") && name.ends_with(".up"))
        .collect();
    let stated = said.iter().filter(|(_, bytes)| bytes.windows(32).any(|row| *row == public)).count();
    assert_eq!(stated, 2, "once to each relayd, on its link");
    for (name, bytes) in &said {
        assert!(!holds_private_half(bytes, &public), "{name} carries the private key");
    }
    let planted = [7; 32];
    let public = StaticKey::of_bytes(Zeroizing::new(planted)).public();
    assert!(
        holds_private_half(&[&[1, 2][..], &planted, &[3]].concat(), &public),
        "a key is found where there is one"
    );
}
