//! Scripts of events and exactly what follows from each, as nodes and Cloudly see it.

use bytes::Bytes;
use coreflow_ipc::typedrequest::{Envelope, Outcome, PeerError, UNKNOWN_METHOD, read};

use super::*;
use crate::refusals::Foreign;

mod downward;
mod model;
mod standing;
mod upward;

const MS: Duration = Duration::from_millis(1);
const OFFER: &str = r#"{"release":"33.1.0","oldestAcceptedPeerRelease":"32.0.0"}"#;
const REGISTER: &str = "registerPalletRuntimeSession";
const REPORT: &str = "reportRuntimeNetworkProtection";
const APPLY: &str = "applyRuntimeAssignment";
/// Legal JSON that a decoder and an encoder would not give back: spaces, number forms, key order, a
/// member that stands twice, escapes, and more digits than a float has.
const ODD: &str = r#" "z" : 1.0e0,"a":-0,"e":1E+5,"t":1,"t":2,"s":"\u00e9\/\ud83d\ude00","n":123456789012345678901234567890"#;

/// A request that the relay sent, to Cloudly or to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    to: Option<Socket>,
    method: String,
    body: String,
    id: String,
    instance: Option<String>,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Response(String),
    Error { text: String, data: String },
}

/// An action, comparable.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Sent(Sent),
    Node(Socket, String, Told),
    Cloudly(Connection, String, Told),
    OfferRefused(String),
    OfferServed,
    Acknowledged(Binding, String, u64),
    Superseded(Socket),
    Note(Note),
}

fn envelope(frame: &str) -> Envelope {
    read(&Bytes::copy_from_slice(frame.as_bytes())).expect("the relay writes envelopes")
}

fn told(answer: &Answer) -> Told {
    match &answer.outcome {
        Outcome::Response(body) => Told::Response(body.text().to_owned()),
        Outcome::Error(error) => {
            let error = PeerError::of(error);
            Told::Error { text: error.text, data: error.data.text().to_owned() }
        }
    }
}

fn seen(action: Action) -> Seen {
    let sent = |to, request: Request| {
        let body = request.body.text().to_owned();
        let Ids { correlation, instance } = request.ids;
        Seen::Sent(Sent { to, method: request.method, body, id: correlation, instance })
    };
    match action {
        Action::SendUp(frame) => match envelope(&frame) {
            Envelope::Request(request) => sent(None, request),
            Envelope::Answer(_) => panic!("an answer was sent as a request: {frame}"),
        },
        Action::SendDown { socket, frame } => match envelope(&frame) {
            Envelope::Request(request) => sent(Some(socket), request),
            Envelope::Answer(answer) => Seen::Node(socket, answer.correlation.clone(), told(&answer)),
        },
        Action::AnswerUp { connection, frame } => match envelope(&frame) {
            Envelope::Answer(answer) => Seen::Cloudly(connection, answer.correlation.clone(), told(&answer)),
            Envelope::Request(_) => panic!("a request was sent as an answer: {frame}"),
        },
        Action::OfferRefused(disagreement) => Seen::OfferRefused(disagreement.line()),
        Action::OfferServed => Seen::OfferServed,
        Action::Superseded(socket) => Seen::Superseded(socket),
        Action::Acknowledged { session, projection } => {
            Seen::Acknowledged(session, projection.id.to_string(), projection.generation.get())
        }
        Action::Note(note) => Seen::Note(note),
    }
}

fn refused(text: &str) -> Told {
    Told::Error { text: text.to_owned(), data: "{}".to_owned() }
}

fn ok(body: &str) -> Told {
    Told::Response(body.to_owned())
}

fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

fn foreign(method: &str, which: Foreign) -> Seen {
    Seen::Note(Note::Foreign { method: method.to_owned(), which })
}

fn binding(session: &str, node: &str, cluster: &str, generation: u64) -> String {
    format!(
        r#"{{"sessionId":"{session}","nodeId":"{node}","clusterId":"{cluster}","generation":{generation}}}"#
    )
}

