//! Where the relay stands: one session to Cloudly that everything travels on, one listener that nodes dial,
//! and no decision or work of its own beside carrying (SES, PROT, REG, LIS, RET, OPS).

use std::net::Ipv4Addr;
use std::time::Duration;

use coreflow_tests::carrier::{Carrier, Event};
use coreflow_tests::cloudly::{Call, Cloudly, Gate, StandingRelay, Step};
use coreflow_tests::dial::websocket;
use coreflow_tests::envelope::{Refusal, UNKNOWN_METHOD};
use coreflow_tests::offer::Offer;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::processes::workers_of;
use coreflow_tests::relay::RelaySetup;
use coreflow_tests::sockets::tcp_sockets_of;
use coreflow_tests::waiting::{BOUND, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio_tungstenite::tungstenite::protocol::Role;

#[expect(dead_code, reason = "these tests need a part of the scene")]
#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const REGISTER: &str = "registerPalletRuntimeSession";
const SESSION: &str = "registerCloudlyClientSession";
const REGISTRATION: &str = "registerClusterRelay";
const REPORT: &str = "reportRuntimeNetworkProtection";
const APPLY: &str = "applyRuntimeAssignment";
const WAIT: Duration = Duration::from_secs(12);
const STOP: Duration = Duration::from_secs(10);

async fn socket(scene: &Scene) -> (Carrier, Receiver<Event>) {
    let socket = websocket(&scene.setup.target(), "/", &[]).await.expect("the relay takes the socket");
    Carrier::start(socket, Role::Client)
}

fn registration(node: &str, offer: &Offer) -> String {
    json!({"protocol": offer.json(), "authorization": format!("pallet-bearer-of-{node}"), "nodeId": node,
        "nodeInstanceNonce": "n", "credentialGeneration": 1})
    .to_string()
}

fn sequences(cloudly: &Cloudly) -> Vec<u64> {
    let sequence = |call: &Call| call.body_json()["registrationSequence"].as_u64();
    cloudly.calls_of(REGISTRATION).iter().filter_map(sequence).collect()
}

/// Whether a request is one that the relay made itself, and not one that it carries.
fn own(call: &Call) -> bool {
    !call.method.contains("Runtime")
}

/// SES-02, SES-10, SES-19: all nodes and pushes travel on the one session; of all four processes no TCP socket
/// is anything else than the listener, a node that dialled it, or a dial of Cloudly's origin.
#[tokio::test]
async fn everything_travels_on_the_one_session_and_nothing_else_is_dialled() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test looks into processes of other users: run it as root"
    );
    let scene = Scene::open(|_| {}).await;
    let nodes = [scene.node("node-1").await, scene.node("node-2").await];
    for node in &nodes {
        scene.assert_carried(node).await;
    }
    assert_eq!((scene.cloudly.connections_seen(), scene.cloudly.open_connections()), (1, 1));
    for call in scene.cloudly.calls() {
        let by_http = call.method == "getIdentityByToken";
        assert_eq!(call.connection, (!by_http).then_some(1), "{}", call.method);
    }
    let (mut listening, mut dialled, mut accepted) = (0, 0, 0);
    let workers = scene.relay.workers();
    for (role, pid) in
        workers.iter().map(|(role, pid)| (role.as_str(), *pid)).chain([("", scene.relay.pid())])
    {
        for socket in tcp_sockets_of(pid).expect("a running process can be looked into") {
            match (socket.listening, socket.local_port == scene.setup.port) {
                (true, true) => listening += 1,
                (false, true) => accepted += 1,
                (false, false) if socket.remote_port == scene.cloudly.port() => dialled += 1,
                (true | false, false) => panic!("{role} holds another socket: {socket:?}"),
            }
        }
    }
    assert!(listening >= 1 && accepted >= 2 && dialled >= 1, "{listening} {accepted} {dialled}");
}

