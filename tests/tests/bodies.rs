//! What is inside a carried body never matters to the relay: every notation that JSON admits, every size
//! and every depth crosses byte for byte, in all ten requests, all four pushes, their answers and their
//! refusals (FWD-02, FWD-03, FWD-22, FWD-39). And what the relay does read, it reads as its peers do.

use std::time::Duration;

use coreflow_tests::carrier::{Carrier, Event};
use coreflow_tests::cloudly::{AnswerForm, Step};
use coreflow_tests::dial::websocket;
use coreflow_tests::envelope::{Ids, Message, Refusal, answer, error_json, refusal, request};
use coreflow_tests::offer::Offer;
use coreflow_tests::waiting::{BOUND, within};
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio_tungstenite::tungstenite::protocol::Role;

#[expect(dead_code, reason = "these tests need a part of the scene")]
#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const REGISTER: &str = "registerPalletRuntimeSession";
const MATERIAL: &str = "getRuntimeSecretMaterial";
const APPLY: &str = "applyRuntimeAssignment";
const REQUESTS: [&str; 9] = [
    "getRuntimeManagedVpnCredential",
    "getRuntimeRegistryCredential",
    "reportRuntimeNetworkProtection",
    "reportRuntimeAssignmentObservation",
    "reportRuntimeAssignmentTerminalReceipt",
    "getRuntimeSecretRecipientState",
    "beginRuntimeSecretRecipientEnrollment",
    "completeRuntimeSecretRecipientEnrollment",
    MATERIAL,
];
const PUSHES: [&str; 4] = [
    APPLY,
    "applyRuntimeNetworkSigningAuthority",
    "applyRuntimeNetworkProjection",
    "applyRuntimeNetworkDnsLeaseRenewal",
];
const BINDING: &str = r#"{"sessionId":"s","nodeId":"node-1","clusterId":"cluster-1","generation":7}"#;
const WAIT: Duration = Duration::from_secs(12);
const MIB: usize = 1 << 20;

