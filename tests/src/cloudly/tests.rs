//! The loopback Cloudly against a client that speaks to it as a relay would.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::carrier::Event;
use crate::dial::{Target, websocket};
use crate::envelope::{Ids, Refusal, UNKNOWN_METHOD, answer, request};
use crate::https::https_request;

const WAIT: Duration = Duration::from_secs(5);

struct Client {
    authority: Authority,
    cloudly: Cloudly,
}

impl Client {
    async fn new() -> Self {
        let authority = Authority::new();
        let cloudly = Cloudly::start(&authority, Settings::default()).await;
        Self { authority, cloudly }
    }

    fn target(&self) -> Target {
        Target {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.cloudly.port())),
            server_name: "localhost".to_owned(),
            tls: self.authority.client_config(&["http/1.1"]),
        }
    }

    async fn exchange(&self, token: &str) -> Outcome {
        let text = request("getIdentityByToken", &json!({"token": token}).to_string(), &Ids::fresh());
        let done = https_request(&self.target(), "POST", "/typedrequest", &[], &text).await.unwrap();
        assert_eq!(done.status, 200);
        Message::parse(std::str::from_utf8(&done.body).unwrap()).unwrap().outcome()
    }

    async fn connect(&self) -> (Carrier, tokio::sync::mpsc::Receiver<Event>) {
        Carrier::start(websocket(&self.target(), "/", &[]).await.unwrap(), Role::Client)
    }

    /// A connection with a registered session.
    async fn session(&self) -> (Carrier, tokio::sync::mpsc::Receiver<Event>) {
        let bearer = self.cloudly.change(|settings| settings.bearer.clone());
        let identity: Value = serde_json::from_str(self.exchange(&bearer).await.unwrap().get()).unwrap();
        let (carrier, events) = self.connect().await;
        let body = json!({"identity": identity["identity"], "clientType": "coreflow", "protocol": offer()});
        ask(&carrier, "registerCloudlyClientSession", &body).await.unwrap();
        (carrier, events)
    }
}

fn offer() -> Value {
    json!({"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"})
}

fn relay(sequence: u64) -> Value {
    let relay =
        json!({"version": "1", "nodeId": "relay-node", "listenAddress": "127.0.0.1", "listenPort": 8443});
    json!({"protocol": offer(), "registrationSequence": sequence, "relay": relay})
}

async fn ask(carrier: &Carrier, method: &str, body: &Value) -> Result<Value, Refusal> {
    let answer = carrier.call(method, &body.to_string(), WAIT).await.unwrap();
    answer.outcome().map(|body| serde_json::from_str(body.get()).unwrap())
}

/// The exchange knows one bearer, and a rotation ends the old one (REG-63, REG-55).
#[tokio::test]
async fn a_rotated_bearer_buys_nothing() {
    let client = Client::new().await;
    assert_eq!(client.exchange("wrong").await.unwrap_err().name(), "identity-token-refused");
    let (carrier, _events) = client.session().await;
    let first = ask(&carrier, "registerClusterRelay", &relay(0)).await.unwrap();
    let second = ask(&carrier, "registerClusterRelay", &relay(1)).await.unwrap();
    assert_eq!(first["credential"], second["credential"]);
    assert!(first["registration"]["generation"].as_u64() < second["registration"]["generation"].as_u64());
    let stale = ask(&carrier, "registerClusterRelay", &relay(1)).await.unwrap_err();
    assert_eq!(stale.name(), "relay-sequence-not-advancing");
    let old = client.cloudly.change(|settings| settings.bearer.clone());
    client.cloudly.rotate_credential("another-bearer-that-is-long-enough");
    assert_eq!(client.exchange(&old).await.unwrap_err().name(), "identity-token-refused");
    let stale = ask(&carrier, "registerClusterRelay", &relay(2)).await.unwrap_err();
    assert_eq!(stale.name(), "relay-credential-generation-stale");
    assert_eq!((client.cloudly.exchanges(), client.cloudly.tag_calls()), (3, 0));
}

