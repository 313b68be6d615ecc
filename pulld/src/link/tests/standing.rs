//! What pulld states of itself, exchange by exchange.

use coreflow_ipc::messages::{pulls::RegistryFailure, standing::PulldStanding};

use super::stand::Stand;

/// An exchange that is answered is counted once, and its connection for as long as it is kept.
#[tokio::test]
async fn an_answered_exchange_leaves_its_connection() {
    let mut stand = Stand::new().await;
    assert_eq!(stand.standing(0).await, PulldStanding::default());
    stand.pull("/v2/").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    let under_way = PulldStanding { exchanges: 1, connections: 1, ..PulldStanding::default() };
    assert_eq!(stand.standing(1).await, under_way);
    registry.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    stand.answer().await;
    let kept = PulldStanding { exchanges: 0, answered: 1, ..under_way };
    assert_eq!(stand.standing(0).await, kept);
    stand.pull("/v2/").await;
    registry.request().await;
    // What the registry refuses it has answered.
    registry.say("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    stand.answer().await;
    assert_eq!(stand.standing(0).await, PulldStanding { connections: 0, answered: 2, ..kept });
}

/// An exchange without an answer failed; one whose body was cut was answered, and failed.
#[tokio::test]
async fn a_failed_exchange_leaves_nothing_open() {
    let mut stand = Stand::unreachable(RegistryFailure::Dns).await;
    stand.pull("/v2/").await;
    assert_eq!(stand.failure().await, RegistryFailure::Dns);
    let failed = PulldStanding { failed: 1, ..PulldStanding::default() };
    assert_eq!(stand.standing(0).await, failed);

    let mut stand = Stand::new().await;
    stand.give_stream().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").await;
    registry.say(vec![b'x'; 50_000]).await;
    drop(registry);
    let (_, answer) = stand.answer().await;
    let stream = stand.stream(&answer);
    assert!(!stand.rest(stream).await.1);
    assert_eq!(stand.standing(0).await, PulldStanding { answered: 1, ..failed });
}
