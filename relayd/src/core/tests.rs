//! The machines together: what Cloudly, the nodes, the supervisor and the log see of each event.

use std::{cell::RefCell, fmt::Write as _, sync::Once};

use bytes::Bytes;
use coreflow_ipc::{
    messages::relayd::{Identity, Kept, Reference},
    now::Now,
    secret::SecretText,
    typedrequest::{Answer, Body, Envelope, Ids, Outcome, PeerError, Request, plain_refusal, read},
};
use tracing::{field::Visit, span, subscriber::set_global_default};

use super::*;
use crate::{
    cluster::{Origin, Published, Served},
    session,
};

mod certificate;
mod clock;
mod continuity_model;
mod day;
mod escrow;
mod ingress;
mod parking;
mod reconnect;
mod registering;
mod router;
mod standing;
mod start;
mod stop;
mod vpn;

const MS: Duration = Duration::from_millis(1);
const HOUR: u64 = 3_600_000;
const OFFER: &str = r#"{"release":"33.1.0","oldestAcceptedPeerRelease":"32.0.0"}"#;
/// Cloudly's identity, in a form that only a verbatim copy keeps.
const IDENTITY: &str =
    r#"{ "name":"relay","userId":"u","role":"cluster","type":"machine","expiresAt":3.6e6,"jwt":"JWT" }"#;
const ANNOUNCE: &str = "registerCloudlyClientSession";
const REGISTER: &str = "registerClusterRelay";
const CONFIG: &str = "getClusterConfig";
const TABLE: &str = "getClusterRouteTable";
const NETWORK: &str = "getClusterVpnNetwork";
const APPLY: &str = "applyRuntimeAssignment";
const REPORT: &str = "reportRuntimeNetworkProtection";
const NODE_REGISTERS: &str = "registerPalletRuntimeSession";

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Response(String),
    Error(String),
}

/// A request that the relay sent, and the ids that its answer copies.
#[derive(Debug, Clone)]
struct Sent {
    method: String,
    body: String,
    id: String,
    instance: Option<String>,
}

/// Ids are random; what is sent is its method and its body.
impl PartialEq for Sent {
    fn eq(&self, other: &Self) -> bool {
        (&self.method, &self.body) == (&other.method, &other.body)
    }
}

/// An effect, comparable.
#[derive(Debug, Clone, PartialEq)]
enum Did {
    AskIdentity,
    Dial(Connection),
    Hangup(Connection),
    Sent(Connection, Sent),
    Told(Connection, String, Told),
    NodeSent(Socket, Sent),
    NodeTold(Socket, String, Told),
    CloseNode(Socket),
    Answer(u64, Result<String, String>),
    Dispatchable(bool),
    Waiting(String),
    Keep(Kept),
    Readiness(Vec<String>),
    Serve(Chain),
    Apply(u64, AskId, Box<Snapshot>),
    Drained,
}

fn told(answer: &Answer) -> Told {
    match &answer.outcome {
        Outcome::Response(body) => Told::Response(body.text().to_owned()),
        Outcome::Error(error) => Told::Error(PeerError::of(error).text),
    }
}

fn sent(request: Request) -> Sent {
    let Ids { correlation, instance } = request.ids;
    Sent { method: request.method, body: request.body.text().to_owned(), id: correlation, instance }
}

/// What an effect does; a statement is a line of the log and nothing else.
fn did(effect: Effect) -> Option<Did> {
    let envelope = |frame: String| read(&Bytes::from(frame)).expect("the relay writes envelopes");
    Some(match effect {
        Effect::State(statement) => {
            statement.log();
            return None;
        }
        Effect::AskIdentity => Did::AskIdentity,
        Effect::Dial(connection) => Did::Dial(connection),
        Effect::Hangup(connection) => Did::Hangup(connection),
        Effect::ToCloudly { connection, frame } => match envelope(frame) {
            Envelope::Request(request) => Did::Sent(connection, sent(request)),
            Envelope::Answer(answer) => Did::Told(connection, answer.correlation.clone(), told(&answer)),
        },
        Effect::ToNode { socket, frame } => match envelope(frame) {
            Envelope::Request(request) => Did::NodeSent(socket, sent(request)),
            Envelope::Answer(answer) => Did::NodeTold(socket, answer.correlation.clone(), told(&answer)),
        },
        Effect::CloseNode(socket) => Did::CloseNode(socket),
        Effect::Answer { read, result } => {
            let result = result.map(|body| body.text().to_owned()).map_err(|failure| failure.to_string());
            Did::Answer(read.number, result)
        }
        Effect::Dispatchable(dispatchable) => Did::Dispatchable(dispatchable),
        Effect::Waiting(what) => Did::Waiting(what),
        Effect::Keep(kept) => Did::Keep(kept),
        Effect::Readiness(refusals) => Did::Readiness(refusals.iter().map(ToString::to_string).collect()),
        Effect::Serve(loaded) => Did::Serve(loaded.chain()),
        Effect::ApplyNetwork { link, id, snapshot } => Did::Apply(link, id, snapshot),
        Effect::ValidateNetwork { .. } => unreachable!("the script validates"),
        Effect::Drained => Did::Drained,
    })
}

