//! What `coreflowctl status` says of a real relay: ready or not, which protocol is refused and by whom, and
//! that parked stays parked (PROT on the status, OPS-02).
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use coreflow_tests::cloudly::Step;
use coreflow_tests::control::Said;
use coreflow_tests::envelope::Refusal;
use coreflow_tests::offer::Offer;
use coreflow_tests::pallet::{PalletNode, Setup};
use coreflow_tests::processes::is_alive;
use serde_json::{Value, json};

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const SESSION: &str = "registerCloudlyClientSession";
const REGISTRATION: &str = "registerClusterRelay";
const PARKED: &str = "relay-credential-generation-stale: this relay is bound to cluster relay credential \
                      relay-credential-1 generation 1, which was superseded; only a restart with the bearer of \
                      the current generation serves this cluster again";

/// A relay that is open, and has kept its acceptance.
async fn opened() -> Scene {
    let scene = Scene::open(|_| {}).await;
    ready(&scene).await;
    scene
}

fn own() -> Value {
    Offer::new("33.1.0", "32.0.0").json()
}

fn refusals(status: &Value) -> &Vec<Value> {
    status["readiness"]["refusals"].as_array().unwrap()
}

/// Waits until the relay is ready and has kept an acceptance.
async fn ready(scene: &Scene) -> Value {
    let seen = |status: &Value| {
        status["readiness"] == json!({"ready": true, "refusals": []})
            && !status["registration"]["record"].is_null()
    };
    scene.relay.wait_status_json("a ready relay", seen).await.unwrap()
}

/// Waits until as many things block hops, and gives them.
async fn blocked(scene: &Scene, count: usize) -> Vec<Value> {
    let what = format!("{count} refusals");
    let status = scene.relay.wait_status_json(&what, |status| refusals(status).len() == count).await.unwrap();
    assert_eq!(status["readiness"]["ready"], json!(false));
    refusals(&status).clone()
}

/// The text of a relay that is not ready.
async fn text_of_blocked(scene: &Scene) -> String {
    let Said { code, stdout, stderr } = scene.relay.status().await;
    assert_eq!((code, stderr.as_str()), (Some(3), ""));
    assert!(stdout.starts_with("not ready\n"), "{stdout}");
    stdout
}

/// OPS-02, PROT-35: the one look at a relay that serves: what runs, what is bound and registered, and no
/// secret among it.
#[tokio::test]
async fn a_fresh_relay_is_ready() {
    let scene = opened().await;
    let status = ready(&scene).await;
    assert_eq!((&status["state"], &status["waitingFor"]), (&json!("open"), &json!(null)));
    assert_eq!((&status["version"], &status["pid"]), (&json!("33.1.0"), &json!(scene.relay.pid())));
    assert_eq!(status["listener"], json!(format!("127.0.0.1:{}", scene.setup.port)));
    assert_eq!(
        status["registration"],
        json!({
            "credential": {"id": "relay-credential-1", "generation": 1},
            "record": {"id": "relay-registration-1", "generation": 1},
            "parked": null,
        })
    );
    let pids = scene.relay.workers();
    let workers = status["workers"].as_array().unwrap();
    let told: Vec<_> =
        workers.iter().map(|worker| (&worker["role"], &worker["state"], &worker["pid"])).collect();
    let expected = [
        (json!("relayd"), json!("running"), json!(pids["relayd"])),
        (json!("pulld"), json!("running"), json!(pids["pulld"])),
        (json!("vpnd"), json!("off"), json!(null)),
    ];
    assert_eq!(told, expected.each_ref().map(|(role, state, pid)| (role, state, pid)));
    let status = scene.relay.status_json().await;
    for worker in &status["workers"].as_array().unwrap()[..2] {
        let of = |size: &str| worker["memory"][size].as_u64().unwrap();
        assert!(
            of("residentBytes") > of("proportionalBytes") && of("proportionalBytes") > 1 << 18,
            "{worker}"
        );
        assert_eq!(worker["level"], json!("info"));
    }
    let (relayd, pulld) = (&status["relayd"], &status["pulld"]);
    assert_eq!(relayd["session"]["dispatchable"], json!(true));
    assert!(
        relayd["session"]["identityEndsAt"].is_u64() && relayd["certificate"]["endsAt"].is_u64(),
        "{relayd}"
    );
    assert_eq!((&relayd["nodes"]["carried"], &relayd["escrow"]["custody"]), (&json!(0), &json!("open")));
    assert_eq!(
        (&relayd["pulls"], &pulld["exchanges"], &status["unanswered"]),
        (&json!(0), &json!(0), &json!([]))
    );

    let said = scene.relay.status().await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.starts_with("ready\n\nrelay         coreflow 33.1.0, pid "), "{}", said.stdout);
    for part in [
        "credential    relay-credential-1 generation 1\n",
        "session       dispatchable, connection 1, identity until ",
        "nodes         0 carried, ",
        "pulls         0 under way; pulld: 0 exchanges",
    ] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    let both = said.stdout + &status.to_string();
    let secrets = scene.cloudly.issued_jwts().into_iter().chain([scene.setup.bearer.clone()]);
    for secret in secrets {
        assert!(!both.contains(&secret), "LOG-01");
    }
}

