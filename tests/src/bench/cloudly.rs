//! A Cloudly that costs little: it does what a relay needs to open and to carry nodes, answers the measured
//! exchange from a built text, and remembers nothing. It runs on a thread of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::exchange::Answers;
use super::head::Head;
use super::websocket::WebSocket;
use crate::authority::{Authority, server_config};
use crate::envelope::{self, Message, Outcome, Refusal, UNKNOWN_METHOD, raw};
use crate::free_port::free_port;

const BACKLOG: u32 = 4096;
/// How long an identity lives, in milliseconds: beyond any run.
const IDENTITY_LIFE: u64 = 24 * 60 * 60 * 1000;

/// The facts it states.
pub struct Facts {
    /// The origin of the relay it has to do with.
    pub origin: String,
    /// The host name of that origin, for which it hands out a certificate.
    pub host: String,
}

/// The running Cloudly; dropping it ends it with every connection.
pub struct Cloudly {
    port: u16,
    shared: Arc<Shared>,
    cut: watch::Sender<u64>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    facts: Facts,
    authority: Authority,
    acceptances: AtomicU64,
    registrations: AtomicU64,
}

impl Cloudly {
    /// Listens on 127.0.0.1 with a certificate of `authority` for `localhost` and for the origin's host.
    ///
    /// # Errors
    /// No port, or no thread.
    pub fn start(authority: &Authority, facts: Facts) -> io::Result<Self> {
        let issued = authority.issue(&["localhost", &facts.host]);
        let acceptor = TlsAcceptor::from(server_config(&issued, &["http/1.1"]));
        let shared = Arc::new(Shared {
            facts,
            authority: authority.clone(),
            acceptances: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
        });
        let port = free_port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (cut, cuts) = watch::channel(0);
        let (end, ended) = oneshot::channel();
        let (bound, binding) = std::sync::mpsc::channel();
        let serving = shared.clone();
        let thread = std::thread::Builder::new().name("cloudly".to_owned()).spawn(move || {
            runtime.block_on(async {
                let listener = match listen(port) {
                    Ok(listener) => listener,
                    Err(error) => return drop(bound.send(Err(error))),
                };
                drop(bound.send(Ok(())));
                tokio::select! {
                    () = accept(&serving, &listener, &acceptor, &cuts) => {}
                    _ = ended => {}
                }
            });
        })?;
        binding.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        Ok(Self { port, shared, cut, end: Some(end), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// `CLOUDLY_URL`.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// How many relay registrations it has accepted.
    pub fn acceptances(&self) -> u64 {
        self.shared.acceptances.load(Ordering::SeqCst)
    }

    /// How many node registrations it has answered with a binding.
    pub fn registrations(&self) -> u64 {
        self.shared.registrations.load(Ordering::SeqCst)
    }

    /// Drops every WebSocket at once, without a close.
    pub fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Cloudly {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.listen(BACKLOG)
}

async fn accept(
    shared: &Arc<Shared>,
    listener: &TcpListener,
    acceptor: &TlsAcceptor,
    cuts: &watch::Receiver<u64>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let (shared, acceptor, mut cuts) = (shared.clone(), acceptor.clone(), cuts.clone());
        cuts.mark_unchanged();
        tokio::spawn(async move {
            drop(stream.set_nodelay(true));
            let Ok(stream) = acceptor.accept(stream).await else { return };
            // A peer that goes away in the middle of something has ended, which is all there is to know.
            drop(serve(&shared, stream, cuts).await);
        });
    }
}

async fn serve(
    shared: &Shared,
    mut stream: TlsStream<TcpStream>,
    mut cuts: watch::Receiver<u64>,
) -> io::Result<()> {
    let mut arrived = BytesMut::new();
    while let Some(head) = Head::read(&mut stream, &mut arrived).await? {
        if let Some(key) = head.field("sec-websocket-key") {
            let accept = derive_accept_key(key.as_bytes());
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
            let socket = WebSocket::upgraded(stream, arrived, false);
            return tokio::select! {
                ended = converse(shared, socket) => ended,
                _ = cuts.changed() => Ok(()),
            };
        }
        let length = head.field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        while arrived.len() < length {
            if stream.read_buf(&mut arrived).await? == 0 {
                return Ok(());
            }
        }
        let body = arrived.split_to(length);
        let answer = match Message::parse(&String::from_utf8_lossy(&body)) {
            Ok(message) => written(shared, &message),
            Err(_) => "{}".to_owned(),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// Answers everything that has arrived, then sends the answers in one write.
async fn converse(shared: &Shared, mut socket: WebSocket<TlsStream<TcpStream>>) -> io::Result<()> {
    let answers = Answers::default();
    let mut answer = String::new();
    while let Some(mut message) = socket.next().await? {
        loop {
            let text = std::str::from_utf8(&message).map_err(|_| io::ErrorKind::InvalidData)?;
            if Answers::know(text) {
                if answers.write(text, &mut answer).is_some() {
                    socket.push(answer.as_bytes());
                }
            } else if let Ok(message) = Message::parse(text) {
                socket.push(written(shared, &message).as_bytes());
            }
            match socket.buffered()? {
                Some(next) => message = next,
                None => break,
            }
        }
        socket.flush().await?;
    }
    Ok(())
}

fn written(shared: &Shared, message: &Message) -> String {
    match judge(shared, message) {
        Ok(body) => envelope::answer(&message.method, body.get(), &message.ids),
        Err(refusal) => envelope::refusal(&message.method, &refusal, &message.ids),
    }
}

/// What Cloudly says by itself to whoever asks; it verifies nothing.
fn judge(shared: &Shared, message: &Message) -> Outcome {
    let Facts { origin, host } = &shared.facts;
    let offer = json!({"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"});
    let body: Value = serde_json::from_str(message.request()).unwrap_or_default();
    let answer = match message.method.as_str() {
        "getIdentityByToken" => json!({"identity": {
            "name": "relay of the bench", "userId": "user-bench", "type": "machine", "role": "cluster",
            "expiresAt": now_ms() + IDENTITY_LIFE, "jwt": "jwt-of-the-bench",
        }}),
        "registerCloudlyClientSession" => json!({"protocol": offer}),
        "registerClusterRelay" => {
            let generation = shared.acceptances.fetch_add(1, Ordering::SeqCst) + 1;
            json!({
                "protocol": offer, "origin": origin,
                "credential": {"id": "relay-credential-1", "generation": 1},
                "registration": {"id": "relay-registration-1", "generation": generation},
            })
        }
        "getClusterConfig" => json!({
            "configData": {"id": "cluster-1", "data": {
                "name": "bench", "nodes": [{"id": "relay-node", "data": {"clusterId": "cluster-1"}}],
                "relay": {"origin": origin},
            }},
            "services": [], "corestorePublicationGrants": [],
        }),
        "getCertificateForDomain" => {
            let issued = shared.authority.issue(&[host]);
            json!({"certificate": {
                "id": "certificate-1", "domainName": host, "created": issued.created,
                "validUntil": issued.valid_until, "privateKey": issued.key_pem, "publicKey": issued.chain_pem,
                "csr": "",
            }})
        }
        "getClusterRouteTable" => json!({"routeTable": null}),
        "getClusterVpnNetwork" => json!({"network": null}),
        "registerPalletRuntimeSession" => {
            let generation = shared.registrations.fetch_add(1, Ordering::SeqCst) + 1;
            let node = &body["nodeId"];
            json!({
                "session": {
                    "sessionId": format!("session-{generation}"), "nodeId": node, "clusterId": "cluster-1",
                    "generation": generation,
                },
                "protocol": offer,
            })
        }
        _ => return Err(Refusal::new(UNKNOWN_METHOD)),
    };
    Ok(raw(&answer.to_string()))
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("the clock is past 1970").as_millis())
        .expect("it is before the year 500 million")
}
