//! Faults of Cloudly on the session's side, and what the relay makes of each.
//!
//! | fault | test |
//! | --- | --- |
//! | TCP that is never answered | [`a_cloudly_that_says_nothing_is_given_up_at_each_stage_and_tried_again`] |
//! | TCP alone, TLS alone, the exchange, the upgrade, the cluster config or the certificate without an answer; an exchange that trickles | the same, and `session.rs`: `a_silent_server_in_cloudlys_place_delays_the_start_and_does_not_end_it` |
//! | `registerCloudlyClientSession` without an answer | `session.rs`: `a_cloudly_that_does_not_answer_is_tried_again` |
//! | `registerClusterRelay` without an answer | `registration.rs`: `an_unanswered_registration_is_logged_by_class_and_the_relay_serves` |
//! | nobody listens; an outage | `session.rs`: `nodes_sit_out_an_outage_and_register_again_afterwards` |
//! | a connection that breaks within an answer of the start | `session.rs`: `answers_that_break_off_delay_the_start_and_do_not_end_it` |
//! | a connection that breaks within a node's answer, or within the upgrade | [`a_connection_that_breaks_within_an_answer_costs_that_answer_alone`] |
//! | a Cloudly that flaps | [`a_flapping_cloudly_is_dialled_at_a_growing_pace_and_settles`] |
//! | HTML and 502 on the exchange and on the upgrade | `session.rs`: `a_bad_gateway_is_no_answer_and_passes` |
//! | a redirect of the upgrade | [`a_redirected_upgrade_is_not_followed`] |
//! | a certificate of Cloudly that is not trusted, names another host, has expired or is not valid yet | [`a_cloudly_that_cannot_prove_itself_gets_neither_bearer_nor_session`] |
//! | an unknown member in the answer to the session | [`an_unknown_member_makes_the_session_s_answer_unusable`] |
//! | an unknown member in an acceptance, its offer or a reference | [`an_unknown_member_makes_an_acceptance_unusable`] |
//! | the exchange: what is answered, redirected, too long, refused | `exchange_faults.rs` |
//! | the listener's certificate | `certificate_faults.rs` |
//! | a signal at each step of the start, launch facts | `start_faults.rs` |
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::time::Duration;

use coreflow_tests::authority::{Authority, Flaw, Issued};
use coreflow_tests::cloudly::{Cloudly, Front, Stage, Step, UPGRADE};
use coreflow_tests::relay::RelaySetup;
use coreflow_tests::silent::SilentPort;
use futures_util::future::join_all;
use serde_json::{Value, json};

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const EXCHANGE: &str = "getIdentityByToken";
const SESSION: &str = "registerCloudlyClientSession";
const REGISTRATION: &str = "registerClusterRelay";
const CONFIG: &str = "getClusterConfig";
const CERTIFICATE: &str = "getCertificateForDomain";
const NO_IDENTITY: &str = "no identity: the identity exchange failed: timeout";

/// A relay that faces a Cloudly with one fault, which its dial with the number `dial` meets, says `line`, is not
/// open before, and opens once the fault is mended.
async fn gives_up(dial: u64, fault: impl Fn(&Cloudly), line: &str, mend: impl Fn(&Cloudly)) {
    let scene = Scene::start(|cloudly, setup| {
        fault(cloudly);
        setup
    })
    .await;
    scene.cloudly.wait_reached(Stage::Tcp, dial).await.unwrap();
    scene.relay.wait_line(line).await.unwrap();
    assert_eq!(scene.count("the relay is open"), 0, "{line}");
    mend(&scene.cloudly);
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
    assert_eq!(scene.cloudly.open_connections(), 1, "{line}");
}

/// SES-16, SES-20, SES-09, START-01: whatever stage a silent peer has let a dial come to, the wait has a
/// bound, its end is told by class, and the relay tries again until it is served.
#[tokio::test]
async fn a_cloudly_that_says_nothing_is_given_up_at_each_stage_and_tried_again() {
    let front = |front| {
        let fault = move |cloudly: &Cloudly| cloudly.change(|settings| settings.front = front);
        gives_up(1, fault, NO_IDENTITY, |cloudly| cloudly.change(|settings| settings.front = Front::Serving))
    };
    let once = |method, step: Step, line| {
        // The exchange is one dial, the session the next.
        let dial = if method == EXCHANGE { 1 } else { 2 };
        gives_up(dial, move |cloudly: &Cloudly| cloudly.once(method, step.clone()), line, |_| {})
    };
    let unanswered_tcp = async {
        let port = SilentPort::open();
        let setup = RelaySetup::new(&Authority::new());
        let mut setup = setup.variable("CLOUDLY_URL", &format!("https://127.0.0.1:{}", port.port()));
        setup.bearer = "a-bearer-that-nobody-gets".to_owned();
        let relay = setup.start();
        relay.wait_line(NO_IDENTITY).await.unwrap();
    };
    tokio::join!(
        unanswered_tcp,
        front(Front::SilentInTls),
        once(EXCHANGE, Step::Never, NO_IDENTITY),
        once(EXCHANGE, Step::Trickle, NO_IDENTITY),
        once(UPGRADE, Step::Never, "the connection to Cloudly ended class=timeout"),
        once(CONFIG, Step::Never, "a read of the start was failed: timeout"),
        once(CERTIFICATE, Step::Never, "a read of the start was failed: timeout"),
    );
}

