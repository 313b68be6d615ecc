//! Scripts of events and exactly what follows from each, as the ingress, Cloudly and the log see it.

use bytes::Bytes;
use coreflow_ipc::typedrequest::{Answer, Body, Envelope, Ids, Outcome, PeerError, Request, read};

use super::*;

mod adoption;
mod binding;
mod hints;
mod model;
mod standing;
mod statistics;

const MS: Duration = Duration::from_millis(1);
const OFFER: &str = r#"{"release":"33.1.0","oldestAcceptedPeerRelease":"32.0.0"}"#;
const REGISTER: &str = "registerClusterIngress";
const PULL: &str = "getClusterIngressRouteTable";
const PUSH: &str = "pushClusterRouteTable";
const READ: &str = "getClusterRouteTable";
const HINT: &str = "pushClusterIngressRouteTableChanged";
const STATISTICS: &str = "getClusterTrafficStatistics";
/// Legal JSON that a decoder and an encoder would not give back.
const ODD: &str =
    r#" "z" : 1.0e0,"a":-0,"t":1,"t":2,"s":"\u00e9\/\ud83d","n":123456789012345678901234567890"#;

/// A request that the relay sent: `None` to Cloudly, else to a socket.
#[derive(Debug, Clone)]
struct Sent {
    to: Option<Socket>,
    method: String,
    body: String,
    id: String,
    instance: Option<String>,
}

/// Ids are random; what is sent is its receiver, method and body.
impl PartialEq for Sent {
    fn eq(&self, other: &Self) -> bool {
        (&self.to, &self.method, &self.body) == (&other.to, &other.method, &other.body)
    }
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Response(String),
    Error { text: String, data: String },
}

/// An action, comparable.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Sent(Sent),
    Socket(Socket, String, Told),
    Cloudly(Connection, String, Told),
    OfferRefused(String),
    OfferServed,
    Superseded(Socket),
    Note(Note),
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
    let envelope = |frame: String| read(&Bytes::from(frame)).expect("the relay writes envelopes");
    let sent = |to, request: Request| {
        let Ids { correlation, instance } = request.ids;
        let body = request.body.text().to_owned();
        Seen::Sent(Sent { to, method: request.method, body, id: correlation, instance })
    };
    match action {
        Action::SendUp(frame) => match envelope(frame) {
            Envelope::Request(request) => sent(None, request),
            Envelope::Answer(_) => panic!("an answer was sent as a request"),
        },
        Action::SendDown { socket, frame } => match envelope(frame) {
            Envelope::Request(request) => sent(Some(socket), request),
            Envelope::Answer(answer) => Seen::Socket(socket, answer.correlation.clone(), told(&answer)),
        },
        Action::AnswerUp { connection, frame } => match envelope(frame) {
            Envelope::Answer(answer) => Seen::Cloudly(connection, answer.correlation.clone(), told(&answer)),
            Envelope::Request(_) => panic!("a request was sent as an answer"),
        },
        Action::OfferRefused(disagreement) => Seen::OfferRefused(disagreement.line()),
        Action::OfferServed => Seen::OfferServed,
        Action::Superseded(socket) => Seen::Superseded(socket),
        Action::Note(note) => Seen::Note(note),
    }
}

fn ok(body: &str) -> Told {
    Told::Response(body.to_owned())
}

fn refused(text: &str) -> Told {
    Told::Error { text: text.to_owned(), data: "{}".to_owned() }
}

fn not_ready() -> Told {
    Told::Error {
        text: "cluster-ingress-registration-refused: not-ready".to_owned(),
        data: r#"{"reason":"not-ready","retryAfterMs":5000}"#.to_owned(),
    }
}

