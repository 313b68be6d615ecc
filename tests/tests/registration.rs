//! What the relay tells Cloudly of itself, how it takes each answer, and parking (REG, LOG-12, LOG-16).

use std::time::Duration;

use coreflow_tests::cloudly::{Cloudly, Step};
use coreflow_tests::envelope::Refusal;
use coreflow_tests::offer::Offer;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::processes::is_alive;
use coreflow_tests::waiting::{BOUND, poll};
use serde_json::{Value, json};

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const SESSION: &str = "registerCloudlyClientSession";
const REGISTRATION: &str = "registerClusterRelay";
const CONFIG: &str = "getClusterConfig";
const BOUND_TO: &str =
    "INFO relayd: this relay is bound to cluster relay credential relay-credential-1 generation 1";
const ACCEPTED: &str = "Cloudly accepted this relay's registration";

/// Identities that are renewed every 750 ms, and each renewal is followed by a registration.
fn renewing(cloudly: &Cloudly) {
    cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(1));
}

fn lasting(cloudly: &Cloudly) {
    cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(3600));
}

/// An acceptance as Cloudly would write it.
fn acceptance(scene: &Scene, credential: u64, record: u64) -> Value {
    json!({
        "protocol": Offer::new("33.1.0", "32.0.0").json(),
        "origin": scene.setup.origin(),
        "credential": {"id": "relay-credential-1", "generation": credential},
        "registration": {"id": "relay-registration-1", "generation": record},
    })
}

fn sequences(scene: &Scene) -> Vec<u64> {
    let sequence = |call: &coreflow_tests::cloudly::Call| call.body_json()["registrationSequence"].as_u64();
    scene.cloudly.calls_of(REGISTRATION).iter().filter_map(sequence).collect()
}

/// REG-01, REG-03, REG-05, REG-06, REG-11, REG-16, REG-17, REG-23, REG-40, REG-67, PROT-05,
/// PROT-07, CFG-27, LOG-01: the body and nothing beside it.
#[tokio::test]
async fn a_registration_states_build_node_and_endpoint_and_nothing_else() {
    let scene = Scene::open(|_| {}).await;
    let body = scene.cloudly.calls_of(REGISTRATION)[0].body_json();
    let stated = json!({
        "protocol": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"},
        "registrationSequence": 0,
        "relay": {
            "version": env!("CARGO_PKG_VERSION"),
            "nodeId": "relay-node",
            "listenAddress": "127.0.0.1",
            "listenPort": scene.setup.port,
        },
    });
    assert_eq!(body, stated);
    assert_eq!(body["protocol"], scene.cloudly.calls_of(SESSION)[0].body_json()["protocol"]);
}

/// REG-02, REG-13, REG-15, REG-37, REG-41, REG-42, REG-43, REG-44, REG-66, LOG-12: the sequence counts over
/// renewals and reconnects; the credential is pinned and stated once; each acceptance reads the cluster
/// document.
#[tokio::test]
async fn registrations_are_counted_over_renewals_and_reconnects() {
    let scene = Scene::open(renewing).await;
    scene.wait_lines(ACCEPTED, 2).await;
    assert_eq!(scene.cloudly.connections_seen(), 1, "the second is a renewal's");
    lasting(&scene.cloudly);
    for connection in [2, 3] {
        // A renewal of the short life may be under way; what it began ends before the connection does.
        let settled = || {
            let accepted = scene.count(ACCEPTED);
            (sequences(&scene).len() == accepted && scene.cloudly.calls_of(CONFIG).len() == 1 + accepted)
                .then_some(accepted)
        };
        let accepted = poll(BOUND, "state with every registration answered", settled).await.unwrap();
        scene.cloudly.drop_connections();
        scene.wait_lines(ACCEPTED, accepted + 1).await;
        assert_eq!(scene.cloudly.connections_seen(), connection);
    }
    let counted = sequences(&scene);
    let expected: Vec<u64> = (0..counted.len() as u64).collect();
    assert_eq!(counted, expected);
    scene.wait_lines(ACCEPTED, counted.len()).await;
    assert_eq!(scene.count(BOUND_TO), 1);
    // One read for the start, one for each acceptance.
    scene.cloudly.wait_for(CONFIG, 1 + counted.len()).await.unwrap();
    let registrations = scene.cloudly.calls_of(REGISTRATION);
    assert!(registrations.iter().all(|call| call.forbidden().is_empty()));
}

