//! Random event sequences against a slow, obvious model that shares no code with the forwarder: it
//! keeps the whole history and searches it from the end.
//!
//! FWD-06, FWD-08 – FWD-16, FWD-20 – FWD-25: every request of a node gets one answer, or its socket is
//! closed; every push gets one answer; what is forwarded is what the model says; nothing is left.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::{MS, OFFER, REGISTER, REPORT, Script};
use crate::{
    constants::STRANGER_IN_FLIGHT,
    forwarder::{Action, Event, Socket},
};
use bytes::Bytes;
use coreflow_ipc::typedrequest::{Envelope, read};

/// One step of a random history; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Register { socket: usize, servable: bool },
    Report { socket: usize, node: usize, change: u8 },
    Other { socket: usize, hold: bool },
    CloudlyAnswers { which: usize, node: usize, kind: u8 },
    Push { node: usize },
    NodeAnswers { which: usize, socket: Option<usize>, kind: u8 },
    Close { socket: usize },
    SessionUp,
    SessionDown,
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let socket = 0..4_usize;
    let node = 0..3_usize;
    prop_oneof![
        4 => (socket.clone(), prop::bool::weighted(0.9)).prop_map(|(socket, servable)| Step::Register { socket, servable }),
        4 => (socket.clone(), node.clone(), 0..8_u8).prop_map(|(socket, node, change)| Step::Report { socket, node, change }),
        1 => (socket.clone(), any::<bool>()).prop_map(|(socket, hold)| Step::Other { socket, hold }),
        6 => (any::<usize>(), node.clone(), 0..8_u8).prop_map(|(which, node, kind)| Step::CloudlyAnswers { which, node, kind }),
        3 => node.prop_map(|node| Step::Push { node }),
        4 => (any::<usize>(), prop::option::weighted(0.2, socket.clone()), 0..5_u8)
            .prop_map(|(which, socket, kind)| Step::NodeAnswers { which, socket, kind }),
        1 => socket.prop_map(|socket| Step::Close { socket }),
        2 => Just(Step::SessionUp),
        1 => Just(Step::SessionDown),
        4 => prop_oneof![Just(1_u64), Just(700), Just(2500), Just(5000), Just(9000)].prop_map(|ms| Step::Pass { ms }),
    ]
}

/// A binding that Cloudly issued through the relay, in the order of issue.
#[derive(Debug, Clone)]
struct Issued {
    socket: Socket,
    node: String,
    session: String,
    count: u64,
}

/// A question that somebody asked the relay, and what became of it.
#[derive(Debug)]
struct Asked {
    socket: Socket,
    at: u64,
    budget: u64,
    answers: usize,
}

/// A request that the relay sent on, as its receiver sees it.
#[derive(Debug, Clone)]
struct Sent {
    to: Option<Socket>,
    method: String,
    id: String,
    instance: String,
}

#[derive(Default)]
struct Model {
    now: u64,
    session: Option<u64>,
    count: u64,
    sockets: [Socket; 4],
    closed: Vec<Socket>,
    issued: Vec<Issued>,
    requests: BTreeMap<String, Asked>,
    pushes: BTreeMap<String, Asked>,
    sent: Vec<Sent>,
    next: u64,
}

impl Model {
    fn name(&mut self) -> String {
        self.next += 1;
        format!("q{}", self.next)
    }

    /// Who carries the node: its latest binding, unless its socket closed or is another node's since.
    fn carrier(&self, node: &str) -> Option<&Issued> {
        let (at, issued) = self.issued.iter().enumerate().rfind(|(_, issued)| issued.node == node)?;
        let taken = self.issued[at + 1..].iter().any(|later| later.socket == issued.socket);
        (!taken && !self.closed.contains(&issued.socket)).then_some(issued)
    }

    /// Whether as many requests of `socket` wait as may, while it carries no node.
    fn holds_a_strangers_share(&self, socket: Socket) -> bool {
        let carries =
            self.issued.iter().any(|issued| self.carrier(&issued.node).is_some_and(|by| by.socket == socket));
        let waiting = self.requests.values().filter(|asked| asked.socket == socket && asked.answers == 0);
        !carries && waiting.count() >= STRANGER_IN_FLIGHT
    }