/// SES-07, FWD-06, LOG-01: the relay keeps no bearer of a node: after a reconnect it cannot register one that
/// stays away, and none of its own requests carries an authorization.
#[tokio::test]
async fn no_node_is_registered_by_the_relay_itself() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, mut events) = socket(&scene).await;
    let offer = Offer::new("33.1.0", "32.0.0");
    carrier.call(REGISTER, &registration("node-1", &offer), WAIT).await.unwrap().outcome().unwrap();
    scene.cloudly.drop_connections();
    scene.cloudly.wait_accepted(2).await.unwrap();
    // It is asked to come back, by the end of its socket, and does not.
    while !matches!(events.recv().await, Some(Event::Closed(_)) | None) {}
    scene.relay.wait_line("node node-1 is gone").await.unwrap();
    scene.node("node-2").await;
    let registered = scene.cloudly.calls_of(REGISTER);
    assert_eq!(registered.len(), 2);
    assert_eq!(registered[1].body_json()["nodeId"], json!("node-2"));
    for call in scene.cloudly.calls().iter().filter(|call| own(call)) {
        assert!(
            !call.body().contains("authorization") && !call.body().contains("pallet-bearer"),
            "{}",
            call.method
        );
    }
}

/// SES-18, SES-04: one flag opens everything: on a connection whose session is not registered yet no node is
/// forwarded, no carried node asked to come back, and the relay not registered; with its registration all of
/// it happens.
#[tokio::test]
async fn a_connection_without_a_registered_session_dispatches_nothing() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    let body = format!(r#"{{"session":{}}}"#, node.binding().unwrap());
    let gate = Gate::default();
    scene.cloudly.once(SESSION, Step::When(gate.clone(), Box::new(Step::Ordinary)));
    scene.cloudly.drop_connections();
    scene.cloudly.wait_for(SESSION, 2).await.unwrap();
    let before = scene.cloudly.calls().len();
    let refused = node.request(REPORT, &body).await.unwrap().outcome().unwrap_err();
    assert_eq!(refused.text, "relay-session-unavailable: no Cloudly session after waiting 0 ms");
    assert_eq!((scene.cloudly.calls().len(), node.closes().len()), (before, 0));
    assert_eq!((scene.cloudly.calls_of(REGISTRATION).len(), scene.cloudly.open_connections()), (1, 1));
    gate.open();
    scene.cloudly.wait_accepted(2).await.unwrap();
    node.wait_registered(2).await.unwrap();
    scene.assert_carried(&node).await;
}

/// LOG-11, LOG-03, SES-16: a read of the start that Cloudly refuses is told in Cloudly's own words, with its
/// method, and made again.
#[tokio::test]
async fn a_refused_read_is_told_in_cloudlys_own_words() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.once("getClusterConfig", Step::refuse("cluster-in-migration: wait for the move to end"));
        setup
    })
    .await;
    let line = scene.relay.wait_line("cluster-in-migration: wait for the move to end").await.unwrap();
    assert!(line.text.contains("getClusterConfig"), "{}", line.text);
    scene.relay.wait_open().await.unwrap();
    assert_eq!(scene.count("cluster-in-migration"), 1);
}