/// The binding that [`Script::carry`] gets a node, as a body.
fn of(node: &str) -> String {
    format!(r#"{{"session":{}}}"#, binding(&format!("s-{node}"), node, "c", 1))
}

fn registration() -> String {
    format!(r#"{{"protocol":{OFFER}}}"#)
}

fn asked(correlation: &str, method: &str, body: &str) -> Request {
    Request {
        method: method.to_owned(),
        ids: Ids { correlation: correlation.to_owned(), instance: Some(format!("of-{correlation}")) },
        body: Body::from_json(body.to_owned()),
    }
}

fn answer_to(sent: &Sent, told: &Told) -> Answer {
    let outcome = match told {
        Told::Response(body) => Outcome::Response(Body::from_json(body.clone())),
        Told::Error { text, data } => {
            Outcome::Error(Body::from_json(format!(r#"{{"text":"{text}","data":{data}}}"#)))
        }
    };
    let (correlation, instance) = (sent.id.clone(), sent.instance.clone());
    Answer { correlation, instance, outcome, retry_after_ms: None }
}

/// A forwarder under a script, with the clock in the script's hand.
struct Script {
    forwarder: Forwarder,
    now: Now,
}

impl Script {
    fn without_session() -> Self {
        Self { forwarder: Forwarder::default(), now: Now { wall: 0, mono: 1000 * MS } }
    }

    fn new() -> Self {
        let mut script = Self::without_session();
        assert_eq!(script.up(1), []);
        script
    }

    fn on(&mut self, event: Event) -> Vec<Seen> {
        self.forwarder.handle(event, self.now).into_iter().map(seen).collect()
    }

    fn up(&mut self, count: u64) -> Vec<Seen> {
        self.on(Event::SessionUp { count })
    }

    fn ask(&mut self, socket: Socket, correlation: &str, method: &str, body: &str) -> Vec<Seen> {
        self.on(Event::Request { socket, request: asked(correlation, method, body) })
    }

    fn push(&mut self, connection: Connection, correlation: &str, method: &str, body: &str) -> Vec<Seen> {
        self.on(Event::Push { connection, request: asked(correlation, method, body) })
    }

    fn cloudly(&mut self, sent: &Sent, told: &Told) -> Vec<Seen> {
        self.on(Event::Answered(answer_to(sent, told)))
    }

    fn node(&mut self, socket: Socket, sent: &Sent, told: &Told) -> Vec<Seen> {
        self.on(Event::NodeAnswered { socket, answer: answer_to(sent, told) })
    }

    fn pass(&mut self, time: Duration) -> Vec<Seen> {
        self.now.mono += time;
        self.on(Event::Tick)
    }

    /// Sends a registration up; the session stands.
    fn registers(&mut self, socket: Socket, correlation: &str) -> Sent {
        let seen = self.ask(socket, correlation, REGISTER, &registration());
        assert_eq!(seen[0], Seen::OfferServed);
        one(seen[1..].to_vec())
    }

    fn carry_as(&mut self, socket: Socket, body: &str, node: &str) {
        let sent = self.registers(socket, "registers");
        let mut seen = self.cloudly(&sent, &ok(body));
        seen.retain(|seen| !matches!(seen, Seen::Superseded(_)));
        let carried = Seen::Note(Note::Registered { node: id(node) });
        assert_eq!(seen, [carried, Seen::Node(socket, "registers".into(), ok(body))]);
    }

    /// The node is carried on the socket.
    fn carry(&mut self, socket: Socket, node: &str) {
        self.carry_as(socket, &of(node), node);
    }
}

/// The one request that was sent, and nothing beside it.
fn one(seen: Vec<Seen>) -> Sent {
    let [Seen::Sent(sent)] = seen.as_slice() else { panic!("not one request: {seen:?}") };
    sent.clone()
}