    /// The refusal of a request of `socket` that states these members, or `None` if it goes up.
    fn refusal(
        &self,
        socket: Socket,
        node: &str,
        session: &str,
        cluster: &str,
        generation: u64,
    ) -> Option<&str> {
        let Some(issued) = self.carrier(node).filter(|issued| issued.socket == socket) else {
            return Some("runtime-session-foreign: socket");
        };
        if session != issued.session {
            return Some("runtime-session-foreign: session");
        }
        if cluster != "c" {
            return Some("runtime-session-foreign: cluster");
        }
        if generation != 1 || self.session.is_some_and(|count| count != issued.count) {
            return Some("runtime-session-foreign: registration");
        }
        match self.session {
            Some(_) => None,
            None => Some("relay-session-unavailable: no Cloudly session after waiting 0 ms"),
        }
    }
}

/// What one event led to: the answers by correlation, and how many requests went on.
struct Led {
    answers: Vec<(String, Value)>,
    sent: usize,
}

struct Run {
    script: Script,
    model: Model,
}

impl Run {
    fn new() -> Self {
        let script = Script::without_session();
        let now = u64::try_from(script.now.mono.as_millis()).unwrap();
        Self { script, model: Model { now, sockets: [1, 2, 3, 4], next: 100, ..Model::default() } }
    }

    /// Hands an event over and books everything that leaves the forwarder.
    fn on(&mut self, event: Event) -> Led {
        let mut led = Led { answers: Vec::new(), sent: 0 };
        for action in self.script.forwarder.handle(event, self.script.now) {
            let (to, up, frame) = match action {
                Action::SendUp(frame) => (None, true, frame),
                Action::SendDown { socket, frame } => (Some(socket), false, frame),
                Action::AnswerUp { frame, connection } => {
                    assert_eq!(connection, 1);
                    (None, true, frame)
                }
                Action::OfferRefused(_)
                | Action::OfferServed
                | Action::Acknowledged { .. }
                | Action::Superseded(_)
                | Action::Note(_) => continue,
            };
            let frame: Value = serde_json::from_str(&frame).unwrap();
            let id = frame["correlation"]["id"].as_str().unwrap().to_owned();
            if frame["correlation"]["phase"] == "request" {
                assert!(!up || self.model.session.is_some(), "nothing goes up without a session");
                assert!(
                    to.is_none_or(|socket| !self.model.closed.contains(&socket)),
                    "sent to a closed socket"
                );
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let (method, instance) = (text(&frame["method"]), text(&frame["requestInstanceId"]));
                self.model.sent.push(Sent { to, method, id, instance });
                led.sent += 1;
                continue;
            }
            let book = if up { &mut self.model.pushes } else { &mut self.model.requests };
            let asked = book.get_mut(&id).expect("an answer to a question that was asked");
            asked.answers += 1;
            assert_eq!(asked.answers, 1, "a second answer to {id}");
            assert!(self.model.now <= asked.at + asked.budget, "answered after its budget");
            if let Some(socket) = to {
                assert_eq!(socket, asked.socket, "answered to another socket");
                assert!(!self.model.closed.contains(&socket), "answered to a closed socket");
            }
            led.answers.push((id, frame));
        }
        led
    }

    fn request(&mut self, socket: Socket, method: &str, body: &str, budget: u64) -> (String, Led) {
        let id = self.model.name();
        let asked = Asked { socket, at: self.model.now, budget, answers: 0 };
        self.model.requests.insert(id.clone(), asked);
        let request = super::asked(&id, method, body);
        let led = self.on(Event::Request { socket, request });
        (id, led)
    }

