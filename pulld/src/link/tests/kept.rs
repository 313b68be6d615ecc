use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use coreflow_ipc::messages::pulls::{RegistryFailure, WHOLE_BODY};
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::stand::{Conversation, Stand, certificate, whole};
use crate::constants::{KEPT_CONNECTIONS, KEPT_FOR, KEPT_SWEEP};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// PULL-01: a connection that the registry closed while it was kept fails no pull: one more is made, once.
#[tokio::test]
async fn a_stale_connection_is_replaced_once() {
    let mut stand = Stand::new().await;
    stand.pull("/v2/1").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say(OK).await;
    assert_eq!(whole(stand.answer().await.1), b"ok");

    // Closed as the request is on its way.
    stand.pull("/v2/2").await;
    assert!(registry.request().await.starts_with("GET /v2/2 "));
    drop(registry);
    let mut registry = stand.accept().await;
    assert!(registry.request().await.starts_with("GET /v2/2 "));
    registry.say(OK).await;
    assert_eq!(whole(stand.answer().await.1), b"ok");

    // Closed again, and the fresh one too: that is the answer.
    stand.pull("/v2/3").await;
    registry.request().await;
    drop(registry);
    stand.accept().await.request().await;
    assert_eq!(stand.failure().await, RegistryFailure::Closed);
    assert_eq!(stand.dials(), 3);
}

/// PULL-01: once something of an answer came, nothing is asked again.
#[tokio::test]
async fn an_answer_that_began_is_not_asked_for_again() {
    let mut stand = Stand::new().await;
    stand.pull("/v2/1").await;
    let mut registry = stand.accept().await;
    registry.request().await;
    registry.say(OK).await;
    stand.answer().await;
    stand.pull("/v2/2").await;
    registry.request().await;
    registry.say("HTTP/1.1 200").await;
    drop(registry);
    assert_eq!(stand.failure().await, RegistryFailure::Closed);
    assert_eq!(stand.dials(), 1);
}

/// PULL-01: connections are kept, no more than a number and no longer than a time; what the registry closes
/// goes too.
#[tokio::test]
async fn connections_are_kept_within_bounds() {
    let mut stand = Stand::new().await;
    let mut registries = Vec::new();
    for _ in 0..KEPT_CONNECTIONS + 6 {
        stand.pull("/v2/").await;
        let mut registry = stand.accept().await;
        registry.request().await;
        registries.push(registry);
    }
    for registry in &mut registries {
        registry.say(OK).await;
        assert_eq!(whole(stand.answer().await.1), b"ok");
    }
    // The earliest gave way to the latest.
    for registry in &mut registries[..6] {
        assert_eq!(registry.request().await, "");
    }
    stand.pull("/v2/").await;
    let last = registries.last_mut().unwrap();
    assert!(last.request().await.starts_with("GET /v2/ "));
    last.say(OK).await;
    assert_eq!(whole(stand.answer().await.1), b"ok");

    time::pause();
    let began = time::Instant::now();
    for registry in &mut registries[6..] {
        assert_eq!(registry.request().await, "");
    }
    assert!(began.elapsed() <= KEPT_FOR + KEPT_SWEEP + Duration::from_millis(10), "{:?}", began.elapsed());
    assert!(began.elapsed() >= KEPT_FOR / 2, "{:?}", began.elapsed());
    time::resume();
    stand.pull("/v2/").await;
    stand.accept().await;
    assert_eq!(stand.dials(), KEPT_CONNECTIONS + 7);
}

async fn greeted(stand: &Stand, acceptor: &TlsAcceptor) -> std::io::Result<TlsStream<TcpStream>> {
    acceptor.accept(stand.accept().await.0).await
}

/// PULL-01: over TLS, HTTP/1.1 is what is offered, and a body of any size crosses as it is.
#[tokio::test]
async fn a_body_crosses_from_tls() {
    let (anchor, served) = certificate("127.0.0.1", &["h2", "http/1.1"]);
    let acceptor = TlsAcceptor::from(served);
    let mut stand = Stand::tls(vec![anchor]).await;
    for length in [10, 3 << 20] {
        stand.give_stream().await;
        stand.pull("/v2/a/blobs/x").await;
        let stream = greeted(&stand, &acceptor).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let mut registry = Conversation(stream);
        registry.request().await;
        let sent: Vec<u8> = (0..length).map(|at| u8::try_from(at % 253).unwrap()).collect();
        let said = sent.clone();
        tokio::spawn(async move {
            let mut head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
                    .into_bytes();
            head.extend(said);
            registry.say(head).await;
            registry.request().await
        });
        let (_, answer) = stand.answer().await;
        if length > WHOLE_BODY {
            let stream = stand.stream(&answer);
            assert!(stand.rest(stream).await == (sent, true));
        } else {
            assert!(whole(answer) == sent);
        }
    }
}