/// REG-26, REG-27, REG-28, REG-56, REG-18, REG-19: each refusal is logged once, under its name, and changes
/// nothing for the nodes.
#[tokio::test]
async fn refusals_are_logged_by_name_and_leave_the_nodes_alone() {
    let scene = Scene::open(renewing).await;
    let node = scene.node("node-1").await;
    let names = [
        "relay-cluster-not-enabled",
        "relay-node-foreign",
        "relay-node-unknown",
        "relay-identity-unverified",
        "relay-sequence-not-advancing",
        "relay-bind-unpublishable: 127.0.0.1",
    ];
    for name in names {
        scene.cloudly.once(REGISTRATION, Step::refuse(name));
    }
    scene.wait_lines("registration refused: ", names.len()).await;
    let accepted = scene.cloudly.acceptances();
    scene.cloudly.wait_accepted(accepted + 1).await.unwrap();
    for name in names {
        assert_eq!(scene.count(&format!("registration refused: {name}")), 1, "{name}");
    }
    assert_eq!(scene.count("named=true"), 5);
    scene.assert_carried(&node).await;
    assert_eq!((node.closes().len(), scene.cloudly.connections_seen()), (0, 1));
    assert_eq!(scene.count("generation-stale"), 0);
}

/// REG-30, REG-32, REG-33: the remedy is told, and an enrolled node is accepted at the next registration.
#[tokio::test]
async fn a_node_that_is_not_enrolled_is_told_the_remedy() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.change(|settings| "another-node".clone_into(&mut settings.relay_node));
        setup
    })
    .await;
    let line = scene.relay.wait_line("registration refused: relay-node-unknown").await.unwrap();
    assert!(line.text.contains("enroll the node first: run `spark enrollnode` on it"), "{line:?}");
    scene.relay.wait_open().await.unwrap();
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    scene.cloudly.change(|settings| "relay-node".clone_into(&mut settings.relay_node));
    scene.cloudly.drop_connections();
    scene.cloudly.wait_accepted(1).await.unwrap();
    scene.relay.wait_line(BOUND_TO).await.unwrap();
    assert_eq!(sequences(&scene), [0, 1]);
}

/// REG-29, SES-16, LOG-03: a registration without an answer is logged by class, and the relay serves.
#[tokio::test]
async fn an_unanswered_registration_is_logged_by_class_and_the_relay_serves() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.once(REGISTRATION, Step::Never);
        setup
    })
    .await;
    scene.relay.wait_open().await.unwrap();
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    let line = scene.relay.wait_line("registration failed").await.unwrap();
    assert!(line.text.contains("class=timeout"), "{line:?}");
    scene.assert_carried(&node).await;
    assert_eq!((node.closes().len(), sequences(&scene)), (0, vec![0]));
}

