//! The one session to Cloudly as both ends see it: opened, renewed, lost, refused, mistreated (SES,
//! PROT on the Cloudly hop, OUT, RET).

use std::time::Duration;

use coreflow_tests::cloudly::{AnswerForm, Front, Step};
use coreflow_tests::envelope::{Ids, Retry, UNKNOWN_METHOD, request};
use coreflow_tests::offer::Offer;
use coreflow_tests::processes::is_alive;
use coreflow_tests::waiting::{BOUND, poll};
use serde_json::json;

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const SESSION: &str = "registerCloudlyClientSession";
/// What the relay asks Cloudly for itself, once it is accepted.
const OF_THE_RELAY: [&str; 5] =
    [SESSION, "registerClusterRelay", "getClusterConfig", "getClusterRouteTable", "getClusterVpnNetwork"];
const REGISTRATION: &str = "registerClusterRelay";
const EXCHANGE: &str = "getIdentityByToken";
const CONFIG: &str = "getClusterConfig";

/// SES-01, SES-02, SES-03, SES-04, SES-05, SES-12, PROT-04, PROT-07, REG-01: one connection at a time, the
/// session registered before anything else on each, no tag, no request that asks for a bearer.
#[tokio::test]
async fn each_connection_begins_with_the_sessions_registration() {
    let scene = Scene::open(|_| {}).await;
    scene.cloudly.drop_connections();
    scene.cloudly.wait_accepted(2).await.unwrap();
    scene.cloudly.close_connections(1001).await;
    scene.cloudly.wait_accepted(3).await.unwrap();
    assert_eq!((scene.cloudly.connections_seen(), scene.cloudly.open_connections()), (3, 1));
    let calls = scene.cloudly.calls();
    for connection in 1..=3 {
        let on: Vec<&str> = calls
            .iter()
            .filter(|call| call.connection == Some(connection))
            .map(|call| call.method.as_str())
            .collect();
        assert_eq!(on[0], SESSION);
        assert_eq!(on.iter().filter(|method| **method == SESSION).count(), 1, "{on:?}");
        assert_eq!(on.iter().filter(|method| **method == REGISTRATION).count(), 1, "{on:?}");
    }
    assert_eq!(calls[0].method, EXCHANGE);
    for call in &calls {
        let known = [EXCHANGE, "getCertificateForDomain"].contains(&call.method.as_str());
        assert!(known || OF_THE_RELAY.contains(&call.method.as_str()), "{}", call.method);
        assert_eq!((call.forbidden(), call.binary), (vec![], false));
        assert_eq!(call.connection.is_none(), call.method == EXCHANGE);
        assert_eq!(call.message.text.contains(&scene.setup.bearer), call.method == EXCHANGE, "LOG-01");
        let keys = ["correlation", "method", "request", "requestInstanceId", "response"];
        assert_eq!(call.message.keys(), keys);
    }
    let announced = scene.cloudly.calls_of(SESSION)[0].body_json();
    assert_eq!(announced["clientType"], json!("coreflow"));
    assert_eq!(announced["protocol"], Offer::new("33.1.0", "32.0.0").json());
    assert_eq!(announced["identity"]["jwt"], json!(scene.cloudly.issued_jwts()[0]));
    assert_eq!(scene.cloudly.tag_calls(), 0);
    assert_eq!((scene.cloudly.strays().len(), scene.cloudly.unreadable().len()), (0, 0));
}

