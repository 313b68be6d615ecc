//! Scripts of events and exactly what follows from each, as Cloudly, vpnd and the log see it.

use bytes::Bytes;
use coreflow_ipc::typedrequest::{Body, Envelope, Ids, Outcome, PeerError, plain_refusal, read};

use super::*;
use crate::contract::{values::Id, vpn_network::VpnNetwork};

mod admission;
mod handing;
mod largest;
mod life;
mod model;
mod reads;
mod validating;
mod words;

const MS: Duration = Duration::from_millis(1);
const KEY: [u8; 32] = [7; 32];

/// What Cloudly is told of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Applied(Option<u64>),
    Replayed(Option<u64>),
    Failed(Option<u64>, String),
    Refused(String),
}

/// An action, comparable.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Read,
    Told(Connection, String, Answer),
    Apply(Link, AskId, Box<Snapshot>),
    Note(Note),
}

fn answer_of(outcome: &Outcome) -> Answer {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct State {
        state: String,
        revision: Option<u64>,
        reason: Option<String>,
    }
    let body = match outcome {
        Outcome::Error(error) => return Answer::Refused(PeerError::of(error).text),
        Outcome::Response(body) => body.read::<State>().expect("the contract's answer"),
    };
    match (body.state.as_str(), body.reason) {
        ("applied", None) => Answer::Applied(body.revision),
        ("replayed", None) => Answer::Replayed(body.revision),
        ("failed", Some(reason)) => Answer::Failed(body.revision, reason),
        other => panic!("{other:?}"),
    }
}

fn facts() -> VpnFacts {
    VpnFacts { address: [192, 0, 2, 9].into(), quic_port: 51_820, unavailable: None }
}

/// A network of the authority `a` with two members; `expiry` tells two of the same revision apart.
fn network_of(generation: u64, revision: u64, expiry: u64) -> String {
    format!(
        r#"{{"authority":{{"id":"a","generation":{generation}}},"revision":{revision},"controlPrefix":"10.9.0.0/24","members":[{{"nodeId":"n2","publicKey":"{}","address":"10.9.0.3","prefixes":["10.2.0.0/16"],"expiresAt":{expiry}}},{{"nodeId":"n1","publicKey":"{}","address":"10.9.0.2","prefixes":[],"expiresAt":{expiry}}}],"grants":[{{"from":"n1","to":"n2"}}]}}"#,
        "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
    )
}

fn network(revision: u64) -> String {
    network_of(1, revision, 1_769_817_600_000)
}

fn read_network(text: &str) -> VpnNetwork {
    let raw = serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    crate::contract::vpn_network::validate_cluster_vpn_network(&raw).unwrap()
}

/// What vpnd is given for a network.
fn snapshot(text: &str) -> Box<Snapshot> {
    Box::new(super::snapshot::compose(&read_network(text)))
}