/// RET-08: an assignment is carried to the node that Cloudly named and does nothing else: no process, no
/// request, no node of the relay's own choice; what would have the relay execute is refused with its owner.
#[tokio::test]
async fn the_relay_executes_nothing_and_places_nothing() {
    let scene = Scene::open(|_| {}).await;
    let (node, other) = (scene.node("node-1").await, scene.node("node-2").await);
    let processes = workers_of(scene.relay.pid());
    let calls = scene.cloudly.calls().len();
    let workload = r#""assignment":{"image":"registry.test/app@sha256:0","command":["/bin/true"]}"#;
    let body = format!(r#"{{"session":{},{workload}}}"#, node.binding().unwrap());
    scene.cloudly.push(APPLY, &body).await.unwrap().outcome().unwrap();
    for unplaced in
        [format!("{{{workload}}}"), format!(r#"{{"session":{{"clusterId":"cluster-1"}},{workload}}}"#)]
    {
        let refused = scene.cloudly.push(APPLY, &unplaced).await.unwrap().outcome().unwrap_err();
        assert_eq!(refused.name(), "relay-node-not-connected");
    }
    for (method, owner) in [
        ("pushContainerUpdate", "Pallet"),
        ("informCoreflowAboutNewContainerVersion", "Pallet"),
        ("triggerServerAction", "Cloudly"),
    ] {
        let refused = scene.cloudly.push(method, &body).await.unwrap().outcome().unwrap_err();
        assert_eq!(refused.text, format!("coreflow-retired: {method} is retired; {owner} owns it"));
    }
    assert_eq!((node.pushes().len(), other.pushes().len()), (1, 0));
    assert_eq!(scene.cloudly.calls().len(), calls, "the relay asked for nothing");
    assert_eq!(workers_of(scene.relay.pid()), processes, "the relay started nothing");
}

/// XTR-01, XTR-03, XTR-04, XTR-05, RET-05: whatever Cloudly might ask for a function that is not built is
/// answered at once with a refusal, never with silence or an empty result.
#[tokio::test]
async fn what_is_not_built_is_refused_and_never_answered_empty() {
    let scene = Scene::open(|_| {}).await;
    for method in [
        "getClusterRelayRoster",
        "getClusterRelayServedNodes",
        "signClusterNetworkState",
        "signRuntimeNetworkProjection",
        "replayClusterDesiredState",
        "pushClusterDesiredState",
    ] {
        let answer =
            scene.cloudly.push_within(method, "{}", Duration::from_secs(5)).await.expect("an answer");
        assert_eq!(answer.response(), "null", "{method}");
        assert_eq!(answer.outcome().expect_err("a refusal").text, UNKNOWN_METHOD, "{method}");
    }
}

/// The names of the members in `value` that speak of a version, by path.
fn versions(value: &Value, path: &str, found: &mut Vec<String>) {
    for (name, member) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let lower = name.to_lowercase();
        if ["version", "schema", "release", "protocol", "revision"].iter().any(|word| lower.contains(word)) {
            found.push(path.clone());
        }
        versions(member, &path, found);
    }
}

/// PROT-02, FWD-29: beside the offers and the build nothing that the relay says has a number of a protocol: no
/// member, no method's suffix, no further member of an envelope, carried ones included.
#[tokio::test]
async fn no_message_carries_a_further_protocol_number() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    let (stranger, _events) = socket(&scene).await;
    let old = registration("node-2", &Offer::new("31.0.0", "31.0.0"));
    let refused = stranger.call(REGISTER, &old, WAIT).await.unwrap();
    let mut found = Vec::new();
    for call in scene.cloudly.calls() {
        let members = ["correlation", "method", "request", "requestInstanceId", "response"];
        assert_eq!(call.message.keys(), members, "{}", call.method);
        assert!(call.method.bytes().all(|byte| byte.is_ascii_alphabetic()), "{}", call.method);
        if own(&call) {
            versions(&call.body_json(), "", &mut found);
        }
    }
    versions(&refused.outcome().unwrap_err().data, "", &mut found);
    found.sort();
    found.dedup();
    let admitted = [
        ".offer.oldestAcceptedPeerRelease",
        ".offer.release",
        ".protocol",
        ".protocol.oldestAcceptedPeerRelease",
        ".protocol.release",
        ".received.oldestAcceptedPeerRelease",
        ".received.release",
        ".relay.version",
    ];
    assert_eq!(found, admitted);
    let members = ["correlation", "error", "method", "requestInstanceId", "response"];
    assert_eq!(refused.keys(), members);
    let pushed = &node.pushes()[0].message;
    assert_eq!(pushed.keys(), ["correlation", "method", "request", "requestInstanceId", "response"]);
    let answered = node.registrations();
    assert_eq!(answered[0].keys(), ["correlation", "method", "requestInstanceId", "response"]);
}

/// PROT-03, PROT-09: either hop is refused on its own: a node that is too old leaves the Cloudly hop ready, and
/// a Cloudly that is too new changes nothing about which nodes are servable.
#[tokio::test]
async fn the_two_hops_negotiate_apart() {
    let scene = Scene::open(|_| {}).await;
    let carried = scene.node("node-1").await;
    let (stranger, _events) = socket(&scene).await;
    let refused = async |offer: &Offer| {
        let body = registration("node-2", offer);
        stranger.call(REGISTER, &body, WAIT).await.unwrap().outcome().unwrap_err()
    };
    // A release that Cloudly's hop admits and a node's does not.
    let (between, servable) = (Offer::new("32.5.0", "32.0.0"), Offer::new("33.1.0", "32.0.0"));
    assert_eq!(refused(&between).await.name(), "protocol-refused");
    scene.wait_status("not ready: palletRuntime: ").await;
    scene.assert_carried(&carried).await;
    scene.cloudly.change(|settings| settings.offer = between.clone());
    scene.cloudly.drop_connections();
    scene.cloudly.wait_accepted(2).await.unwrap();
    carried.wait_registered(2).await.unwrap();
    scene.wait_status("open for Cloudly dispatch").await;

    scene.cloudly.change(|settings| settings.offer = Offer::new("40.0.0", "40.0.0"));
    scene.cloudly.drop_connections();
    scene.relay.wait_line("protocol-refused: cloudlyClient peer speaks 40.0.0").await.unwrap();
    let old = refused(&between).await;
    assert_eq!((old.name(), &old.data["kind"]), ("protocol-refused", &json!("palletRuntime")));
    assert_eq!(refused(&servable).await.name(), "relay-session-unavailable");
}

/// REG-12, LIS-04: the cluster document decides neither whether the relay's node belongs to it nor where it
/// listens: with a document that knows another node and another place it listens where its configuration says,
/// and registers that.
#[tokio::test]
async fn node_and_endpoint_are_the_configurations_and_not_the_clusters() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.change(|settings| {
            let block = json!({"origin": format!("https://{}", setup.host_name)});
            let node = json!({"id": "relay-node", "data": {"clusterId": "another-cluster"}});
            settings.relay_block = Some(block.clone());
            settings.config = Some(
                json!({
                    "configData": {"id": "another-cluster", "data": {"name": "c", "nodes": [node], "relay": block,
                        "listenAddress": "192.0.2.1", "listenPort": 1, "nodeId": "another-node"}},
                    "services": [],
                    "corestorePublicationGrants": [],
                })
                .to_string(),
            );
        });
        setup
    })
    .await;
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
    let stated = scene.cloudly.calls_of(REGISTRATION)[0].body_json()["relay"].clone();
    assert_eq!(stated["nodeId"], json!("relay-node"));
    assert_eq!(
        (&stated["listenAddress"], &stated["listenPort"]),
        (&json!("127.0.0.1"), &json!(scene.setup.port))
    );
    let node = scene.node("node-1").await;
    // A document that moves it is not followed.
    let moved = scene
        .cloudly
        .config()
        .replace("192.0.2.1", "192.0.2.2")
        .replace("\"listenPort\":1", "\"listenPort\":2");
    scene.cloudly.push("pushClusterConfig", &moved).await.unwrap().outcome().unwrap();
    scene.cloudly.drop_connections();
    scene.cloudly.wait_accepted(2).await.unwrap();
    assert_eq!(scene.cloudly.calls_of(REGISTRATION)[1].body_json()["relay"], stated);
    node.wait_registered(2).await.unwrap();
    scene.assert_carried(&node).await;
}

