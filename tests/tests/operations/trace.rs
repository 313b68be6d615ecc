//! What a trace may hold, with all on the links that must not be in one: an identity exchange, trust anchors, the
//! listener's certificate and key, a VPN network with its keys, and bodies both ways.

use std::collections::BTreeSet;

use coreflow_tests::cloudly::VpnNetwork;
use coreflow_tests::tunnel::NodeKey;
use serde_json::{Value, json};

use super::scene::Scene;
use super::{Following, opened};

/// The members of a traced message.
const MEMBERS: [&str; 8] = ["at", "bytes", "descriptors", "direction", "id", "kind", "note", "pid"];
/// The notes that there are beside roles and levels.
const NOTES: [&str; 9] = [
    "granted",
    "refused",
    "in full",
    "degraded",
    "nothing blocks",
    "blocked",
    "serves",
    "serves nothing",
    "supervisor",
];
const ROLES_AND_LEVELS: [&str; 8] = ["relayd", "pulld", "vpnd", "error", "warn", "info", "debug", "trace"];

/// LOG-01, OPS-02: a trace through a start with its identity exchange, a VPN network and bodies is made of numbers and
/// of words of this program alone; neither PEM nor a byte of a key, an identity or a body is in it.
#[tokio::test]
async fn a_trace_holds_no_certificate_key_or_body() {
    let (scene, _) = opened().await;
    let links = ["relayd", "pulld", "vpnd"];
    let documents = links.map(|role| Following::start(&scene.relay, &["trace", role, "--json"]));
    let text = Following::start(&scene.relay, &["trace", "relayd"]);
    scene.wait_lines("the worker's link is traced, by command", 4).await;
    assert_eq!(scene.relay.ctl(&["restart", "relayd"]).await.code, Some(0));
    let node = scene.node("node-1").await;
    let key = NodeKey::default().public();
    scene.cloudly.wait_hub(None).await.unwrap();
    let network = VpnNetwork::of([("node-1", key.as_str())]);
    let applied = scene.cloudly.push_vpn_network(&network).await.unwrap();
    assert_eq!(applied.unwrap()["state"], json!("applied"));
    scene.assert_carried(&node).await;
    let serves = |status: &Value| status["vpnHub"]["report"]["revision"].is_u64();
    scene.relay.wait_status_json("a hub that serves", serves).await.unwrap();
    // All that has passed is read: a change of level comes last on each link.
    let mut lines = Vec::new();
    for (role, trace) in links.iter().zip(&documents) {
        assert_eq!(scene.relay.ctl(&["log", role, "debug"]).await.code, Some(0));
        lines.extend(trace.until(r#""note":"debug""#).await);
    }
    let told = text.until("  debug").await;

    let messages: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    for message in &messages {
        let members: BTreeSet<&str> = message.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, BTreeSet::from(MEMBERS), "{message}");
        let kind = message["kind"].as_str().unwrap();
        assert!(kind.len() <= 20 && kind.bytes().all(|byte| byte.is_ascii_alphabetic()), "{message}");
        if let Some(note) = message["note"].as_str() {
            assert!(NOTES.contains(&note) || ROLES_AND_LEVELS.contains(&note), "{message}");
        }
        for number in ["at", "bytes", "descriptors", "pid"] {
            assert!(message[number].is_u64(), "{message}");
        }
        assert!(message["id"].is_null() || message["id"].is_u64(), "{message}");
    }
    let passed = |kind: &str, note: &str| {
        messages.iter().any(|message| message["kind"] == json!(kind) && message["note"] == json!(note))
    };
    for (kind, note) in [
        ("AnswerIdentity", "granted"),
        ("AnswerListener", "granted"),
        ("AnswerListenerFacts", "granted"),
        ("AnswerSocket", "granted"),
        ("Report", "serves"),
    ] {
        assert!(passed(kind, note), "{kind} {note} is not in the traces, so that they prove nothing");
    }
    let seen = lines.join("\n") + "\n" + &told.join("\n");
    for forbidden in forbidden(&scene, &[key, node.binding().unwrap()]) {
        assert!(!seen.contains(&forbidden), "{forbidden:?} is in a trace");
    }
}

/// What must not be seen: marks of PEM and its lines, of the anchors as of the listener's certificate and key, each
/// identity, the bearer, the hub's key, names, and `more`.
fn forbidden(scene: &Scene, more: &[String]) -> Vec<String> {
    let issued = scene.cloudly.change(|settings| settings.certificates.clone());
    assert!(!issued.is_empty(), "Cloudly issued the listener's certificate");
    let pem = issued.values().flat_map(|issued| [issued.chain_pem.clone(), issued.key_pem.clone()]);
    let pem: Vec<String> = pem.chain([scene.setup.anchors.clone()]).collect();
    let lines = pem.iter().flat_map(|pem| pem.lines()).filter(|line| line.len() > 16).map(str::to_owned);
    let mut all: Vec<String> = lines.collect();
    assert!(all.len() > 10, "{}", all.len());
    all.extend(["BEGIN", "PRIVATE", "CERTIFICATE", "node-1", "vpn-authority-1"].map(str::to_owned));
    all.extend(issued.into_keys());
    all.extend(scene.cloudly.issued_jwts());
    all.push(scene.cloudly.platform_endpoint().unwrap().public_key);
    all.push(scene.setup.bearer.clone());
    all.extend(more.iter().cloned());
    all
}