/// SES-01, SES-09, SES-13, OUT-04, OUT-05: a Cloudly that drops each connection once session and node are
/// registered on it is dialled at a pace that doubles, one connection at a time and with one identity; the node is
/// closed once for each session that returned and never without one, and is carried once Cloudly stays.
#[tokio::test]
async fn a_flapping_cloudly_is_dialled_at_a_growing_pace_and_settles() {
    const FLAPS: usize = 4;
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    for flap in 1..=FLAPS {
        scene.cloudly.drop_connections();
        scene.wait_lines("the Cloudly session is lost", flap).await;
        assert_eq!(node.closes().len(), flap - 1, "a close belongs to a session that returned");
        scene.wait_lines("the Cloudly session is registered", flap + 1).await;
        assert_eq!(scene.cloudly.open_connections(), 1);
        node.wait_registered(flap + 1).await.unwrap();
    }
    let at: Vec<_> = scene.cloudly.calls_of(SESSION).iter().map(|call| call.at).collect();
    for (flap, pair) in at.windows(2).enumerate() {
        // Half a second doubles; jitter takes half of it at most.
        let least = Duration::from_millis(250 << flap);
        assert!(pair[1] - pair[0] >= least, "dial {flap} came after {:?}", pair[1] - pair[0]);
    }
    assert_eq!((scene.cloudly.connections_seen(), scene.cloudly.exchanges()), (FLAPS as u64 + 1, 1));
    scene.assert_carried(&node).await;
    scene.wait_status("open for Cloudly dispatch").await;
    assert_eq!((scene.cloudly.open_connections(), scene.count("generation-stale")), (1, 0));
}

/// SES-16, REG-28, OUT-05: an answer that breaks off within its frame ends the connection; the node gets a
/// refusal or a new session and no half of an answer, and an upgrade that breaks off is dialled again.
#[tokio::test]
async fn a_connection_that_breaks_within_an_answer_costs_that_answer_alone() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    scene.cloudly.once("getRuntimeSecretMaterial", Step::CutMidAnswer);
    scene.cloudly.once(UPGRADE, Step::CutMidAnswer);
    let body = format!(r#"{{"session":{}}}"#, node.binding().unwrap());
    let answer = node.request("getRuntimeSecretMaterial", &body).await;
    if let Ok(answer) = &answer {
        assert!(answer.outcome().is_err(), "half an answer is none");
    }
    scene.relay.wait_line("the connection to Cloudly ended class=\"upgrade (").await.unwrap();
    node.wait_registered(2).await.unwrap();
    scene.assert_carried(&node).await;
    assert_eq!((scene.cloudly.exchanges(), scene.cloudly.open_connections()), (1, 1));
}

/// SES-16, SES-09, SES-19: a redirect of the upgrade is a failed dial by its status; the other place is not
/// dialled.
#[tokio::test]
async fn a_redirected_upgrade_is_not_followed() {
    let authority = Authority::new();
    let scene = Scene::start(|_, setup| setup).await;
    let elsewhere = Cloudly::start(&authority, scene.setup.cloudly_settings()).await;
    scene.relay.wait_open().await.unwrap();
    scene.cloudly.wait_accepted(1).await.unwrap();
    for (number, code) in [301, 307].into_iter().enumerate() {
        scene.cloudly.once(UPGRADE, Step::Redirect(code, format!("{}/", elsewhere.url())));
        scene.cloudly.drop_connections();
        scene.relay.wait_line(&format!("class=\"upgrade ({code})\"")).await.unwrap();
        scene.cloudly.wait_accepted(number as u64 + 2).await.unwrap();
    }
    assert_eq!((elsewhere.reached(Stage::Tcp), scene.cloudly.exchanges()), (0, 1));
}

type Issuing = fn(&Authority) -> Issued;

