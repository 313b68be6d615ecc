//! What nodes and Cloudly say to one another through the relay: unchanged, bounded, and only on the
//! socket that it belongs to (FWD, PROT on the cluster hop).

use std::time::{Duration, Instant};

use coreflow_tests::carrier::{Carrier, Event};
use coreflow_tests::cloudly::{Gate, Step};
use coreflow_tests::dial::websocket;
use coreflow_tests::envelope::{Ids, Message, Refusal, error_json, refusal, request};
use coreflow_tests::offer::Offer;
use coreflow_tests::pallet::{PalletNode, Reaction, Setup};
use coreflow_tests::waiting::{BOUND, within};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::protocol::Role;

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const REGISTER: &str = "registerPalletRuntimeSession";
const REPORT: &str = "reportRuntimeAssignmentObservation";
const APPLY: &str = "applyRuntimeAssignment";
const REQUESTS: [&str; 9] = [
    "getRuntimeManagedVpnCredential",
    "getRuntimeRegistryCredential",
    "reportRuntimeNetworkProtection",
    REPORT,
    "reportRuntimeAssignmentTerminalReceipt",
    "getRuntimeSecretRecipientState",
    "beginRuntimeSecretRecipientEnrollment",
    "completeRuntimeSecretRecipientEnrollment",
    "getRuntimeSecretMaterial",
];
const PUSHES: [&str; 4] = [
    APPLY,
    "applyRuntimeNetworkSigningAuthority",
    "applyRuntimeNetworkProjection",
    "applyRuntimeNetworkDnsLeaseRenewal",
];
/// Members that a decoder would not give back as they are: repeated keys, numbers beyond or beside a
/// double, escapes that need none, a lone surrogate, white space.
const ODD: &str = r#""a" : 1.0, "a":1e400,"b":-0,"c":[12345678901234567890123, 0.10 ,1E+2],"\u0061":"\u00e9\/\ud83d",
  "d":{ "x":null,"x":true },"marker":"a-private-member""#;
const BOUND_BY_PEER: Duration = Duration::from_secs(12);

/// A socket to the relay in the test's own hands.
async fn socket(scene: &Scene) -> (Carrier, Receiver<Event>) {
    let socket = websocket(&scene.setup.target(), "/", &[]).await.expect("the relay takes the socket");
    Carrier::start(socket, Role::Client)
}

fn registration(node: &str) -> String {
    json!({
        "protocol": Offer::new("33.1.0", "32.0.0").json(),
        "authorization": format!("pallet-bearer-of-{node}"),
        "nodeId": node,
        "nodeInstanceNonce": "nonce-of-a-test",
        "credentialGeneration": 1,
    })
    .to_string()
}

/// Registers `node` on `carrier` and gives its binding.
async fn register(carrier: &Carrier, node: &str) -> Value {
    let answer = carrier.call(REGISTER, &registration(node), BOUND_BY_PEER).await.expect("an answer");
    let answer: Value = serde_json::from_str(answer.outcome().expect("a binding").get()).expect("JSON");
    answer["session"].clone()
}

/// The refusal that a request of `carrier` got.
async fn refused(carrier: &Carrier, method: &str, body: &str) -> Refusal {
    let answer = carrier.call(method, body, BOUND_BY_PEER).await.expect("an answer");
    answer.outcome().expect_err("a refusal")
}

async fn next_request(events: &mut Receiver<Event>) -> Message {
    match within(BOUND, "request of the relay", events.recv()).await.expect("in time") {
        Some(Event::Request(message, _)) => message,
        other => panic!("no request but {other:?}"),
    }
}

