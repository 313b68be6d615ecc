//! Faults of the identity exchange, and what the relay makes of each.
//!
//! | fault | test |
//! | --- | --- |
//! | a redirect to another origin | [`a_redirected_exchange_takes_the_bearer_nowhere`] |
//! | an answer that is too long, breaks off within its body, or holds an unknown member | [`an_answer_that_is_none_is_told_by_its_fault_and_asked_for_again`] |
//! | an identity of another kind or role, without a token, with an end of another type | the same |
//! | HTML and 502; a bearer that is refused while the relay runs | `session.rs`: `a_bad_gateway_is_no_answer_and_passes`, `a_bearer_refused_at_a_renewal_is_offered_again` |
//! | silence, a trickle, TLS that fails | `cloudly_faults.rs` |
//! | a compressed answer, a peer that speaks no HTTP, `retry` without end | the supervisor's `exchange/tests.rs` |
//! | Cloudly's clock an hour behind the relay's | [`an_identity_that_has_ended_by_the_relays_clock_is_asked_for_again`] |
//! | Cloudly's clock an hour ahead of the relay's | [`an_identity_that_has_ended_by_cloudlys_clock_is_exchanged_anew`] |
//! | a clock that jumps an hour while the relay runs | relayd's `session/tests.rs`, `core/tests/clock.rs` |
//! | renewals without end | [`a_renewal_that_fails_is_made_again_at_a_growing_pace`] |

use std::time::Duration;

use coreflow_tests::authority::Authority;
use coreflow_tests::cloudly::{Cloudly, Stage, Step};
use coreflow_tests::waiting::{BOUND, poll};
use futures_util::future::join_all;
use serde_json::{Value, json};

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const EXCHANGE: &str = "getIdentityByToken";
const SESSION: &str = "registerCloudlyClientSession";
const HOUR_MS: i64 = 3_600_000;

/// LOG-01, SES-03, SES-16, SES-20: whatever a redirect of the exchange names, nobody else is dialled; it is
/// told by its status and the exchange is made again at Cloudly's own address.
#[tokio::test]
async fn a_redirected_exchange_takes_the_bearer_nowhere() {
    let authority = Authority::new();
    let other = Cloudly::start(&authority, coreflow_tests::cloudly::Settings::default()).await;
    let codes = [301, 302, 307, 308];
    let place = format!("{}/typedrequest", other.url());
    join_all(codes.map(async |code| {
        let scene = Scene::start(|cloudly, setup| {
            cloudly.once(EXCHANGE, Step::Redirect(code, place.clone()));
            setup
        })
        .await;
        let line = scene.relay.wait_line("no identity: ").await.unwrap();
        assert!(line.text.contains(&format!("http ({code})")), "{line:?}");
        assert!(!line.text.contains(&other.port().to_string()), "{line:?}");
        scene.relay.wait_open().await.unwrap();
        assert_eq!(scene.cloudly.exchanges(), 2, "{code}");
    }))
    .await;
    assert_eq!((other.reached(Stage::Tcp), other.calls().len()), (0, 0));
}

/// SES-03, SES-16, SES-20, START-18, LOG-01: an answer that is no identity of a cluster is named by path and
/// fault, never by value, and is no refusal of the bearer: the start waits and asks again.
#[tokio::test]
async fn an_answer_that_is_none_is_told_by_its_fault_and_asked_for_again() {
    let identity = |change: fn(&mut Value)| {
        let mut answer = json!({"identity": {
            "name": "a-private-text", "userId": "a-private-text", "type": "machine", "role": "cluster",
            "expiresAt": 4_000_000_000_000_u64, "jwt": "a-private-text",
        }});
        change(&mut answer);
        Step::Answer(answer.to_string())
    };
    let unusable = |what: &str| format!("Cloudly's answer to the identity exchange is unusable: {what}");
    let foreign = "is an unknown or repeated member";
    let cases = [
        (Step::CutMidAnswer, "the identity exchange failed: closed".to_owned()),
        (
            identity(|answer| answer["identity"]["name"] = json!("a-private-text".repeat(20_000))),
            unusable("answer is too long"),
        ),
        (
            identity(|answer| answer["identity"]["more"] = json!("a-private-text")),
            unusable(&format!("response.identity {foreign}")),
        ),
        (
            identity(|answer| answer["more"] = json!("a-private-text")),
            unusable(&format!("response {foreign}")),
        ),
        (
            identity(|answer| answer["identity"]["type"] = json!("human")),
            unusable("response.identity.type is not a cluster's"),
        ),
        (
            identity(|answer| answer["identity"]["role"] = json!("admin")),
            unusable("response.identity.role is not a cluster's"),
        ),
        (
            identity(|answer| answer["identity"]["jwt"] = json!("")),
            unusable("response.identity.jwt is malformed"),
        ),
        (
            identity(|answer| answer["identity"]["expiresAt"] = json!("a-private-text")),
            unusable("response.identity.expiresAt is malformed"),
        ),
    ];
    join_all(cases.map(async |(step, told)| {
        let scene = Scene::start(|cloudly, setup| {
            cloudly.once(EXCHANGE, step);
            setup
        })
        .await;
        let line = scene.relay.wait_line("no identity: ").await.unwrap();
        assert!(line.text.contains(&told), "{told} in {line:?}");
        scene.relay.wait_open().await.unwrap();
        scene.cloudly.wait_accepted(1).await.unwrap();
        assert_eq!((scene.cloudly.exchanges(), scene.count("a-private-text")), (2, 0), "{told}");
    }))
    .await;
}