/// REG-37, REG-38, REG-39, REG-45, REG-48, REG-49, REG-50, REG-51, PROT-25, PROT-26: an answer without a
/// readable reference is no acceptance; the next answer that can be acted on ends that.
#[tokio::test]
async fn an_answer_without_its_references_is_no_acceptance() {
    let whole = json!({
        "protocol": Offer::new("33.1.0", "32.0.0").json(),
        "origin": "https://relay.localhost.test",
        "credential": {"id": "relay-credential-1", "generation": 1},
        "registration": {"id": "relay-registration-1", "generation": 1},
    });
    let change = |path: &str, value: Value| {
        let mut answer = whole.clone();
        *answer.pointer_mut(path).expect("the path exists") = value;
        answer.to_string()
    };
    let mut without = whole.clone();
    without.as_object_mut().unwrap().remove("credential");
    let answers = [
        (without.to_string(), "credential"),
        (change("/credential", json!({"id": "c", "generation": 1, "more": 1})), "credential"),
        (change("/credential", json!({"id": "c"})), "credential"),
        (change("/registration", json!(null)), "registration"),
        (change("/registration/generation", json!(-1)), "registration"),
        ("{}".to_owned(), "protocol"),
        ("null".to_owned(), "body"),
    ];
    let scene = Scene::start(|cloudly, setup| {
        renewing(cloudly);
        for (answer, _) in &answers {
            cloudly.once(REGISTRATION, Step::Answer(answer.clone()));
        }
        setup
    })
    .await;
    scene.wait_status("not ready: clusterRelayRegistration: registerClusterRelay was answered").await;
    let node = scene.node("node-1").await;
    scene.cloudly.wait_accepted(1).await.unwrap();
    scene.relay.wait_line(ACCEPTED).await.unwrap();
    scene.wait_status("open for Cloudly dispatch").await;
    let lines = scene.relay.lines();
    let accepted = lines.iter().position(|line| line.text.contains(ACCEPTED)).unwrap();
    let told: Vec<&str> = lines[..accepted].iter().map(|line| line.text.as_str()).collect();
    for (_, path) in &answers {
        let words = format!("registerClusterRelay was answered without a valid {path}");
        assert!(told.iter().any(|line| line.contains(&words)), "{path}: {told:?}");
    }
    // What stands is said once. Nothing followed the seven as it follows an acceptance: the one pinning
    // is the eighth's.
    assert_eq!(told.iter().filter(|line| line.contains("answered without")).count(), 4, "{told:?}");
    assert_eq!(lines.iter().position(|line| line.text.contains(BOUND_TO)), Some(accepted - 1));
    let first = scene.cloudly.calls_of(REGISTRATION)[7].at;
    let early = scene.cloudly.calls_of(CONFIG).iter().filter(|call| call.at < first).count();
    assert_eq!(early, 1, "the start's own read");
    scene.assert_carried(&node).await;
}

/// REG-44, REG-46, REG-48, REG-49, REG-50: a record that does not advance, or another record.
#[tokio::test]
async fn a_record_that_does_not_advance_is_no_acceptance() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    let mut other = acceptance(&scene, 1, 9);
    other["registration"]["id"] = json!("relay-registration-2");
    for (number, answer) in [acceptance(&scene, 1, 1), other].into_iter().enumerate() {
        scene.cloudly.once(REGISTRATION, Step::Answer(answer.to_string()));
        scene.cloudly.drop_connections();
        scene.wait_lines("which does not advance relay-registration-1 generation 1", number + 1).await;
        scene.wait_status("not ready: clusterRelayRegistration: registerClusterRelay was answered").await;
        node.wait_registered(number + 2).await.unwrap();
        scene.assert_carried(&node).await;
    }
    assert_eq!((scene.count(ACCEPTED), scene.count(BOUND_TO)), (1, 1));
    scene.cloudly.drop_connections();
    scene.wait_lines(ACCEPTED, 2).await;
    scene.wait_status("open for Cloudly dispatch").await;
}

/// REG-34, REG-35, REG-36: the accepted origin is not the served one: both are named, and the acceptance
/// stands.
#[tokio::test]
async fn an_acceptance_of_another_origin_is_warned_of_and_stands() {
    let other = "https://elsewhere.localhost.test:9443";
    let scene = Scene::open(|cloudly| {
        cloudly.change(|settings| other.clone_into(&mut settings.origin));
    })
    .await;
    let line = scene.relay.wait_line("the accepted origin is not the served one").await.unwrap();
    assert!(line.text.contains(other) && line.text.contains(&scene.setup.origin()), "{line:?}");
    scene.cloudly.wait_for(CONFIG, 2).await.unwrap();
    scene.wait_status("open for Cloudly dispatch").await;
    assert_eq!((scene.count(ACCEPTED), scene.count(BOUND_TO)), (1, 1));
}

