use coreflow_ipc::messages::pulls::{AnswerHeader, WHOLE_BODY};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time,
};

use super::{
    super::*,
    stand::{Stand, values, whole},
};
use crate::constants::{BODY_IDLE, NODE_IDLE};

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// PULL-18, PULL-21: a large body comes over a stream, byte for byte, with its length, and is said to be all.
#[tokio::test]
async fn a_large_body_comes_over_a_stream() {
    let mut stand = Stand::new().await;
    stand.give_stream().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    let sent = body(3 << 20);
    let (head, expected) = (
        format!("HTTP/1.1 206 P\r\nContent-Range: bytes 0-1/2\r\nContent-Length: {}\r\n\r\n", sent.len()),
        sent.clone(),
    );
    let registry = tokio::spawn(async move {
        registry.say(head).await;
        registry.say(sent).await;
        registry
    });
    let (_, answer) = stand.answer().await;
    assert_eq!((answer.status, answer.length), (206, Some(3 << 20)));
    let stream = stand.stream(&answer);
    assert!(stand.rest(stream).await == (expected, true));
    // Its connection serves the next.
    let mut registry = registry.await.unwrap();
    stand.pull("/v2/").await;
    assert!(registry.request().await.starts_with("GET /v2/ "));
    assert_eq!(stand.dials(), 1);
}

/// PULL-18: the first bytes of a body cross before the registry sends more, whatever length it states.
#[tokio::test]
async fn the_first_bytes_wait_for_no_more() {
    for head in
        ["Content-Length: 20\r\n\r\n0123456789", "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n"]
    {
        let mut stand = Stand::new().await;
        stand.give_stream().await;
        stand.pull("/v2/a/blobs/x").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        registry.say(format!("HTTP/1.1 200 OK\r\n{head}")).await;
        let (_, answer) = stand.answer().await;
        let mut stream = stand.stream(&answer);
        let mut first = [0; 10];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"0123456789");
        let rest = if answer.length.is_some() { "abcdefghij" } else { "3\r\nabc\r\n0\r\n\r\n" };
        registry.say(rest).await;
        let (rest, ended) = stand.rest(stream).await;
        assert!(ended && b"abcdefghij".starts_with(&rest) && rest.len() >= 3);
    }
}

/// PULL-18: a small body that is there at once crosses with its head, chunks and such that end with the
/// connection among them; at the bound it does, beyond it it does not.
#[tokio::test]
async fn a_small_body_crosses_with_its_head() {
    for (length, chunked) in [(0, false), (WHOLE_BODY, false), (5, true)] {
        let mut stand = Stand::new().await;
        stand.pull("/v2/a/manifests/x").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        let mut said = if chunked {
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n").into_bytes()
        } else {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes()
        };
        said.extend(body(length));
        if chunked {
            said.extend(b"\r\n0\r\n\r\n");
        }
        registry.say(said).await;
        let (_, answer) = stand.answer().await;
        assert_eq!(answer.length, (!chunked).then(|| u64::try_from(length).unwrap()));
        assert!(whole(answer) == body(length));
    }
    let mut stand = Stand::new().await;
    stand.give_stream().await;
    stand.pull("/v2/a/manifests/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
    registry.say(body(WHOLE_BODY + 1)).await;
    registry.0.shutdown().await.unwrap();
    let (_, answer) = stand.answer().await;
    let stream = stand.stream(&answer);
    assert!(stand.rest(stream).await == (body(WHOLE_BODY + 1), true));
}

/// PULL-22: a body that the registry encoded all the same crosses as it is, without its length; `identity` is no
/// encoding.
#[tokio::test]
async fn an_encoded_body_has_no_length() {
    for (encoding, length) in [("gzip", None), ("IDENTITY", Some(3)), ("identity, zstd", None)] {
        let mut stand = Stand::new().await;
        stand.pull("/v2/a/manifests/x").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        registry
            .say(format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: 3\r\n\r\nabc"))
            .await;
        let (_, answer) = stand.answer().await;
        assert_eq!(answer.length, length, "{encoding}");
        assert_eq!(values(&answer, AnswerHeader::ContentEncoding), [encoding]);
        assert_eq!(whole(answer), b"abc");
    }
}

/// PULL-18: a body that the registry cuts is never said to be all, under a length and in chunks.
#[tokio::test]
async fn a_cut_body_is_not_said_to_be_all() {
    for head in ["Content-Length: 100000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n186a0\r\n"] {
        let mut stand = Stand::new().await;
        stand.give_stream().await;
        stand.pull("/v2/a/blobs/x").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        registry.say(format!("HTTP/1.1 200 OK\r\n{head}")).await;
        registry.say(body(50_000)).await;
        drop(registry);
        let (_, answer) = stand.answer().await;
        let stream = stand.stream(&answer);
        assert!(stand.rest(stream).await == (body(50_000), false));
    }
}

/// PULL-30: a node that does not read holds the registry, after a bounded amount.
#[tokio::test]
async fn a_slow_reader_holds_the_registry() {
    let mut stand = Stand::new().await;
    stand.give_stream().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1u64 << 30)).await;
    let (_, answer) = stand.answer().await;
    let stream = stand.stream(&answer);
    // The whole of it would be 1 GiB; the buffers of two sockets take a few MiB.
    let (part, mut written) = (body(1 << 20), 0);
    while let Ok(count) = time::timeout(time::Duration::from_millis(300), registry.0.write(&part)).await {
        written += count.unwrap();
        assert!(written < 32 << 20, "nothing holds the registry");
    }
    // It goes on where it stood as soon as somebody reads.
    let reading = async {
        let mut stream = stream;
        stream.read_exact(&mut vec![0; written]).await.unwrap();
    };
    let writing = async { while registry.0.write_all(&part).await.is_ok() {} };
    tokio::select! {
        () = reading => {}
        () = writing => panic!("the connection is closed"),
    }
}

