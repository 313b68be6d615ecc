//! What a stop leaves of the pulls.

use std::{sync::Arc, time::Duration};

use coreflow_ipc::messages::pulls::RegistryFailure;
use tokio::{sync::watch, time::timeout};

use super::stand::{Stand, whole};

/// A body that is under way at a stop comes whole, with the word that it is; one that waits for its answer gets it.
/// Then the link ends.
#[tokio::test]
async fn pulls_that_are_under_way_at_a_stop_end_whole() {
    let mut stand = Stand::new().await;
    stand.give_stream().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut carried = stand.accept().await;
    carried.request().await;
    carried.say("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").await;
    carried.say(vec![b'x'; 50_000]).await;
    let (_, answer) = stand.answer().await;
    let stream = stand.stream(&answer);
    let asked = stand.pull("/v2/").await;
    let mut waits = stand.accept().await;
    waits.request().await;

    stand.stop();
    let late = stand.pull("/v2/late").await;
    assert_eq!(stand.failure().await, RegistryFailure::Connect, "{late} begins after the stop");
    waits.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let (id, answer) = stand.answer().await;
    assert_eq!((id, whole(answer)), (asked, b"ok".to_vec()));
    carried.say(vec![b'x'; 50_000]).await;
    let (body, is_whole) = stand.rest(stream).await;
    assert_eq!((body.len(), is_whole), (100_000, true));
    assert!(stand.message().await.is_none(), "the link goes on");
}

/// Nor for a relayd that has not spoken yet.
#[tokio::test(start_paused = true)]
async fn a_stop_before_the_greeting_ends_the_link_at_once() {
    let (_own, end) = std::os::unix::net::UnixStream::pair().unwrap();
    let stop = watch::Sender::new(false);
    let (configured, notices, counts) = (Arc::default(), Arc::default(), Arc::default());
    let serving = super::serve(end.into(), configured, notices, counts, stop.subscribe());
    let mut serving = std::pin::pin!(serving);
    let before = tokio::time::Instant::now();
    // On this clock a wait passes as soon as nothing else can happen.
    assert!(timeout(Duration::from_millis(1), &mut serving).await.is_err(), "it waits for the greeting");
    stop.send_replace(true);
    serving.await;
    assert_eq!(before.elapsed(), Duration::from_millis(1));
}

/// A stop waits for nothing where nothing is under way.
#[tokio::test]
async fn a_stop_without_pulls_ends_the_link_at_once() {
    let mut stand = Stand::new().await;
    stand.stop();
    assert!(stand.message().await.is_none(), "the link goes on");
}