/// OPS-02, PROT-21, PROT-22, PROT-23, PROT-24, PROT-30, PROT-35: a Cloudly from the reconciler's time, one of a
/// later major and one whose offer cannot be read leave the relay up and not ready; the status shows both
/// offers and which side to upgrade, and that is over once Cloudly serves the offer.
#[tokio::test]
async fn a_refused_protocol_is_shown_with_both_offers_and_what_to_upgrade() {
    let unread = Refusal { data: json!({}), ..Refusal::new("protocol-refused: cloudlyClient") };
    let old = Offer::new("3.5.2", "3.0.0");
    for (step, peer, upgrade) in [
        (
            Step::Answer(json!({"protocol": old.json()}).to_string()),
            old.json(),
            "upgrade Cloudly to at least 32.0.0",
        ),
        (Step::Ordinary, Offer::new("40.1.0", "40.0.0").json(), "upgrade this relay to at least 40.0.0"),
        (Step::Refuse(unread), json!(null), "upgrade Cloudly to at least 32.0.0"),
    ] {
        let scene = Scene::start(|cloudly, setup| {
            cloudly.always(SESSION, step);
            cloudly.change(|settings| settings.offer = Offer::new("40.1.0", "40.0.0"));
            setup
        })
        .await;
        let refusals = blocked(&scene, 1).await;
        assert_eq!(refusals[0]["hop"], json!("cloudlyClient"));
        assert_eq!(refusals[0]["refusal"], json!({"own": own(), "peer": peer}));
        assert!(refusals[0]["line"].as_str().unwrap().starts_with("protocol-refused: cloudlyClient peer "));
        let text = text_of_blocked(&scene).await;
        assert!(text.contains(&format!("\n    {upgrade}\n")), "{text}");
        assert!(text.contains("this relay           speaks 33.1.0, accepts from 32.0.0\n"), "{text}");
        if let Some(release) = peer["release"].as_str() {
            assert!(text.contains(&format!("Cloudly              speaks {release}, ")), "{text}");
        }
        assert!(text.contains("  waiting for Cloudly to accept the protocol offer\n"), "{text}");
        assert!(is_alive(scene.relay.pid()) && scene.count("the relay is open") == 0);

        scene.cloudly.ordinary(SESSION);
        scene.cloudly.change(|settings| settings.offer = Offer::new("33.1.0", "32.0.0"));
        scene.cloudly.drop_connections();
        ready(&scene).await;
        assert_eq!(scene.relay.status().await.code, Some(0));
    }
}

/// PROT-25, PROT-26: an answer outside the contract names no version, and ends with one that can be acted on.
#[tokio::test]
async fn an_answer_outside_the_contract_has_no_offers() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.once(SESSION, Step::Answer("{}".to_owned()));
        setup
    })
    .await;
    let line = "registerCloudlyClientSession was answered without a valid protocol";
    assert_eq!(blocked(&scene, 1).await, [json!({"hop": "cloudlyClient", "refusal": null, "line": line})]);
    let text = text_of_blocked(&scene).await;
    assert!(text.contains(line) && !text.contains("upgrade") && !text.contains("speaks"), "{text}");
    scene.cloudly.drop_connections();
    ready(&scene).await;
}

/// PROT-17, PROT-23, PROT-27: on the registration hop an unusable answer and a refused offer stand together,
/// and end independently; what is served goes on.
#[tokio::test]
async fn both_kinds_stand_on_one_hop_and_end_apart() {
    let scene = opened().await;
    let hop = json!("clusterRelayRegistration");
    scene.cloudly.once(REGISTRATION, Step::Answer("{}".to_owned()));
    scene.cloudly.drop_connections();
    let unusable = blocked(&scene, 1).await.remove(0);
    assert_eq!((&unusable["hop"], &unusable["refusal"]), (&hop, &json!(null)));

    let peer = Offer::new("40.0.0", "40.0.0");
    let (text, data) = peer.refusal("cloudlyClient", None);
    scene.cloudly.once(REGISTRATION, Step::Refuse(Refusal { text, data }));
    scene.cloudly.drop_connections();
    let both = blocked(&scene, 2).await;
    assert_eq!((&both[0]["hop"], &both[1]), (&hop, &unusable));
    assert_eq!(both[0]["refusal"], json!({"own": own(), "peer": peer.json()}));
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;

    // An offer that is served with an answer that is not the contract's: the disagreement alone is over.
    let half = json!({"accepted": true, "protocol": own()}).to_string();
    scene.cloudly.once(REGISTRATION, Step::Answer(half));
    scene.cloudly.drop_connections();
    let left = blocked(&scene, 1).await;
    assert_eq!((&left[0]["hop"], &left[0]["refusal"]), (&hop, &json!(null)));
    scene.cloudly.drop_connections();
    ready(&scene).await;
}