/// What a parked relay still does, and what it does no more (REG-56, REG-57, REG-58, REG-59, REG-60, REG-61,
/// REG-62, SES-14, SES-15, LOG-16).
async fn assert_parked(scene: &Scene, node: &PalletNode) {
    let words = "relay-credential-generation-stale: this relay is bound to cluster relay credential \
                 relay-credential-1 generation 1, which was superseded; only a restart with the bearer of the \
                 current generation serves this cluster again";
    scene.relay.wait_line(words).await.expect("the parked statement");
    scene.wait_status(&format!("not ready: clusterRelayRegistration: {words}")).await;
    let before = (scene.cloudly.exchanges(), scene.cloudly.connections_seen(), sequences(scene));
    let announced = scene.cloudly.calls_of(SESSION).len();
    assert_eq!(scene.cloudly.open_connections(), 1);
    scene.assert_carried(node).await;
    // New nodes are carried too.
    let late = scene.node("node-2").await;
    scene.assert_carried(&late).await;
    assert_eq!(scene.cloudly.open_connections(), 1);

    // A registration waits five seconds for a session: long enough for a dial or an exchange to show.
    let closes = node.closes().len();
    scene.cloudly.drop_connections();
    scene.relay.wait_line("the Cloudly session is lost").await.expect("the loss");
    let setup = Setup { nonce: "another".to_owned(), ..Setup::new(scene.setup.target(), "node-2") };
    let denied = PalletNode::start(setup).wait_denied().await.expect("a refusal");
    assert_eq!(denied, "relay-session-unavailable: no Cloudly session after waiting 5000 ms");
    let after = (scene.cloudly.exchanges(), scene.cloudly.connections_seen(), sequences(scene));
    assert_eq!(before, after);
    assert_eq!(scene.cloudly.calls_of(SESSION).len(), announced);
    assert_eq!((scene.count(words), node.closes().len()), (1, closes));
    assert!(is_alive(scene.relay.pid()) && scene.relay.workers().contains_key("relayd"));
}

/// REG-43, REG-47, REG-52, REG-54: an acceptance of another credential generation.
#[tokio::test]
async fn an_acceptance_of_another_generation_parks_the_relay() {
    let scene = Scene::open(renewing).await;
    let node = scene.node("node-1").await;
    scene.cloudly.always(REGISTRATION, Step::Answer(acceptance(&scene, 2, 1000).to_string()));
    assert_parked(&scene, &node).await;
    assert_eq!((scene.count(BOUND_TO), scene.count("generation 2")), (1, 0));
}

/// REG-55, REG-57, REG-63: Cloudly's own refusal, met at a renewal.
#[tokio::test]
async fn a_refused_generation_parks_the_relay() {
    let scene = Scene::open(renewing).await;
    let node = scene.node("node-1").await;
    scene.cloudly.always(REGISTRATION, Step::Refuse(Refusal::new("relay-credential-generation-stale")));
    assert_parked(&scene, &node).await;
}

/// REG-55, REG-61, OUT-04: a relay that parks at the first registration after a reconnect still asks
/// every node to register again, so that none is left with a binding that Cloudly forgot.
#[tokio::test]
async fn a_relay_that_parks_after_a_reconnect_carries_every_node_over() {
    let scene = Scene::open(|_| {}).await;
    let nodes = [scene.node("node-1").await, scene.node("node-2").await];
    scene.cloudly.rotate_credential("the-bearer-of-the-next-generation");
    scene.cloudly.drop_connections();
    scene.relay.wait_line("only a restart with the bearer of the current generation").await.unwrap();
    for node in &nodes {
        node.wait_registered(2).await.unwrap();
        scene.assert_carried(node).await;
    }
    scene.wait_lines("asked to re-register", 2).await;
    assert_eq!(scene.count("asked to re-register"), 2);
}
