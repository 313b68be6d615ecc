//! The sockets of the loopback Cloudly: TLS, the HTTP exchange, the upgrade at `/`, and the
//! performing of steps.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::http_answer::{Cut, HttpAnswer};
use super::judgement::Connection;
use super::pulls::is_cloudlys;
use super::rewound::Rewound;
use super::{AnswerForm, Call, Front, HTTP_1, Shared, Stage, Step, UPGRADE};
use crate::authority::server_config;
use crate::carrier::{Carrier, Event, socket_config};
use crate::envelope::{self, Ids, Message, Outcome, Refusal, raw};

/// How many TCP connections may wait to be accepted.
const BACKLOG: u32 = 128;

pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts until aborted; its connections end with it.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
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
    let (front, own, alpn, pulls) = {
        let state = shared.state();
        let settings = &state.settings;
        (settings.front, settings.own_certificate.clone(), settings.alpn, state.pulls.clone())
    };
    shared.reached(Stage::Tcp);
    if front == Front::Silent {
        std::future::pending::<()>().await;
    }
    drop(stream.set_nodelay(true));
    let acceptor = if own.is_none() && alpn == HTTP_1 {
        shared.acceptor.clone()
    } else {
        TlsAcceptor::from(server_config(own.as_ref().unwrap_or(&shared.certificate), alpn))
    };
    let Ok(stream) = acceptor.accept(stream).await else { return };
    shared.reached(Stage::Tls);
    if front == Front::SilentInTls {
        std::future::pending::<()>().await;
    }
    let mut stream = Rewound::untouched(stream);
    if let Some(pulls) = pulls {
        let Some(line) = stream.first_line().await else { return };
        if !is_cloudlys(&line) {
            return pulls.serve(stream).await;
        }
    }
    let mut upgrades = JoinSet::new();
    let (upgraded, mut to_run) = tokio::sync::mpsc::channel(1);
    let service = service_fn(|request| {
        let (shared, upgraded) = (shared.clone(), upgraded.clone());
        async move { respond(&shared, request, &upgraded).await }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // An upgrade resolves once the connection has sent its 101 and ended.
    drop(connection.await);
    drop(upgraded);
    if let Some(upgrade) = to_run.recv().await {
        upgrades.spawn(run(shared.clone(), upgrade));
    }
    while upgrades.join_next().await.is_some() {}
}

type Upgrades = tokio::sync::mpsc::Sender<hyper::upgrade::OnUpgrade>;

async fn respond(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    upgrades: &Upgrades,
) -> Result<Response<HttpAnswer>, Cut> {
    if shared.state().settings.front == Front::HtmlBadGateway {
        return Ok(bad_gateway());
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") if request.headers().contains_key(header::SEC_WEBSOCKET_KEY) => {
            upgrade(shared, request, upgrades).await
        }
        (&Method::HEAD, "/typedrequest") => Ok(Response::new(HttpAnswer::whole(""))),
        (&Method::POST, "/typedrequest") => exchange(shared, request).await,
        (_, _) => Ok(status(StatusCode::NOT_FOUND, "text/plain", HttpAnswer::whole("not found"))),
    }
}