/// FWD-01, FWD-02, FWD-03, FWD-04, FWD-05, FWD-06, FWD-17, FWD-27, FWD-28, FWD-29, FWD-30, FWD-31, FWD-39,
/// LOG-05: ten methods go up and come back byte for byte, with ids of the hop's own, and nothing of them is
/// logged.
#[tokio::test]
async fn the_ten_methods_of_a_node_reach_cloudly_byte_for_byte() {
    let scene = Scene::open(|cloudly| {
        for method in REQUESTS {
            cloudly.always(method, Step::Answer(format!("{{\"of\":\"{method}\",{ODD}}}")));
        }
    })
    .await;
    let (carrier, _events) = socket(&scene).await;
    let odd = registration("node-1").replacen('{', &format!("{{ {ODD} , "), 1);
    scene.cloudly.once(
        REGISTER,
        Step::Answer(format!(
            r#"{{"session":{{"sessionId":"s","nodeId":"node-1","clusterId":"cluster-1","generation":7}},{ODD}}}"#
        )),
    );
    let answer = carrier.call(REGISTER, &odd, BOUND_BY_PEER).await.unwrap();
    assert_eq!(scene.cloudly.calls_of(REGISTER)[0].body(), odd);
    assert!(answer.response().ends_with(&format!(",{ODD}}}")), "{}", answer.response());
    let binding = r#"{"sessionId":"s","nodeId":"node-1","clusterId":"cluster-1","generation":7}"#;
    for method in REQUESTS {
        let body = format!("{{{ODD}, \"session\" : {binding}}}");
        let ids = Ids::fresh();
        let text = request(method, &body, &ids);
        let answer = carrier.call_text(method, ids.clone(), text, BOUND_BY_PEER).await.unwrap();
        assert_eq!(answer.response(), format!("{{\"of\":\"{method}\",{ODD}}}"));
        assert_eq!((answer.member("error"), answer.member("request")), (None, None));
        let calls = scene.cloudly.calls_of(method);
        assert_eq!((calls.len(), calls[0].body()), (1, body.as_str()), "{method}");
        let keys = ["correlation", "method", "request", "requestInstanceId", "response"];
        assert_eq!(calls[0].message.keys(), keys);
        assert_ne!(calls[0].message.ids, ids);
    }
    for private in ["a-private-member", "pallet-bearer-of", "nonce-of-a-test"] {
        assert_eq!(scene.count(private), 0, "{private}");
    }
}

/// FWD-18, FWD-20, FWD-22, FWD-23, FWD-39: the four pushes go down and their answers up, verbatim.
#[tokio::test]
async fn the_four_pushes_reach_the_node_verbatim_and_so_do_its_answers() {
    let scene = Scene::open(|_| {}).await;
    let (node, other) = (scene.node("node-1").await, scene.node("node-2").await);
    for method in PUSHES {
        let answered = format!("[{{ {ODD} }}, \"{method}\"]");
        node.react(method, Reaction::Answer(answered.clone()));
        // The session's other members are the node's to judge.
        let body = format!("{{{ODD},\"session\":{{ \"nodeId\":\"node-1\" ,\"more\":1.50}} }}");
        let answer = scene.cloudly.push(method, &body).await.unwrap();
        assert_eq!((answer.response(), answer.member("error")), (answered.as_str(), None));
        let pushed = node.wait_push(method, 1).await.unwrap().message;
        assert_eq!((pushed.request(), pushed.forbidden()), (body.as_str(), vec![]));
    }
    assert_eq!((node.pushes().len(), other.pushes().len()), (4, 0));
    assert_eq!(scene.count("a-private-member"), 0);
}

/// FWD-03, FWD-22: refusals go through unchanged, with data and without, in both directions.
#[tokio::test]
async fn refusals_pass_unchanged_in_both_directions() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, mut events) = socket(&scene).await;
    let binding = register(&carrier, "node-1").await;
    let body = format!(r#"{{"session":{binding}}}"#);
    let whole =
        Refusal { text: "some-name: a reason\nwith é".to_owned(), data: json!({"b": [1.5], "a": {}}) };
    scene.cloudly.once(REPORT, Step::Refuse(whole.clone()));
    let answer = carrier.call(REPORT, &body, BOUND_BY_PEER).await.unwrap();
    assert_eq!(answer.member("error"), Some(error_json(&whole).as_str()));
    assert_eq!(answer.response(), "null");

    // Cloudly's side: an error without data, and one with members in another notation.
    for error in [r#"{"text":"bare"}"#, r#"{ "data":{"n":1.0},"text":"\u0062are: x" }"#] {
        scene.cloudly.once(REPORT, Step::Never);
        let count = scene.cloudly.calls_of(REPORT).len() + 1;
        let answered = async {
            let call = scene.cloudly.wait_for(REPORT, count).await.unwrap();
            let plain = refusal(REPORT, &Refusal::new("x"), &call.message.ids);
            let text = plain.replace(&error_json(&Refusal::new("x")), error);
            scene.cloudly.carrier().unwrap().send_text(text).await;
        };
        let (answer, ()) = tokio::join!(carrier.call(REPORT, &body, BOUND_BY_PEER), answered);
        assert_eq!(answer.unwrap().member("error"), Some(error));
    }
    // The node's side.
    for error in [r#"{"text":"bare"}"#, r#"{ "data":{"n":1.0},"text":"\u0062are: x" }"#] {
        let answered = async {
            let push = next_request(&mut events).await;
            let plain = refusal(&push.method, &Refusal::new("x"), &push.ids);
            carrier.send_text(plain.replace(&error_json(&Refusal::new("x")), error)).await;
        };
        let (answer, ()) = tokio::join!(scene.cloudly.push(APPLY, &body), answered);
        let answer = answer.unwrap();
        assert_eq!((answer.member("error"), answer.response()), (Some(error), "null"));
    }
}

