//! The Corestore of one node, as the control API of the contract has it: what it stores and refuses is in [`store`] and
//! [`restores`], what goes wrong between it and a caller is a [`Fault`] of the test's.
//!
//! It listens on loopback without TLS, takes a call of whoever has the token, and keeps of each call what arrived.

pub mod answer;
mod pace;
pub mod restores;
pub mod store;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::Limited;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::waiting::Change;
use answer::{Answer, digest, refused};
use pace::{AnswerBody, Faults};
use restores::Restores;
use store::{ClosureHead, Store};

pub use pace::PIECE;

/// Largest body of a call, in bytes; a closure has none.
pub const BODY_LIMIT: usize = 1 << 20;
/// Where the controls of isolated restores are.
const RESTORES: &str = "POST /control/isolated-restores/";
/// The call whose body is a closure.
const IMPORT: &str = "PUT /control/database-closures/restore";

/// What becomes of a call instead of its answer, or of the bodies on their way. A call that stands still in one of them
/// goes on once the test sets another fault of that call, or none, and then meets that one. One that met
/// [`Fault::Silent`] stays silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no answer, and the connection stays. The call is not carried out.
    Silent,
    /// The connection ends, and the call is not carried out.
    Reset,
    /// Another answer, of a call that is not carried out.
    Instead(Answer),
    /// The call is carried out, and its answer stands still before its first byte.
    Held,
    /// The body of the call is read up to so many bytes and the rest of the piece that they end in, which is [`PIECE`] at
    /// most; then it stands still.
    ReadUpTo(usize),
    /// The answer stands still after so many bytes of its body.
    StallAfter(usize),
    /// The connection ends after so many bytes of the answer's body.
    CutAfter(usize),
}

/// A call that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// Method and path.
    pub call: String,
    /// Whether it had the token.
    pub authorized: bool,
    /// The digest of its body, once that was whole; none for a call that was refused before it was read.
    pub body: Option<String>,
}

struct State {
    token: String,
    now: u64,
    store: Store,
    restores: Restores,
    /// How much of the body of the latest of each call was read, in bytes.
    read: BTreeMap<String, usize>,
    arrived: Vec<Arrived>,
}

struct Shared {
    state: Mutex<State>,
    faults: watch::Sender<Faults>,
    change: Change,
}

