//! The registry as Cloudly publishes it: a token endpoint at `/v2/token` beside a docker-registry, in one
//! origin. Each node has a credential of its own, which buys it tokens; it is Cloudly that decides who may
//! pull what (PULL-09). What is asked is recorded, and a layer can be cut in its middle.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::docker_registry;
use super::token::{Access, LIFETIME, SERVICE, Signer};
use crate::free_port::free_port;

/// Where tokens are issued: below `/v2/`, where a relay serves it too (PULL-31).
pub(super) const TOKEN_PATH: &str = "/v2/token";

/// Who asks, as far as a request says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asker {
    /// Nobody.
    Nameless,
    /// The node of this name, by its credential.
    Node(String),
    /// Whoever holds a token.
    Bearer,
    /// By other means.
    Other,
}

/// A request and what was answered.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The method.
    pub(super) method: Method,
    /// The path without the query.
    pub(super) path: String,
    /// The query, empty without one.
    pub(super) query: String,
    /// Who asked.
    pub(super) asker: Asker,
    /// Every header of the request but the credential, by name; repeated ones joined by a comma.
    pub(super) headers: BTreeMap<String, String>,
    /// The status of the answer.
    pub(super) status: u16,
    sent: Arc<AtomicU64>,
}

impl Seen {
    /// How many bytes of the answer's body have been given out.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    #[cfg(test)]
    pub(super) fn of_test(method: Method, path: &str, asker: Asker, status: u16, sent: u64) -> Self {
        Self {
            method,
            path: path.to_owned(),
            query: String::new(),
            asker,
            headers: BTreeMap::new(),
            status,
            sent: Arc::new(AtomicU64::new(sent)),
        }
    }
}

/// The running origin, over plain HTTP. Dropping it ends it with all its connections.
pub(super) struct Origin {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

struct Shared {
    registry: SocketAddr,
    signer: Arc<Signer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Node to secret.
    nodes: BTreeMap<String, String>,
    /// What nobody may pull.
    withheld: String,
    seen: Vec<Seen>,
    tokens: Vec<String>,
    /// The blob whose next answer ends after so many bytes.
    cut: Option<(String, u64)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Origin {
    /// Listens on a loopback port in front of `registry`, whose tokens `signer` signs. No token allows
    /// anything of the repository `withheld`.
    ///
    /// # Errors
    /// The socket's.
    pub(super) async fn start(
        registry: SocketAddr,
        signer: Arc<Signer>,
        withheld: &str,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).await?;
        let address = listener.local_addr()?;
        let state = State { withheld: withheld.to_owned(), ..State::default() };
        let shared = Arc::new(Shared { registry, signer, state: Mutex::new(state) });
        let task = tokio::spawn(listen(shared.clone(), listener));
        Ok(Self { shared, address, task })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Issues a node its credential, and gives the secret.
    pub(super) fn issue(&self, node: &str) -> String {
        let secret = format!("registry-secret-{}", crate::envelope::random_hex::<16>());
        self.shared.state().nodes.insert(node.to_owned(), secret.clone());
        secret
    }

    /// Drops the connection of the next answer with the blob of `digest` after `bytes` of it.
    pub(super) fn cut_next(&self, digest: &str, bytes: u64) {
        self.shared.state().cut = Some((digest.to_owned(), bytes));
    }

    /// Takes back a cut that has not happened.
    pub(super) fn cut_none(&self) {
        self.shared.state().cut = None;
    }

    /// The requests since the last call of this, in order of arrival.
    pub(super) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.state().seen)
    }