/// SES-08, SES-13, REG-02, REG-13, OUT-03: the identity is renewed before it ends, on the same socket,
/// and no node notices.
#[tokio::test]
async fn an_identity_is_renewed_on_the_unbroken_socket() {
    let life = Duration::from_secs(3);
    let scene = Scene::open(|cloudly| cloudly.change(|settings| settings.identity_lifetime = life)).await;
    let node = scene.node("node-1").await;
    let registered = scene.cloudly.wait_for(REGISTRATION, 2).await.unwrap();
    assert_eq!(registered.body_json()["registrationSequence"], json!(1));
    let exchanges = scene.cloudly.calls_of(EXCHANGE);
    assert!(exchanges[1].at - exchanges[0].at < life, "the first identity had not ended");
    let announced = scene.cloudly.calls_of(SESSION);
    let jwts = scene.cloudly.issued_jwts();
    assert_eq!(announced.iter().map(|call| call.connection).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert_eq!(announced[1].body_json()["identity"]["jwt"], json!(jwts[1]));
    scene.cloudly.wait_accepted(2).await.unwrap();
    assert_eq!(scene.cloudly.connections_seen(), 1);
    scene.assert_carried(&node).await;
    assert_eq!((node.closes().len(), node.registrations().len()), (0, 1));
    assert_eq!(scene.count("asked to re-register"), 0);
}

/// SES-09, OUT-02, OUT-04, OUT-05, OUT-08, OUT-09, OUT-10, OUT-11, OUT-14, FWD-26, FWD-38: nodes stay connected
/// while Cloudly is away and are asked to register again once the session is back, by a close alone. Of what they
/// and Cloudly said before nothing is said again, and Cloudly is not told of a node that leaves.
#[tokio::test]
async fn nodes_sit_out_an_outage_and_register_again_afterwards() {
    let scene = Scene::open(|_| {}).await;
    let nodes = [scene.node("node-1").await, scene.node("node-2").await];
    for node in &nodes {
        scene.assert_carried(node).await;
        assert_eq!(node.pushes().len(), 1);
    }
    scene.cloudly.go_away().await;
    scene.relay.wait_line("the Cloudly session is lost").await.unwrap();
    // Two dials that found nobody are time enough for a relay that closes nodes too early.
    scene.wait_lines("the connection to Cloudly ended class=\"connect (connection refused)\"", 2).await;
    for node in &nodes {
        assert_eq!(node.closes().len(), 0);
    }
    scene.cloudly.come_back().await.unwrap();
    for (node, id) in nodes.iter().zip(["node-1", "node-2"]) {
        assert_eq!(node.wait_close(1).await.unwrap().code, Some(1001));
        node.wait_registered(2).await.unwrap();
        let line = format!("node {id} asked to re-register: this relay's Cloudly session changed");
        scene.wait_lines(&line, 1).await;
        assert_eq!(scene.count(&line), 1);
        scene.assert_carried(node).await;
        assert_eq!(node.pushes().len(), 2, "one before, and one that Cloudly pushed now");
    }
    nodes[0].stop();
    scene.wait_lines("node node-1 is gone", 2).await;
    scene.assert_carried(&nodes[1]).await;
    assert_eq!(scene.cloudly.connections_seen(), 2);
    let back = scene.cloudly.calls();
    let mut back: Vec<&str> =
        back.iter().filter(|call| call.connection == Some(2)).map(|call| call.method.as_str()).collect();
    assert_eq!(back[0], SESSION);
    back.retain(|method| !OF_THE_RELAY.contains(method));
    back.sort_unstable();
    let [credential, register] = ["getRuntimeRegistryCredential", "registerPalletRuntimeSession"];
    assert_eq!(back, [credential, credential, credential, register, register]);
    assert_eq!(scene.cloudly.tag_calls(), 0);
}

/// OUT-06, OUT-07: two closes are 75 ms apart.
#[tokio::test]
async fn nodes_are_asked_to_register_again_one_after_the_other() {
    let scene = Scene::open(|cloudly| {
        cloudly.change(|settings| {
            let more = (3..=5).map(|n| (format!("node-{n}"), format!("pallet-bearer-of-node-{n}")));
            settings.nodes.extend(more);
        });
    })
    .await;
    let mut nodes = Vec::new();
    for number in 1..=5 {
        nodes.push(scene.node(&format!("node-{number}")).await);
    }
    scene.cloudly.drop_connections();
    let mut closed = Vec::new();
    for node in &nodes {
        node.wait_close(1).await.unwrap();
        closed.push(node.closes()[0].1);
    }
    closed.sort();
    // Four gaps of 75 ms; the first and the last close may each be seen late.
    let took = closed[4] - closed[0];
    assert!(took > Duration::from_millis(200), "{took:?}");
    for node in &nodes {
        node.wait_registered(2).await.unwrap();
    }
}

/// SES-16, SES-09: a Cloudly that takes the connection and answers nothing is given up after ten
/// seconds, by class, and tried again.
#[tokio::test]
async fn a_cloudly_that_does_not_answer_is_tried_again() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.once(SESSION, Step::Never);
        setup
    })
    .await;
    scene.cloudly.wait_for(SESSION, 1).await.unwrap();
    assert_eq!(scene.count("the relay is open"), 0);
    scene.relay.wait_line("the session is not registered: timeout").await.unwrap();
    scene.relay.wait_open().await.unwrap();
    assert_eq!(scene.cloudly.open_connections(), 1);
    assert_eq!((scene.cloudly.connections_seen(), scene.cloudly.exchanges()), (2, 2));
}