/// The double. Dropping it ends its listener and its connections.
pub struct Corestore {
    shared: Arc<Shared>,
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl Drop for Corestore {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Corestore {
    /// Starts the Corestore of a node; its clock stands at `now`, Unix milliseconds.
    ///
    /// # Errors
    /// When no loopback port can be had.
    pub async fn start(cluster: &str, node: &str, token: &str, now: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = State {
            token: token.to_owned(),
            now,
            store: Store::new(cluster, node),
            restores: Restores::new(cluster, node),
            read: BTreeMap::new(),
            arrived: Vec::new(),
        };
        let faults = watch::Sender::new(Faults::new());
        let shared = Arc::new(Shared { state: Mutex::new(state), faults, change: Change::default() });
        let listening = tokio::spawn(listen(shared.clone(), listener));
        Ok(Self { shared, address, listening })
    }

    /// The node's `corestore.endpoint`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on only this token is taken.
    pub fn rotate(&self, token: &str) {
        token.clone_into(&mut self.state().token);
    }

    /// Moves its clock to `now`, Unix milliseconds.
    pub fn at(&self, now: u64) {
        self.state().now = now;
    }

    /// From now on every such call (method and path) meets the fault; `None` mends it.
    pub fn fault(&self, call: &str, fault: Option<Fault>) {
        self.shared.faults.send_modify(|faults| match fault {
            Some(fault) => drop(faults.insert(call.to_owned(), fault)),
            None => drop(faults.remove(call)),
        });
    }

    /// How much of the body of the latest such call (method and path) was read, in bytes; `None` before the first.
    pub fn read(&self, call: &str) -> Option<usize> {
        self.state().read.get(call).copied()
    }

    /// What it stores.
    pub fn store<T>(&self, with: impl FnOnce(&mut Store) -> T) -> T {
        with(&mut self.state().store)
    }

    /// Its isolated restores.
    pub fn restores<T>(&self, with: impl FnOnce(&mut Restores) -> T) -> T {
        with(&mut self.state().restores)
    }

    /// The calls so far, in the order of their arrival.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.state().arrived.clone()
    }

    /// Announces each call that arrives, and each piece of its body.
    pub fn change(&self) -> &Change {
        &self.shared.change
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                connections.spawn(serve(shared.clone(), stream));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move {
            // An error of the service ends the connection without an answer.
            exchange(&shared, request).await.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(PIECE)
        .serve_connection(TokioIo::new(stream), service);
    drop(connection.await);
}

/// The answer to one call; `None` ends the connection.
async fn exchange(shared: &Shared, request: Request<Incoming>) -> Option<Response<AnswerBody>> {
    let (head, body) = request.into_parts();
    let call = format!("{} {}", head.method, head.uri.path());
    let authorized = {
        let state = shared.state();
        let bearer = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        bearer.and_then(|value| value.strip_prefix("Bearer ")) == Some(&state.token)
    };
    let answered = if authorized {
        read(shared, &call, &head.headers, body).await
    } else {
        // ISO-23: 401 is the bearer's, 403 a grant's.
        Err(Answer::json(401, &json!({"error": "unauthorized"})))
    };
    let (answer, fault) = {
        let mut state = shared.state();
        let fault = shared.faults.borrow().get(&call).cloned();
        let body = answered.as_ref().ok().map(|body| digest(body));
        state.arrived.push(Arrived { call: call.clone(), authorized, body });
        let answer = match answered {
            Ok(_) if matches!(fault, Some(Fault::Silent | Fault::Reset | Fault::Instead(_))) => None,
            Ok(body) => Some(state.answer(&call, &head.headers, &body)),
            Err(refusal) => Some(refusal),
        };
        (answer, fault)
    };
    shared.change.announce();
    let fault = match fault {
        Some(Fault::Held) => pace::moved(&mut shared.faults.subscribe(), &call, Some(&Fault::Held)).await,
        fault => fault,
    };
    match (answer, fault) {
        (_, Some(Fault::Silent)) => std::future::pending().await,
        (_, Some(Fault::Reset)) | (None, None) => None,
        (_, Some(Fault::Instead(answer))) => Some(response(shared, &call, None, answer)),
        (
            Some(answer),
            fault @ (Some(Fault::Held | Fault::ReadUpTo(_) | Fault::StallAfter(_) | Fault::CutAfter(_))
            | None),
        ) => Some(response(shared, &call, fault, answer)),
        (None, Some(Fault::Held | Fault::ReadUpTo(_) | Fault::StallAfter(_) | Fault::CutAfter(_))) => None,
    }
}

/// The whole body of a call: at most [`BODY_LIMIT`], but for a closure, which states its exact length.
async fn read(shared: &Shared, call: &str, headers: &HeaderMap, body: Incoming) -> Result<Bytes, Answer> {
    let broken = || refused(400, "body-invalid", "it broke off");
    if call != IMPORT {
        let body = pace::read(shared, call, Limited::new(body, BODY_LIMIT)).await;
        return body.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                refused(413, "body-too-large", "at most 1 MiB")
            } else {
                broken()
            }
        });
    }
    if headers.contains_key(header::TRANSFER_ENCODING) || headers.contains_key(header::CONTENT_ENCODING) {
        return Err(refused(415, "encoding-refused", "identity alone"));
    }
    if !headers.contains_key(header::CONTENT_LENGTH) {
        return Err(refused(411, "length-required", "exactly"));
    }
    pace::read(shared, call, body).await.map_err(|_| broken())
}

impl State {
    fn answer(&mut self, call: &str, headers: &HeaderMap, body: &[u8]) -> Answer {
        if let Some(operation) = call.strip_prefix(RESTORES) {
            if !["prepare", "stage", "progress", "execute", "cleanup"].contains(&operation) {
                return Answer::json(404, &json!({"error": "not-found"}));
            }
            return self.restores.control(operation, body, self.now);
        }
        if call != IMPORT {
            return self.store.call(call, body, self.now);
        }
        let stated = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (service, digest, receipt) =
            (stated("x-service-id"), stated("x-closure-digest"), stated("x-closure-receipt"));
        let (Some(service), Some(digest), Some(receipt)) = (service, digest, receipt) else {
            return refused(400, "headers-invalid", "service, digest or receipt");
        };
        if stated("x-backup-id").is_none() || stated("x-binding-id").is_none() {
            return refused(400, "headers-invalid", "backup or binding");
        }
        self.store.import(&ClosureHead { service, digest, receipt }, body)
    }
}

/// The answer on its way, under the fault that the call met.
fn response(shared: &Shared, call: &str, fault: Option<Fault>, answer: Answer) -> Response<AnswerBody> {
    let mut response =
        Response::builder().status(answer.status).header(header::CONTENT_LENGTH, answer.body.len());
    if answer.headers.is_empty() {
        response = response.header(header::CONTENT_TYPE, "application/json");
    }
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let body = AnswerBody::new(shared, call, fault, answer.body);
    response.body(body).expect("names and values are of the double")
}

#[cfg(test)]
mod tests;
