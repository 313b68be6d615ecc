//! Dialling the relay's listener, or any TLS server, under a name that DNS does not know: the
//! address is given, the name goes into SNI, certificate check and `host`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error as SocketError;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::carrier::socket_config;

/// How long TCP, TLS and the upgrade may take together.
const BOUND: Duration = Duration::from_secs(10);

/// A server to dial.
#[derive(Clone)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// The name its certificate has to carry.
    pub server_name: String,
    /// Trust and ALPN.
    pub tls: Arc<ClientConfig>,
}

/// Why a server was not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialFailure {
    /// TCP or TLS failed, in the library's words.
    Connection(String),
    /// The upgrade was answered with this HTTP status.
    Status(u16),
    /// The WebSocket handshake failed, in the library's words.
    Handshake(String),
    /// The whole took longer than ten seconds.
    Late,
}

impl fmt::Display for DialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(reason) => write!(f, "no connection: {reason}"),
            Self::Status(status) => write!(f, "the upgrade was answered with {status}"),
            Self::Handshake(reason) => write!(f, "no WebSocket: {reason}"),
            Self::Late => write!(f, "no connection within {} ms", BOUND.as_millis()),
        }
    }
}

impl std::error::Error for DialFailure {}

/// A TLS connection to `target`.
///
/// # Errors
/// [`DialFailure::Connection`] and [`DialFailure::Late`].
pub async fn tls(target: &Target) -> Result<TlsStream<TcpStream>, DialFailure> {
    bounded(connect(target)).await
}

/// A WebSocket to `target` at `path`, with `headers` beside those of the upgrade.
///
/// # Errors
/// [`DialFailure`].
pub async fn websocket(
    target: &Target,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<WebSocketStream<TlsStream<TcpStream>>, DialFailure> {
    bounded(upgrade(target, path, headers)).await
}

async fn bounded<T>(dial: impl Future<Output = Result<T, DialFailure>>) -> Result<T, DialFailure> {
    tokio::time::timeout(BOUND, dial).await.unwrap_or(Err(DialFailure::Late))
}

async fn connect(target: &Target) -> Result<TlsStream<TcpStream>, DialFailure> {
    let failed = |error: std::io::Error| DialFailure::Connection(error.to_string());
    let name = ServerName::try_from(target.server_name.clone())
        .map_err(|error| DialFailure::Connection(error.to_string()))?;
    let stream = TcpStream::connect(target.address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    TlsConnector::from(target.tls.clone()).connect(name, stream).await.map_err(failed)
}

async fn upgrade(
    target: &Target,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<WebSocketStream<TlsStream<TcpStream>>, DialFailure> {
    let stream = connect(target).await?;
    let address = format!("wss://{}:{}{path}", target.server_name, target.address.port());
    let failed = |reason: String| DialFailure::Handshake(reason);
    let mut request = address.into_client_request().map_err(|error| failed(error.to_string()))?;
    for (name, value) in headers {
        let name = http::HeaderName::try_from(*name).map_err(|error| failed(error.to_string()))?;
        let value = http::HeaderValue::try_from(*value).map_err(|error| failed(error.to_string()))?;
        request.headers_mut().insert(name, value);
    }
    match client_async_with_config(request, stream, Some(socket_config())).await {
        Ok((socket, _)) => Ok(socket),
        Err(SocketError::Http(response)) => Err(DialFailure::Status(response.status().as_u16())),
        Err(error) => Err(failed(error.to_string())),
    }
}
