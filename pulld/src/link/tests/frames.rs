use std::{sync::Arc, time::Duration};

use coreflow_ipc::messages::pulls::{PulldToRelayd, RegistryFailure};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::stand::{Stand, certificate, whole};
use crate::constants::{KEPT_FOR, KEPT_SWEEP};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` of the static table.
const OK: &[u8] = &[0x88];
/// `x: y`, new and not kept.
const TRAILER: &[u8] = &[0, 1, b'x', 1, b'y'];
const NO_ERROR: [u8; 4] = [0, 0, 0, 0];
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const CANCEL: [u8; 4] = [0, 0, 0, 8];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// GOAWAY after stream `last`.
fn goaway(last: u32, reason: [u8; 4]) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), reason].concat())
}

/// A registry's end of a connection, which says any frames.
struct Registry {
    stream: TlsStream<TcpStream>,
    heard: Vec<u8>,
}

impl Registry {
    async fn accept(stand: &Stand, served: &Arc<ServerConfig>) -> Self {
        let stream = stand.accept().await.0;
        let stream = TlsAcceptor::from(Arc::clone(served)).accept(stream).await.unwrap();
        let mut registry = Self { stream, heard: Vec::new() };
        registry.say(&[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])]).await;
        registry
    }

    async fn say(&mut self, frames: &[Vec<u8>]) {
        self.stream.write_all(&frames.concat()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// How many requests were heard.
    fn requests(&self) -> usize {
        let (mut requests, mut at) = (0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len());
        while let Some(head) = self.heard.get(at..at + 9) {
            requests += usize::from(head[3] == HEADERS);
            at += 9 + usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        }
        requests
    }

    /// Answers the request of `stream`.
    async fn answer(&mut self, stream: u32) {
        self.say(&[frame(HEADERS, END_HEADERS, stream, OK), frame(DATA, END_STREAM, stream, b"ok")]).await;
    }

    /// The connection is closed, with whatever is said before.
    async fn closed(&mut self) {
        while self.stream.read_buf(&mut self.heard).await.is_ok_and(|count| count > 0) {}
    }

    async fn asked(&mut self, requests: usize) {
        while self.requests() < requests {
            assert!(self.stream.read_buf(&mut self.heard).await.unwrap() > 0, "the connection ended");
        }
    }
}

/// A registry of HTTP/2 alone, which is known to be one.
async fn stand() -> (Stand, Arc<ServerConfig>) {
    let (anchor, served) = certificate("127.0.0.1", &["h2"]);
    let stand = Stand::tls(vec![anchor]).await;
    stand.refuses_http1();
    (stand, served)
}

/// Whether a body of which `begun` came and then `end` is said to be all.
async fn is_said_to_be_all(end: &[Vec<u8>]) -> bool {
    let (mut stand, served) = stand().await;
    stand.give_stream().await;
    stand.pull("/v2/a/blobs/x").await;
    let mut registry = Registry::accept(&stand, &served).await;
    registry.asked(1).await;
    registry.say(&[frame(HEADERS, END_HEADERS, 1, OK), frame(DATA, 0, 1, &[b'x'; 10_000])]).await;
    registry.say(&vec![frame(DATA, 0, 1, &[b'x'; 10_000]); 3]).await;
    let (_, answer) = stand.answer().await;
    assert_eq!(answer.length, None);
    let mut stream = stand.stream(&answer);
    stream.read_exact(&mut [0; 40_000]).await.unwrap();
    registry.say(end).await;
    let (rest, all) = stand.rest(stream).await;
    assert!(rest.is_empty() || rest == b"y");
    all
}

/// PULL-18: over HTTP/2 the end of a body is END_STREAM and nothing else. A stream that is reset and a connection
/// that is given up are none, also where the reason that they state is that there is no error.
#[tokio::test]
async fn only_the_end_of_its_stream_is_the_end_of_a_body() {
    for (end, all) in [
        (vec![frame(DATA, END_STREAM, 1, b"y")], true),
        (vec![frame(DATA, END_STREAM, 1, b"")], true),
        (vec![frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILER)], true),
        (vec![frame(DATA, END_STREAM, 1, b"y"), frame(RST_STREAM, 0, 1, &NO_ERROR)], true),
        (vec![frame(DATA, 0, 1, b"y"), frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILER)], true),
        (vec![goaway(1, NO_ERROR), frame(DATA, END_STREAM, 1, b"y")], true),
        (vec![frame(RST_STREAM, 0, 1, &NO_ERROR)], false),
        (vec![frame(DATA, 0, 1, b"y"), frame(RST_STREAM, 0, 1, &NO_ERROR)], false),
        (vec![frame(RST_STREAM, 0, 1, &CANCEL)], false),
        (vec![goaway(0, NO_ERROR)], false),
    ] {
        assert_eq!(is_said_to_be_all(&end).await, all, "{end:?}");
    }
}

/// What becomes of a pull whose answer is `said`, after which the connection is closed or reset.
async fn failure_after(said: &[Vec<u8>], reset: bool) -> RegistryFailure {
    let (mut stand, served) = stand().await;
    stand.pull("/v2/").await;
    let mut registry = Registry::accept(&stand, &served).await;
    registry.asked(1).await;
    registry.say(said).await;
    if reset {
        registry.stream.get_ref().0.set_zero_linger().unwrap();
    }
    drop(registry);
    stand.failure().await
}

/// PULL-26: over HTTP/2 too a connection that ends before the answer is a close, and so is one that the registry
/// gives up in order and a request that it did not take; what breaks HTTP/2 is a failure of the protocol.
#[tokio::test]
async fn a_close_before_the_answer_is_its_class_over_http2() {
    for (said, reset, class) in [
        (vec![], false, RegistryFailure::Closed),
        (vec![], true, RegistryFailure::Closed),
        (vec![goaway(0, NO_ERROR)], false, RegistryFailure::Closed),
        (vec![goaway(1, NO_ERROR)], false, RegistryFailure::Closed),
        (vec![frame(RST_STREAM, 0, 1, &REFUSED_STREAM)], false, RegistryFailure::Closed),
        (vec![frame(RST_STREAM, 0, 1, &PROTOCOL_ERROR)], false, RegistryFailure::Protocol),
        (vec![frame(DATA, 0, 0, b"x")], false, RegistryFailure::Protocol),
    ] {
        assert_eq!(failure_after(&said, reset).await, class, "{said:?}");
    }
}

/// PULL-01: a connection of HTTP/2 that nobody uses is closed after a time too.
#[tokio::test]
async fn an_unused_connection_of_http2_is_closed() {
    let (mut stand, served) = stand().await;
    stand.pull("/v2/").await;
    let mut registry = Registry::accept(&stand, &served).await;
    registry.asked(1).await;
    registry.answer(1).await;
    assert_eq!(whole(stand.answer().await.1), b"ok");
    time::pause();
    let began = time::Instant::now();
    time::timeout(2 * KEPT_FOR, registry.closed()).await.unwrap();
    assert!(began.elapsed() <= KEPT_FOR + KEPT_SWEEP + Duration::from_millis(10), "{:?}", began.elapsed());
    assert!(began.elapsed() >= KEPT_FOR / 2, "{:?}", began.elapsed());
}

/// PULL-01: a pull that shares a connection which another has just made is asked again on a newer one when that
/// fails; who made it is not.
#[tokio::test]
async fn who_shares_a_connection_is_asked_again_once() {
    let (mut stand, served) = stand().await;
    let maker = stand.pull("/v2/1").await;
    let sharer = stand.pull("/v2/2").await;
    let mut registry = Registry::accept(&stand, &served).await;
    registry.asked(2).await;
    drop(registry);
    let mut registry = Registry::accept(&stand, &served).await;
    registry.asked(1).await;
    registry.answer(1).await;
    let (mut failed, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        match stand.message().await.unwrap() {
            PulldToRelayd::Failed { id, .. } => failed.push(id),
            PulldToRelayd::Answer { id, .. } => answered.push(id),
            PulldToRelayd::Hello(_) | PulldToRelayd::Ended { .. } | PulldToRelayd::Cut { .. } => {
                panic!("no answer")
            }
        }
    }
    assert_eq!((failed, answered, stand.dials()), (vec![maker], vec![sharer], 2));
}