/// Serves HTTP/2 alone with what `answer` makes. Counts what it greeted.
fn serve_http2<B>(
    registry: Arc<TcpListener>,
    acceptor: TlsAcceptor,
    answer: impl Fn() -> Response<B> + Clone + Send + 'static,
) -> (Arc<AtomicUsize>, impl Future<Output = ()>)
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let answered = move |request: Request<Incoming>| {
        let answer = answer();
        async move {
            assert_eq!(request.uri().path(), "/v2/a/blobs/x");
            assert_eq!(request.headers()["accept-encoding"], "identity");
            assert!(!request.headers().contains_key("host"));
            Ok::<_, Infallible>(answer)
        }
    };
    let serving = async move {
        loop {
            let (stream, _) = registry.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            counted.fetch_add(1, Ordering::Relaxed);
            let serving = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(answered.clone()));
            tokio::spawn(serving);
        }
    };
    (count, serving)
}

/// PULL-01: a registry that speaks HTTP/2 alone is found to, once, and pulls share its connection.
#[tokio::test]
async fn a_registry_of_http2_alone_is_spoken_to_in_http2() {
    let (anchor, served) = certificate("127.0.0.1", &["h2"]);
    let mut stand = Stand::tls(vec![anchor]).await;
    let answer = || Response::new(Full::new(Bytes::from(vec![b'x'; 1 << 20])));
    let (greeted, serving) = serve_http2(Arc::clone(&stand.registry), TlsAcceptor::from(served), answer);
    let serving = tokio::spawn(serving);
    for _ in 0..3 {
        stand.give_stream().await;
        stand.pull("/v2/a/blobs/x").await;
        let (_, answer) = stand.answer().await;
        assert_eq!((answer.status, answer.length), (200, Some(1 << 20)));
        let stream = stand.stream(&answer);
        assert!(stand.rest(stream).await == (vec![b'x'; 1 << 20], true));
    }
    // One dial found it out, one more serves.
    assert_eq!((stand.dials(), greeted.load(Ordering::Relaxed)), (2, 1));

    // PULL-30: one that is not read holds up no other.
    for _ in 0..4 {
        stand.give_stream().await;
        stand.pull("/v2/a/blobs/x").await;
    }
    let mut held = Vec::new();
    for _ in 0..3 {
        let (_, answer) = stand.answer().await;
        held.push(stand.stream(&answer));
    }
    let (_, answer) = stand.answer().await;
    let stream = stand.stream(&answer);
    assert!(stand.rest(stream).await == (vec![b'x'; 1 << 20], true));
    assert_eq!(greeted.load(Ordering::Relaxed), 1);
    serving.abort();
}

/// The first half of a body, and an error once the test lets it.
struct Half {
    first: Option<Bytes>,
    let_go: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Half {
    fn of(let_go: &Arc<Notify>) -> Self {
        let let_go = Box::pin(Arc::clone(let_go).notified_owned());
        Self { first: Some(Bytes::from(vec![b'x'; 60_000])), let_go }
    }
}

impl Body for Half {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.let_go.as_mut().poll(cx).map(|()| Some(Err(std::io::ErrorKind::BrokenPipe.into())))
    }
}

/// PULL-18: over HTTP/2 too a body that is cut is never said to be all, and the connection serves on.
#[tokio::test]
async fn a_body_that_is_cut_over_http2_is_not_said_to_be_all() {
    let (anchor, served) = certificate("127.0.0.1", &["h2"]);
    let mut stand = Stand::tls(vec![anchor]).await;
    let let_go = Arc::new(Notify::new());
    let told = Arc::clone(&let_go);
    let answer = move || Response::new(Half::of(&told));
    let (greeted, serving) = serve_http2(Arc::clone(&stand.registry), TlsAcceptor::from(served), answer);
    let serving = tokio::spawn(serving);
    for _ in 0..2 {
        stand.give_stream().await;
        stand.pull("/v2/a/blobs/x").await;
        let (_, answer) = stand.answer().await;
        assert_eq!(answer.length, None);
        let stream = stand.stream(&answer);
        let_go.notify_one();
        assert!(!stand.rest(stream).await.1);
    }
    assert_eq!(greeted.load(Ordering::Relaxed), 1);
    serving.abort();
}