fn out(method: &str, body: &str) -> Sent {
    Sent { method: method.to_owned(), body: body.to_owned(), id: String::new(), instance: None }
}

fn asked(correlation: &str, method: &str, body: &str) -> Envelope {
    Envelope::Request(Request {
        method: method.to_owned(),
        ids: Ids { correlation: correlation.to_owned(), instance: Some(format!("of-{correlation}")) },
        body: Body::from_json(body.to_owned()),
    })
}

fn answer_to(sent: &Sent, outcome: Outcome) -> Envelope {
    let (correlation, instance) = (sent.id.clone(), sent.instance.clone());
    Envelope::Answer(Answer { correlation, instance, outcome, retry_after_ms: None })
}

fn ok(body: &str) -> Outcome {
    Outcome::Response(Body::from_json(body.to_owned()))
}

fn identified() -> String {
    format!(r#"{{"identity":{IDENTITY}}}"#)
}

fn of(node: &str) -> String {
    format!(r#"{{"session":{{"sessionId":"s-{node}","nodeId":"{node}","clusterId":"c","generation":1}}}}"#)
}

fn reference(id: &str, generation: u64) -> Reference {
    Reference { id: id.to_owned(), generation }
}

fn acceptance(origin: &str, credential: u64, record: u64) -> Outcome {
    ok(&format!(
        r#"{{"protocol":{OFFER},"origin":"{origin}","credential":{{"id":"cred","generation":{credential}}},"registration":{{"id":"rec","generation":{record}}}}}"#
    ))
}

fn config(relay: &str) -> String {
    format!(r#"{{"configData":{{"id":"c","data":{{"name":"n","nodes":[]{relay}}}}},"services":[]}}"#)
}

/// The one request among what was done; the reads of route table and network come beside others (REG-66).
fn request(done: &[Did]) -> Sent {
    let mut requests = done.iter().filter_map(|did| match did {
        Did::Sent(_, sent) | Did::NodeSent(_, sent) if ![TABLE, NETWORK].contains(&sent.method.as_str()) => {
            Some(sent.clone())
        }
        _ => None,
    });
    let request = requests.next().unwrap_or_else(|| panic!("no request: {done:?}"));
    assert!(requests.next().is_none(), "two requests: {done:?}");
    request
}

fn read_among(done: &[Did], method: &str) -> Sent {
    let read = done.iter().find_map(|did| match did {
        Did::Sent(_, sent) if sent.method == method => Some(sent.clone()),
        _ => None,
    });
    read.unwrap_or_else(|| panic!("no {method}: {done:?}"))
}

fn served(done: &[Did], method: &str) -> bool {
    done.iter().any(|did| matches!(did, Did::Sent(_, sent) | Did::NodeSent(_, sent) if sent.method == method))
}

/// A relayd core under a script, with both clocks in the script's hand and the largest jitter.
struct Script {
    core: Core,
    now: Now,
    connection: Connection,
}

impl Script {
    fn resumed(kept: Kept) -> Self {
        listen();
        Self { core: Core::resume(kept), now: Now { wall: 1_000, mono: Duration::ZERO }, connection: 1 }
    }

    fn on(&mut self, event: Event) -> Vec<Did> {
        let mut done = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.core.handle(event, self.now, u32::MAX) {
                match effect {
                    // As the thread beside the core does.
                    Effect::ValidateNetwork { job, body } => {
                        events.push(Event::NetworkValidated { job, carried: hub::read_carried(&body) });
                    }
                    effect => done.extend(did(effect)),
                }
            }
        }
        done
    }

    fn session(&mut self, event: session::Event) -> Vec<Did> {
        self.on(Event::Session(event))
    }

    fn pass(&mut self, time: Duration) -> Vec<Did> {
        self.now.mono += time;
        self.now.wall += u64::try_from(time.as_millis()).unwrap();
        self.on(Event::Tick)
    }

    fn identity(&mut self) -> Vec<Did> {
        let document = SecretText::new(IDENTITY.to_owned());
        self.on(Event::Identity(Identity { document, expires_at: self.now.wall + HOUR }))
    }

    fn cloudly(&mut self, envelope: Envelope) -> Vec<Did> {
        let connection = self.connection;
        self.on(Event::FromCloudly { connection, envelope })
    }

    fn answer(&mut self, done: &[Did], outcome: Outcome) -> Vec<Did> {
        self.cloudly(answer_to(&request(done), outcome))
    }

    fn node(&mut self, socket: Socket, envelope: Envelope) -> Vec<Did> {
        self.on(Event::FromNode { socket, envelope })
    }

    /// The connection that is being dialled opens and the session is registered on it.
    fn connect(&mut self) -> Vec<Did> {
        let connection = self.connection;
        let announced = self.session(session::Event::Connected { connection });
        self.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)))
    }

    /// The session stands on its first connection.
    fn standing() -> Self {
        let mut script = Self::resumed(Kept::default());
        script.session(session::Event::Started);
        script.identity();
        assert_eq!(script.connect(), [Did::Dispatchable(true)]);
        script
    }

    /// The listener opens; what the registration that follows is.
    fn listen(&mut self) -> Vec<Did> {
        self.listen_with(None)
    }

    /// The same, with a hub.
    fn listen_with(&mut self, vpn: Option<VpnFacts>) -> Vec<Did> {
        let origin = Origin::parse("https://relay.test").unwrap();
        let served = Served::new(Published::Relay(origin.clone()));
        assert_eq!(self.on(Event::Started(served)), []);
        self.on(Event::Listening(Box::new(Endpoint {
            node_id: "node-1".to_owned(),
            listen_address: "192.0.2.7".to_owned(),
            listen_port: 8443,
            origin,
            certificate: certificate::first().chain(),
            vpn,
        })))
    }

    /// The relay is registered with credential generation 1 and record generation 1.
    fn registered() -> Self {
        let mut script = Self::standing();
        let sent = script.listen();
        let read = script.answer(&sent, acceptance("https://relay.test", 1, 1));
        let published = config(r#","relay":{"origin":"https://relay.test"}"#);
        assert_eq!(script.answer(&read, ok(&published)), []);
        script.answer_table(&read, "null");
        script.answer_network(&read, "null");
        script
    }

    /// Cloudly answers the read of the route table among `done`.
    fn answer_table(&mut self, done: &[Did], table: &str) -> Vec<Did> {
        self.cloudly(answer_to(&read_among(done, TABLE), ok(&format!(r#"{{"routeTable":{table}}}"#))))
    }

    /// Cloudly answers the read of the VPN network among `done`.
    fn answer_network(&mut self, done: &[Did], network: &str) -> Vec<Did> {
        self.cloudly(answer_to(&read_among(done, NETWORK), ok(&format!(r#"{{"network":{network}}}"#))))
    }

    fn carry(&mut self, socket: Socket, node: &str) {
        let sent = self.node(socket, asked("r", NODE_REGISTERS, &node_registration()));
        let told = self.answer(&sent, ok(&of(node)));
        assert_eq!(told, [Did::NodeTold(socket, "r".into(), Told::Response(of(node)))]);
    }

    /// The node's requests reach Cloudly and pushes reach the node, both ways.
    fn assert_carried(&mut self, socket: Socket, node: &str) {
        let pushed = self.cloudly(asked("p", APPLY, &of(node)));
        assert_eq!(pushed, [Did::NodeSent(socket, out(APPLY, &of(node)))]);
        let acknowledged = self.node(socket, answer_to(&request(&pushed), ok("{}")));
        assert_eq!(acknowledged, [Did::Told(self.connection, "p".into(), Told::Response("{}".into()))]);
        let sent = self.node(socket, asked("q", REPORT, &of(node)));
        assert_eq!(sent, [Did::Sent(self.connection, out(REPORT, &of(node)))]);
        let told = self.answer(&sent, ok("{}"));
        assert_eq!(told, [Did::NodeTold(socket, "q".into(), Told::Response("{}".into()))]);
    }

    /// The identity is renewed on the unbroken connection, and the session registered anew.
    fn renew(&mut self) -> Vec<Did> {
        self.now.wall += HOUR - 60_000;
        self.now.mono += Duration::from_millis(HOUR - 60_000);
        assert!(self.on(Event::Tick).contains(&Did::AskIdentity));
        let announced = self.identity();
        self.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)))
    }

    /// The connection ends and the next one is registered, half a second later.
    fn reconnect(&mut self) -> Vec<Did> {
        let connection = self.connection;
        self.session(session::Event::Closed { connection });
        self.connection += 1;
        assert_eq!(self.pass(500 * MS), [Did::Dial(self.connection)]);
        self.connect()
    }
}

fn node_registration() -> String {
    format!(r#"{{"protocol":{OFFER},"nodeId":"n"}}"#)
}

thread_local! {
    /// What this thread logs, one line an event, while [`logged`] listens.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// The process's one subscriber. It is there before the first event of any test: an event that is first
/// met without a listener may stay unheard for good.
struct Recorder;

fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| set_global_default(Recorder).expect("nobody else sets one"));
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for Recorder {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|lines| lines.push(line.0.clone())));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// What `run` logs, and what it returns.
fn logged<T>(run: impl FnOnce() -> T) -> (Vec<String>, T) {
    LINES.set(Some(Vec::new()));
    let result = run();
    let lines = LINES.take().expect("only this function takes them");
    (lines, result)
}

fn warnings(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.starts_with("WARN") || line.starts_with("ERROR")).collect()
}