/// FWD-03: answers of Cloudly out of order find their requests.
#[tokio::test]
async fn answers_out_of_order_reach_their_requests() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    let binding = node.binding().unwrap();
    scene.cloudly.once(REPORT, Step::AfterNext(Box::new(Step::Answer(r#""first""#.to_owned()))));
    scene.cloudly.once(REPORT, Step::Answer(r#""second""#.to_owned()));
    let body = format!(r#"{{"session":{binding}}}"#);
    let second = async {
        scene.cloudly.wait_for(REPORT, 1).await.unwrap();
        node.request(REPORT, &body).await.unwrap()
    };
    let (first, second) = tokio::join!(node.request(REPORT, &body), second);
    assert_eq!((first.unwrap().response(), second.response()), (r#""first""#, r#""second""#));
}

/// FWD-08, FWD-09, FWD-10, FWD-11, FWD-21, FWD-34, OUT-11: whatever is not answered is refused by name within
/// its bound, below the peer's own.
#[tokio::test]
async fn every_wait_ends_with_a_named_refusal() {
    let silent = Scene::open(|cloudly| {
        cloudly.once(REPORT, Step::Never);
    })
    .await;
    let node = silent.node("node-1").await;
    node.react(APPLY, Reaction::Never);
    let body = format!(r#"{{"session":{}}}"#, node.binding().unwrap());
    silent.cloudly.once(REGISTER, Step::Never);
    let (unregistered, _events) = socket(&silent).await;
    let away = Scene::open(|_| {}).await;
    let idle = away.node("node-1").await;
    away.cloudly.go_away().await;
    away.relay.wait_line("the Cloudly session is lost").await.unwrap();

    let timed =
        async |what: &str, from: u64, asked: std::pin::Pin<Box<dyn Future<Output = Refusal> + '_>>| {
            let begin = Instant::now();
            let refusal = asked.await;
            let took = begin.elapsed();
            assert_eq!((refusal.text.as_str(), &refusal.data), (what, &json!({})));
            // A peer waits ten seconds (FWD-36, FWD-37); a wait that is not granted takes none of them.
            let to = if from == 0 { 4000 } else { 9900 };
            let bounds = Duration::from_millis(from)..Duration::from_millis(to);
            assert!(bounds.contains(&took), "{what}: {took:?}");
        };
    let push = async { silent.cloudly.push(APPLY, &body).await.unwrap().outcome().unwrap_err() };
    let up = async { node.request(REPORT, &body).await.unwrap().outcome().unwrap_err() };
    let text = registration("node-2");
    let register = refused(&unregistered, REGISTER, &text);
    let denied = async {
        let started = PalletNode::start(Setup::new(away.setup.target(), "node-2"));
        Refusal::new(started.wait_denied().await.unwrap())
    };
    let report = async { idle.request(REPORT, &body).await.unwrap().outcome().unwrap_err() };
    tokio::join!(
        timed("relay-forward-timeout: applyRuntimeAssignment after 8000 ms", 7950, Box::pin(push)),
        timed("relay-forward-timeout: reportRuntimeAssignmentObservation after 8000 ms", 7950, Box::pin(up)),
        timed("relay-forward-timeout: registerPalletRuntimeSession after 9000 ms", 8950, Box::pin(register)),
        timed("relay-session-unavailable: no Cloudly session after waiting 5000 ms", 4950, Box::pin(denied)),
        timed("relay-session-unavailable: no Cloudly session after waiting 0 ms", 0, Box::pin(report)),
    );
    assert_eq!((idle.closes().len(), node.closes().len()), (0, 0));
    silent.wait_lines("a forward was not answered in time", 3).await;
}

/// FWD-07: a registration that arrives during a short reconnect waits for the session and succeeds.
#[tokio::test]
async fn a_registration_waits_through_a_short_reconnect() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, _events) = socket(&scene).await;
    // A registration that was sent and not answered when the connection broke waits as well.
    scene.cloudly.once(REGISTER, Step::Never);
    let (early, _early_events) = socket(&scene).await;
    let (early_binding, binding, ()) = tokio::join!(
        register(&early, "node-1"),
        async {
            scene.cloudly.wait_for(REGISTER, 1).await.unwrap();
            scene.cloudly.go_away().await;
            scene.relay.wait_line("the Cloudly session is lost").await.unwrap();
            register(&carrier, "node-2").await
        },
        async {
            scene.relay.wait_line("the Cloudly session is lost").await.unwrap();
            scene.wait_lines("the connection to Cloudly ended", 2).await;
            scene.cloudly.come_back().await.unwrap();
        }
    );
    assert_eq!((&early_binding["nodeId"], &binding["nodeId"]), (&json!("node-1"), &json!("node-2")));
    for (carrier, binding) in [(early, early_binding), (carrier, binding)] {
        let body = format!(r#"{{"session":{binding}}}"#);
        carrier.call(REPORT, &body, BOUND_BY_PEER).await.unwrap().outcome().unwrap();
    }
}

/// FWD-12, FWD-13, FWD-14, FWD-15, FWD-16, FWD-17, FWD-24, FWD-27: a request is forwarded only for the binding
/// of its own socket.
#[tokio::test]
async fn a_request_of_another_session_is_refused_before_it_is_forwarded() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, _events) = socket(&scene).await;
    let (stranger, _strange_events) = socket(&scene).await;
    let binding = register(&carrier, "node-1").await;
    let changed = |member: &str, value: Value| {
        let mut binding = binding.clone();
        binding[member] = value;
        format!(r#"{{"session":{binding}}}"#)
    };
    let own = format!(r#"{{"session":{binding}}}"#);
    for method in REQUESTS {
        for (carrier, body, which) in [
            (&stranger, own.clone(), "socket"),
            (&carrier, changed("nodeId", json!("node-2")), "socket"),
            (&carrier, changed("sessionId", json!("another")), "session"),
            (&carrier, changed("more", json!(1)), "session"),
            (&carrier, r#"{"session":null}"#.to_owned(), "session"),
            (&carrier, "{}".to_owned(), "session"),
            (&carrier, format!(r#"{{"session":{binding},"session":{binding}}}"#), "session"),
            (&carrier, changed("clusterId", json!("another")), "cluster"),
            (&carrier, changed("generation", json!(0)), "registration"),
        ] {
            let refusal = refused(carrier, method, &body).await;
            assert_eq!(refusal.text, format!("runtime-session-foreign: {which}"), "{body}");
        }
        assert_eq!(scene.cloudly.calls_of(method).len(), 0);
    }
    // A registration of a second node on the socket supersedes the first one's.
    register(&carrier, "node-2").await;
    assert_eq!(refused(&carrier, REPORT, &own).await.text, "runtime-session-foreign: socket");
}

/// FWD-20, FWD-24, FWD-25, FWD-26: a push for a node that never was, that left, or that leaves with the push on
/// its way; Cloudly hears of no retirement.
#[tokio::test]
async fn a_push_for_an_absent_node_is_refused_by_name() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    let text = |node: &str| format!("relay-node-not-connected: node {node} is not connected to this relay");
    let push = async |node: &str| {
        let body = format!(r#"{{"session":{{"nodeId":"{node}"}}}}"#);
        scene.cloudly.push(APPLY, &body).await.unwrap().outcome().unwrap_err()
    };
    assert_eq!(push("node-9").await, Refusal::new(text("node-9")));
    node.react(APPLY, Reaction::Never);
    let leave = async {
        node.wait_push(APPLY, 1).await.unwrap();
        node.stop();
    };
    assert_eq!(tokio::join!(push("node-1"), leave).0, Refusal::new(text("node-1")));
    scene.relay.wait_line("node node-1 is gone").await.unwrap();
    let before = scene.cloudly.calls().len();
    assert_eq!(push("node-1").await.text, text("node-1"));
    let nobody = scene.cloudly.push(APPLY, r#"{"session":{}}"#).await.unwrap().outcome().unwrap_err();
    assert_eq!(nobody.name(), "relay-node-not-connected");
    assert_eq!(scene.cloudly.calls().len(), before);
}

/// FWD-12, FWD-14, FWD-20: the node's later socket takes the place of its earlier one.
#[tokio::test]
async fn the_second_socket_of_a_node_supersedes_the_first() {
    let scene = Scene::open(|_| {}).await;
    let (first, mut first_events) = socket(&scene).await;
    let (second, mut second_events) = socket(&scene).await;
    // The very same registration: Cloudly answers with the historical binding (OUT-18).
    let binding = register(&first, "node-1").await;
    assert_eq!(register(&second, "node-1").await, binding);
    let body = format!(r#"{{"session":{binding}}}"#);
    assert_eq!(refused(&first, REPORT, &body).await.text, "runtime-session-foreign: socket");
    second.call(REPORT, &body, BOUND_BY_PEER).await.unwrap().outcome().unwrap();
    // An answer of the socket that was not asked is none.
    let push = async {
        let push = next_request(&mut second_events).await;
        first.send_text(coreflow_tests::envelope::answer(APPLY, r#""forged""#, &push.ids)).await;
        assert_eq!(refused(&first, REPORT, &body).await.text, "runtime-session-foreign: socket");
        second.send_text(coreflow_tests::envelope::answer(APPLY, r#""own""#, &push.ids)).await;
    };
    let (answer, ()) = tokio::join!(scene.cloudly.push(APPLY, &body), push);
    assert_eq!(answer.unwrap().response(), r#""own""#);
    // The end of the earlier socket is not the end of the node.
    first.close(Some(1000)).await;
    while !matches!(first_events.recv().await, Some(Event::Closed(_)) | None) {}
    second.call(REPORT, &body, BOUND_BY_PEER).await.unwrap().outcome().unwrap();
    assert_eq!(scene.count("node node-1 is gone"), 0);
}

/// PROT-08, PROT-09, PROT-10, PROT-11, PROT-12, PROT-13, PROT-14, PROT-15, PROT-31, PROT-22: an offer is judged
/// before everything else of a registration; nothing of a refused node reaches Cloudly; the next servable offer
/// makes the hop ready.
#[tokio::test]
async fn a_node_of_another_release_is_refused_until_a_servable_offer_arrives() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, _events) = socket(&scene).await;
    let own = Offer::new("33.1.0", "32.10.1");
    for (peer, body) in [
        (Some(Offer::new("32.10.0", "32.0.0")), None),
        (Some(Offer::new("40.0.0", "33.1.1")), None),
        (Some(Offer::new("31.0.0", "31.0.0")), Some(r#"{"protocol":PEER,"unknown":[1]}"#)),
        (None, Some("{}")),
        (None, Some(r#"{"protocol":{"release":"33.1.0"},"authorization":"pallet-bearer-of-node-1"}"#)),
    ] {
        let stated = peer.as_ref().map(|peer| peer.json().to_string()).unwrap_or_default();
        let body = match body {
            Some(body) => body.replace("PEER", &stated),
            None => {
                registration("node-1").replace(&Offer::new("33.1.0", "32.0.0").json().to_string(), &stated)
            }
        };
        let refusal = refused(&carrier, REGISTER, &body).await;
        assert_eq!(refusal.name(), "protocol-refused", "{body}");
        assert!(refusal.text.ends_with("this relay speaks 33.1.0 and accepts from 32.10.1"), "{refusal}");
        let received = peer.as_ref().map(Offer::json);
        let data = json!({"kind": "palletRuntime", "offer": own.json(), "received": received});
        assert_eq!(refusal.data, data);
        scene.wait_status("not ready: palletRuntime: protocol-refused: palletRuntime peer ").await;
    }
    let old = Setup { offer: Offer::new("32.10.0", "32.0.0"), ..Setup::new(scene.setup.target(), "node-1") };
    let denied = PalletNode::start(old).wait_denied().await.unwrap();
    let words = "protocol-refused: palletRuntime peer speaks 32.10.0 and accepts from 32.0.0; this relay speaks \
                 33.1.0 and accepts from 32.10.1";
    assert_eq!(denied, words);
    assert_eq!(scene.cloudly.calls_of(REGISTER).len(), 0);

    let oldest =
        Setup { offer: Offer::new("32.10.1", "33.1.0"), ..Setup::new(scene.setup.target(), "node-2") };
    let node = PalletNode::start(oldest);
    node.wait_registered(1).await.unwrap();
    scene.wait_status("open for Cloudly dispatch").await;
    scene.assert_carried(&node).await;
    assert_eq!(scene.cloudly.calls_of(REGISTER).len(), 1);
}

/// FWD-03, FWD-06, OUT-14: twenty nodes with fifty requests each at once: every one is forwarded once and
/// answered once, to its own node.
#[tokio::test]
async fn a_thousand_requests_at_once_are_each_answered_exactly_once() {
    let scene = Scene::open(|cloudly| {
        cloudly.change(|settings| {
            let nodes = (0..20).map(|n| (format!("n-{n}"), format!("pallet-bearer-of-n-{n}")));
            settings.nodes = nodes.collect();
        });
    })
    .await;
    let mut nodes = JoinSet::new();
    for number in 0..20 {
        let (carrier, mut events) = socket(&scene).await;
        nodes.spawn(async move {
            let binding = register(&carrier, &format!("n-{number}")).await;
            let mut calls = JoinSet::new();
            for call in 0..50 {
                let method = REQUESTS[call % REQUESTS.len()];
                let body = format!(r#"{{"session":{binding},"mark":"{number}/{call}"}}"#);
                let carrier = carrier.clone();
                calls.spawn(async move {
                    let answer = carrier.call(method, &body, BOUND).await.expect("an answer");
                    let received = format!(r#"{{"answered":"{method}","received":{body}}}"#);
                    assert_eq!(answer.response(), received);
                });
            }
            while let Some(done) = calls.join_next().await {
                done.expect("each call is answered");
            }
            assert!(events.try_recv().is_err(), "no answer comes twice");
        });
    }
    while let Some(done) = nodes.join_next().await {
        done.unwrap();
    }
    let forwarded: Vec<String> = REQUESTS
        .iter()
        .flat_map(|method| scene.cloudly.calls_of(method))
        .map(|call| call.body().to_owned())
        .collect();
    let distinct: std::collections::BTreeSet<&String> = forwarded.iter().collect();
    assert_eq!((forwarded.len(), distinct.len()), (1000, 1000));
}

/// A node may have 256 requests under way; one more is refused at once and the others are answered.
#[tokio::test]
async fn one_node_cannot_pile_up_requests_without_end() {
    let scene = Scene::open(|_| {}).await;
    let gate = Gate::default();
    scene.cloudly.always(REPORT, Step::When(gate.clone(), Box::new(Step::Ordinary)));
    let (carrier, _events) = socket(&scene).await;
    let binding = register(&carrier, "node-1").await;
    let body = format!(r#"{{"session":{binding}}}"#);
    let mut calls = JoinSet::new();
    for _ in 0..256 {
        let (carrier, body) = (carrier.clone(), body.clone());
        calls.spawn(async move { carrier.call(REPORT, &body, BOUND).await.expect("an answer").outcome() });
    }
    scene.cloudly.wait_for(REPORT, 256).await.unwrap();
    assert_eq!(refused(&carrier, REPORT, &body).await.text, "relay-too-many-in-flight");
    let other = scene.node("node-2").await;
    other
        .request("getRuntimeSecretMaterial", &format!(r#"{{"session":{}}}"#, other.binding().unwrap()))
        .await
        .unwrap()
        .outcome()
        .unwrap();
    gate.open();
    while let Some(answered) = calls.join_next().await {
        answered.unwrap().unwrap();
    }
    assert_eq!(scene.cloudly.calls_of(REPORT).len(), 256);
}