fn outcome(told: &Told) -> Outcome {
    match told {
        Told::Response(body) => Outcome::Response(Body::from_json(body.clone())),
        Told::Error { text, data } => {
            Outcome::Error(Body::from_json(format!(r#"{{"text":"{text}","data":{data}}}"#)))
        }
    }
}

fn answer_to(sent: &Sent, told: &Told) -> Answer {
    let (correlation, instance) = (sent.id.clone(), sent.instance.clone());
    Answer { correlation, instance, outcome: outcome(told), retry_after_ms: None }
}

/// An answer that asks to be asked again.
fn later(sent: &Sent, wait_ms: u64) -> Answer {
    Answer { retry_after_ms: Some(wait_ms), ..answer_to(sent, &ok("{}")) }
}

fn asked(correlation: &str, method: &str, body: &str) -> Request {
    Request {
        method: method.to_owned(),
        ids: Ids { correlation: correlation.to_owned(), instance: Some(format!("of-{correlation}")) },
        body: Body::from_json(body.to_owned()),
    }
}

/// A table of a revision with one route and one key.
fn table(revision: u64) -> String {
    format!(
        r#"{{"clusterId":"c", "revision":{revision},"routes":[{{"hostName":"a.test","destinations":[{{"address":"::1","port":1}}],"certificateId":"k"}}],"certificates":[{{"id":"k","domainNames":["a.test"],"publicKey":"-----BEGIN CERTIFICATE-----\nQ0hBSU4=\n-----END CERTIFICATE-----","privateKey":"-----BEGIN PRIVATE KEY-----\nTUFURVJJQUw=\n-----END PRIVATE KEY-----"}}]}}"#
    )
}

fn carrying(table: &str) -> String {
    format!(r#"{{"routeTable":{table}}}"#)
}

fn registration(bearer: &str) -> String {
    format!(
        r#"{{ "authorization":"{bearer}","nodeId":"edge","protocol":{OFFER},"ingressInstanceNonce":"n" }}"#
    )
}

fn acceptance(generation: u64) -> String {
    format!(r#"{{"protocol":{OFFER},{ODD},"\udfff":null,"ingress":{{"id":"i","generation":{generation}}}}}"#)
}

fn adopted(revision: u64) -> Seen {
    Seen::Note(Note::Adopted { revision, routes: 1, certificates: 1 })
}

fn not_bound(class: &str) -> Seen {
    Seen::Note(Note::NotBound { class: class.to_owned() })
}

fn bound(superseded: bool) -> Seen {
    Seen::Note(Note::Bound { node: edge(), superseded })
}

fn edge() -> Id {
    Id::parse("edge").unwrap()
}

fn hint(socket: Socket, revision: u64) -> Seen {
    Seen::Sent(sent(Some(socket), HINT, &format!(r#"{{"revision":{revision}}}"#)))
}

fn sent(to: Option<Socket>, method: &str, body: &str) -> Sent {
    Sent { to, method: method.to_owned(), body: body.to_owned(), id: String::new(), instance: None }
}

/// The one request among what was seen.
fn request(seen: &[Seen]) -> Sent {
    let mut requests = seen.iter().filter_map(|seen| match seen {
        Seen::Sent(sent) => Some(sent.clone()),
        _ => None,
    });
    let request = requests.next().unwrap_or_else(|| panic!("no request: {seen:?}"));
    assert!(requests.next().is_none(), "two requests: {seen:?}");
    request
}

/// An ingress machine under a script, with the clock in the script's hand.
struct Script {
    ingress: Ingress,
    now: Now,
}

impl Script {
    fn without_session() -> Self {
        Self { ingress: Ingress::default(), now: Now { wall: 0, mono: 1000 * MS } }
    }

    fn new() -> Self {
        let mut script = Self::without_session();
        assert_eq!(script.on(Event::SessionUp), []);
        script
    }

    /// An ingress is bound on the socket.
    fn bound(socket: Socket) -> Self {
        let mut script = Self::new();
        script.bind(socket);
        script
    }

    fn on(&mut self, event: Event) -> Vec<Seen> {
        self.ingress.handle(event, self.now).into_iter().map(seen).collect()
    }

    fn ask(&mut self, socket: Socket, correlation: &str, method: &str, body: &str) -> Vec<Seen> {
        self.on(Event::Request { socket, request: asked(correlation, method, body) })
    }

    fn dispatch(&mut self, connection: Connection, correlation: &str, method: &str, body: &str) -> Vec<Seen> {
        self.on(Event::Dispatch { connection, request: asked(correlation, method, body) })
    }

    fn cloudly(&mut self, sent: &Sent, told: &Told) -> Option<Vec<Seen>> {
        let actions = self.ingress.cloudly_answered(answer_to(sent, told), self.now)?;
        Some(actions.into_iter().map(seen).collect())
    }

    fn socket(&mut self, socket: Socket, sent: &Sent, told: &Told) -> Option<Vec<Seen>> {
        let actions = self.ingress.socket_answered(socket, answer_to(sent, told), self.now)?;
        Some(actions.into_iter().map(seen).collect())
    }

    fn pass(&mut self, time: Duration) -> Vec<Seen> {
        self.now.mono += time;
        self.on(Event::Tick)
    }

    /// Sends a registration up.
    fn registers(&mut self, socket: Socket) -> Sent {
        let seen = self.ask(socket, "r", REGISTER, &registration("bearer"));
        assert_eq!(seen[0], Seen::OfferServed);
        request(&seen)
    }

    fn bind(&mut self, socket: Socket) {
        let sent = self.registers(socket);
        let mut seen = self.cloudly(&sent, &ok(&acceptance(1))).expect("the registration is answered");
        seen.retain(|seen| !matches!(seen, Seen::Superseded(_)));
        assert!(matches!(seen.as_slice(), [Seen::Note(Note::Bound { .. }), Seen::Socket(..)]), "{seen:?}");
    }

    fn push(&mut self, revision: u64) -> Vec<Seen> {
        self.dispatch(1, "p", PUSH, &carrying(&table(revision)))
    }

    /// What the socket is answered when it asks for the table.
    fn pull(&mut self, socket: Socket) -> Told {
        let seen = self.ask(socket, "t", PULL, r#"{"appliedRevision":null}"#);
        match seen.last() {
            Some(Seen::Socket(to, correlation, told)) if *to == socket && correlation == "t" => told.clone(),
            _ => panic!("no answer: {seen:?}"),
        }
    }
}

fn held(revision: u64) -> Seen {
    Seen::Cloudly(1, "p".to_owned(), ok(&format!(r#"{{"revision":{revision}}}"#)))
}
