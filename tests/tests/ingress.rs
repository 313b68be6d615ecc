//! The cluster's ingress on the running relay: which connection it is, what it is given, and that pages
//! follow the table (ING, and what LIS, PROT, REG, RET and LOG say of it).

use std::time::Duration;

use coreflow_tests::authority::{Authority, Issued};
use coreflow_tests::carrier::Carrier;
use coreflow_tests::cloudly::{Route, Step, route_table};
use coreflow_tests::dial::{Target, websocket};
use coreflow_tests::envelope::{Refusal, UNKNOWN_METHOD};
use coreflow_tests::https::https_request;
use coreflow_tests::ingress::{ClusterIngress, Destination, Reaction, Setup};
use coreflow_tests::offer::Offer;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::Role;

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const REGISTER: &str = "registerClusterIngress";
const PULL: &str = "getClusterIngressRouteTable";
const PUSH: &str = "pushClusterRouteTable";
const READ: &str = "getClusterRouteTable";
const HINT: &str = "pushClusterIngressRouteTableChanged";
const STATISTICS: &str = "getClusterTrafficStatistics";
const HOST: &str = "shop.example.test";
const WAIT: Duration = Duration::from_secs(12);

/// A service and the certificate of its host, of an authority of its own.
struct Shop {
    authority: Authority,
    certificate: Issued,
    service: Destination,
}

impl Shop {
    async fn open(page: &'static str) -> Self {
        let authority = Authority::new();
        let certificate = authority.issue(&[HOST]);
        Self { authority, certificate, service: Destination::start(page).await }
    }

    fn table(&self, revision: u64) -> String {
        let (destination, certificate) = (self.service.address(), &self.certificate);
        route_table(revision, &[Route { host: HOST, destination, certificate }])
    }

    /// The page that a client of this shop's authority gets through the ingress.
    async fn page(&self, ingress: &ClusterIngress) -> Result<String, String> {
        let tls = self.authority.client_config(&["http/1.1"]);
        let target = Target { address: ingress.address(), server_name: HOST.to_owned(), tls };
        let answer = https_request(&target, "GET", "/", &[], "").await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }
}

fn setup(scene: &Scene, node: &str) -> Setup {
    Setup::new(scene.setup.target(), node)
}

/// An ingress that is bound and has pulled.
async fn bound(scene: &Scene, node: &str) -> ClusterIngress {
    let ingress = ClusterIngress::start(setup(scene, node)).await;
    ingress.wait_registered(1).await.expect("the ingress registers");
    ingress.wait_pulled(1).await.expect("the ingress pulls");
    ingress
}

/// A socket to the relay in the test's own hands; it lives as long as what is returned.
async fn socket(scene: &Scene) -> (Carrier, impl Sized) {
    let socket = websocket(&scene.setup.target(), "/", &[]).await.expect("the relay takes the socket");
    Carrier::start(socket, Role::Client)
}

async fn refused(carrier: &Carrier, method: &str, body: &str) -> Refusal {
    let answer = carrier.call(method, body, WAIT).await.expect("an answer");
    answer.outcome().expect_err("a refusal")
}

async fn pushed(scene: &Scene, table: &str) -> String {
    scene.cloudly.push_routes(table).await.expect("an answer").response().to_owned()
}

/// No key, host or destination of the tables of `shops` stands in a line of the relay.
fn assert_unlogged(scene: &Scene, shops: &[&Shop]) {
    for shop in shops {
        let key = shop.certificate.key_pem.lines().nth(1).expect("a key has a body");
        let port = format!(":{}", shop.service.address().port());
        for material in [key, "PRIVATE KEY", "BEGIN CERTIFICATE", HOST, &port] {
            assert_eq!(scene.count(material), 0, "a table's {material} is logged");
        }
    }
}

