use std::time::Duration;

use coreflow_ipc::messages::pulls::{HEAD_BYTES, HEAD_HEADERS, RegistryFailure};
use tokio::time;

use super::stand::{Stand, certificate, whole};
use crate::constants::ANSWER_WAIT;

/// PULL-26: a connection that the supervisor could not make is answered by its class.
#[tokio::test]
async fn an_unreachable_registry_is_its_class() {
    for failure in [RegistryFailure::Dns, RegistryFailure::Connect, RegistryFailure::Timeout] {
        let mut stand = Stand::unreachable(failure).await;
        stand.pull("/v2/").await;
        assert_eq!(stand.failure().await, failure);
    }
}

/// PULL-26: a registry that is not the one that is trusted hears nothing of the pull.
#[tokio::test]
async fn a_foreign_certificate_is_a_failure_of_tls() {
    let (_, served) = certificate("127.0.0.1", &["http/1.1"]);
    let (other, _) = certificate("127.0.0.1", &[]);
    let mut stand = Stand::tls(vec![other]).await;
    stand.pull("/v2/").await;
    let registry = stand.accept().await;
    let greeted = tokio_rustls::TlsAcceptor::from(served).accept(registry.0);
    let (greeted, failure) = tokio::join!(greeted, stand.failure());
    assert!(greeted.is_err());
    assert_eq!(failure, RegistryFailure::Tls);
}

/// PULL-26: what is no HTTP, an answer of no use, one that contradicts itself or one beyond the bounds.
#[tokio::test]
async fn what_is_no_answer_is_a_failure_of_the_protocol() {
    let many = "Via: x\r\n".repeat(200);
    let crossing = "Link: <x>\r\n".repeat(HEAD_HEADERS + 1);
    let long = format!("ETag: {}\r\n", "x".repeat(HEAD_BYTES));
    let longest = format!("Via: {}\r\n", "x".repeat(200_000));
    for head in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        &format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        &format!("HTTP/1.1 200 OK\r\n{crossing}Content-Length: 0\r\n\r\n"),
        &format!("HTTP/1.1 200 OK\r\n{long}Content-Length: 0\r\n\r\n"),
        &format!("HTTP/1.1 200 OK\r\n{longest}Content-Length: 0\r\n\r\n"),
    ] {
        let mut stand = Stand::new().await;
        stand.pull("/v2/").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        let head = head.to_owned();
        tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            // What is too long is not read to its end.
            let _ = registry.0.write_all(head.as_bytes()).await;
            registry.request().await
        });
        assert_eq!(stand.failure().await, RegistryFailure::Protocol);
    }
}

/// PULL-21: lengths that contradict each other are none to a HEAD either.
#[tokio::test]
async fn a_head_with_two_lengths_is_a_failure_of_the_protocol() {
    let mut stand = Stand::new().await;
    stand.ask(true, "/v2/a/manifests/x", Vec::new()).await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").await;
    assert_eq!(stand.failure().await, RegistryFailure::Protocol);
}

/// PULL-24: a head at the bounds crosses, beside headers that do not.
#[tokio::test]
async fn a_head_at_the_bounds_crosses() {
    let mut stand = Stand::new().await;
    stand.pull("/v2/").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    let value = "v".repeat(HEAD_BYTES / HEAD_HEADERS - "link".len());
    let links = format!("Link: {value}\r\n").repeat(HEAD_HEADERS);
    let other = format!("X-Other: {}\r\n", "x".repeat(16 << 10));
    registry.say(format!("HTTP/1.1 200 OK\r\n{other}{links}Content-Length: 2\r\n\r\nok")).await;
    let (_, answer) = stand.answer().await;
    assert_eq!(answer.headers.len(), HEAD_HEADERS);
    assert!(answer.headers.iter().all(|(_, crossed)| crossed == value.as_bytes()));
    assert_eq!(whole(answer), b"ok");
}

/// PULL-26: a connection that ends before an answer; an interim answer is none.
#[tokio::test]
async fn a_close_before_the_answer_is_its_class() {
    for said in ["", "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-"] {
        let mut stand = Stand::new().await;
        stand.pull("/v2/").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        registry.say(said).await;
        drop(registry);
        assert_eq!(stand.failure().await, RegistryFailure::Closed);
        // A fresh connection is not tried twice.
        assert_eq!(stand.dials(), 1);
    }
    let mut stand = Stand::new().await;
    stand.pull("/v2/").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n").await;
    registry.say("HTTP/1.1 429 Slow\r\nRetry-After: 17\r\nContent-Length: 2\r\n\r\nno").await;
    let (_, answer) = stand.answer().await;
    assert_eq!((answer.status, answer.headers.len()), (429, 1));
    assert_eq!(whole(answer), b"no");
}

/// PULL-26: a registry that says nothing costs a bounded time.
#[tokio::test]
async fn silence_is_a_timeout() {
    let mut stand = Stand::new().await;
    stand.pull("/v2/").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    time::pause();
    let began = time::Instant::now();
    assert_eq!(stand.failure().await, RegistryFailure::Timeout);
    let passed = began.elapsed();
    assert!(passed <= ANSWER_WAIT + Duration::from_millis(10), "{passed:?}");
    assert!(passed >= ANSWER_WAIT / 2, "{passed:?}");
    assert_eq!(registry.request().await, "");
}

/// PULL-17: a target that cannot be sent as it came reaches no registry.
#[tokio::test]
async fn a_target_that_is_none_is_not_asked() {
    let mut stand = Stand::new().await;
    for target in ["/token", "/v2/a#b", "/v2/a b"] {
        stand.pull(target).await;
        assert_eq!(stand.failure().await, RegistryFailure::Protocol);
    }
    assert_eq!(stand.dials(), 0);
}
