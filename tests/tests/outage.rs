//! The outage end to end: nodes that stay, renewals that Cloudly signed ahead and the relay offers while it is
//! away, and what is owed when it is back (OUT, ESC).
//!
//! Windows begin every 2 s here and began half a minute ago, so that the relay's margin of 30 s makes one due
//! every 2 s. Nobody's clock is touched.

use std::time::Duration;

use coreflow_tests::cloudly::{Cloudly, HOLD, Signed, SignedRun, Step, Windows, in_milliseconds};
use coreflow_tests::pallet::{Judged, NodeClock, PalletNode, Push, Setup, Verdict};
use coreflow_tests::renewal::Projection;
use coreflow_tests::waiting::{BOUND, poll};
use serde_json::{Value, json};

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const NODE: &str = "node-1";
const OTHER: &str = "node-2";
const REGISTER: &str = "registerPalletRuntimeSession";
const REGISTRATION: &str = "registerClusterRelay";
const PROJECTION: &str = "applyRuntimeNetworkProjection";
const RENEWAL: &str = "applyRuntimeNetworkDnsLeaseRenewal";
const ASSIGNMENT: &str = r#"{"id":"assignment-1","generation":1,"application":{"image":"app@sha256:00"},"uplink":{"ports":[8080]}}"#;
const LOST: &str = "the Cloudly session is lost";

/// The relay's margin, `defaultLeaseEscrowTiming`.
const MARGIN_MS: u64 = 30_000;

fn now() -> u64 {
    in_milliseconds(Duration::ZERO)
}

/// Windows on a grid of 2 s, each of which ends 10 s after it is due; the first has been due for a second.
fn windows() -> Windows {
    Windows {
        first: now() - MARGIN_MS - 1_000,
        spacing: Duration::from_secs(2),
        length: Duration::from_secs(40),
        count: 32,
        first_sequence: 1,
    }
}

fn network() -> Projection {
    Projection::new("network-1", 3)
}

/// Owes each of both nodes an assignment and a projection, whose lease has expired.
fn owing(cloudly: &Cloudly) {
    let expired = network().with_lease((now() - 1_200_000, now() - 300_000));
    cloudly.change(|settings| {
        for node in [NODE, OTHER] {
            settings.owed.insert(node.to_owned(), ASSIGNMENT.to_owned());
            settings.owed_projections.insert(node.to_owned(), expired.clone());
        }
    });
}

/// A node that keeps its network and got what it is owed.
async fn leasing(scene: &Scene, id: &str) -> PalletNode {
    let node = PalletNode::start(Setup::new(scene.setup.target(), id).keeping_network());
    node.wait_registered(1).await.expect("the node registers");
    owed(scene, id, 1).await;
    node
}

/// Waits until a node has acknowledged `times` what it is owed: authority, projection and assignment.
async fn owed(scene: &Scene, node: &str, times: usize) {
    let acknowledged = || {
        let deliveries = scene.cloudly.deliveries();
        let of_node = deliveries.iter().filter(|(to, answer)| to == node && matches!(answer, Ok(Ok(_))));
        (of_node.count() == 3 * times).then_some(())
    };
    poll(BOUND, &format!("what {node} is owed"), acknowledged).await.expect("the node acknowledges it");
}

async fn held(scene: &Scene, run: &SignedRun) {
    assert_eq!(
        scene.cloudly.hold_run(run).await.expect("an answer"),
        Ok(run.renewals.len() as u64),
        "ESC-04"
    );
}

async fn lose_cloudly(scene: &Scene, times: usize) {
    scene.cloudly.go_away().await;
    scene.wait_lines(LOST, times).await;
}

fn offers(node: &PalletNode) -> Vec<Push> {
    node.pushes().into_iter().filter(|push| push.message.method == RENEWAL).collect()
}

/// Waits until two more windows have come due, which is time enough for an offer that should not be made.
async fn two_windows_come_due(run: &SignedRun) {
    let begin = now();
    let due = |signed: &&Signed| signed.renewal.not_before + MARGIN_MS > begin;
    let second = run.renewals.iter().filter(due).nth(1).expect("the run goes on");
    let at = second.renewal.not_before + MARGIN_MS + 300;
    poll(BOUND, "two windows due", || (now() >= at).then_some(())).await.expect("the clock goes on");
}