/// SES-03, SES-08, SES-20, START-18: a Cloudly whose clock is an hour behind issues identities that have ended
/// by the relay's; each is named as that, none is used, and the start goes on once one lasts. An hour and some
/// seconds of life are some seconds here, and renewed within them.
#[tokio::test]
async fn an_identity_that_has_ended_by_the_relays_clock_is_asked_for_again() {
    let scene = Scene::start(|cloudly, setup| {
        cloudly.change(|settings| settings.clock_ahead_ms = -HOUR_MS);
        setup
    })
    .await;
    scene.wait_lines("unusable: response.identity.expiresAt is expired", 2).await;
    assert_eq!((scene.cloudly.reached(Stage::Upgrade), scene.count("the relay is open")), (0, 0));
    let life = Duration::from_secs(6);
    scene.cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(60 * 60) + life);
    scene.relay.wait_open().await.unwrap();
    let node = scene.node("node-1").await;
    let announced = scene.cloudly.calls_of(SESSION)[0].at;
    let renewed = || scene.cloudly.calls_of(EXCHANGE).into_iter().find(|call| call.at > announced);
    let renewed = poll(BOUND, "exchange of a renewal", renewed).await.unwrap();
    assert!(renewed.at - announced < life, "before its end by the relay's clock");
    scene.assert_carried(&node).await;
    assert_eq!((scene.cloudly.connections_seen(), node.closes().len()), (1, 0));
}

/// SES-09, SES-20, SES-13: a Cloudly whose clock is an hour ahead regards an identity as ended that the relay
/// takes for good: the refused session costs one exchange and one dial, and the node is carried again.
#[tokio::test]
async fn an_identity_that_has_ended_by_cloudlys_clock_is_exchanged_anew() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    scene.wait_status("open for Cloudly dispatch").await;
    scene.cloudly.change(|settings| settings.clock_ahead_ms = HOUR_MS + 1000);
    scene.cloudly.drop_connections();
    scene.relay.wait_line("the session is not registered: identity-unverified: expired").await.unwrap();
    scene.cloudly.wait_accepted(2).await.unwrap();
    node.wait_registered(2).await.unwrap();
    scene.assert_carried(&node).await;
    assert_eq!((scene.cloudly.exchanges(), scene.cloudly.connections_seen()), (2, 3));
}

/// SES-20, SES-09, REG-56: failures of a renewal, whatever their kind, leave the session and the nodes alone
/// and are made again at a pace that doubles.
#[tokio::test]
async fn a_renewal_that_fails_is_made_again_at_a_growing_pace() {
    let scene = Scene::open(|cloudly| {
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(2));
    })
    .await;
    let node = scene.node("node-1").await;
    let steps = [
        Step::HtmlBadGateway,
        Step::CutMidAnswer,
        Step::Redirect(307, "https://localhost:1/typedrequest".to_owned()),
        Step::Answer("{}".to_owned()),
    ];
    let failures = steps.len();
    for step in steps {
        scene.cloudly.once(EXCHANGE, step);
    }
    scene.wait_lines("no identity: ", failures).await;
    scene.cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(3600));
    let sessions = scene.cloudly.calls_of(SESSION).len();
    scene.cloudly.wait_for(SESSION, sessions + 1).await.unwrap();
    let exchanges = scene.cloudly.calls_of(EXCHANGE);
    let last = exchanges.len() - 1;
    for (number, pair) in exchanges[last - failures..].windows(2).enumerate() {
        let least = Duration::from_millis(250 << number);
        assert!(pair[1].at - pair[0].at >= least, "failure {number}: {:?}", pair[1].at - pair[0].at);
    }
    scene.assert_carried(&node).await;
    assert_eq!((scene.cloudly.connections_seen(), node.closes().len()), (1, 0));
}