    /// A request that is refused with `text`, or goes on if there is none.
    fn expect(&self, led: &Led, id: &str, text: Option<&str>) {
        match text {
            Some(text) => {
                assert_eq!(led.sent, 0, "refused and sent on");
                assert_eq!(led.answers.len(), 1);
                assert_eq!(
                    (led.answers[0].0.as_str(), &led.answers[0].1["error"]["text"]),
                    (id, &text.into())
                );
            }
            None => assert_eq!((led.sent, led.answers.len()), (1, 0)),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Register { socket, servable } => {
                let socket = self.model.sockets[socket];
                let offer = if servable { OFFER } else { "null" };
                let full = self.model.holds_a_strangers_share(socket);
                let (id, led) = self.request(socket, REGISTER, &format!(r#"{{"protocol":{offer}}}"#), 9000);
                match (servable, self.model.session) {
                    (true, _) if full => {
                        assert_eq!((led.sent, led.answers.len()), (0, 1));
                        let text = led.answers[0].1["error"]["text"].as_str().unwrap();
                        assert!(text.starts_with("relay-too-many-in-flight"), "{text}");
                    }
                    (true, Some(_)) => self.expect(&led, &id, None),
                    (true, None) => assert_eq!((led.sent, led.answers.len()), (0, 0)),
                    (false, _) => {
                        assert_eq!((led.sent, led.answers.len()), (0, 1));
                        let text = led.answers[0].1["error"]["text"].as_str().unwrap();
                        assert!(text.starts_with("protocol-refused: "), "{text}");
                    }
                }
            }
            Step::Report { socket, node, change } => {
                let (socket, node) = (self.model.sockets[socket], format!("n{node}"));
                let session = self.model.issued.iter().rfind(|issued| issued.node == node);
                let session = session.map_or_else(|| "none".to_owned(), |issued| issued.session.clone());
                let session = if change == 0 { "another".to_owned() } else { session };
                let (cluster, generation) = (if change == 1 { "d" } else { "c" }, u64::from(change != 2));
                let body = super::binding(&session, &node, cluster, generation);
                let refusal =
                    self.model.refusal(socket, &node, &session, cluster, generation).map(str::to_owned);
                let (id, led) = self.request(socket, REPORT, &format!(r#"{{"session":{body}}}"#), 8000);
                self.expect(&led, &id, refusal.as_deref());
            }
            Step::Other { socket, hold } => {
                let socket = self.model.sockets[socket];
                let (method, text) = if hold {
                    ("holdRuntimeNetworkDnsLeaseRenewals", "escrow-cloudly-only")
                } else {
                    ("another", "There is no available method for this call on the server side")
                };
                let (id, led) = self.request(socket, method, "{}", 0);
                self.expect(&led, &id, Some(text));
            }
            Step::CloudlyAnswers { which, node, kind } => self.cloudly_answers(which, node, kind),
            Step::Push { node } => {
                let node = format!("n{node}");
                let carrier = self.model.carrier(&node).map(|issued| issued.socket);
                let id = self.model.name();
                let asked = Asked { socket: 0, at: self.model.now, budget: 8000, answers: 0 };
                self.model.pushes.insert(id.clone(), asked);
                let request =
                    super::asked(&id, super::APPLY, &format!(r#"{{"session":{{"nodeId":"{node}"}}}}"#));
                let led = self.on(Event::Push { connection: 1, request });
                let absent = format!("relay-node-not-connected: node {node} is not connected to this relay");
                self.expect(&led, &id, carrier.is_none().then_some(absent.as_str()));
                if carrier.is_some() {
                    assert_eq!(
                        self.model.sent.last().unwrap().to,
                        carrier,
                        "pushed to the carrier of {node}"
                    );
                }
            }
            Step::NodeAnswers { which, socket, kind } => self.node_answers(which, socket, kind),
            Step::Close { socket } => {
                let closed = self.model.sockets[socket];
                self.model.next += 1;
                self.model.sockets[socket] = self.model.next;
                self.model.closed.push(closed);
                let led = self.on(Event::Closed { socket: closed });
                assert_eq!(led.sent, 0, "FWD-26: no call says that a node went");
            }
            Step::SessionUp => {
                if self.model.session.is_none() {
                    self.model.count += 1;
                    self.model.session = Some(self.model.count);
                    let led = self.on(Event::SessionUp { count: self.model.count });
                    assert_eq!(led.answers.len(), 0);
                }
            }
            Step::SessionDown => {
                if self.model.session.take().is_some() {
                    // What was sent on a session is not answered on another.
                    self.model.sent.retain(|sent| sent.to.is_some());
                    let led = self.on(Event::SessionDown);
                    assert_eq!(led.sent, 0);
                }
            }
            Step::Pass { ms } => self.pass(ms),
        }
    }

    /// The clock goes on; a tick comes at each deadline on the way.
    fn pass(&mut self, ms: u64) {
        let end = self.model.now + ms;
        while let Some(due) = self.script.forwarder.next_deadline()
            && due.as_millis() <= u128::from(end)
        {
            assert!(due >= self.script.now.mono, "a deadline was missed");
            self.go_to(u64::try_from(due.as_millis()).unwrap());
            self.on(Event::Tick);
            assert_ne!(self.script.forwarder.next_deadline(), Some(due), "a tick does what is due");
        }
        self.go_to(end);
        self.on(Event::Tick);
    }

    fn go_to(&mut self, ms: u64) {
        self.model.now = ms;
        self.script.now.mono = MS * u32::try_from(ms).unwrap();
    }

    fn cloudly_answers(&mut self, which: usize, node: usize, kind: u8) {
        let up: Vec<Sent> = self.model.sent.iter().filter(|sent| sent.to.is_none()).cloned().collect();
        if up.is_empty() || self.model.session.is_none() {
            return;
        }
        let sent = &up[which % up.len()];
        let session = self.model.name();
        let node = format!("n{node}");
        let body = format!(r#"{{"session":{}}}"#, super::binding(&session, &node, "c", 1));
        let rest = match kind {
            0 => r#""response":null,"error":{"text":"no","data":{}}"#.to_owned(),
            1 => r#""response":null,"retry":{"waitForMs":800,"reason":"busy"}"#.to_owned(),
            2 => r#""response":{"session":null}"#.to_owned(),
            _ => format!(r#""response":{body}"#),
        };
        let instance = if kind == 3 { "another" } else { &sent.instance };
        let led = self.answer(sent, instance, &rest, None);
        let Some((id, _)) = led.answers.first() else { return };
        if sent.method == REGISTER && kind > 3 {
            let (socket, count) = (self.model.requests[id].socket, self.model.count);
            self.model.issued.push(Issued { socket, node, session, count });
        }
    }

    fn node_answers(&mut self, which: usize, socket: Option<usize>, kind: u8) {
        let down: Vec<Sent> = self.model.sent.iter().filter(|sent| sent.to.is_some()).cloned().collect();
        if down.is_empty() {
            return;
        }
        let sent = &down[which % down.len()];
        let from = socket.map_or(sent.to.unwrap(), |socket| self.model.sockets[socket]);
        if self.model.closed.contains(&from) {
            return;
        }
        let rest = match kind {
            0 => r#""response":null,"error":{"text":"no"}"#,
            1 => r#""response":null,"retry":{"waitForMs":800,"reason":"busy"}"#,
            _ => r#""response":{}"#,
        };
        let led = self.answer(sent, &sent.instance.clone(), rest, Some(from));
        assert!(Some(from) == sent.to || led.answers.is_empty(), "another socket answered a push");
    }

    fn answer(&mut self, sent: &Sent, instance: &str, rest: &str, from: Option<Socket>) -> Led {
        let frame = format!(
            r#"{{"method":"{}",{rest},"requestInstanceId":"{instance}","correlation":{{"id":"{}","phase":"response"}}}}"#,
            sent.method, sent.id
        );
        let Ok(Envelope::Answer(answer)) = read(&Bytes::from(frame)) else { panic!("an answer") };
        let led = match from {
            None => self.on(Event::Answered(answer)),
            Some(socket) => self.on(Event::NodeAnswered { socket, answer }),
        };
        assert!(led.sent == 0 && led.answers.len() <= 1);
        led
    }

    /// Everybody still connected has been answered, and the forwarder waits for nothing.
    fn finish(&mut self) {
        self.pass(20_000);
        for (id, asked) in &self.model.requests {
            let closed = self.model.closed.contains(&asked.socket);
            assert!(asked.answers == 1 || closed, "{id} was not answered");
        }
        for (id, asked) in &self.model.pushes {
            assert_eq!(asked.answers, 1, "push {id} was not answered");
        }
        assert_eq!(self.script.forwarder.next_deadline(), None);
        assert_eq!(self.script.forwarder.pushes_in_flight(), 0);
        let carried = (0..3).filter(|node| self.model.carrier(&format!("n{node}")).is_some()).count();
        assert_eq!(self.script.forwarder.carried(), carried);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_question_gets_one_answer(steps in prop::collection::vec(step(), 1..160)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
        run.finish();
    }
}