fn carrying(network: &str) -> Body {
    Body::from_json(format!(r#"{{"network":{network}}}"#))
}

fn adopted(revision: u64) -> Seen {
    let authority = Id::parse("a").unwrap();
    Seen::Note(Note::Adopted { authority, generation: 1, revision, members: 2, grants: 1 })
}

fn failed(reason: &str) -> Seen {
    Seen::Note(Note::Failed { reason: reason.to_owned() })
}

fn told(correlation: &str, answer: Answer) -> Seen {
    Seen::Told(1, correlation.to_owned(), answer)
}

fn fails(held: Option<u64>, reason: &str) -> Answer {
    Answer::Failed(held, reason.to_owned())
}

/// A hub machine under a script, with the clock in the script's hand.
struct Script {
    hub: Hub,
    now: Now,
    /// The ids of the latest read.
    read: Option<(String, String)>,
    /// Whether a validation takes its time; otherwise it is done at once.
    slow: bool,
    /// The validations that are under way.
    validating: Vec<(Job, Body)>,
}

impl Script {
    /// A configured hub, whose vpnd is still to come.
    fn configured() -> Self {
        let hub = Hub::default();
        let mut script = Self {
            hub,
            now: Now { wall: 0, mono: 1000 * MS },
            read: None,
            slow: false,
            validating: Vec::new(),
        };
        assert_eq!(script.on(Event::Configured(Some(facts()))), []);
        assert_eq!(script.on(Event::SessionUp), []);
        script
    }

    /// A vpnd that holds nothing yet is linked.
    fn new() -> Self {
        let mut script = Self::configured();
        assert_eq!(script.link(1, None), [Seen::Note(Note::Linked { revision: None })]);
        script
    }

    /// The hub serves the revision.
    fn serving(revision: u64) -> Self {
        let mut script = Self::new();
        let seen = script.push("s", &network(revision));
        assert_eq!(seen, [Seen::Apply(1, 0, snapshot(&network(revision)))]);
        let seen = script.applied(1, 0, Ok(()));
        assert_eq!(seen, [adopted(revision), told("s", Answer::Applied(Some(revision)))]);
        script
    }

    fn see(&mut self, actions: Vec<Action>) -> Vec<Seen> {
        let mut seen: Vec<Seen> = actions.into_iter().filter_map(|action| self.seen(action)).collect();
        assert!(self.validating.len() <= 1, "one validation is under way at most");
        if !self.slow && !self.validating.is_empty() {
            seen.extend(self.validate());
        }
        seen
    }

    /// The validation that is under way comes to its end.
    fn validate(&mut self) -> Vec<Seen> {
        let (job, body) = self.validating.pop().expect("a validation is under way");
        let actions = self.hub.handle(Event::Validated { job, carried: read_carried(&body) }, self.now);
        self.see(actions)
    }

    fn seen(&mut self, action: Action) -> Option<Seen> {
        let envelope = |frame: String| read(&Bytes::from(frame)).expect("the relay writes envelopes");
        Some(match action {
            Action::Validate { job, body } => {
                self.validating.push((job, body));
                return None;
            }
            Action::SendUp(frame) => {
                let Envelope::Request(request) = envelope(frame) else { panic!("an answer as a request") };
                assert_eq!((request.method.as_str(), request.body.text()), ("getClusterVpnNetwork", "{}"));
                self.read = Some((request.ids.correlation, request.ids.instance.unwrap()));
                Seen::Read
            }
            Action::AnswerUp { connection, frame } => {
                let Envelope::Answer(answer) = envelope(frame) else { panic!("a request as an answer") };
                Seen::Told(connection, answer.correlation, answer_of(&answer.outcome))
            }
            Action::Apply { link, id, snapshot } => Seen::Apply(link, id, snapshot),
            Action::Note(note) => Seen::Note(note),
        })
    }

    fn on(&mut self, event: Event) -> Vec<Seen> {
        let actions = self.hub.handle(event, self.now);
        self.see(actions)
    }

    fn link(&mut self, link: Link, held: Option<Held>) -> Vec<Seen> {
        self.on(Event::Vpnd(Told::Linked { link, public_key: KEY, held }))
    }

    fn lose(&mut self, link: Link) -> Vec<Seen> {
        self.on(Event::Vpnd(Told::Lost { link }))
    }

    fn applied(&mut self, link: Link, id: AskId, outcome: Result<(), NotApplied>) -> Vec<Seen> {
        self.on(Event::Vpnd(Told::Applied { link, id, outcome }))
    }

    fn push_on(&mut self, connection: Connection, correlation: &str, body: Body) -> Vec<Seen> {
        let ids = Ids { correlation: correlation.to_owned(), instance: None };
        let request = Request { method: "applyClusterVpnNetwork".to_owned(), ids, body };
        self.on(Event::Dispatch { connection, request })
    }

    fn push(&mut self, correlation: &str, network: &str) -> Vec<Seen> {
        self.push_on(1, correlation, carrying(network))
    }

    fn pass(&mut self, time: Duration) -> Vec<Seen> {
        self.now.mono += time;
        self.on(Event::Tick)
    }

    /// The latest read is answered; `None` when nobody waits for that any more.
    fn answer_read(&mut self, outcome: Outcome) -> Option<Vec<Seen>> {
        let (correlation, instance) = self.read.clone().expect("something was read");
        let instance = Some(instance);
        let answer =
            coreflow_ipc::typedrequest::Answer { correlation, instance, outcome, retry_after_ms: None };
        assert!(self.hub.asked_cloudly(&answer));
        let actions = self.hub.cloudly_answered(answer, self.now)?;
        Some(self.see(actions))
    }

    fn held(&self) -> Option<u64> {
        self.hub.holding().map(Holding::revision)
    }
}