async fn upgrade(
    shared: &Arc<Shared>,
    mut request: Request<Incoming>,
    upgrades: &Upgrades,
) -> Result<Response<HttpAnswer>, Cut> {
    let step = shared.state().script.next(UPGRADE);
    shared.reached(Stage::Upgrade);
    match due(step).await {
        Step::Never | Step::Trickle => std::future::pending().await,
        Step::CutMidAnswer => return Err(Cut),
        Step::HtmlBadGateway => return Ok(bad_gateway()),
        Step::Redirect(code, location) => return Ok(redirect(code, &location)),
        Step::Ordinary
        | Step::Refuse(_)
        | Step::Answer(_)
        | Step::ComeAgain(_)
        | Step::Delay(..)
        | Step::When(..)
        | Step::AfterNext(_) => {}
    }
    let key = derive_accept_key(request.headers()[header::SEC_WEBSOCKET_KEY].as_bytes());
    if upgrades.try_send(hyper::upgrade::on(&mut request)).is_err() {
        return Err(Cut);
    }
    let mut response = Response::new(HttpAnswer::whole(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, key.parse().expect("an accept key is base64"));
    Ok(response)
}

/// The step once its waits are over.
async fn due(mut step: Step) -> Step {
    loop {
        step = match step {
            Step::Delay(wait, next) => {
                tokio::time::sleep(wait).await;
                *next
            }
            Step::When(gate, next) => {
                gate.pass().await;
                *next
            }
            step => return step,
        }
    }
}

fn status(status: StatusCode, content_type: &'static str, body: HttpAnswer) -> Response<HttpAnswer> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

fn bad_gateway() -> Response<HttpAnswer> {
    let page = "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>";
    status(StatusCode::BAD_GATEWAY, "text/html", HttpAnswer::whole(page))
}

fn redirect(code: u16, location: &str) -> Response<HttpAnswer> {
    let code = StatusCode::from_u16(code).expect("a test redirects with a status");
    let mut response = status(code, "text/html", HttpAnswer::whole("<html>moved</html>"));
    let location = location.parse().expect("a test redirects to a header's value");
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// The HTTP carriage of the wire notes, section 7: 200 even for a refusal, members sorted.
async fn exchange(shared: &Arc<Shared>, request: Request<Incoming>) -> Result<Response<HttpAnswer>, Cut> {
    let body = request.into_body().collect().await.map_err(|_| Cut)?.to_bytes();
    let Ok(message) = Message::parse(&String::from_utf8_lossy(&body)) else {
        let text = HttpAnswer::whole(r#"{"error":"Invalid request"}"#);
        return Ok(status(StatusCode::BAD_REQUEST, "application/json", text));
    };
    let mut step = due(arrived(shared, None, &message, false)).await;
    // The exchange has no order that could be changed.
    while let Step::AfterNext(next) = step {
        step = due(*next).await;
    }
    let form = match step {
        Step::Never => std::future::pending().await,
        Step::HtmlBadGateway => return Ok(bad_gateway()),
        Step::Redirect(code, location) => return Ok(redirect(code, &location)),
        Step::CutMidAnswer => HttpAnswer::broken,
        Step::Trickle => HttpAnswer::trickled,
        Step::Ordinary
        | Step::Refuse(_)
        | Step::Answer(_)
        | Step::ComeAgain(_)
        | Step::Delay(..)
        | Step::When(..)
        | Step::AfterNext(_) => HttpAnswer::whole,
    };
    let formed = in_form(shared, &message, &compose(shared, None, &message, &step));
    let sorted: serde_json::Value = serde_json::from_str(&formed).expect("an answer is JSON");
    Ok(status(StatusCode::OK, "application/json", form(&sorted.to_string())))
}

async fn run(shared: Arc<Shared>, upgrade: hyper::upgrade::OnUpgrade) -> Result<(), Infallible> {
    let Ok(upgraded) = upgrade.await else { return Ok(()) };
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(socket_config())).await;
    let (carrier, mut events) = Carrier::start(socket, Role::Server);
    let number = {
        let mut state = shared.state();
        state.connections_seen += 1;
        let number = state.connections_seen;
        state.connections.insert(number, Connection::new(carrier.clone()));
        number
    };
    shared.change.announce();
    let mut answers = JoinSet::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Request(message, binary) => {
                let step = arrived(&shared, Some(number), &message, binary);
                let answer = perform(shared.clone(), carrier.clone(), number, message, step.clone());
                match step {
                    // In order of arrival, as one router turn.
                    Step::Ordinary | Step::Refuse(_) | Step::Answer(_) | Step::AfterNext(_) => answer.await,
                    Step::Delay(..)
                    | Step::When(..)
                    | Step::Never
                    | Step::CutMidAnswer
                    | Step::ComeAgain(_)
                    | Step::HtmlBadGateway
                    | Step::Redirect(..)
                    | Step::Trickle => drop(answers.spawn(answer)),
                }
            }
            Event::Stray(message) => shared.state().strays.push(message.text),
            Event::Stream(frame) => {
                let answers = shared.state().frame_received(number, &frame);
                for answer in answers {
                    carrier.send_binary(answer.bytes()).await;
                }
                shared.change.announce();
            }
            Event::Unreadable(text) => shared.state().unreadable.push(text),
            Event::Closed(_) => break,
        }
    }
    {
        let mut state = shared.state();
        state.connections.remove(&number);
        state.corestore.closures.connection_ended(number);
    }
    shared.change.announce();
    Ok(())
}

fn arrived(shared: &Shared, connection: Option<u64>, message: &Message, binary: bool) -> Step {
    let mut state = shared.state();
    let (method, message) = (message.method.clone(), message.clone());
    let step = state.script.next(&method);
    state.calls.push(Call { method, connection, message, binary, at: Instant::now() });
    drop(state);
    shared.change.announce();
    step
}

async fn perform(shared: Arc<Shared>, carrier: Carrier, number: u64, message: Message, step: Step) {
    let step = due(step).await;
    match step {
        Step::Never | Step::HtmlBadGateway | Step::Redirect(..) | Step::Trickle => return,
        Step::CutMidAnswer => {
            let text = in_form(&shared, &message, &compose(&shared, Some(number), &message, &Step::Ordinary));
            return carrier.cut_within(text).await;
        }
        Step::AfterNext(next) => {
            let text = in_form(&shared, &message, &compose(&shared, Some(number), &message, &next));
            shared.state().held.entry(message.method).or_default().push((carrier, text));
            return;
        }
        Step::Ordinary
        | Step::Refuse(_)
        | Step::Answer(_)
        | Step::ComeAgain(_)
        | Step::Delay(..)
        | Step::When(..) => {}
    }
    let minimal = compose(&shared, Some(number), &message, &step);
    carrier.send_text(in_form(&shared, &message, &minimal)).await;
    shared.change.announce();
    let held = shared.state().held.remove(&message.method).unwrap_or_default();
    for (carrier, text) in held {
        carrier.send_text(text).await;
    }
    let credit = shared.state().credit_after(&message);
    if let Some(credit) = credit {
        carrier.send_binary(credit.bytes()).await;
    }
    if message.method == "registerPalletRuntimeSession" {
        deliver_owed(&shared, &carrier, &minimal);
    }
}

/// OUT-16: with a new binding goes what the node is owed.
fn deliver_owed(shared: &Arc<Shared>, carrier: &Carrier, answer: &str) {
    let Ok(answer) = Message::parse(answer) else { return };
    let Some((node, owed)) = shared.state().owed_after(answer.response()) else { return };
    let (shared, carrier) = (shared.clone(), carrier.clone());
    tokio::spawn(async move {
        for (method, body) in owed {
            let answer = carrier.call(method, &body, std::time::Duration::from_secs(10)).await;
            shared.state().deliveries.push((node.clone(), answer));
            shared.change.announce();
        }
    });
}

/// The contract's own form of the answer that `step` gives.
fn compose(shared: &Shared, connection: Option<u64>, message: &Message, step: &Step) -> String {
    let (method, ids): (&str, &Ids) = (&message.method, &message.ids);
    let outcome: Outcome = match step {
        Step::Refuse(refusal) => Err(Refusal::clone(refusal)),
        Step::Answer(text) => Ok(raw(text)),
        Step::ComeAgain(retry) => return envelope::come_again(method, retry, ids),
        Step::Ordinary
        | Step::Delay(..)
        | Step::When(..)
        | Step::AfterNext(_)
        | Step::Never
        | Step::CutMidAnswer
        | Step::HtmlBadGateway
        | Step::Redirect(..)
        | Step::Trickle => shared.state().judge(connection, message),
    };
    match outcome {
        Ok(body) => envelope::answer(method, body.get(), ids),
        Err(refusal) => envelope::refusal(method, &refusal, ids),
    }
}

fn in_form(shared: &Shared, request: &Message, minimal: &str) -> String {
    let form = shared.state().settings.form;
    match form {
        AnswerForm::Minimal => minimal.to_owned(),
        AnswerForm::Echo8 => envelope::echoed(request, minimal, false),
        AnswerForm::Echo3 => envelope::echoed(request, minimal, true),
    }
}