/// REG-14, REG-13: the sequence orders the relay's own registrations and nothing else: no number that Cloudly
/// states moves it, and a new service begins at 0 below what the former one reached.
#[tokio::test]
async fn the_sequence_is_compared_with_nobodys() {
    let mut scene = Scene::open(|cloudly| {
        let data = json!({"sequence": 900, "lastSequence": 900});
        let refusal = Refusal { text: "relay-sequence-not-advancing: 900".to_owned(), data };
        cloudly.once(REGISTRATION, Step::Refuse(refusal.clone()));
        // What is refused is sent again with the next session, by the next number.
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(4));
    })
    .await;
    scene.cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(3600));
    let counted = sequences(&scene.cloudly);
    assert!(counted.len() >= 2, "the refused one and the accepted one");
    assert_eq!(counted, (0..counted.len() as u64).collect::<Vec<u64>>());
    scene.relay.signal(Signal::SIGTERM);
    assert_eq!(scene.relay.wait_exit(STOP).await, Ok(0));
    let before = sequences(&scene.cloudly).len();
    let accepted = scene.cloudly.acceptances();
    let second = scene.setup.start();
    second.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(accepted + 1).await.unwrap();
    assert_eq!(sequences(&scene.cloudly)[before], 0);
}

/// REG-24, REG-25, REG-64, REG-65, LIS-28: the bound address becomes the domain's A record, in the place of a
/// relay that was stored; no hub, no platform endpoint; and nodes dial what the block says.
#[tokio::test]
async fn cloudly_publishes_what_the_relay_registered() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.store_relay(StandingRelay {
            node_id: "former-relay".to_owned(),
            listen_address: Ipv4Addr::new(192, 0, 2, 1),
            listen_port: setup.port,
            hub: None,
            connection: None,
        });
        cloudly.once(REGISTRATION, Step::refuse("relay-node-unknown"));
        setup
    })
    .await;
    scene.relay.wait_line("registration refused: relay-node-unknown").await.unwrap();
    let domain = &scene.setup.host_name;
    assert_eq!(scene.cloudly.a_record(domain), Some(Ipv4Addr::new(192, 0, 2, 1)), "a refusal takes no place");
    scene.cloudly.drop_connections();
    scene.cloudly.wait_accepted(1).await.unwrap();
    assert_eq!(scene.cloudly.a_record(domain), Some(Ipv4Addr::LOCALHOST));
    let standing = scene.cloudly.standing().expect("a relay stands for the cluster");
    assert_eq!((standing.node_id.as_str(), standing.listen_port), ("relay-node", scene.setup.port));
    assert_eq!(standing.connection, Some(2), "registered over the live session");
    assert_eq!(scene.cloudly.platform_endpoint(), Err("relay-vpn-hub-absent"));
    assert_eq!(scene.cloudly.node_origin(), Some(scene.setup.origin()));
    scene.node("node-1").await;
}