/// SES-16, SES-20, SES-09: something that accepts connections and never says a word costs one bounded try,
/// told by its class.
#[tokio::test]
async fn a_silent_server_in_cloudlys_place_delays_the_start_and_does_not_end_it() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.change(|settings| settings.front = Front::Silent);
        setup
    })
    .await;
    let line = scene.relay.wait_line("no identity: ").await.unwrap();
    assert!(line.text.contains("timeout"), "{line:?}");
    assert_eq!(scene.count("the relay is open"), 0);
    scene.cloudly.change(|settings| settings.front = Front::Serving);
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
}

/// SES-16, SES-20, SES-09: connections that break in the middle of an answer, at each step of the start.
#[tokio::test]
async fn answers_that_break_off_delay_the_start_and_do_not_end_it() {
    let scene = Scene::start(|cloudly, setup| {
        for method in [EXCHANGE, SESSION, CONFIG, "getCertificateForDomain"] {
            cloudly.once(method, Step::CutMidAnswer);
        }
        setup
    })
    .await;
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
    assert_eq!(scene.cloudly.connections_seen(), 4);
    for class in
        ["no identity: ", "the session is not registered: closed", "a read of the start was failed: "]
    {
        scene.wait_lines(class, 1).await;
    }
}

/// SES-16, SES-20: a proxy's HTML page in Cloudly's place, for the exchange and for the upgrade.
#[tokio::test]
async fn a_bad_gateway_is_no_answer_and_passes() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.once(EXCHANGE, Step::HtmlBadGateway);
        setup
    })
    .await;
    let line = scene.relay.wait_line("no identity: ").await.unwrap();
    assert!(line.text.contains("502") && !line.text.contains("html"), "{line:?}");
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();

    scene.cloudly.change(|settings| settings.front = Front::HtmlBadGateway);
    scene.cloudly.drop_connections();
    scene.relay.wait_line("the connection to Cloudly ended class=\"upgrade (502)\"").await.unwrap();
    scene.cloudly.change(|settings| settings.front = Front::Serving);
    scene.cloudly.wait_accepted(2).await.unwrap();
}

/// SES-20, REG-56: an exchange that is refused while the relay runs is retried; the session stands, the
/// nodes are served, nothing parks.
#[tokio::test]
async fn a_bearer_refused_at_a_renewal_is_offered_again() {
    let scene = Scene::open(|cloudly| {
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(2));
    })
    .await;
    let node = scene.node("node-1").await;
    let right = scene.setup.bearer.clone();
    scene.cloudly.change(|settings| "rotated-away".clone_into(&mut settings.bearer));
    scene.wait_lines("no identity: Cloudly refused the identity exchange: identity-token-refused", 3).await;
    scene.assert_carried(&node).await;
    assert!(is_alive(scene.relay.pid()) && scene.relay.workers().contains_key("relayd"));
    let registered = scene.cloudly.calls_of(SESSION).len();
    scene.cloudly.change(|settings| settings.bearer = right);
    scene.cloudly.wait_for(SESSION, registered + 1).await.unwrap();
    assert_eq!(scene.cloudly.connections_seen(), 1);
    assert_eq!((node.closes().len(), scene.count("generation-stale")), (0, 0));
}

/// PROT-06, PROT-17, PROT-21, PROT-22, PROT-24, PROT-30, PROT-35: a Cloudly of another release refuses
/// the relay, or is refused by it; the connection stays open and an upgrade of Cloudly ends it.
#[tokio::test]
async fn a_cloudly_of_another_release_leaves_the_relay_connected_and_not_ready() {
    for (offer, answer) in [
        (Offer::new("40.0.0", "40.0.0"), None),
        (Offer::new("31.9.0", "30.0.0"), Some(json!({"protocol": Offer::new("31.9.0", "30.0.0").json()}))),
    ] {
        let scene = Scene::start(|cloudly, setup| {
            match &answer {
                Some(answer) => cloudly.always(SESSION, Step::Answer(answer.to_string())),
                None => cloudly.change(|settings| settings.offer = offer.clone()),
            }
            setup
        })
        .await;
        let words = format!(
            "protocol-refused: cloudlyClient peer speaks {} and accepts from {}; this relay speaks 33.1.0 and \
             accepts from 32.0.0",
            offer.release, offer.oldest_accepted_peer_release
        );
        scene.relay.wait_line(&words).await.unwrap();
        scene.wait_status("not ready: ").await;
        assert_eq!((scene.cloudly.open_connections(), scene.count("the relay is open")), (1, 0));
        assert!(is_alive(scene.relay.pid()));

        scene.cloudly.ordinary(SESSION);
        scene.cloudly.change(|settings| settings.offer = Offer::new("33.1.0", "32.0.0"));
        scene.cloudly.drop_connections();
        scene.relay.wait_open().await.unwrap();
        scene.cloudly.wait_accepted(1).await.unwrap();
        scene.wait_status("open for Cloudly dispatch").await;
        assert_eq!((scene.cloudly.connections_seen(), scene.count(&words)), (2, 1));
    }
}

