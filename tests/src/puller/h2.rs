//! A container client over HTTP/2: one connection of one or many pulls, each read as the test says, with the
//! windows that the test gives them.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::client::TlsStream;

use super::{BOUND, Pulled, host};
use crate::dial::{Target, tls};
use crate::waiting::within;

/// Bytes that the streams of a connection may bring together before any is read, where a stream's own window is
/// the test's: more than all of them are given.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// A connection. It ends once this and all pulls on it are dropped.
pub struct H2Node {
    sender: http2::SendRequest<UnsyncBoxBody<Bytes, Infallible>>,
    host: String,
    connection: Arc<Connection>,
}

/// The task of a connection.
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl H2Node {
    /// Speaks HTTP/2 on `stream` to `host`. A stream brings no more than `window` bytes that are not read;
    /// `None` is what the library holds to be good.
    ///
    /// # Panics
    /// When the relay does not speak it.
    pub async fn over(stream: TlsStream<TcpStream>, host: &str, window: Option<u32>) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        if window.is_some() {
            builder.initial_stream_window_size(window).initial_connection_window_size(CONNECTION_WINDOW);
        }
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.expect("a settled protocol is spoken");
        let connection = Arc::new(Connection(tokio::spawn(connection).abort_handle()));
        Self { sender, host: host.to_owned(), connection }
    }

    /// Asks on a stream of its own and reads the head of the answer.
    ///
    /// # Panics
    /// When the request cannot be made.
    pub async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
    ) -> H2Pull {
        let mut request = Request::builder().method(method).uri(format!("https://{}{path}", self.host));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.boxed_unsync()).expect("a test's request can be made");
        let connection = Arc::clone(&self.connection);
        let Ok(response) = self.sender.send_request(request).await else {
            return H2Pull { pulled: Pulled::default(), body: None, _connection: connection };
        };
        let (head, body) = response.into_parts();
        let text = |value: &http::HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let pulled = Pulled { status: head.status.as_u16(), headers, ..Pulled::default() };
        H2Pull { pulled, body: Some(body), _connection: connection }
    }

    /// A GET without a body, whose head comes in time.
    ///
    /// # Panics
    /// When it does not.
    pub async fn get(&mut self, path: &str) -> H2Pull {
        let asked = self.ask("GET", path, &[], Full::default());
        within(BOUND, "head of an answer over HTTP/2", asked).await.expect("in time")
    }
}

/// A pull over HTTP/2 whose body is read as the test says. Dropping it leaves.
pub struct H2Pull {
    /// The answer, as far as it came.
    pub pulled: Pulled,
    body: Option<Incoming>,
    _connection: Arc<Connection>,
}

impl H2Pull {
    /// Asks on a connection of its own and reads the head of the answer.
    ///
    /// # Panics
    /// When the relay cannot be dialled over HTTP/2, or a request cannot be made.
    pub async fn begin(target: &Target, method: &str, path: &str, headers: &[(&str, &str)]) -> Self {
        let begun = async {
            let stream = tls(target).await.expect("the relay is reached");
            let mut node = H2Node::over(stream, &host(target), None).await;
            node.ask(method, path, headers, Full::default()).await
        };
        within(BOUND, "head of an answer over HTTP/2", begun).await.expect("in time")
    }

    /// Reads the next part of the body; false at its end, which is its own where `complete` is set then.
    pub async fn more(&mut self) -> bool {
        let Some(body) = &mut self.body else { return false };
        match body.frame().await {
            None => self.pulled.complete = true,
            Some(Err(_)) => {}
            Some(Ok(frame)) => {
                self.pulled.body.extend(frame.into_data().unwrap_or_default());
                return true;
            }
        }
        false
    }

    /// Reads the rest.
    pub async fn whole(mut self) -> Pulled {
        while self.more().await {}
        std::mem::take(&mut self.pulled)
    }
}