/// SES-16, SES-03, LOG-01: TLS fails by its kind before the bearer or the identity is sent; a sound
/// certificate mends it.
#[tokio::test]
async fn a_cloudly_that_cannot_prove_itself_gets_neither_bearer_nor_session() {
    let flawed: [(Issuing, &str, &str); 5] = [
        // Another authority of the same name, and an issuer that nobody shows.
        (|_| Authority::new().issue(&["localhost"]), "certificate-invalid", "BadSignature"),
        (
            |own| own.issue_flawed(&["localhost"], Flaw::IntermediateMissing),
            "unknown-issuer",
            "UnknownIssuer",
        ),
        (|own| own.issue(&["cloudly.test"]), "certificate-foreign-name", "NotValidForName"),
        (|own| own.issue_flawed(&["localhost"], Flaw::Expired), "certificate-expired", "Expired"),
        (
            |own| own.issue_flawed(&["localhost"], Flaw::NotYetValid),
            "certificate-not-valid-yet",
            "NotValidYet",
        ),
    ];
    let cases = flawed.map(async |(issue, code, kind)| {
        let authority = Authority::new();
        let setup = RelaySetup::new(&authority);
        let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
        let flaw = |flawed: bool| {
            cloudly.change(|settings| settings.own_certificate = flawed.then(|| issue(&authority)));
        };
        flaw(true);
        let relay = setup.facing(&cloudly).start();
        relay.wait_line(&format!("no identity: the identity exchange failed: tls ({code})")).await.unwrap();
        assert_eq!((cloudly.reached(Stage::Tls), cloudly.exchanges()), (0, 0), "{code}");
        flaw(false);
        relay.wait_open().await.unwrap();
        cloudly.wait_accepted(1).await.unwrap();

        let upgrades = cloudly.reached(Stage::Upgrade);
        flaw(true);
        cloudly.drop_connections();
        let line = format!("the connection to Cloudly ended class=\"tls (invalid certificate: {kind}");
        relay.wait_line(&line).await.unwrap();
        assert_eq!((cloudly.reached(Stage::Upgrade), cloudly.exchanges()), (upgrades, 1), "{code}");
        flaw(false);
        cloudly.wait_accepted(2).await.unwrap();
    });
    join_all(cases).await;
}

fn with(value: &Value, path: &str, member: &str) -> String {
    let mut value = value.clone();
    let at = if path.is_empty() { &mut value } else { value.pointer_mut(path).unwrap() };
    at.as_object_mut().unwrap().insert(member.to_owned(), json!("a-private-text"));
    value.to_string()
}

/// PROT-25, PROT-26, PROT-21: an answer to the session with a member that the contract does not have is
/// unusable and told as such, without its value; the next connection's answer ends that.
#[tokio::test]
async fn an_unknown_member_makes_the_session_s_answer_unusable() {
    let offer = json!({"protocol": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"}});
    for path in ["", "/protocol"] {
        let scene = Scene::start(|cloudly, setup| {
            cloudly.once(SESSION, Step::Answer(with(&offer, path, "more")));
            setup
        })
        .await;
        scene.relay.wait_line("registerCloudlyClientSession was answered without a valid").await.unwrap();
        scene.wait_status("not ready: ").await;
        assert_eq!((scene.cloudly.open_connections(), scene.count("protocol-refused")), (1, 0), "{path}");
        scene.cloudly.drop_connections();
        scene.relay.wait_open().await.unwrap();
        scene.wait_status("open for Cloudly dispatch").await;
        assert_eq!(scene.count("a-private-text"), 0, "{path}");
    }
}

/// REG-39, REG-45, REG-48, REG-49, PROT-25, PROT-26: an unknown member anywhere in an acceptance makes it
/// none; nothing of it is repeated, and the next acceptance ends that.
#[tokio::test]
async fn an_unknown_member_makes_an_acceptance_unusable() {
    let whole = json!({
        "protocol": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"},
        "origin": "https://relay.localhost.test",
        "credential": {"id": "relay-credential-1", "generation": 1},
        "registration": {"id": "relay-registration-1", "generation": 1},
    });
    let paths = ["", "/protocol", "/credential", "/registration"];
    let scene = Scene::start(|cloudly, setup| {
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(1));
        for path in paths {
            cloudly.once(REGISTRATION, Step::Answer(with(&whole, path, "more")));
        }
        setup
    })
    .await;
    scene.relay.wait_open().await.unwrap();
    let node = scene.node("node-1").await;
    for path in ["set of members", "protocol", "credential", "registration"] {
        let line = format!("registerClusterRelay was answered without a valid {path}");
        scene.relay.wait_line(&line).await.unwrap();
        assert_eq!(scene.count("is bound to cluster relay credential"), 0, "{path}");
    }
    scene.cloudly.wait_accepted(1).await.unwrap();
    scene.wait_status("open for Cloudly dispatch").await;
    scene.assert_carried(&node).await;
    assert_eq!((scene.count("a-private-text"), node.closes().len()), (0, 0));
}
