//! One connection to Cloudly for one request: resolve, connect, TLS, POST, read a bounded answer, close.
//! Nothing is kept, so no buffer of it outlives the exchange (ARC-23).

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::failure::{AnswerFault, ExchangeError, TransportClass, system_code, tls_code};
use crate::configuration::CloudlyUrl;
use crate::constants::{EXCHANGE_ANSWER_BYTES, RESOLVED_ADDRESSES};

/// Sends `body` to the endpoint's `/typedrequest` and gives the answer's body.
///
/// The caller bounds the whole; `connect_bound` bounds the TCP connection.
pub(super) async fn post(
    url: &CloudlyUrl,
    tls: &Arc<ClientConfig>,
    body: Zeroizing<Vec<u8>>,
    connect_bound: Duration,
) -> Result<Zeroizing<Vec<u8>>, ExchangeError> {
    let addresses = lookup(&url.host(), url.port())
        .await
        .map_err(|code| ExchangeError::transport(TransportClass::Dns, code))?;
    let addresses = permitted(addresses, url.is_tls());
    let stream = connect(&addresses, connect_bound).await?;
    let request = Request::post("/typedrequest")
        .header(HOST, url.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from_owner(body)))
        .expect("an origin's authority and constant headers are valid");
    if !url.is_tls() {
        return speak(stream, request).await;
    }
    let name =
        ServerName::try_from(url.host()).map_err(|_| ExchangeError::transport(TransportClass::Tls, None))?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(name, stream)
        .await
        .map_err(|error| ExchangeError::transport(TransportClass::Tls, tls_code(&error)))?;
    speak(stream, request).await
}

/// The addresses of a host name, at most [`RESOLVED_ADDRESSES`]; an IP literal is its own address.
pub(super) async fn lookup(
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, Option<std::borrow::Cow<'static, str>>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| system_code(&error))?;
    let addresses: Vec<_> = found.take(RESOLVED_ADDRESSES).collect();
    if addresses.is_empty() { Err(None) } else { Ok(addresses) }
}

/// The addresses that a secret may be sent to: without TLS it stays on this host, whatever the name resolves
/// to.
#[must_use]
pub fn permitted(mut addresses: Vec<SocketAddr>, is_tls: bool) -> Vec<SocketAddr> {
    addresses.retain(|address| is_tls || address.ip().is_loopback());
    addresses
}

/// Connects to the first address that accepts. Each gets an equal share of the time that is left, so that a
/// silent one does not take it from the others.
///
/// # Errors
/// [`ExchangeError::Transport`].
pub async fn connect(addresses: &[SocketAddr], bound: Duration) -> Result<TcpStream, ExchangeError> {
    let end = Instant::now() + bound;
    let mut failure = ExchangeError::transport(TransportClass::Connect, None);
    for (tried, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - tried).expect("the number of addresses is bounded");
        let share = end.saturating_duration_since(Instant::now()) / left;
        failure = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => ExchangeError::transport(TransportClass::Connect, system_code(&error)),
            Err(_) => ExchangeError::timeout(),
        };
    }
    Err(failure)
}

/// Sends `request` on a connection that stands, and gives the body of its answer, which is bounded; the caller
/// bounds the time.
///
/// # Errors
/// [`ExchangeError::Transport`] and [`ExchangeError::Unusable`].
pub async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<Zeroizing<Vec<u8>>, ExchangeError> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| http_failure(&e))?;
    let answer = async { read(sender.send_request(request).await.map_err(|e| http_failure(&e))?).await };
    drive(answer, connection).await
}

/// Polls the connection until the answer is there. A connection that ends first has handed over all it had,
/// and the answer then ends of itself.
async fn drive<T>(answer: impl Future<Output = T>, connection: impl Future) -> T {
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    let mut ended = false;
    loop {
        tokio::select! {
            biased;
            done = &mut answer => return done,
            _ = &mut connection, if !ended => ended = true,
        }
    }
}

async fn read(response: Response<Incoming>) -> Result<Zeroizing<Vec<u8>>, ExchangeError> {
    let (head, mut body) = response.into_parts();
    if !head.status.is_success() {
        let code = head.status.as_u16().to_string();
        return Err(ExchangeError::transport(TransportClass::Http, Some(code.into())));
    }
    if head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(ExchangeError::unusable("answer", AnswerFault::Encoded));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(EXCHANGE_ANSWER_BYTES));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| http_failure(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if data.len() > EXCHANGE_ANSWER_BYTES - content.len() {
            return Err(ExchangeError::unusable("answer", AnswerFault::TooLong));
        }
        content.extend_from_slice(data);
    }
    Ok(content)
}

fn http_failure(error: &hyper::Error) -> ExchangeError {
    let mut source = std::error::Error::source(error);
    let mut code = None;
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<std::io::Error>() {
            code = system_code(inner);
        }
        source = inner.source();
    }
    let class = if error.is_parse() { TransportClass::Protocol } else { TransportClass::Closed };
    ExchangeError::transport(class, code)
}

/// Runs `work` until `end`.
pub(super) async fn until<T>(
    end: Instant,
    work: impl Future<Output = Result<T, ExchangeError>>,
) -> Result<T, ExchangeError> {
    timeout_at(end, work).await.unwrap_or_else(|_| Err(ExchangeError::timeout()))
}