/// PULL-18: a body of which nothing moves is given up, whoever stands still; its connection is closed.
#[tokio::test]
async fn a_body_that_stands_still_is_given_up() {
    for registry_stops in [true, false] {
        let mut stand = Stand::new().await;
        stand.give_stream().await;
        stand.pull("/v2/a/blobs/x").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        registry.say("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").await;
        if registry_stops {
            registry.say("some").await;
        }
        let (_, answer) = stand.answer().await;
        let mut stream = stand.stream(&answer);
        let filling = tokio::spawn(async move {
            while !registry_stops && registry.0.write_all(&[0; 65536]).await.is_ok() {}
            registry.request().await
        });
        if registry_stops {
            stream.read_exact(&mut [0; 4]).await.unwrap();
        } else {
            // Until nothing goes in any more.
            let _ = time::timeout(time::Duration::from_millis(300), std::future::pending::<()>()).await;
        }
        time::pause();
        let began = time::Instant::now();
        assert_eq!(filling.await.unwrap(), "");
        let passed = began.elapsed();
        let bound = if registry_stops { BODY_IDLE } else { NODE_IDLE };
        assert!(passed <= bound + time::Duration::from_millis(10), "{passed:?}");
        assert!(passed >= bound / 2, "{passed:?}");
        time::resume();
        assert!(!stand.rest(stream).await.1);
    }
}

/// PULL-18: a node that left ends the exchange at once, also while the registry says nothing.
#[tokio::test]
async fn a_node_that_left_ends_the_exchange() {
    let mut stand = Stand::new().await;
    stand.give_stream().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\nsome").await;
    let (_, answer) = stand.answer().await;
    drop(stand.stream(&answer));
    assert_eq!(registry.request().await, "");

    // And so does one that leaves before the answer.
    let id = stand.pull("/v2/a/blobs/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    stand.say(RelaydToPulld::Cancel { id }).await;
    assert_eq!(registry.request().await, "");
}

/// PULL-29: with the link every exchange ends.
#[tokio::test]
async fn a_link_that_ends_takes_its_exchanges_along() {
    let mut stand = Stand::new().await;
    stand.give_stream().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\nsome").await;
    let (_, answer) = stand.answer().await;
    let mut stream = stand.stream(&answer);
    stream.read_exact(&mut [0; 4]).await.unwrap();
    drop(stand);
    assert_eq!(registry.request().await, "");
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

/// PULL-30: a body waits for a socket pair that relayd has yet to hand over.
#[tokio::test]
async fn a_body_waits_for_a_stream() {
    let mut stand = Stand::new().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", WHOLE_BODY + 1)).await;
    registry.say(body(WHOLE_BODY + 1)).await;
    stand.give_stream().await;
    let (_, answer) = stand.answer().await;
    let stream = stand.stream(&answer);
    assert!(stand.rest(stream).await == (body(WHOLE_BODY + 1), true));
}