/// ING-01, ING-02, ING-04, ING-05, ING-07, ING-11, ING-17, ING-18, ING-19, ING-22, ING-23, LIS-24, LOG-06, REG-66:
/// an ingress registers on the nodes' listener, pulls the table that the acceptance read, and serves a page
/// by it; a newer table is hinted, pulled, and serves another page under another key.
#[tokio::test]
async fn a_page_is_served_through_the_ingress_and_follows_a_newer_table() {
    let (first, second) = (Shop::open("the first page").await, Shop::open("the second page").await);
    let scene = Scene::open(|cloudly| cloudly.change(|facts| facts.route_table = Some(first.table(1)))).await;
    scene.cloudly.wait_for(READ, 1).await.unwrap();
    scene.relay.wait_line("route table is held").await.unwrap();
    let node = scene.node("node-1").await;
    let ingress = ClusterIngress::start(setup(&scene, "edge-1")).await;
    let registered = ingress.wait_registered(1).await.unwrap();
    assert!(registered.response().ends_with(r#","routeTableRevision":1}"#), "{}", registered.response());
    let sent = scene.cloudly.wait_for(REGISTER, 1).await.unwrap();
    assert_eq!(sent.body_json()["authorization"], "ingress-bearer-of-edge-1");
    assert_eq!(sent.body_json().as_object().map(serde_json::Map::len), Some(4));
    ingress.wait_applied(1).await.unwrap();
    assert_eq!(first.page(&ingress).await.unwrap(), "the first page");
    assert!(second.page(&ingress).await.is_err(), "another authority's key is not served");

    assert_eq!(pushed(&scene, &second.table(2)).await, r#"{"revision":2}"#);
    ingress.wait_applied(2).await.unwrap();
    let hint = ingress.wait_asked(HINT, 1).await.unwrap();
    assert_eq!((hint.request(), hint.forbidden()), (r#"{"revision":2}"#, vec![]));
    assert_eq!(second.page(&ingress).await.unwrap(), "the second page");
    assert!(first.page(&ingress).await.is_err(), "the former key is gone");
    scene.assert_carried(&node).await;
    assert_unlogged(&scene, &[&first, &second]);
    assert_eq!(scene.count("ingress-bearer-of"), 0);
}

/// ING-06, ING-07, ING-08, ING-09, ING-10, ING-04: what is not newer has no effect and what is invalid is refused
/// by path; both leave the held table, and neither hints anybody.
#[tokio::test]
async fn older_and_invalid_tables_leave_the_held_one_in_service() {
    let (held, other) = (Shop::open("held").await, Shop::open("other").await);
    let scene = Scene::open(|_| {}).await;
    let ingress = bound(&scene, "edge-1").await;
    assert_eq!(pushed(&scene, &held.table(5)).await, r#"{"revision":5}"#);
    ingress.wait_applied(5).await.unwrap();
    for revision in [5, 4] {
        assert_eq!(pushed(&scene, &other.table(revision)).await, r#"{"revision":5}"#);
    }
    let mut invalid: Value = serde_json::from_str(&other.table(6)).unwrap();
    invalid["routes"][0]["certificateId"] = json!("absent");
    for (table, path) in [
        (invalid.to_string(), "routes[0].certificateId"),
        (other.table(6).replacen("-----BEGIN PRIVATE", "-----BEGIN PRIVAT", 1), "certificates[0].privateKey"),
        ("null".to_owned(), "routeTable"),
    ] {
        let answer = scene.cloudly.push(PUSH, &format!(r#"{{"routeTable":{table}}}"#)).await.unwrap();
        let refusal = answer.outcome().unwrap_err();
        assert_eq!(refusal.text, format!("cluster-route-table-invalid: {path}"));
        assert_eq!(refusal.data, json!({}));
    }
    assert_eq!((ingress.asked(HINT).len(), ingress.applied()), (1, Some(5)));
    let again = ingress.carrier().unwrap().call(PULL, r#"{"appliedRevision":5}"#, WAIT).await.unwrap();
    assert_eq!(again.response(), format!(r#"{{"routeTable":{}}}"#, held.table(5)));
    assert_eq!(held.page(&ingress).await.unwrap(), "held");
    assert_unlogged(&scene, &[&held, &other]);
}

/// ING-11, ING-12, ING-13, ING-14, ING-15, ING-16: each acceptance reads the table, and nothing before it does; no
/// table is `null` and said once; a read that fails leaves the last table in service.
#[tokio::test]
async fn each_acceptance_reads_the_table_and_a_failed_read_keeps_it() {
    const NONE: &str = "has computed no route table";
    let shop = Shop::open("kept").await;
    let scene = Scene::open(|_| {}).await;
    scene.relay.wait_line(NONE).await.unwrap();
    let calls: Vec<String> = scene.cloudly.calls().into_iter().map(|call| call.method).collect();
    let at = |method: &str| calls.iter().position(|call| call == method);
    assert!(at(READ) > at("registerClusterRelay") && at("registerClusterRelay").is_some(), "{calls:?}");
    let ingress = bound(&scene, "edge-1").await;
    let pulled = ingress.wait_pulled(1).await.unwrap();
    assert_eq!(pulled.response(), r#"{"routeTable":null}"#);

    let reconnected = async |count: usize| {
        scene.cloudly.drop_connections();
        scene.cloudly.wait_accepted(u64::try_from(count).unwrap()).await.unwrap();
        scene.cloudly.wait_for(READ, count).await.unwrap();
    };
    reconnected(2).await;
    scene.cloudly.change(|facts| facts.route_table = Some(shop.table(3)));
    reconnected(3).await;
    ingress.wait_applied(3).await.unwrap();
    scene.cloudly.once(READ, Step::refuse("relay-not-connected: for a test"));
    reconnected(4).await;
    scene.relay.wait_line("route table could not be read").await.unwrap();
    let again = ingress.carrier().unwrap().call(PULL, r#"{"appliedRevision":3}"#, WAIT).await.unwrap();
    assert_eq!(again.response(), format!(r#"{{"routeTable":{}}}"#, shop.table(3)));
    assert_eq!(scene.count(NONE), 1);
    assert_eq!(ingress.asked(HINT).len(), 1, "the binding outlives the sessions, and only news is hinted");
    assert_unlogged(&scene, &[&shop]);
}

/// ING-24, ING-25, ING-26, ING-27, ING-28, ING-35: the table is the bound connection's alone; a node, a stranger
/// and a superseded ingress are refused by name; a close of any other connection releases nothing.
#[tokio::test]
async fn the_table_is_given_to_the_bound_connection_alone() {
    let shop = Shop::open("page").await;
    let scene = Scene::open(|cloudly| cloudly.change(|facts| facts.route_table = Some(shop.table(1)))).await;
    scene.relay.wait_line("route table is held").await.unwrap();
    let node = scene.node("node-1").await;
    let first = bound(&scene, "edge-1").await;
    let (stranger, _stranger) = socket(&scene).await;
    let body = r#"{"appliedRevision":null}"#;
    for carrier in [&stranger, &node.carrier().unwrap()] {
        let refusal = refused(carrier, PULL, body).await;
        assert_eq!((refusal.text.as_str(), refusal.data), ("cluster-ingress-not-bound", json!({})));
    }
    let second = bound(&scene, "edge-2").await;
    second.wait_applied(1).await.unwrap();
    let superseded = first.carrier().unwrap();
    assert_eq!(refused(&superseded, PULL, body).await.text, "cluster-ingress-not-bound");
    drop(first);
    stranger.close(None).await;
    pushed(&scene, &shop.table(2)).await;
    second.wait_applied(2).await.unwrap();
    drop(second);
    scene.relay.wait_line("edge-2 is gone").await.unwrap();
    let unbound = scene.cloudly.push(STATISTICS, "{}").await.unwrap();
    assert_eq!(unbound.outcome().unwrap_err().text, "cluster-ingress-not-bound");
}

/// ING-31, ING-32, ING-33, ING-34: Cloudly's refusal reaches the ingress untouched; the relay's own have the same
/// shape, and after its pause the ingress is bound.
#[tokio::test]
async fn a_refused_ingress_is_told_why_and_when_to_come_again() {
    let scene = Scene::open(|_| {}).await;
    let (carrier, _events) = socket(&scene).await;
    let registration = setup(&scene, "edge-1").registration_text();
    let whole = Refusal {
        text: "cluster-ingress-registration-refused: node-foreign".to_owned(),
        data: json!({"reason": "node-foreign", "retryAfterMs": 60_000}),
    };
    scene.cloudly.once(REGISTER, Step::Refuse(whole.clone()));
    assert_eq!(refused(&carrier, REGISTER, &registration).await, whole);
    let own = |reason: &str| Refusal {
        text: format!("cluster-ingress-registration-refused: {reason}"),
        data: json!({"reason": reason, "retryAfterMs": 5000}),
    };
    let more = registration.replacen('{', r#"{"more":1,"#, 1);
    assert_eq!(refused(&carrier, REGISTER, &more).await, own("registration-invalid"));
    assert_eq!(scene.cloudly.calls_of(REGISTER).len(), 1, "an invalid body is not carried");
    scene.cloudly.once(REGISTER, Step::Never);
    assert_eq!(refused(&carrier, REGISTER, &registration).await, own("not-ready"));

    scene.cloudly.go_away().await;
    scene.relay.wait_line("the Cloudly session is lost").await.unwrap();
    let ingress = ClusterIngress::start(setup(&scene, "edge-1")).await;
    assert_eq!(ingress.wait_refused(1).await.unwrap(), own("not-ready"));
    assert_eq!(refused(&carrier, REGISTER, &more).await, own("registration-invalid"));
    scene.cloudly.come_back().await.unwrap();
    scene.cloudly.wait_accepted(2).await.unwrap();
    ingress.wait_registered(1).await.unwrap();
}

/// PROT-08, PROT-09, PROT-11, PROT-12, PROT-20: the ingress has an offer of its own with its own oldest release,
/// judged before its body; a refused one is not carried, and what the bound ingress holds is served on.
/// The hop is not ready until an offer that is served (PROT-21, PROT-23, PROT-31).
#[tokio::test]
async fn an_ingress_of_another_release_is_refused_before_anything_else() {
    let shop = Shop::open("page").await;
    let scene = Scene::open(|_| {}).await;
    let ingress = bound(&scene, "edge-1").await;
    pushed(&scene, &shop.table(1)).await;
    ingress.wait_applied(1).await.unwrap();
    let (carrier, _events) = socket(&scene).await;
    let body = json!({"protocol": Offer::new("31.9.9", "31.0.0").json(), "more": 1}).to_string();
    let refusal = refused(&carrier, REGISTER, &body).await;
    assert_eq!(refusal.name(), "protocol-refused");
    assert_eq!(refusal.data["kind"], "clusterIngress");
    assert_eq!(refusal.data["offer"]["oldestAcceptedPeerRelease"], "32.0.0");
    assert_eq!(scene.cloudly.calls_of(REGISTER).len(), 1);
    scene.relay.wait_line("clusterIngress peer speaks 31.9.9").await.unwrap();
    scene.wait_status("not ready: clusterIngress: protocol-refused: clusterIngress peer ").await;
    let again = ingress.carrier().unwrap().call(PULL, r#"{"appliedRevision":1}"#, WAIT).await.unwrap();
    assert_eq!(again.response(), format!(r#"{{"routeTable":{}}}"#, shop.table(1)));
    assert_eq!(shop.page(&ingress).await.unwrap(), "page");
    // 32.0.0 is served, which a Pallet node of that release is not.
    let mut oldest = setup(&scene, "edge-2");
    oldest.offer = Offer::new("32.0.0", "32.0.0");
    ClusterIngress::start(oldest).await.wait_registered(1).await.unwrap();
    scene.wait_status("open for Cloudly dispatch").await;
}

/// ING-20, ING-21: a hint that the ingress refuses is logged and not repeated, and the next table is hinted; a
/// table that is adopted without an ingress is hinted to nobody, and stated to the one that registers.
#[tokio::test]
async fn a_failed_hint_is_logged_and_not_repeated() {
    let shop = Shop::open("page").await;
    let scene = Scene::open(|_| {}).await;
    pushed(&scene, &shop.table(1)).await;
    let ingress = bound(&scene, "edge-1").await;
    let registered = ingress.wait_registered(1).await.unwrap();
    assert!(registered.response().ends_with(r#","routeTableRevision":1}"#));
    assert_eq!(ingress.asked(HINT).len(), 0);
    ingress.react(HINT, Reaction::Refuse(Refusal::new("ingress-busy: later")));
    pushed(&scene, &shop.table(2)).await;
    ingress.wait_asked(HINT, 1).await.unwrap();
    scene.relay.wait_line("could not be hinted").await.unwrap();
    ingress.react(HINT, Reaction::Ordinary);
    pushed(&scene, &shop.table(3)).await;
    ingress.wait_applied(3).await.unwrap();
    let hints: Vec<String> = ingress.asked(HINT).iter().map(|hint| hint.request().to_owned()).collect();
    assert_eq!(hints, [r#"{"revision":2}"#, r#"{"revision":3}"#]);
    assert_eq!(scene.count("could not be hinted"), 1);
}

/// ING-29, ING-30, RET-06: traffic statistics go to the bound ingress and its page comes back, both verbatim;
/// they are refused by name without an ingress and within their bound; the retired method is nobody's.
#[tokio::test]
async fn traffic_statistics_cross_verbatim_or_are_refused_by_name() {
    const ODD: &str =
        r#""a" : 1.0, "a":1e400,"b":-0,"c":[12345678901234567890123],"\u0061":"\u00e9\/\ud83d""#;
    let scene = Scene::open(|_| {}).await;
    let none = scene.cloudly.push(STATISTICS, "{}").await.unwrap();
    assert_eq!(none.outcome().unwrap_err(), Refusal::new("cluster-ingress-not-bound"));
    let ingress = bound(&scene, "edge-1").await;
    let page = format!("[{{ {ODD} }}]");
    ingress.react(STATISTICS, Reaction::Answer(page.clone()));
    let question = format!("{{{ODD},\"cursor\":null}}");
    let answer = scene.cloudly.push(STATISTICS, &question).await.unwrap();
    assert_eq!((answer.response(), answer.member("error")), (page.as_str(), None));
    assert_eq!(ingress.wait_asked(STATISTICS, 1).await.unwrap().request(), question);
    ingress.react(STATISTICS, Reaction::Never);
    let late = scene.cloudly.push(STATISTICS, "{}").await.expect("an answer below Cloudly's own bound");
    let text = "relay-forward-timeout: getClusterTrafficStatistics after 8000 ms";
    assert_eq!(late.outcome().unwrap_err().text, text);
    let retired = scene.cloudly.push("coreflowGetTrafficStats", "{}").await.unwrap();
    assert_eq!(retired.outcome().unwrap_err().text, UNKNOWN_METHOD);
    let own = ingress.carrier().unwrap();
    assert_eq!(refused(&own, "coreflowGetTrafficStats", "{}").await.text, UNKNOWN_METHOD);
}

/// ING-36, REG-61: a parked relay and one without Cloudly keep serving the table to the bound ingress.
#[tokio::test]
async fn the_table_is_served_while_parked_and_without_cloudly() {
    let shop = Shop::open("page").await;
    let scene = Scene::open(|_| {}).await;
    let ingress = bound(&scene, "edge-1").await;
    pushed(&scene, &shop.table(1)).await;
    ingress.wait_applied(1).await.unwrap();
    let served = async || {
        let again = ingress.carrier().unwrap().call(PULL, r#"{"appliedRevision":1}"#, WAIT).await.unwrap();
        assert_eq!(again.response(), format!(r#"{{"routeTable":{}}}"#, shop.table(1)));
        assert_eq!(shop.page(&ingress).await.unwrap(), "page");
    };
    scene.cloudly.change(|facts| facts.credential_generation += 1);
    scene.cloudly.drop_connections();
    scene.relay.wait_line("relay-credential-generation-stale").await.unwrap();
    served().await;
    scene.cloudly.go_away().await;
    scene.wait_lines("the Cloudly session is lost", 2).await;
    served().await;
}

/// ING-03, LIS-24: a relayd that is started again holds no table until Cloudly's acceptance has it read again,
/// and the ingress comes back by itself.
#[tokio::test]
async fn a_restarted_worker_reads_the_table_again() {
    let shop = Shop::open("page").await;
    let scene = Scene::open(|_| {}).await;
    let ingress = bound(&scene, "edge-1").await;
    pushed(&scene, &shop.table(1)).await;
    ingress.wait_applied(1).await.unwrap();
    scene.cloudly.change(|facts| facts.route_table = None);
    scene.relay.kill_worker("relayd").expect("relayd runs");
    scene.cloudly.wait_accepted(2).await.unwrap();
    scene.relay.wait_line("has computed no route table").await.unwrap();
    let registered = ingress.wait_registered(2).await.unwrap();
    assert!(registered.response().ends_with(r#","routeTableRevision":null}"#), "{}", registered.response());
    assert_eq!(ingress.wait_pulled(3).await.unwrap().response(), r#"{"routeTable":null}"#);
    pushed(&scene, &shop.table(1)).await;
    ingress.wait_applied(1).await.unwrap();
    assert_eq!(shop.page(&ingress).await.unwrap(), "page");
}