/// PROT-34, REG-07: the offer is settled first and costs no sequence.
#[tokio::test]
async fn a_refused_offer_consumes_no_sequence() {
    let client = Client::new().await;
    let (carrier, _events) = client.session().await;
    let old = json!({"protocol": {"release": "31.0.0", "oldestAcceptedPeerRelease": "31.0.0"}, "registrationSequence": 5});
    let refused = ask(&carrier, "registerClusterRelay", &old).await.unwrap_err();
    assert_eq!(
        (refused.name(), &refused.data["received"]["release"]),
        ("protocol-refused", &json!("31.0.0"))
    );
    ask(&carrier, "registerClusterRelay", &relay(0)).await.unwrap();
}

/// ESC-61: a credential that is none and records that cannot be read are refused by the same name.
#[tokio::test]
async fn unreadable_records_look_like_a_wrong_credential() {
    let client = Client::new().await;
    let (carrier, _events) = client.session().await;
    client.cloudly.change(|settings| settings.records_unreadable = true);
    let unreadable = ask(&carrier, "registerClusterRelay", &relay(0)).await.unwrap_err();
    let (strange, _strange_events) = client.connect().await;
    let wrong = ask(&strange, "registerClusterRelay", &relay(0)).await.unwrap_err();
    assert_eq!((unreadable.text.as_str(), &unreadable.data), (wrong.text.as_str(), &wrong.data));
    assert_eq!(wrong.text, "relay-identity-unverified");
    client.cloudly.change(|settings| settings.records_unreadable = false);
    ask(&carrier, "registerClusterRelay", &relay(0)).await.unwrap();
}

/// XTR-06, XTR-07: neither a registration nor a client tag has a place for the nodes that a relay serves, and nothing that
/// a relay could ask brings a workload, a member or a port in.
#[tokio::test]
async fn served_nodes_and_new_workloads_fit_nowhere() {
    let client = Client::new().await;
    let (carrier, _events) = client.session().await;
    for of_relay in [true, false] {
        let mut body = relay(0);
        let place = if of_relay { &mut body["relay"] } else { &mut body };
        place["nodes"] = json!(["node-1"]);
        let refused = ask(&carrier, "registerClusterRelay", &body).await.unwrap_err();
        assert_eq!(refused.text, "registration-invalid: nodes");
    }
    ask(&carrier, "registerClusterRelay", &relay(0)).await.unwrap();
    let tag = json!({"name": "nodes", "payload": ["node-1"]});
    assert!(ask(&carrier, "__typedsocket_setTag", &tag).await.is_err());
    let before = client.cloudly.config();
    for method in
        ["pushClusterConfig", "applyRuntimeAssignment", "applyClusterVpnNetwork", "pushClusterRouteTable"]
    {
        assert_eq!(ask(&carrier, method, &json!({})).await.unwrap_err().text, UNKNOWN_METHOD, "{method}");
    }
    assert_eq!(client.cloudly.config(), before);
}

