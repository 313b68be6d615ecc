use coreflow_ipc::messages::pulls::{
    AnswerBody, AnswerHeader, RegistryFailure, RelaydToPulld, RequestHeader,
};

use stand::{RELAY, Stand, values, whole};

use super::*;

mod bodies;
mod failures;
mod frames;
mod kept;
mod said;
mod stand;
mod standing;
mod stopping;

/// PULL-01, PULL-05, PULL-10, PULL-12, PULL-20, PULL-25: what the node said crosses with the registry's own host
/// and `identity`; the challenge comes back with its realm at the relay, every line of it, and nothing that is
/// not on the list.
#[tokio::test]
async fn a_pull_crosses_and_its_challenge_comes_back() {
    let mut stand = Stand::new().await;
    let headers = vec![
        (RequestHeader::Accept, b"a/b".to_vec()),
        (RequestHeader::Authorization, b"Basic bm9kZTp0".to_vec()),
        (RequestHeader::Accept, b"c/d".to_vec()),
    ];
    let pull = stand.ask(false, "/v2/a/b/manifests/v1?ns=r%3A5", headers).await;
    let mut registry = stand.accept().await;
    let authority = stand.origin.trim_start_matches("http://").to_owned();
    assert_eq!(
        registry.request().await,
        format!(
            "GET /v2/a/b/manifests/v1?ns=r%3A5 HTTP/1.1\r\nhost: {authority}\r\naccept-encoding: identity\r\n\
             accept: a/b\r\naccept: c/d\r\nauthorization: Basic bm9kZTp0\r\n\r\n"
        )
    );
    let origin = &stand.origin;
    registry
        .say(format!(
            "HTTP/1.1 401 Unauthorized\r\nSet-Cookie: a=b\r\nWWW-Authenticate: Basic realm=\"r\"\r\n\
             WWW-Authenticate: Bearer realm=\"{origin}/v2/token\",service=\"{origin}\"\r\nX-Own: x\r\n\
             Location: {origin}/v2/x\r\nContent-Length: 4\r\n\r\nbody"
        ))
        .await;
    let (id, answer) = stand.answer().await;
    assert_eq!((id, answer.status, answer.length, answer.headers.len()), (pull, 401, Some(4), 3));
    assert_eq!(
        values(&answer, AnswerHeader::WwwAuthenticate),
        [
            "Basic realm=\"r\"".to_owned(),
            format!("Bearer realm=\"{RELAY}/v2/token\",service=\"{}\"", stand.origin)
        ]
    );
    assert_eq!(values(&answer, AnswerHeader::Location), [format!("{}/v2/x", stand.origin)]);
    assert_eq!(whole(answer), b"body");
}

/// PULL-15: the answer to a HEAD keeps the length that it states and has no body; the connection serves on.
#[tokio::test]
async fn a_head_has_a_length_and_no_body() {
    let mut stand = Stand::new().await;
    stand.ask(true, "/v2/a/b/manifests/v1", Vec::new()).await;
    let mut registry = stand.accept().await;
    assert!(registry.request().await.starts_with("HEAD /v2/a/b/manifests/v1 HTTP/1.1\r\n"));
    registry.say("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nETag: \"x\"\r\n\r\n").await;
    let (_, answer) = stand.answer().await;
    assert_eq!(answer.length, Some(1234));
    assert!(matches!(answer.body, AnswerBody::Nothing));

    // PULL-21: without one, none is invented.
    for said in ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 304 Not Modified\r\n\r\n"]
    {
        stand.ask(true, "/v2/a/b/manifests/v1", Vec::new()).await;
        registry.request().await;
        registry.say(said).await;
        let (_, answer) = stand.answer().await;
        assert_eq!(answer.length, None);
        assert!(matches!(answer.body, AnswerBody::Nothing));
    }
    assert_eq!(stand.dials(), 1);
}

/// PULL-15: an answer that never has a body ends with its head, to a GET too.
#[tokio::test]
async fn an_unchanged_entity_has_no_body() {
    let mut stand = Stand::new().await;
    let headers = vec![(RequestHeader::IfNoneMatch, b"\"x\"".to_vec())];
    stand.ask(false, "/v2/a/b/manifests/v1", headers).await;
    let mut registry = stand.accept().await;
    assert!(registry.request().await.contains("\r\nif-none-match: \"x\"\r\n"));
    registry.say("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 77\r\n\r\n").await;
    let (_, answer) = stand.answer().await;
    assert_eq!((answer.status, answer.length), (304, Some(77)));
    assert!(matches!(answer.body, AnswerBody::Nothing));
    stand.pull("/v2/").await;
    registry.request().await;
    registry.say("HTTP/1.1 307 Moved\r\nLocation: https://store.test/x\r\nContent-Length: 0\r\n\r\n").await;
    let (_, answer) = stand.answer().await;
    assert_eq!(
        (answer.status, values(&answer, AnswerHeader::Location).as_slice()),
        (307, &["https://store.test/x".to_owned()][..])
    );
    assert_eq!(whole(answer), b"");
    assert_eq!(stand.dials(), 1);
}

/// PULL-10: a challenge leads to the origin that the relay has when the node asks.
#[tokio::test]
async fn later_pulls_use_the_newest_configuration() {
    let mut stand = Stand::new().await;
    for relay in [RELAY, "https://other.test"] {
        stand.relay_is(relay);
        stand.pull("/v2/").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        let challenge = |origin: &str| format!("Bearer realm=\"{origin}/v2/token\"");
        let line = challenge(&stand.origin);
        registry
            .say(format!("HTTP/1.1 401 U\r\nWWW-Authenticate: {line}\r\nContent-Length: 0\r\n\r\n"))
            .await;
        let (_, answer) = stand.answer().await;
        assert_eq!(values(&answer, AnswerHeader::WwwAuthenticate), [challenge(relay)]);
    }
}

/// PULL-29: what is out of order ends the link, and with it the exchanges.
#[tokio::test]
async fn what_is_out_of_order_ends_the_link() {
    let mut stand = Stand::new().await;
    stand.stop_in_disorder().await;
    assert!(stand.message().await.is_none());

    let mut stand = Stand::new().await;
    let id = stand.pull("/v2/").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    let request = coreflow_ipc::messages::pulls::PullRequest {
        head: false,
        target: "/v2/".into(),
        headers: Vec::new(),
    };
    stand.say(RelaydToPulld::Pull { id, request }).await;
    assert!(stand.message().await.is_none());
    assert_eq!(registry.request().await, "");

    let mut stand = Stand::new().await;
    for _ in 0..=coreflow_ipc::messages::pulls::WAITING_STREAMS {
        stand.give_stream().await;
    }
    assert!(stand.message().await.is_none());
}

/// PULL-30: no more exchanges than are agreed on.
#[tokio::test]
async fn more_exchanges_than_agreed_on_end_the_link() {
    let mut stand = Stand::unreachable(RegistryFailure::Connect).await;
    // Each fails and makes room for the next, so that all are answered.
    for _ in 0..EXCHANGES + 10 {
        stand.pull("/v2/").await;
        assert_eq!(stand.failure().await, RegistryFailure::Connect);
    }
    let mut stand = Stand::new().await;
    for _ in 0..=EXCHANGES {
        stand.pull("/v2/").await;
    }
    assert!(stand.message().await.is_none());
}