/// PROT-17, PROT-18, PROT-23, PROT-27, REG-08, REG-09: a running relay whose renewed offers are refused
/// keeps its nodes and their service, and says that it is not ready.
#[tokio::test]
async fn a_refusal_while_the_relay_runs_takes_nothing_from_the_nodes() {
    let scene = Scene::open(|cloudly| {
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(2));
    })
    .await;
    let node = scene.node("node-1").await;
    scene.wait_status("open for Cloudly dispatch").await;
    scene.cloudly.change(|settings| settings.offer = Offer::new("40.0.0", "40.0.0"));
    scene.wait_status("not ready: cloudlyClient: protocol-refused: cloudlyClient peer speaks 40.0.0").await;
    scene.assert_carried(&node).await;
    assert_eq!((scene.cloudly.connections_seen(), node.closes().len()), (1, 0));

    // On the next connection the session is served, and then the registration alone is refused.
    scene.cloudly.change(|settings| {
        settings.offer = Offer::new("33.1.0", "32.0.0");
        settings.identity_lifetime = Duration::from_secs(3600);
    });
    let (text, data) = Offer::new("40.0.0", "40.0.0").refusal("cloudlyClient", None);
    scene.cloudly.once(REGISTRATION, Step::Refuse(coreflow_tests::envelope::Refusal { text, data }));
    scene.cloudly.drop_connections();
    scene.wait_status("not ready: clusterRelayRegistration: protocol-refused").await;
    node.wait_registered(2).await.unwrap();
    scene.assert_carried(&node).await;
    scene.cloudly.drop_connections();
    scene.wait_status("open for Cloudly dispatch").await;
}

/// PROT-25, PROT-26: an answer to the session's registration that is not the contract's is told as such.
#[tokio::test]
async fn an_unusable_answer_to_the_session_is_not_a_disagreement_of_offers() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.once(SESSION, Step::Answer("{}".to_owned()));
        setup
    })
    .await;
    let words = "registerCloudlyClientSession was answered without a valid protocol";
    scene.relay.wait_line(words).await.unwrap();
    scene.wait_status("not ready: ").await;
    assert_eq!((scene.cloudly.open_connections(), scene.count("protocol-refused")), (1, 0));
    scene.cloudly.drop_connections();
    scene.relay.wait_open().await.unwrap();
    scene.wait_status("open for Cloudly dispatch").await;
}