/// OPS-02, PROT-35: facing a Cloudly from the reconciler's time the relay stays up, is not ready, and its status
/// shows the refused protocol.
#[tokio::test]
async fn a_cloudly_of_the_reconcilers_time_leaves_the_relay_up_and_not_ready() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.change(|settings| settings.offer = Offer::new("3.5.4", "3.0.0"));
        setup
    })
    .await;
    scene.relay.wait_line("protocol-refused: cloudlyClient peer speaks 3.5.4").await.unwrap();
    let shown = || {
        let messages = scene.relay.notify()?.messages();
        messages
            .iter()
            .any(|message| message.contains("protocol-refused: cloudlyClient peer speaks 3.5.4"))
            .then_some(())
    };
    poll(BOUND, "status with the refused protocol", shown).await.unwrap();
    let messages = scene.relay.notify().unwrap().messages();
    assert!(!messages.iter().any(|message| message.contains("READY=1")), "{messages:?}");
    assert!(coreflow_tests::processes::is_alive(scene.relay.pid()));
    assert_eq!((scene.count("the relay is open"), scene.cloudly.open_connections()), (0, 1));
}

/// OPS-08: a node is enrolled at Cloudly directly: the relay carries no enrollment, and the node it refused is
/// carried once Cloudly knows it.
#[tokio::test]
async fn a_node_is_enrolled_at_cloudly_and_not_through_the_relay() {
    let scene = Scene::open(|_| {}).await;
    let denied = PalletNode::start(Setup::new(scene.setup.target(), "node-9")).wait_denied().await.unwrap();
    assert_eq!(denied, "runtime-session-unauthorized");
    let (stranger, _events) = socket(&scene).await;
    let calls = scene.cloudly.calls().len();
    for method in ["enrollNode", "enrollPalletNode", "getIdentityByToken"] {
        let refused = stranger.call(method, r#"{"token":"t"}"#, WAIT).await.unwrap().outcome().unwrap_err();
        assert_eq!(refused.text, UNKNOWN_METHOD);
    }
    assert_eq!(scene.cloudly.calls().len(), calls);
    scene.cloudly.change(|settings| settings.nodes.insert("node-9".into(), "pallet-bearer-of-node-9".into()));
    let node = scene.node("node-9").await;
    scene.assert_carried(&node).await;
}

/// TST-01: one test boots the whole relay against a loopback Cloudly: launch facts, exchange, session, document,
/// certificate, listener, registration, a node in both directions, and the stop.
#[tokio::test]
async fn the_whole_relay_boots_against_a_loopback_cloudly() {
    let authority = coreflow_tests::authority::Authority::new();
    let setup = RelaySetup::new(&authority).notified();
    let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
    let setup = setup.facing(&cloudly);
    let relay = setup.start();
    relay.wait_open().await.unwrap();
    cloudly.wait_accepted(1).await.unwrap();
    let mut scene = Scene { cloudly, setup, relay };
    let asked: Vec<String> = scene.cloudly.calls().into_iter().map(|call| call.method).collect();
    let boot = ["getIdentityByToken", SESSION, "getClusterConfig", "getCertificateForDomain", REGISTRATION];
    assert_eq!(asked[..boot.len()], boot);
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    assert_eq!(scene.cloudly.calls_of(REPORT).len(), 0, "nothing is reported that no node reported");
    scene.relay.signal(Signal::SIGTERM);
    assert_eq!(scene.relay.wait_exit(STOP).await, Ok(0));
}
