//! Dials Cloudly: the addresses that the supervisor resolved, one TCP connection, TLS with the
//! supervisor's trust anchors, and the WebSocket upgrade at `/`.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use coreflow_ipc::messages::relayd::CloudlyEndpoint;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error, client::IntoClientRequest},
};

use crate::{
    constants::{CLOUDLY_FRAME, CLOUDLY_MESSAGE_LIMIT, CLOUDLY_QUEUE, CLOUDLY_QUEUE_BYTES, SESSION_PING},
    websocket::Limits,
};

/// How the session's socket is held.
pub const LIMITS: Limits = Limits {
    message: CLOUDLY_MESSAGE_LIMIT,
    queue: CLOUDLY_QUEUE,
    queue_bytes: CLOUDLY_QUEUE_BYTES,
    silence: SESSION_PING,
    frame: CLOUDLY_FRAME,
};

/// One address is tried this long before the next.
const CONNECT_BUDGET: Duration = Duration::from_secs(4);
/// Addresses that one dial tries.
const ADDRESSES: usize = 3;

/// Why a dial failed: a class for the log, and the code that the system gave (SES-16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialError {
    /// `dns`, `connect`, `tls`, `upgrade` or `timeout`.
    pub class: &'static str,
    /// Such as `connection refused` or an HTTP status; never a peer's words.
    pub code: String,
}

impl DialError {
    /// A failure of `class` with the code `code`.
    pub fn new(class: &'static str, code: impl Into<String>) -> Self {
        Self { class, code: code.into() }
    }
}

/// What the session runs over.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// Where and how Cloudly is dialled.
pub struct Dialer {
    endpoint: CloudlyEndpoint,
    tls: Arc<ClientConfig>,
}

impl Dialer {
    /// A dialer that trusts `anchors` (DER) alone.
    pub fn new(endpoint: CloudlyEndpoint, anchors: &[Vec<u8>]) -> Result<Self, DialError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(anchors.iter().map(|der| CertificateDer::from(der.as_slice())));
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| DialError::new("tls", "no protocol version"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { endpoint, tls: Arc::new(config) })
    }

    /// Opens the session's WebSocket on the first address that answers.
    pub async fn dial(&self, addresses: &[IpAddr]) -> Result<WebSocketStream<Box<dyn Transport>>, DialError> {
        let stream = self.connect(addresses).await?;
        let _ = stream.set_nodelay(true);
        let host = &self.endpoint.host;
        let transport: Box<dyn Transport> = if self.endpoint.tls {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let name =
                ServerName::try_from(bare.to_owned()).map_err(|_| DialError::new("tls", "server name"))?;
            let connector = TlsConnector::from(Arc::clone(&self.tls));
            let stream = connector.connect(name, stream).await;
            Box::new(stream.map_err(|error| DialError::new("tls", tls_code(&error)))?)
        } else {
            Box::new(stream)
        };
        let scheme = if self.endpoint.tls { "wss" } else { "ws" };
        let request = format!("{scheme}://{host}:{}/", self.endpoint.port)
            .into_client_request()
            .map_err(|_| DialError::new("upgrade", "request"))?;
        match client_async_with_config(request, transport, Some(LIMITS.config())).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => Err(DialError::new("upgrade", response.status().as_str())),
            Err(Error::Io(error)) => Err(DialError::new("upgrade", error.kind().to_string())),
            Err(_) => Err(DialError::new("upgrade", "protocol")),
        }
    }

    async fn connect(&self, addresses: &[IpAddr]) -> Result<TcpStream, DialError> {
        let mut last = DialError::new("dns", "no address");
        for address in addresses.iter().take(ADDRESSES) {
            let address = SocketAddr::new(*address, self.endpoint.port);
            match timeout(CONNECT_BUDGET, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = DialError::new("connect", error.kind().to_string()),
                Err(_) => last = DialError::new("timeout", "connect"),
            }
        }
        Err(last)
    }
}

/// The kind of a TLS failure, without a peer's words.
fn tls_code(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(error)) => {
            let kind = format!("{error:?}");
            let kind: String = kind.chars().take_while(char::is_ascii_alphanumeric).collect();
            format!("invalid certificate: {kind}")
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("alert: {alert:?}"),
        Some(_) => "protocol".to_owned(),
        None => error.kind().to_string(),
    }
}