    /// Everything that nobody may write down: the nodes' secrets and every token.
    pub(super) fn secrets(&self) -> Vec<String> {
        let state = self.shared.state();
        state.nodes.values().chain(&state.tokens).cloned().collect()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                drop(connections.spawn(serve(shared.clone(), stream)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| respond(shared.clone(), request));
    // An error is the peer's leaving, or a cut.
    drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Answer>, Cut> {
    let (head, _) = request.into_parts();
    let asker = asker(&shared, &head.headers);
    let sent = Arc::new(AtomicU64::new(0));
    let path = head.uri.path().to_owned();
    let mut seen = Seen {
        method: head.method.clone(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: recorded(&head.headers),
        status: 0,
        sent: sent.clone(),
        asker,
        path,
    };
    let answer = match (seen.path == TOKEN_PATH, head.method) {
        (true, Method::GET) => token(&shared, &seen),
        // An OAuth2 form; a client falls back to GET.
        (true, _) => whole(StatusCode::NOT_FOUND, ""),
        (false, method) => passed(&shared, method, &seen, head.uri, head.headers).await,
    };
    seen.status = answer.status().as_u16();
    shared.state().seen.push(seen);
    Ok(answer)
}

/// Who asks; a node with a wrong secret is none.
fn asker(shared: &Shared, headers: &HeaderMap) -> Asker {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Asker::Nameless };
    let Some((scheme, value)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
        return Asker::Other;
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        return Asker::Bearer;
    }
    let pair = STANDARD.decode(value).ok().and_then(|pair| String::from_utf8(pair).ok());
    let known =
        |(node, secret): &(&str, &str)| shared.state().nodes.get(*node).is_some_and(|known| known == secret);
    let node = pair.as_deref().and_then(|pair| pair.split_once(':')).filter(known);
    node.map_or(Asker::Other, |(node, _)| Asker::Node(node.to_owned()))
}

fn recorded(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut recorded = BTreeMap::<String, String>::new();
    for (name, value) in headers.iter().filter(|(name, _)| *name != header::AUTHORIZATION) {
        let value = String::from_utf8_lossy(value.as_bytes());
        recorded
            .entry(name.as_str().to_owned())
            .and_modify(|former| *former = format!("{former}, {value}"))
            .or_insert_with(|| value.into_owned());
    }
    recorded
}

fn token(shared: &Shared, seen: &Seen) -> Response<Answer> {
    let Asker::Node(node) = &seen.asker else {
        let mut refused = whole(StatusCode::UNAUTHORIZED, r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#);
        let challenge = header::HeaderValue::from_static("Basic realm=\"coreflow tests\"");
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return refused;
    };
    let query = || url::form_urlencoded::parse(seen.query.as_bytes());
    if !query().any(|(name, service)| name == "service" && service == SERVICE) {
        return whole(StatusCode::BAD_REQUEST, r#"{"errors":[{"code":"UNSUPPORTED"}]}"#);
    }
    let mut access = Vec::new();
    for (name, scopes) in query() {
        if name == "scope" {
            access.extend(scopes.split(' ').filter_map(|scope| allowed(scope, &shared.state().withheld)));
        }
    }
    let token = shared.signer.token(node, &access);
    shared.state().tokens.push(token.clone());
    let text = json!({"token": token, "access_token": token, "expires_in": LIFETIME}).to_string();
    whole(StatusCode::OK, &text)
}

/// What a token allows of `repository:NAME:ACTIONS`: pulling.
fn allowed(scope: &str, withheld: &str) -> Option<Access> {
    let (repository, actions) = scope.strip_prefix("repository:")?.rsplit_once(':')?;
    let may_pull = repository != withheld && actions.split(',').any(|action| action == "pull");
    may_pull.then(|| Access { repository: repository.to_owned(), actions: vec!["pull".to_owned()] })
}

async fn passed(
    shared: &Shared,
    method: Method,
    seen: &Seen,
    uri: http::Uri,
    headers: HeaderMap,
) -> Response<Answer> {
    let mut asked = Request::builder().method(method).uri(uri);
    if let Some(own) = asked.headers_mut() {
        *own = headers;
    }
    let Ok(asked) = asked.body(Full::new(Bytes::new())) else { return whole(StatusCode::BAD_REQUEST, "") };
    let Ok(answer) = docker_registry::request(shared.registry, asked).await else {
        return whole(StatusCode::BAD_GATEWAY, "");
    };
    let is_body = seen.method == Method::GET && answer.status().is_success();
    let cut_after = if is_body { take_cut(shared, &seen.path) } else { None };
    answer.map(|body| Answer::Passed { body, sent: seen.sent.clone(), cut_after })
}

fn take_cut(shared: &Shared, path: &str) -> Option<u64> {
    let mut state = shared.state();
    let (_, bytes) = state.cut.take_if(|(digest, _)| path.ends_with(digest.as_str()))?;
    Some(bytes)
}

fn whole(status: StatusCode, text: &str) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The end of a connection in the middle of an answer.
#[derive(Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut as asked")
    }
}

impl std::error::Error for Cut {}

/// The body of an answer.
enum Answer {
    /// The origin's own.
    Whole(Bytes),
    /// The registry's, up to the cut.
    Passed { body: Incoming, sent: Arc<AtomicU64>, cut_after: Option<u64> },
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(text) if text.is_empty() => Poll::Ready(None),
            Self::Whole(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Self::Passed { body, sent, cut_after } => {
                if cut_after.is_some_and(|bytes| sent.load(Ordering::SeqCst) >= bytes) {
                    return Poll::Ready(Some(Err(Cut)));
                }
                let frame = std::task::ready!(Pin::new(body).poll_frame(context));
                let frame = frame.map(|frame| frame.map_err(|_| Cut));
                if let Some(Ok(frame)) = &frame {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    sent.fetch_add(bytes as u64, Ordering::SeqCst);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(text) => text.is_empty(),
            Self::Passed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(text) => SizeHint::with_exact(text.len() as u64),
            Self::Passed { body, .. } => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests;