/// OUT-01, PROT-16: a binding holds on the carrier that registered it and on no other, and is of the cluster that
/// Cloudly knows.
#[tokio::test]
async fn a_binding_belongs_to_its_carrier() {
    let client = Client::new().await;
    let node = json!({"protocol": offer(), "authorization": "pallet-bearer-of-node-1", "nodeId": "node-1",
        "nodeInstanceNonce": "n", "credentialGeneration": 1});
    let (first, _first_events) = client.session().await;
    let binding = ask(&first, "registerPalletRuntimeSession", &node).await.unwrap()["session"].clone();
    let historical = ask(&first, "registerPalletRuntimeSession", &node).await.unwrap()["session"].clone();
    assert_eq!(binding, historical);
    assert_eq!(binding["clusterId"], "cluster-1");
    let body = format!(r#"{{"session":{binding},"z":1.0,"a":2}}"#);
    let carried = first.call("getRuntimeSecretMaterial", &body, WAIT).await.unwrap();
    assert!(carried.outcome().unwrap().get().contains(&body));
    let (second, _second_events) = client.session().await;
    let asked: Value = serde_json::from_str(&body).unwrap();
    let foreign = ask(&second, "getRuntimeSecretMaterial", &asked).await.unwrap_err();
    assert_eq!(foreign.name(), "runtime-session-unknown");
    assert_eq!(ask(&second, "noSuchMethod", &json!({})).await.unwrap_err().text, UNKNOWN_METHOD);
    client.cloudly.change(|settings| settings.cluster_id = "cluster-2".to_owned());
    let other = ask(&second, "registerPalletRuntimeSession", &node).await.unwrap();
    assert_eq!(other["session"]["clusterId"], "cluster-2", "the node states none");
}

/// FWD-38: a session that is gone is fenced without a call: by the node's next one, and by the end of its carrier.
#[tokio::test]
async fn a_session_that_is_gone_is_fenced() {
    let client = Client::new().await;
    let node = |nonce: &str| {
        json!({"protocol": offer(), "authorization": "pallet-bearer-of-node-1", "nodeId": "node-1",
            "nodeInstanceNonce": nonce, "credentialGeneration": 1})
    };
    let (carrier, _events) = client.session().await;
    let mut bindings = Vec::new();
    for nonce in ["first", "second"] {
        let registered = ask(&carrier, "registerPalletRuntimeSession", &node(nonce)).await.unwrap();
        bindings.push(json!({"session": registered["session"]}));
    }
    const REPORT: &str = "reportRuntimeNetworkProtection";
    let fenced = ask(&carrier, REPORT, &bindings[0]).await.unwrap_err();
    assert_eq!(fenced.name(), "runtime-session-superseded");
    ask(&carrier, REPORT, &bindings[1]).await.unwrap();
    carrier.cut();
    client.cloudly.wait_open_connections(0).await.unwrap();
    assert_eq!(client.cloudly.binding_of("node-1"), None);
}

/// OUT-16, OUT-18: with each binding that is new goes what the node is owed, in that binding; an identical
/// registration gets the binding of before.
#[tokio::test]
async fn a_new_binding_brings_what_is_owed() {
    let client = Client::new().await;
    client.cloudly.change(|settings| settings.owed.insert("node-1".to_owned(), r#"{"w":1.0}"#.to_owned()));
    let node = json!({"protocol": offer(), "authorization": "pallet-bearer-of-node-1", "nodeId": "node-1",
        "nodeInstanceNonce": "n", "credentialGeneration": 1});
    let mut bindings = Vec::new();
    for _ in 0..2 {
        let (carrier, mut events) = client.session().await;
        let registered = ask(&carrier, "registerPalletRuntimeSession", &node).await.unwrap();
        let Some(Event::Request(push, false)) = events.recv().await else { panic!("nothing is pushed") };
        let body = format!(r#"{{"session":{},"assignment":{{"w":1.0}}}}"#, registered["session"]);
        assert_eq!((push.method.as_str(), push.request()), ("applyRuntimeAssignment", body.as_str()));
        let again = ask(&carrier, "registerPalletRuntimeSession", &node).await.unwrap();
        assert_eq!(again["session"], registered["session"]);
        bindings.push(registered["session"].clone());
    }
    assert_ne!(bindings[0], bindings[1], "another carrier, another binding");
}

/// SES-06: a tag is none that the server accepts of this client, and the attempt is counted.
#[tokio::test]
async fn a_tag_is_refused_and_counted() {
    let client = Client::new().await;
    let (carrier, _events) = client.session().await;
    let tag = json!({"name": "coretraffic", "payload": {}});
    for (count, method) in [(1, "__typedsocket_setTag"), (2, "__typedsocket_removeTag")] {
        assert!(ask(&carrier, method, &tag).await.is_err());
        assert_eq!(client.cloudly.tag_calls(), count);
    }
}

/// It goes away, comes back on its port, pushes to the newest session and follows a script.
#[tokio::test]
async fn it_goes_away_and_returns() {
    let client = Client::new().await;
    let (old, _old_events) = client.session().await;
    client.cloudly.go_away().await;
    assert!(old.call("getClusterVpnNetwork", "{}", WAIT).await.is_err());
    assert!(websocket(&client.target(), "/", &[]).await.is_err());
    client.cloudly.come_back().await.unwrap();
    let (carrier, mut events) = client.session().await;
    assert_eq!(client.cloudly.open_connections(), 1);
    let pushed = async { client.cloudly.push("applyRuntimeAssignment", r#"{"n":1.0}"#).await };
    let answered = async {
        let Some(Event::Request(message, false)) = events.recv().await else { panic!("no push") };
        assert_eq!(message.request(), r#"{"n":1.0}"#);
        carrier.send_text(answer(&message.method, "[7]", &message.ids)).await;
    };
    assert_eq!(tokio::join!(pushed, answered).0.unwrap().response(), "[7]");

    client.cloudly.once("getClusterVpnNetwork", Step::AfterNext(Box::new(Step::Answer("1".into()))));
    client.cloudly.once("getClusterVpnNetwork", Step::Answer("2".into()));
    let (late, soon) = tokio::join!(
        carrier.call("getClusterVpnNetwork", "{}", WAIT),
        carrier.call("getClusterVpnNetwork", "{}", WAIT)
    );
    assert_eq!((late.unwrap().response(), soon.unwrap().response()), ("1", "2"));
    client.cloudly.once("getClusterVpnNetwork", Step::CutMidAnswer);
    assert_eq!(
        carrier.call("getClusterVpnNetwork", "{}", WAIT).await.unwrap_err(),
        CallFailure::NotConnected
    );
    client.cloudly.wait_open_connections(0).await.unwrap();
}

/// REG-24, REG-25, REG-31, REG-64, REG-65: a registration over a live verified session takes the place of a stored
/// relay; its address is published, and its hub becomes the platform endpoint. LIS-28: what nodes dial is
/// the block's alone.
#[tokio::test]
async fn an_accepted_relay_stands_for_the_cluster() {
    let client = Client::new().await;
    let cloudly = &client.cloudly;
    let stored = StandingRelay {
        node_id: "former".to_owned(),
        listen_address: Ipv4Addr::new(192, 0, 2, 1),
        listen_port: 8443,
        hub: None,
        connection: Some(9),
    };
    assert_eq!(cloudly.a_record("relay.localhost.test"), None);
    assert_eq!(cloudly.node_origin().as_deref(), Some("https://relay.localhost.test:8443"));
    cloudly.store_relay(stored.clone());
    assert_eq!(cloudly.standing(), Some(StandingRelay { connection: None, ..stored.clone() }));
    let (carrier, _events) = client.session().await;
    cloudly.change(|settings| settings.foreign_nodes.insert("of-another-cluster".to_owned()));
    for (sequence, node, name) in
        [(0, "nobody", "relay-node-unknown"), (1, "of-another-cluster", "relay-node-foreign")]
    {
        let mut refused = relay(sequence);
        refused["relay"]["nodeId"] = json!(node);
        let refused = ask(&carrier, "registerClusterRelay", &refused).await.unwrap_err();
        assert_eq!(refused.name(), name);
    }
    assert_eq!(
        cloudly.a_record("relay.localhost.test"),
        Some(stored.listen_address),
        "no refusal takes its place"
    );

    ask(&carrier, "registerClusterRelay", &relay(2)).await.unwrap();
    let standing = cloudly.standing().unwrap();
    assert_eq!((standing.node_id.as_str(), standing.connection), ("relay-node", Some(1)));
    assert_eq!(cloudly.a_record("relay.localhost.test"), Some(Ipv4Addr::LOCALHOST));
    assert_eq!(cloudly.a_record("another.test"), None);
    assert_eq!(cloudly.platform_endpoint(), Err("relay-vpn-hub-absent"));
    let mut with_hub = relay(3);
    with_hub["relay"]["vpnHub"] = json!({"publicKey": "k", "address": "198.51.100.9", "quicPort": 51820});
    ask(&carrier, "registerClusterRelay", &with_hub).await.unwrap();
    let address = Ipv4Addr::new(198, 51, 100, 9);
    let hub = AdvertisedHub { public_key: "k".to_owned(), address, quic_port: 51820 };
    assert_eq!(cloudly.platform_endpoint(), Ok(hub));
    cloudly.drop_connections();
    assert_eq!(cloudly.standing().unwrap().connection, None, "a connection that ended leaves it stored");
    cloudly.change(|settings| settings.relay_block = None);
    assert_eq!((cloudly.node_origin(), cloudly.a_record("relay.localhost.test")), (None, None));
}

/// The HTTP carriage and the upgrade can be redirected, cut, held back and scripted by name, and each stage that a
/// dial reaches is counted.
#[tokio::test]
async fn the_http_carriage_and_the_upgrade_follow_the_script() {
    let client = Client::new().await;
    let bearer = client.cloudly.change(|settings| settings.bearer.clone());
    let text = request("getIdentityByToken", &json!({"token": bearer}).to_string(), &Ids::fresh());
    let post = async || https_request(&client.target(), "POST", "/typedrequest", &[], &text).await;
    client.cloudly.once("getIdentityByToken", Step::Redirect(307, "https://elsewhere.test/".to_owned()));
    let moved = post().await.unwrap();
    assert_eq!((moved.status, &moved.headers["location"] == "https://elsewhere.test/"), (307, true));
    client.cloudly.once("getIdentityByToken", Step::CutMidAnswer);
    assert!(post().await.is_err(), "half of the stated length");
    client.cloudly.once("getIdentityByToken", Step::Trickle);
    assert!(tokio::time::timeout(Duration::from_secs(1), post()).await.is_err(), "minutes");
    assert_eq!(post().await.unwrap().status, 200);

    let upgrade = async || websocket(&client.target(), "/", &[]).await.err();
    client.cloudly.once(UPGRADE, Step::Redirect(301, "https://elsewhere.test/".to_owned()));
    assert_eq!(upgrade().await, Some(crate::dial::DialFailure::Status(301)));
    client.cloudly.once(UPGRADE, Step::CutMidAnswer);
    assert!(upgrade().await.is_some());
    assert_eq!(upgrade().await, None);
    let stages = [Stage::Tcp, Stage::Tls, Stage::Upgrade].map(|stage| client.cloudly.reached(stage));
    assert_eq!(stages, [7, 7, 3]);

    client
        .cloudly
        .change(|settings| settings.own_certificate = Some(client.authority.issue(&["other.test"])));
    assert!(upgrade().await.is_some(), "it names another host");
    client.cloudly.change(|settings| settings.front = Front::SilentInTls);
    client.cloudly.change(|settings| settings.own_certificate = None);
    assert!(tokio::time::timeout(Duration::from_secs(1), upgrade()).await.is_err());
    client.cloudly.wait_reached(Stage::Tls, 8).await.unwrap();
}

/// A clock that is ahead ends identities early, one that is behind issues ended ones.
#[tokio::test]
async fn its_clock_can_be_off() {
    let client = Client::new().await;
    let (carrier, _events) = client.session().await;
    let issued = client.cloudly.calls_of("registerCloudlyClientSession")[0].body_json()["identity"].clone();
    client.cloudly.change(|settings| settings.clock_ahead_ms = 2 * 3_600_000);
    let config = json!({"identity": issued});
    let refused = ask(&carrier, "getClusterConfig", &config).await.unwrap_err();
    assert_eq!(refused.text, "identity-unverified: expired");
    client.cloudly.change(|settings| settings.clock_ahead_ms = -2 * 3_600_000);
    ask(&carrier, "getClusterConfig", &config).await.unwrap();
    let bearer = client.cloudly.change(|settings| settings.bearer.clone());
    let issued: Value = serde_json::from_str(client.exchange(&bearer).await.unwrap().get()).unwrap();
    assert!(issued["identity"]["expiresAt"].as_u64() < config["identity"]["expiresAt"].as_u64());
}

/// The network is for the relay that was accepted, and `null` until one is compiled.
#[tokio::test]
async fn the_network_is_for_the_accepted_relay() {
    const READ: &str = "getClusterVpnNetwork";
    let client = Client::new().await;
    let (carrier, _events) = client.session().await;
    assert_eq!(ask(&carrier, READ, &json!({})).await.unwrap_err().name(), "relay-not-connected");
    ask(&carrier, "registerClusterRelay", &relay(0)).await.unwrap();
    assert_eq!(ask(&carrier, READ, &json!({})).await, Ok(json!({"network": null})));
    let network = VpnNetwork::of([("node-1", "key")]);
    client.cloudly.change(|settings| settings.vpn_network = Some(network.clone()));
    assert_eq!(ask(&carrier, READ, &json!({})).await, Ok(json!({"network": network.json()})));
}