/// Contract, section 1: what is no request gets no answer and ends nothing; a binary frame with an
/// envelope is one.
#[tokio::test]
async fn frames_of_cloudly_that_are_no_requests_are_passed_over() {
    let scene = Scene::open(|_| {}).await;
    let carrier = scene.cloudly.carrier().unwrap();
    let frames = [
        "not json",
        "[]",
        "null",
        "\"text\"",
        "{}",
        r#"{"method":"pushClusterConfig","request":{}}"#,
        r#"{"method":"pushClusterConfig","request":{},"correlation":{"phase":"request"}}"#,
        r#"{"method":"pushClusterConfig","request":{},"correlation":{"id":"a","phase":"other"}}"#,
        r#"{"method":"pushClusterConfig","request":[],"correlation":{"id":"a","phase":"request"}}"#,
        r#"{"request":{},"correlation":{"id":"a","phase":"request"}}"#,
    ];
    for frame in frames {
        carrier.send_text(frame.to_owned()).await;
    }
    carrier.send_binary(vec![0xff, 0xfe, 0x00]).await;
    // Answers that nobody waits for.
    carrier
        .send_text(r#"{"method":"x","response":{},"correlation":{"id":"uni_1","phase":"response"}}"#.into())
        .await;
    let ids = Ids::fresh();
    carrier.send_binary(request("noSuchMethod", "{}", &ids).into_bytes()).await;
    let answered = || scene.cloudly.strays().pop();
    let answer = poll(BOUND, "answer to a binary request", answered).await.unwrap();
    assert!(answer.contains(&ids.correlation) && answer.contains(UNKNOWN_METHOD), "{answer}");
    assert_eq!(scene.cloudly.strays().len(), 1, "nothing else is answered");
    let told = "Cloudly sent what is no request; it got no answer";
    scene.wait_lines(told, frames.len() + 1).await;
    assert_eq!(scene.count(told), frames.len() + 1);
    assert_eq!((scene.cloudly.connections_seen(), scene.cloudly.open_connections()), (1, 1));
}

/// RET-01, RET-02, RET-03, RET-04, RET-05, RET-06, RET-09: retired methods name their owner at once; all others
/// are unknown.
#[tokio::test]
async fn retired_methods_name_their_owner_and_others_are_unknown() {
    let scene = Scene::open(|_| {}).await;
    for (method, text) in [
        ("pushContainerUpdate", "coreflow-retired: pushContainerUpdate is retired; Pallet owns it"),
        (
            "informCoreflowAboutNewContainerVersion",
            "coreflow-retired: informCoreflowAboutNewContainerVersion is retired; Pallet owns it",
        ),
        ("triggerServerAction", "coreflow-retired: triggerServerAction is retired; Cloudly owns it"),
        ("executeServiceBackup", UNKNOWN_METHOD),
        ("executeServiceRestore", UNKNOWN_METHOD),
        ("coreflowPruneNodeArchive", UNKNOWN_METHOD),
        ("coreflowGetCorestoreInventory", UNKNOWN_METHOD),
        ("coreflowGetTrafficStats", UNKNOWN_METHOD),
        ("noSuchMethod", UNKNOWN_METHOD),
        ("", UNKNOWN_METHOD),
    ] {
        let answer = scene.cloudly.push_within(method, "{}", Duration::from_secs(2)).await.unwrap();
        let refusal = answer.outcome().unwrap_err();
        assert_eq!((refusal.text.as_str(), refusal.data), (text, json!({})), "{method}");
        assert_eq!((answer.response(), answer.forbidden()), ("null", vec![]));
        assert_eq!(answer.member("request"), None, "nothing is echoed");
    }
}

/// Contract, section 1, `retry`: the same correlation id, another instance id, three times at most.
#[tokio::test]
async fn an_answer_that_asks_to_come_again_is_followed() {
    let retry = || Step::ComeAgain(Retry { wait_for_ms: 50, reason: "busy".to_owned() });
    let scene = Scene::open(|cloudly| {
        for method in [SESSION, CONFIG, REGISTRATION] {
            cloudly.once(method, retry());
        }
    })
    .await;
    for method in [SESSION, CONFIG, REGISTRATION] {
        let calls = scene.cloudly.calls_of(method);
        let (first, second) = (&calls[0].message, &calls[1].message);
        assert_eq!(first.ids.correlation, second.ids.correlation, "{method}");
        assert_ne!(first.ids.instance, second.ids.instance, "{method}");
        assert_eq!(first.request(), second.request(), "{method}");
        assert!(calls[1].at - calls[0].at >= Duration::from_millis(50), "{method}");
    }
    let node = scene.node("node-1").await;
    let method = "getRuntimeSecretMaterial";
    scene.cloudly.always(method, retry());
    let body = format!(r#"{{"session":{}}}"#, node.binding().unwrap());
    node.request(method, &body).await.unwrap();
    let calls = scene.cloudly.calls_of(method);
    assert_eq!(calls.len(), 4, "once and three times more");
    assert!(calls.iter().all(|call| call.message.ids.correlation == calls[0].message.ids.correlation));
}

/// Wire notes, section 3: a Cloudly whose library echoes each request in its answer.
#[tokio::test]
async fn each_form_of_answer_is_understood() {
    for form in [AnswerForm::Minimal, AnswerForm::Echo3, AnswerForm::Echo8] {
        let scene = Scene::open(|cloudly| cloudly.change(|settings| settings.form = form)).await;
        let node = scene.node("node-1").await;
        scene.assert_carried(&node).await;
        // What was echoed to the relay goes no further.
        let registration = &node.registrations()[0];
        assert_eq!((registration.member("request"), registration.forbidden()), (None, vec![]), "{form:?}");
        assert!(!registration.text.contains("pallet-bearer-of-node-1"), "{form:?}");
    }
}