/// The places in the run of what the node was offered. Each offer is the signed text, byte for byte, in the
/// binding, made when its window was due and admitted.
fn offered(node: &PalletNode, run: &SignedRun, binding: &str, from: usize) -> Vec<usize> {
    let (offers, judged) = (offers(node), node.judged());
    let pairs = offers.iter().zip(&judged).skip(from);
    let place = |(offer, judged): (&Push, &Judged)| {
        let place = run.place(&judged.text).expect("what is offered was signed");
        let session: Value = serde_json::from_str(binding).expect("a binding is JSON");
        let body: Value = serde_json::from_str(offer.message.request()).expect("an offer is JSON");
        assert_eq!((&body["session"], body.as_object().map(serde_json::Map::len)), (&session, Some(2)));
        assert_eq!(judged.verdict, Verdict::Admitted);
        let renewal = &run.renewals[place].renewal;
        assert!(renewal.not_before + MARGIN_MS <= judged.at, "{judged:?}");
        place
    };
    pairs.map(place).collect()
}

/// OUT-09, OUT-11, OUT-16, OUT-17, OUT-18, OUT-21, FWD-34, ESC-03, ESC-04, ESC-25, ESC-26, ESC-29, ESC-30, ESC-31,
/// ESC-33, ESC-46, ESC-63, ESC-67: through an outage of several windows a node keeps its lease by what Cloudly signed
/// and gets nothing else, no credential of a tunnel either; afterwards it is carried anew, and what runs on it ran
/// all through.
#[tokio::test]
async fn an_outage_of_several_windows_costs_a_node_neither_its_lease_nor_its_workload() {
    let scene = Scene::open(owing).await;
    let node = leasing(&scene, NODE).await;
    let bystander = scene.node(OTHER).await;
    let run = scene.cloudly.sign_run(NODE, &network(), windows());
    held(&scene, &run).await;
    let binding = node.binding().unwrap();
    // While the session stands Cloudly delivers by itself, and the relay offers nothing.
    let first = &run.renewals[0];
    let body = format!(r#"{{"session":{binding},"renewal":{}}}"#, first.text);
    scene.cloudly.push(RENEWAL, &body).await.unwrap().outcome().expect("the node admits it");
    two_windows_come_due(&run).await;
    assert_eq!(offers(&node).len(), 1);

    lose_cloudly(&scene, 1).await;
    let lost = now();
    let again = json!({"protocol": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"}}).to_string();
    let beyond_the_first_lease = async {
        let look = || node.judged().last().filter(|last| last.at > first.renewal.expires_at).cloned();
        poll(BOUND, "offer after the first lease's end", look).await.unwrap();
    };
    let (denied, ()) = tokio::join!(node.request(REGISTER, &again), beyond_the_first_lease);
    let denied = denied.unwrap().outcome().unwrap_err().text;
    assert_eq!(denied, "relay-session-unavailable: no Cloudly session after waiting 5000 ms");
    let tunnel = format!(r#"{{"session":{binding}}}"#);
    let tunnel = node.request("getRuntimeManagedVpnCredential", &tunnel).await.unwrap();
    let denied = tunnel.outcome().unwrap_err().text;
    assert_eq!(denied, "relay-session-unavailable: no Cloudly session after waiting 0 ms");
    let places = offered(&node, &run, &binding, 1);
    assert!(places.len() >= 3, "{places:?}");
    assert!(
        run.renewals[places[0]].renewal.not_before + MARGIN_MS <= lost,
        "offered at the loss: {places:?}"
    );
    assert!(places.is_sorted_by(|earlier, later| earlier < later), "each window once, in order: {places:?}");
    // A host that stands still past a whole window has the latest one offered (ESC-27); it does not do so always.
    let in_turn = places.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!(in_turn >= 2, "one window after the other: {places:?}");
    for judged in node.judged().iter().skip(1) {
        assert!(judged.lease_end > Some(judged.at), "the lease never ran out: {judged:?}");
    }
    scene.wait_lines("node node-1 has a renewed DNS lease", places.len()).await;
    let others: Vec<String> = node.take_pushes().into_iter().map(|push| push.message.method).collect();
    assert_eq!(others.iter().filter(|method| *method != RENEWAL).count(), 3, "{others:?}");
    assert_eq!((node.closes().len(), node.registrations().len()), (0, 1));
    assert_eq!((bystander.closes().len(), offers(&bystander).len()), (0, 0));

    scene.cloudly.come_back().await.unwrap();
    let bound_anew = node.wait_registered(2).await.unwrap();
    assert_ne!(bound_anew, binding);
    owed(&scene, NODE, 2).await;
    let workload = node.workloads().remove("assignment-1").unwrap();
    assert_eq!(workload.starts, 1);
    let judged = node.judged().len();
    let (_, last) = scene.cloudly.deliveries().pop().unwrap();
    assert!(last.unwrap().unwrap().get().contains(r#""admitted":"by-reference""#));
    assert!(node.is_leased(), "a lease that is replayed and has expired takes nothing away");

    // The former session's run is nobody's; the one that is signed for the new session is offered in it.
    two_windows_come_due(&run).await;
    lose_cloudly(&scene, 2).await;
    two_windows_come_due(&run).await;
    assert_eq!(node.judged().len(), judged);
    scene.cloudly.come_back().await.unwrap();
    let bound_last = node.wait_registered(3).await.unwrap();
    owed(&scene, NODE, 3).await;
    let windows = Windows { first_sequence: 100, ..windows() };
    let signed_anew = scene.cloudly.sign_run(NODE, &network(), windows);
    held(&scene, &signed_anew).await;
    node.take_pushes();
    lose_cloudly(&scene, 3).await;
    node.wait_judged(judged + 1).await.unwrap();
    let offer = offers(&node)[0].message.request().to_owned();
    let session: Value = serde_json::from_str(&offer).unwrap();
    assert_eq!(session["session"], serde_json::from_str::<Value>(&bound_last).unwrap());
    assert!(signed_anew.place(&node.judged()[judged].text).is_some());
}

/// ESC-27, ESC-38, ESC-47, OUT-18: a return that brings the node its historical binding ends the offers and keeps the
/// run; the next loss offers what is current then.
#[tokio::test]
async fn a_run_outlasts_a_return_that_changes_no_binding() {
    let scene = Scene::open(owing).await;
    let node = leasing(&scene, NODE).await;
    let run = scene.cloudly.sign_run(NODE, &network(), windows());
    held(&scene, &run).await;
    let binding = node.binding().unwrap();
    lose_cloudly(&scene, 1).await;
    node.wait_judged(1).await.unwrap();
    let historical = node.registrations()[0].response().to_owned();
    scene.cloudly.once(REGISTER, Step::Answer(historical));
    scene.cloudly.come_back().await.unwrap();
    assert_eq!(node.wait_registered(2).await.unwrap(), binding);
    let before = node.judged().len();
    two_windows_come_due(&run).await;
    assert_eq!(node.judged().len(), before, "nothing is offered while the session stands");
    lose_cloudly(&scene, 2).await;
    node.wait_judged(before + 1).await.unwrap();
    let places = offered(&node, &run, &binding, 0);
    assert!(places[before] >= places[before - 1] + 2, "what came due meanwhile is passed over: {places:?}");
}

/// OUT-20, ESC-44, ESC-45, ESC-62: a projection whose lease has expired is carried like any other and judged by
/// nobody here; the escrow is what brings the DNS back, as far as the node's own clock has it.
#[tokio::test]
async fn a_projection_whose_lease_has_expired_is_carried_and_the_escrow_renews_it() {
    let scene = Scene::open(owing).await;
    let node = leasing(&scene, NODE).await;
    let other = leasing(&scene, OTHER).await;
    let projection = scene.cloudly.change(|settings| settings.owed_projections[NODE].clone());
    let pushed = node.wait_push(PROJECTION, 1).await.unwrap().message;
    let binding = node.binding().unwrap();
    assert_eq!(pushed.request(), format!(r#"{{"session":{binding},"projection":{projection}}}"#));
    assert_eq!((node.is_leased(), node.projection()), (false, Some(network())));
    // The relay's clock grants nothing: a node that is not sure of its own refuses by name.
    other.set_clock(NodeClock::NotQualified);
    for id in [NODE, OTHER] {
        held(&scene, &scene.cloudly.sign_run(id, &network(), windows())).await;
    }
    lose_cloudly(&scene, 1).await;
    let judged = node.wait_judged(1).await.unwrap();
    assert_eq!((judged.verdict, node.is_leased()), (Verdict::Admitted, true));
    let judged = other.wait_judged(1).await.unwrap();
    assert_eq!(judged.verdict, Verdict::Refused("clock-not-qualified".to_owned()));
    scene.wait_lines("a DNS lease renewal was not delivered: clock-not-qualified", 1).await;
    // A later window is offered all the same, and by then the clock is proved.
    other.set_clock(NodeClock::Qualified(0));
    poll(BOUND, "lease of the other node", || other.is_leased().then_some(())).await.unwrap();
}

/// ESC-05, ESC-06, ESC-07, ESC-08, ESC-10, ESC-11, ESC-15, ESC-19, ESC-20, ESC-22, ESC-23, ESC-48, FWD-33, LIS-22: what is
/// refused is not held, and a run of a projection that the node replaced is offered to nobody.
#[tokio::test]
async fn what_is_refused_given_up_or_replaced_is_never_offered() {
    let scene = Scene::open(owing).await;
    let node = leasing(&scene, NODE).await;
    let run = |node: &str, projection: &Projection, first_sequence: u64| {
        scene.cloudly.sign_run(node, projection, Windows { first_sequence, ..windows() })
    };
    let own = run(NODE, &network(), 50);
    let refused = async |answer: &SignedRun, binding: &str| {
        let answer = scene.cloudly.hold_run_in(binding, answer).await.unwrap();
        answer.unwrap_err().text
    };
    let binding = node.binding().unwrap();
    let absent = binding.replace(NODE, OTHER);
    assert_eq!(refused(&run(OTHER, &network(), 1), &absent).await, "escrow-node-not-carried");
    let other = leasing(&scene, OTHER).await;
    let foreign = "escrow-run-foreign-session";
    assert_eq!(refused(&run(OTHER, &network(), 1), &binding).await, foreign, "another node's renewals");
    assert_eq!(refused(&own, &binding.replace("cluster-1", "cluster-2")).await, foreign);
    let far = Windows { first: now() + 3_600_000, ..Windows::of_cloudly(0) };
    let far = scene.cloudly.sign_run(NODE, &network(), far);
    assert_eq!(refused(&far, &binding).await, "escrow-run-invalid: renewals[17].expiresAt");
    let answer = node.request(HOLD, &own.hold(&binding)).await.unwrap();
    assert_eq!(answer.outcome().unwrap_err().text, "escrow-cloudly-only");

    held(&scene, &own).await;
    assert_eq!(refused(&run(NODE, &network(), 49), &binding).await, "escrow-run-stale");
    assert_eq!(refused(&run(NODE, &Projection::new("network-1", 2), 60), &binding).await, "escrow-run-stale");
    assert_eq!(
        refused(&run(NODE, &Projection::new("network-2", 4), 60), &binding).await,
        "escrow-run-unordered"
    );
    let standing = run(OTHER, &network(), 1);
    held(&scene, &standing).await;
    let replaced = network().next().with_lease((now(), now() + 900_000));
    scene.cloudly.push_projection(NODE, &replaced).await.unwrap().outcome().expect("the node admits it");
    lose_cloudly(&scene, 1).await;
    // In the same outage the other node is offered one window after the other.
    other.wait_judged(3).await.unwrap();
    assert_eq!(node.judged().len(), 0);
    assert_eq!(offered(&other, &standing, &other.binding().unwrap(), 0).len(), other.judged().len());

    // An empty run gives custody up.
    scene.cloudly.change(|settings| settings.owed_projections.insert(NODE.to_owned(), replaced));
    scene.cloudly.come_back().await.unwrap();
    for id in [NODE, OTHER] {
        owed(&scene, id, 2).await;
    }
    let given = other.judged().len();
    held(&scene, &run(OTHER, &network(), 100)).await;
    held(&scene, &SignedRun { renewals: Vec::new(), ..standing.clone() }).await;
    lose_cloudly(&scene, 2).await;
    two_windows_come_due(&standing).await;
    assert_eq!((other.judged().len(), node.judged().len()), (given, 0));
}

/// ESC-50, ESC-51, ESC-53, ESC-54, ESC-56: each refusal that says Cloudly does not dispatch to this relay ends
/// custody, the first four until an acceptance, the last for good; another one keeps what is held.
#[tokio::test]
async fn custody_ends_by_each_refusal_that_dispatches_to_another_relay() {
    let scene = Scene::open(|cloudly| {
        owing(cloudly);
        // A registration follows each renewal of the identity, every 750 ms, on the unbroken socket.
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(1));
    })
    .await;
    let node = leasing(&scene, NODE).await;
    let run = scene.cloudly.sign_run(NODE, &network(), windows());
    let refuse = async |text: &str| {
        scene.cloudly.always(REGISTRATION, Step::refuse(text));
        let asked = scene.cloudly.calls_of(REGISTRATION).len();
        scene.cloudly.wait_for(REGISTRATION, asked + 2).await.expect("a registration after the refused one");
    };
    held(&scene, &run).await;
    for kept in ["relay-identity-unverified", "not-relay-node-unknown: relay-node-unknown"] {
        refuse(kept).await;
        held(&scene, &run).await;
    }
    assert_eq!(scene.count("every run of DNS lease renewals is dropped"), 0);
    let ending = [
        "relay-cluster-not-enabled",
        "relay-node-foreign",
        "relay-node-unknown",
        "relay-sequence-not-advancing",
        "relay-credential-generation-stale",
    ];
    for name in ending {
        scene.cloudly.always(REGISTRATION, Step::refuse(&format!("{name}: because")));
        scene.wait_lines(&format!("every run of DNS lease renewals is dropped: {name}"), 1).await;
        assert_eq!(scene.cloudly.hold_run(&run).await.unwrap().unwrap_err().text, name);
        let accepted = scene.cloudly.acceptances();
        scene.cloudly.ordinary(REGISTRATION);
        if name != "relay-credential-generation-stale" {
            scene.cloudly.wait_accepted(accepted + 1).await.unwrap();
            held(&scene, &run).await;
        }
    }
    // Parked, the relay takes no run any more and has none to offer, and the node is carried on.
    scene.wait_status("not ready: clusterRelayRegistration: relay-credential-generation-stale").await;
    scene.assert_carried(&node).await;
    let refused = scene.cloudly.hold_run(&run).await.unwrap().unwrap_err();
    assert_eq!(refused.text, "relay-credential-generation-stale");
    scene.cloudly.drop_connections();
    scene.wait_lines(LOST, 1).await;
    two_windows_come_due(&run).await;
    assert_eq!((node.judged().len(), node.closes().len()), (0, 0));
}

/// ESC-01, ESC-64: a relayd that is killed in an outage has lost what it held: nobody is offered anything, and
/// the node is out until Cloudly is back.
#[tokio::test]
async fn a_relay_that_is_killed_in_an_outage_has_lost_its_runs() {
    let scene = Scene::open(owing).await;
    let node = leasing(&scene, NODE).await;
    let run = scene.cloudly.sign_run(NODE, &network(), windows());
    held(&scene, &run).await;
    lose_cloudly(&scene, 1).await;
    node.wait_judged(1).await.unwrap();
    let killed = scene.relay.kill_worker("relayd");
    node.wait_close(1).await.unwrap();
    let judged = node.judged().len();
    scene.relay.wait_worker("relayd", killed).await.unwrap();
    two_windows_come_due(&run).await;
    assert_eq!((node.judged().len(), node.registrations().len(), node.ended()), (judged, 1, None));
    scene.cloudly.come_back().await.unwrap();
    node.wait_registered(2).await.unwrap();
    owed(&scene, NODE, 2).await;
    assert_eq!(node.workloads()["assignment-1"].starts, 1);
    lose_cloudly(&scene, 2).await;
    two_windows_come_due(&run).await;
    assert_eq!(node.judged().len(), judged);
}