/// PROT-21, PROT-24, PROT-31: a node of an older release is shown on its hop until an offer comes that this
/// relay serves.
#[tokio::test]
async fn a_refused_node_is_shown_until_a_servable_offer_comes() {
    let scene = opened().await;
    let old = Offer::new("32.9.0", "32.0.0");
    let node = PalletNode::start(Setup { offer: old.clone(), ..Setup::new(scene.setup.target(), "node-1") });
    node.wait_denied().await.unwrap();
    let refusals = blocked(&scene, 1).await;
    assert_eq!(refusals[0]["hop"], json!("palletRuntime"));
    let own = Offer::new("33.1.0", "32.10.1").json();
    assert_eq!(refusals[0]["refusal"], json!({"own": own, "peer": old.json()}));
    let text = text_of_blocked(&scene).await;
    assert!(text.contains("\n    upgrade the Pallet nodes to at least 32.10.1\n"), "{text}");
    assert!(text.contains(", open for Cloudly dispatch\n"), "{text}");
    let _served = scene.node("node-2").await;
    ready(&scene).await;
}

/// The relayd that is killed, once more after it is back: each time it is away for longer.
async fn kill_relayd(scene: &Scene, times: usize) {
    for time in 1..=times {
        let killed = scene.relay.kill_worker("relayd");
        assert!(killed.is_some());
        scene.wait_lines("ERROR relayd: the worker killed by SIGKILL", time).await;
        if time < times {
            scene.relay.wait_worker("relayd", killed).await.unwrap();
        }
    }
}

/// PROT-33, REG-60, ARC-17: a parked relay answers with that one line, whatever else was refused on the hop,
/// while relayd is away and when another one is there.
#[tokio::test]
async fn a_parked_relay_stays_not_ready_through_a_kill_of_relayd() {
    let scene = opened().await;
    scene.cloudly.rotate_credential("the-bearer-of-the-next-generation");
    scene.cloudly.drop_connections();
    scene.relay.wait_line(PARKED).await.unwrap();
    let parked = [json!({"hop": "clusterRelayRegistration", "refusal": null, "line": PARKED})];
    assert_eq!(blocked(&scene, 1).await, parked);

    kill_relayd(&scene, 3).await;
    let seen = |status: &Value| {
        let relayd = &status["workers"][0];
        assert_eq!(refusals(status)[..], parked, "{status}");
        assert_eq!((&status["readiness"]["ready"], &status["waitingFor"]), (&json!(false), &json!(null)));
        assert_eq!(status["registration"]["parked"], json!(PARKED));
        relayd["state"] == json!("waiting")
    };
    let status = scene.relay.wait_status_json("a relayd that is away", seen).await.unwrap();
    assert_eq!((&status["state"], &status["workers"][0]["pid"]), (&json!("restarting"), &json!(null)));
    let back = |status: &Value| {
        seen(status);
        status["workers"][0]["state"] == json!("running")
    };
    let status = scene.relay.wait_status_json("another relayd", back).await.unwrap();
    assert_eq!(status["workers"][0]["restarts"], json!(3));
    let text = text_of_blocked(&scene).await;
    assert!(text.contains(&format!("\n  clusterRelayRegistration: {PARKED}\n\n")), "{text}");
}

/// PROT-21, PROT-23, ARC-18: without a relayd the relay is not ready and says so; what had blocked a hop has
/// to be met anew, and the relay is ready again by itself.
#[tokio::test]
async fn a_relay_without_relayd_is_not_ready_and_says_so() {
    let scene = opened().await;
    let offer = Offer::new("31.0.0", "30.0.0");
    let node = PalletNode::start(Setup { offer, ..Setup::new(scene.setup.target(), "node-1") });
    node.wait_denied().await.unwrap();
    blocked(&scene, 1).await;
    kill_relayd(&scene, 3).await;
    let away = |status: &Value| status["workers"][0]["state"] == json!("waiting");
    let status = scene.relay.wait_status_json("a relayd that is away", away).await.unwrap();
    assert_eq!(status["readiness"], json!({"ready": false, "refusals": []}));
    assert_eq!(status["waitingFor"], json!("relayd, which is being restarted"));
    assert_eq!(status["state"], json!("restarting"));
    assert!(status["workers"][0]["restartsInMs"].is_u64());
    scene.wait_status("not ready: waiting for relayd, which is being restarted").await;
    scene.relay.wait_line("relayd serves again").await.unwrap();
    ready(&scene).await;
    scene.wait_status("open for Cloudly dispatch").await;
}

/// START-26, START-27: a start that waits for Cloudly says for what, and no hop is refused.
#[tokio::test]
async fn a_start_says_what_it_waits_for() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.always("getIdentityByToken", Step::HtmlBadGateway);
        setup
    })
    .await;
    let waits = |status: &Value| {
        let what = status["waitingFor"].as_str().unwrap();
        what.starts_with("Cloudly to give an identity: ") && what.contains("502")
    };
    let status = scene.relay.wait_status_json("a failed exchange", waits).await.unwrap();
    assert_eq!((&status["state"], &status["listener"]), (&json!("starting"), &json!(null)));
    assert_eq!(status["readiness"], json!({"ready": false, "refusals": []}));
    scene.wait_status("starting: waiting for Cloudly to give an identity: ").await;
    scene.cloudly.ordinary("getIdentityByToken");
    ready(&scene).await;
}
