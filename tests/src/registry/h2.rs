//! The registry over HTTP/2.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, join};

use super::{Asked, Duplex, Registry};

/// What is left of the client's preface after its first empty line.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// An answer.
#[derive(Clone, Default)]
pub struct H2Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    broken: bool,
}

impl H2Answer {
    /// An answer without headers and body.
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// With a further header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a body, whose length is stated only by a header that the test gives.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Its stream is reset once the body is sent.
    #[must_use]
    pub fn broken(mut self) -> Self {
        self.broken = true;
        self
    }
}

#[derive(Debug)]
struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broken off by the script")
    }
}

impl std::error::Error for Broken {}

/// Serves a connection of which the head of the preface was read, and `seen` after it.
pub(super) async fn serve(registry: &Registry, connection: u64, stream: Box<dyn Duplex>, seen: Vec<u8>) {
    let (from, to) = tokio::io::split(stream);
    let stream = join(std::io::Cursor::new([PREFACE, &seen].concat()).chain(from), to);
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(registry, connection, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // An end in disorder is the client's to make.
    drop(server.serve_connection(TokioIo::new(stream), service).await);
}

fn answer(
    registry: &Registry,
    connection: u64,
    request: &Request<Incoming>,
) -> Response<StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Broken>> + use<>>> {
    let uri = request.uri();
    let text = |value: &http::HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    let authority = uri.authority().map(|authority| (":authority".to_owned(), authority.to_string()));
    let headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
    let asked = Asked {
        connection,
        method: request.method().to_string(),
        target: uri.path_and_query().map_or_else(String::new, ToString::to_string),
        version: "HTTP/2.0".to_owned(),
        headers: authority.into_iter().chain(headers).collect(),
    };
    let script = registry.note(asked.clone()).h2.clone();
    registry.shared.change.announce();
    let given = script(&asked);
    let mut response = Response::builder().status(given.status);
    for (name, value) in &given.headers {
        response = response.header(name, value);
    }
    let body = (!given.body.is_empty()).then(|| Ok(Frame::data(given.body)));
    let end = given.broken.then_some(Err(Broken));
    let body = StreamBody::new(stream::iter(body.into_iter().chain(end)));
    response.body(body).expect("a test's answer has a status and headers that exist")
}