/// Members in notations that a decoder would not give back as they are.
fn forms() -> Vec<String> {
    let nested = |depth: usize| format!(r#""deep":{}{{}}{}"#, "[".repeat(depth), "]".repeat(depth));
    let envelope = request(MATERIAL, r#"{"session":{"nodeId":"node-2"}}"#, &Ids::fresh());
    [
        r#""n":[1E400,-0,-0.0,1.0,1e-7,1E+2,0.10,12345678901234567890123,-9007199254740993,1e-999]"#,
        r#""z":1,"a":2,"m":3,"a":4,"z":{"k":1,"k":2},"0":0,"10":1,"9":2"#,
        r#""\u0061":"\u0041\/\u002f/","lone":"\ud800 \udfff \ud83d\ude00","\ud800":"","nul":"\u0000","e":"é😀""#,
        "\"s\" :\t[ 1 ,\r\n { } , [\n] ]  , \"t\"\n:\r\"\\r\\n\\t\"",
        r#""":"","e":[],"o":{},"t":"","n":null,"b":[true,false]"#,
        r#""__proto__":{"session":{"nodeId":"node-2"}},"constructor":{"prototype":1},"toString":0"#,
        &format!(r#""request":{envelope},"response":{},"correlation":{{"id":"x","phase":"response"}}"#, json!(envelope)),
        &nested(1000),
        &nested(200_000),
    ]
    .map(str::to_owned)
    .to_vec()
}

async fn socket(scene: &Scene) -> (Carrier, Receiver<Event>) {
    let socket = websocket(&scene.setup.target(), "/", &[]).await.expect("the relay takes the socket");
    Carrier::start(socket, Role::Client)
}

/// A registration of `node` with further members.
fn registration(node: &str, more: &str) -> String {
    let offer = Offer::new("33.1.0", "32.0.0").json();
    format!(
        r#"{{{more},"protocol":{offer},"authorization":"pallet-bearer-of-{node}","nodeId":"{node}","nodeInstanceNonce":"n","credentialGeneration":1}}"#
    )
}

/// Registers `node` and gives its binding, as Cloudly wrote it.
async fn register(scene: &Scene, carrier: &Carrier, node: &str) -> String {
    let answer = carrier.call(REGISTER, &registration(node, r#""x":0"#), WAIT).await.expect("an answer");
    answer.outcome().expect("a binding");
    scene.cloudly.binding_of(node).expect("Cloudly issued one")
}

async fn next_request(events: &mut Receiver<Event>) -> Message {
    match within(BOUND, "request of the relay", events.recv()).await.expect("in time") {
        Some(Event::Request(message, _)) => message,
        other => panic!("no request but {other:?}"),
    }
}

/// Two texts that may be too long to print.
#[track_caller]
fn assert_same(one: &str, other: &str, what: &str) {
    let start = |text: &str| text.chars().take(200).collect::<String>();
    assert!(
        one == other,
        "{what}: {} bytes, {} bytes: {} | {}",
        one.len(),
        other.len(),
        start(one),
        start(other)
    );
}

/// An answer to `asked` whose `error` is this very text.
fn refusing(asked: &Message, error: &str) -> String {
    let plain = Refusal::new("x");
    refusal(&asked.method, &plain, &asked.ids).replace(&error_json(&plain), error)
}

/// FWD-01, FWD-02, FWD-03, FWD-27, FWD-39: every form, up in each of the ten methods and back in its answer.
#[tokio::test]
async fn every_form_goes_up_in_ten_methods_and_comes_back_in_their_answers() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, _events) = socket(&scene).await;
    for form in forms() {
        let answered = format!(r#"{{"session":{BINDING} ,{form}}}"#);
        scene.cloudly.once(REGISTER, Step::Answer(answered.clone()));
        let body = registration("node-1", &form);
        let answer = carrier.call(REGISTER, &body, WAIT).await.unwrap();
        assert_same(answer.response(), &answered, REGISTER);
        assert_same(scene.cloudly.calls_of(REGISTER).last().unwrap().body(), &body, REGISTER);
        for method in REQUESTS {
            let answered = format!(r#"[{{{form}}},"{method}"]"#);
            scene.cloudly.once(method, Step::Answer(answered.clone()));
            let body = format!(r#"{{ {form}, "session" : {BINDING}}}"#);
            let answer = carrier.call(method, &body, WAIT).await.unwrap();
            assert_same(answer.response(), &answered, method);
            assert_eq!(answer.member("error"), None);
            assert_same(scene.cloudly.calls_of(method).last().unwrap().body(), &body, method);
        }
    }
    assert_eq!(scene.cloudly.calls_of(MATERIAL).len(), forms().len(), "each was forwarded once");
    assert_eq!((scene.cloudly.unreadable(), scene.cloudly.strays()), (vec![], vec![]));
}

/// FWD-18, FWD-20, FWD-22, FWD-23, FWD-39: every form, down in each of the four pushes and up in its
/// acknowledgement.
#[tokio::test]
async fn every_form_goes_down_in_four_pushes_and_comes_back_in_their_acknowledgements() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, mut events) = socket(&scene).await;
    let binding = register(&scene, &carrier, "node-1").await;
    let (bystander, mut others) = socket(&scene).await;
    register(&scene, &bystander, "node-2").await;
    for form in forms() {
        for method in PUSHES {
            let body = format!(r#"{{{form} , "session":{binding}}}"#);
            let acknowledged = format!(r#"{{"session":{binding},{form} }}"#);
            let node = async {
                let push = next_request(&mut events).await;
                assert_eq!(push.method, method);
                assert_same(push.request(), &body, method);
                carrier.send_text(answer(method, &acknowledged, &push.ids)).await;
            };
            let (answered, ()) = tokio::join!(scene.cloudly.push(method, &body), node);
            let answered = answered.unwrap();
            assert_same(answered.response(), &acknowledged, method);
            assert_eq!(answered.member("error"), None);
        }
    }
    assert!(others.try_recv().is_err(), "a body that names another node went to it");
}

/// FWD-03, FWD-22: every form in the refusals of both sides.
#[tokio::test]
async fn every_form_crosses_in_refusals_of_both_sides() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, mut events) = socket(&scene).await;
    let binding = register(&scene, &carrier, "node-1").await;
    let body = format!(r#"{{"session":{binding}}}"#);
    for (round, form) in forms().into_iter().enumerate() {
        let error = format!(r#"{{"data":{{{form}}},"text":"some-name: a reason" }}"#);
        let method = REQUESTS[round % REQUESTS.len()];
        scene.cloudly.once(method, Step::Never);
        let cloudly = async {
            let call = scene.cloudly.wait_for(method, 1).await.unwrap();
            scene.cloudly.carrier().unwrap().send_text(refusing(&call.message, &error)).await;
        };
        let (refused, ()) = tokio::join!(carrier.call(method, &body, WAIT), cloudly);
        let refused = refused.unwrap();
        assert_same(refused.member("error").unwrap(), &error, method);
        assert_eq!(refused.response(), "null");

        let method = PUSHES[round % PUSHES.len()];
        let node = async {
            let push = next_request(&mut events).await;
            carrier.send_text(refusing(&push, &error)).await;
        };
        let (refused, ()) = tokio::join!(scene.cloudly.push(method, &body), node);
        let refused = refused.unwrap();
        assert_same(refused.member("error").unwrap(), &error, method);
        assert_eq!(refused.response(), "null");
    }
}

/// FWD-02, FWD-03, FWD-22, FWD-39: 15 MiB in a request, in its answer, in a push and in its
/// acknowledgement.
#[tokio::test]
async fn fifteen_mebibytes_cross_in_all_four_directions() {
    let scene = Scene::open(|cloudly| {
        // An echo of the request would double what the test's own peer has to write.
        cloudly.change(|settings| settings.form = AnswerForm::Minimal);
    })
    .await;
    let (carrier, mut events) = socket(&scene).await;
    let binding = register(&scene, &carrier, "node-1").await;
    // One long string: what a build without optimization takes to scan it is within every budget.
    let string = "x".repeat(15 * MIB);
    let large = |name: &str| {
        format!(r#"{{"session":{binding},"{name}":[1.0,"\u00e9é\ud83d",-0 ,"{string}"],"a":1E400,"a":1}}"#)
    };
    let (asked, answered) = (large("asked"), large("answered"));
    scene.cloudly.once(MATERIAL, Step::Answer(answered.clone()));
    let answer_up = carrier.call(MATERIAL, &asked, WAIT).await.unwrap();
    assert_same(answer_up.response(), &answered, "answer");
    assert_same(scene.cloudly.calls_of(MATERIAL)[0].body(), &asked, "request");

    let node = async {
        let push = next_request(&mut events).await;
        assert_same(push.request(), &asked, "push");
        carrier.send_text(answer(APPLY, &answered, &push.ids)).await;
    };
    let (acknowledged, ()) = tokio::join!(scene.cloudly.push(APPLY, &asked), node);
    assert_same(acknowledged.unwrap().response(), &answered, "acknowledgement");
}

/// FWD-12, FWD-14, FWD-20, FWD-31, PROT-12, PROT-13: a member that the relay reads and that stands twice, in
/// whatever notation, is refused where it stands: a peer that takes the last one would act on another
/// session, node or offer than the relay judged.
#[tokio::test]
async fn what_stands_twice_is_never_read_two_ways() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, mut events) = socket(&scene).await;
    let (other, mut other_events) = socket(&scene).await;
    let own = register(&scene, &carrier, "node-1").await;
    let foreign = register(&scene, &other, "node-2").await;
    let pairs = [
        format!(r#"{{"session":{own},"session":{foreign}}}"#),
        format!(r#"{{"session":{foreign},"session":{own}}}"#),
        format!(r#"{{"session":{own},"sess\u0069on":{foreign}}}"#),
        format!(r#"{{"session":{}}}"#, own.replace('{', r#"{"nodeId":"node-2","#)),
        format!(r#"{{"session":{}}}"#, own.replace('}', r#","node\u0049d":"node-2"}"#)),
    ];
    for body in &pairs {
        for method in REQUESTS {
            let refused = carrier.call(method, body, WAIT).await.unwrap().outcome().unwrap_err();
            assert_eq!(refused.text, "runtime-session-foreign: session", "{body}");
            assert_eq!(scene.cloudly.calls_of(method).len(), 0);
        }
        for method in PUSHES {
            let refused = scene.cloudly.push(method, body).await.unwrap().outcome().unwrap_err();
            assert_eq!(refused.name(), "relay-node-not-connected", "{body}");
        }
    }
    let offer = Offer::new("33.1.0", "32.0.0").json();
    let registrations = scene.cloudly.calls_of(REGISTER).len();
    for twice in [format!(r#""protocol":{offer}"#), r#""proto\u0063ol":{}"#.to_owned()] {
        let body = registration("node-1", &twice);
        let refused = carrier.call(REGISTER, &body, WAIT).await.unwrap().outcome().unwrap_err();
        assert_eq!((refused.name(), &refused.data["received"]), ("protocol-refused", &json!(null)));
    }
    assert_eq!(scene.cloudly.calls_of(REGISTER).len(), registrations, "nothing of it reached Cloudly");

    // An envelope that states something twice is none: no answer, and nothing is forwarded.
    let good = format!(r#"{{"session":{own}}}"#);
    let ids = Ids::fresh();
    let plain = request(MATERIAL, &good, &ids);
    for twice in [
        plain.replacen('{', &format!(r#"{{"request":{{"session":{foreign}}},"#), 1),
        plain.replacen('{', r#"{"method":"getRuntimeRegistryCredential","#, 1),
        plain.replacen(r#""phase""#, r#""id":"another","phase""#, 1),
    ] {
        assert_ne!(twice, plain);
        carrier.send_text(twice).await;
    }
    carrier.call_text(MATERIAL, ids, plain, WAIT).await.unwrap().outcome().unwrap();
    assert_eq!(scene.cloudly.calls_of(MATERIAL).len(), 1);
    assert_eq!(scene.cloudly.calls_of("getRuntimeRegistryCredential").len(), 0);

    // Of two sessions that Cloudly answered a registration with, neither is the node's.
    let both = format!(r#"{{"session":{BINDING},"session":{}}}"#, BINDING.replace("node-1", "node-3"));
    scene.cloudly.once(REGISTER, Step::Answer(both.clone()));
    let (third, _third_events) = socket(&scene).await;
    let answered = third.call(REGISTER, &registration("node-3", r#""x":0"#), WAIT).await.unwrap();
    assert_eq!(answered.response(), both, "it is carried as it came");
    scene.relay.wait_line("a registration was answered without a readable binding").await.unwrap();
    let body = format!(r#"{{"session":{}}}"#, BINDING.replace("node-1", "node-3"));
    assert_eq!(
        third.call(MATERIAL, &body, WAIT).await.unwrap().outcome().unwrap_err().text,
        "runtime-session-foreign: socket"
    );
    assert!(events.try_recv().is_err() && other_events.try_recv().is_err(), "no push went anywhere");
}
