//! A node that costs little: it dials, registers, and asks one measured request at a time. It verifies no
//! certificate and resumes no TLS session: each dial is a full handshake for the server, and as little as
//! possible for the client.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::exchange::Question;
use super::head::Head;
use super::websocket::WebSocket;
use crate::envelope::{Ids, Message, request};
use crate::unverified::Unverified;

/// How long dialling, upgrade and registration may take together.
const BOUND: Duration = Duration::from_secs(30);
/// How long an answer may take: above every budget of a relay.
const ANSWER: Duration = Duration::from_secs(12);

/// Nodes that share a source address. Each node has its own in a cluster; a listener that counts connections
/// by source must not take them for one.
const PER_SOURCE: usize = 16;

/// A server to dial, and how.
#[derive(Clone)]
pub struct Dial {
    address: SocketAddr,
    name: ServerName<'static>,
    host: String,
    tls: TlsConnector,
}

/// What went wrong with a node, in words.
pub type Trouble = String;

impl Dial {
    /// A server at `address` that serves `host`.
    ///
    /// # Panics
    /// When `host` is no host name.
    pub fn new(address: SocketAddr, host: &str) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring serves the default protocol versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified))
            .with_no_client_auth();
        tls.resumption = Resumption::disabled();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(host.to_owned()).expect("the relay's host is a name");
        let host = format!("{host}:{}", address.port());
        Self { address, name, host, tls: TlsConnector::from(Arc::new(tls)) }
    }

    /// A TLS connection from the source address of the node `number`.
    ///
    /// # Errors
    /// TCP's or TLS's words.
    pub async fn tls(&self, number: usize) -> Result<TlsStream<TcpStream>, Trouble> {
        let connect = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((source(number), 0)))?;
            let stream = socket.connect(self.address).await?;
            stream.set_nodelay(true)?;
            self.tls.connect(self.name.clone(), stream).await
        };
        connect.await.map_err(|error| format!("dialling: {error}"))
    }
}

fn source(number: usize) -> Ipv4Addr {
    let group = number / PER_SOURCE;
    let part = |value: usize| u8::try_from(value).expect("it is a remainder");
    Ipv4Addr::new(127, 0, part(group / 250 % 250), part(1 + group % 250))
}

/// A registered node.
pub struct Node {
    socket: WebSocket<TlsStream<TcpStream>>,
    question: Question,
}

impl Node {
    /// Dials and registers the node `number`.
    ///
    /// # Errors
    /// [`Trouble`].
    pub async fn register(dial: &Dial, number: usize) -> Result<Self, Trouble> {
        let registering = async {
            let mut socket = upgrade(dial, number).await?;
            let body = json!({
                "protocol": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"},
                "authorization": format!("bearer-of-node-{number}"),
                "nodeId": format!("node-{number}"),
                "nodeInstanceNonce": format!("nonce-{number}"),
                "credentialGeneration": 1,
            });
            let text = request("registerPalletRuntimeSession", &body.to_string(), &Ids::fresh());
            socket.push(text.as_bytes());
            let words = |error: std::io::Error| format!("registering: {error}");
            let answer = socket.next().await.map_err(words)?.ok_or("closed while it registered")?;
            let answer =
                Message::parse(&String::from_utf8_lossy(&answer)).map_err(|error| error.0.to_owned())?;
            let outcome = answer.outcome().map_err(|refusal| format!("registration refused: {refusal}"))?;
            let outcome: BTreeMap<&str, &RawValue> =
                serde_json::from_str(outcome.get()).map_err(|error| error.to_string())?;
            let binding = outcome.get("session").ok_or("registered without a binding")?;
            Ok(Self { socket, question: Question::new(binding.get()) })
        };
        timeout(BOUND, registering)
            .await
            .unwrap_or_else(|_| Err("dial and registration took too long".to_owned()))
    }

    /// Asks the measured request once and waits for its answer.
    ///
    /// # Errors
    /// [`Trouble`], a refusal included.
    pub async fn ask(&mut self) -> Result<(), Trouble> {
        self.socket.push(self.question.ask());
        let answer = timeout(ANSWER, self.socket.next()).await.map_err(|_| "no answer in time")?;
        let answer = answer.map_err(|error| error.to_string())?.ok_or("closed while it waited")?;
        if self.question.answered_by(&answer) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&answer);
        Err(format!("answered with something else: {}", text.chars().take(200).collect::<String>()))
    }

    /// Stays connected without a word, pings answered, until the server closes. Cancelled, it loses nothing but
    /// messages that nobody asked for.
    pub async fn idle(&mut self) {
        while let Ok(Some(_)) = self.socket.next().await {}
    }
}

async fn upgrade(dial: &Dial, number: usize) -> Result<WebSocket<TlsStream<TcpStream>>, Trouble> {
    let mut stream = dial.tls(number).await?;
    let head = format!(
        "GET / HTTP/1.1\r\nhost: {}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        dial.host
    );
    let words = |error: std::io::Error| format!("upgrading: {error}");
    stream.write_all(head.as_bytes()).await.map_err(words)?;
    stream.flush().await.map_err(words)?;
    let mut arrived = BytesMut::new();
    let head =
        Head::read(&mut stream, &mut arrived).await.map_err(words)?.ok_or("closed while it upgraded")?;
    if !head.line.contains(" 101 ") {
        return Err(format!("the upgrade was answered with {}", head.line));
    }
    Ok(WebSocket::upgraded(stream, arrived, true))
}

/// One handshake from the source of the node `number`, then an orderly end. The server's own end is waited for,
/// so that its handshake is known to be over.
///
/// # Errors
/// [`Trouble`].
pub async fn shake_hands(dial: &Dial, number: usize) -> Result<(), Trouble> {
    let once = async {
        let mut stream = dial.tls(number).await?;
        stream.shutdown().await.map_err(|error| format!("ending: {error}"))?;
        let mut rest = [0; 64];
        // However the server's side of the end looks, it is over.
        while matches!(stream.read(&mut rest).await, Ok(1..)) {}
        Ok(())
    };
    timeout(BOUND, once).await.unwrap_or_else(|_| Err("a handshake took too long".to_owned()))
}
