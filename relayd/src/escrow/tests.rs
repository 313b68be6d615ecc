//! Scripts of events and exactly what follows from each, as nodes and Cloudly see it. One minute of a
//! script is one minute of both clocks, unless it moves one of them.

use bytes::Bytes;
use coreflow_ipc::typedrequest::{Body, Envelope, Ids, Outcome, PeerError, read};

use super::*;
use crate::routes::{HOLD, RENEWAL};

mod clocks;
mod drops;
mod holds;
mod model;
mod release;
mod standing;

const S: Duration = Duration::from_secs(1);
const MIN: u64 = 60_000;
/// The wall clock at the start of a script: the first window of [`grid`] begins.
const START: u64 = 1_800_000_000_000;
/// A JSON text that a decoder and an encoder would not give back.
const ODD: &str = r#" "sequence" : 7 ,"signature":"\u0041AAA" "#;

/// The carried nodes of a script.
#[derive(Default)]
struct Roster(BTreeMap<Id, (Binding, Socket)>);

impl Carried for Roster {
    fn carried(&self, node: &Id) -> Option<(&Binding, Socket)> {
        self.0.get(node).map(|(binding, socket)| (binding, *socket))
    }
}

/// A renewal that was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offered {
    to: Socket,
    body: String,
    id: String,
    instance: Option<String>,
}

impl Offered {
    fn sequence(&self) -> u64 {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body["renewal"]["sequence"].as_u64().unwrap()
    }
}

/// An action, comparable.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Offered(Offered),
    Told(Connection, String, Result<String, String>),
    Note(Note),
}

fn seen(action: Action) -> Seen {
    let envelope = |frame: &str| read(&Bytes::copy_from_slice(frame.as_bytes())).expect("an envelope");
    match action {
        Action::SendDown { socket, frame } => match envelope(&frame) {
            Envelope::Request(request) => {
                assert_eq!(request.method, RENEWAL);
                let (body, Ids { correlation: id, instance }) = (request.body.text().to_owned(), request.ids);
                Seen::Offered(Offered { to: socket, body, id, instance })
            }
            Envelope::Answer(_) => panic!("an answer was sent as a request: {frame}"),
        },
        Action::AnswerUp { connection, frame } => match envelope(&frame) {
            Envelope::Answer(answer) => {
                let told = match answer.outcome {
                    Outcome::Response(body) => Ok(body.text().to_owned()),
                    Outcome::Error(error) => Err(PeerError::of(&error).text),
                };
                Seen::Told(connection, answer.correlation, told)
            }
            Envelope::Request(_) => panic!("a request was sent as an answer: {frame}"),
        },
        Action::Note(note) => Seen::Note(note),
    }
}

fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

/// The session `session` of a node; its cluster is `c`.
fn binding(node: &str, session: &str) -> Binding {
    let text = format!(r#"{{"sessionId":"{session}","nodeId":"{node}","clusterId":"c","generation":1}}"#);
    serde_json::from_str(&text).unwrap()
}

/// A generation of a projection; its digest follows from both.
fn projection(name: &str, generation: u64) -> String {
    let digest = format!("{:064x}", generation);
    format!(r#"{{"id":"{name}","generation":{generation},"digest":"sha256:{digest}"}}"#)
}

fn read_projection(text: &str) -> Projection {
    serde_json::from_str(text).unwrap()
}

/// One renewal for node `node` of cluster `c`; the window in Unix milliseconds.
fn renewal(node: &str, projection: &str, sequence: u64, window: (u64, u64)) -> String {
    let (not_before, expires_at) = window;
    format!(
        r#"{{"projection":{projection},"nodeId":"{node}","clusterId":"c","sequence":{sequence},"notBefore":{not_before},"expiresAt":{expires_at},"signature":"c2lnbmVk"}}"#
    )
}

/// The window of Cloudly's grid that starts 10 × `index` minutes after the start of the script.
fn window(index: u64) -> (u64, u64) {
    let start = START + index * 10 * MIN;
    (start, start + 15 * MIN)
}

/// `count` renewals on the grid, from window and sequence `first` on.
fn grid(node: &str, projection: &str, first: u64, count: u64) -> Vec<String> {
    (first..first + count).map(|index| renewal(node, projection, index, window(index))).collect()
}

fn hold_body(session: &Binding, projection: &str, renewals: &[String]) -> String {
    let session = serde_json::to_string(session).unwrap();
    format!(r#"{{"session":{session},"projection":{projection},"renewals":[{}]}}"#, renewals.join(","))
}

/// An escrow under a script, with both clocks in the script's hand.
struct Script {
    escrow: Escrow,
    roster: Roster,
    now: Now,
}

impl Script {
    /// The session stands, and nobody is carried.
    fn new() -> Self {
        let now = Now { wall: START, mono: Duration::from_secs(1000) };
        let mut script = Self { escrow: Escrow::default(), roster: Roster::default(), now };
        assert_eq!(script.on(Event::SessionUp), []);
        script
    }

    fn on(&mut self, event: Event) -> Vec<Seen> {
        self.escrow.handle(event, self.now, &self.roster).into_iter().map(seen).collect()
    }

    /// Cloudly issues the node a binding through this relay.
    fn registers(&mut self, socket: Socket, binding: Binding) -> Vec<Seen> {
        let node = binding.node_id.clone();
        self.roster.0.insert(node.clone(), (binding, socket));
        self.on(Event::Registered { node })
    }

    /// The node is carried, in session `s`.
    fn carry(&mut self, socket: Socket, node: &str) {
        assert_eq!(self.registers(socket, binding(node, "s")), []);
    }

    fn arrives(&mut self, correlation: &str, body: &str) -> Vec<Seen> {
        let ids = Ids { correlation: correlation.to_owned(), instance: Some("i".to_owned()) };
        let body = Body::from_json(body.to_owned());
        self.on(Event::Hold { connection: 1, request: Request { method: HOLD.to_owned(), ids, body } })
    }

    /// A hold arrives and is validated; what it is told.
    fn holds(&mut self, body: &str) -> Result<String, String> {
        assert_eq!(self.arrives("h", body), []);
        let seen = self.on(Event::Tick);
        let mut answers = seen.into_iter().filter_map(|seen| match seen {
            Seen::Told(1, id, told) => Some((id, told)),
            Seen::Told(..) | Seen::Offered(_) | Seen::Note(_) => None,
        });
        let (id, told) = answers.next().expect("an answer");
        assert!(id == "h" && answers.next().is_none(), "one answer");
        told
    }

    /// Renewals on the grid of the script are held for the node in session `s`.
    fn holds_grid(&mut self, node: &str, first: u64, count: u64) {
        let projection = projection("p", 3);
        let body = hold_body(&binding(node, "s"), &projection, &grid(node, &projection, first, count));
        assert_eq!(self.holds(&body), Ok(format!(r#"{{"held":{count}}}"#)));
    }

    /// The node acknowledges a projection that it was pushed in this session.
    fn has(&mut self, session: Binding, projection: &str) -> Vec<Seen> {
        self.on(Event::Acknowledged { session, projection: read_projection(projection) })
    }

    fn answers(&mut self, socket: Socket, offered: &Offered, outcome: Outcome) -> Vec<Seen> {
        let (correlation, instance) = (offered.id.clone(), offered.instance.clone());
        let answer = Answer { correlation, instance, outcome, retry_after_ms: None };
        self.on(Event::NodeAnswered { socket, answer })
    }

    fn acknowledges(&mut self, offered: &Offered) -> Vec<Seen> {
        self.answers(offered.to, offered, Outcome::Response(Body::from_json(acknowledgement(&offered.body))))
    }

    fn refuses(&mut self, offered: &Offered) -> Vec<Seen> {
        self.answers(offered.to, offered, plain_refusal("renewal-not-current: for a moment"))
    }

    /// Both clocks go on; what is due on the way is done in its moment.
    fn pass(&mut self, time: Duration) -> Vec<Seen> {
        let end = self.now.mono + time;
        let mut seen = Vec::new();
        while let Some(due) = self.escrow.next_deadline(self.now).filter(|due| *due <= end) {
            self.go_to(due);
            seen.extend(self.on(Event::Tick));
            assert!(
                self.escrow.next_deadline(self.now).is_none_or(|next| next > self.now.mono),
                "a tick does what is due"
            );
        }
        self.go_to(end);
        seen.extend(self.on(Event::Tick));
        seen
    }

    fn go_to(&mut self, mono: Duration) {
        let passed = mono.saturating_sub(self.now.mono);
        self.now.mono += passed;
        self.now.wall += u64::try_from(passed.as_millis()).unwrap();
    }

    /// The wall clock stands at this many milliseconds after the start of the script.
    fn set_wall(&mut self, ms: u64) {
        self.now.wall = START + ms;
    }
}

/// What a node answers that admits the offered renewal.
fn acknowledgement(offer: &str) -> String {
    let offer: serde_json::Value = serde_json::from_str(offer).unwrap();
    let (session, renewal) = (&offer["session"], &offer["renewal"]);
    let (projection, sequence) = (&renewal["projection"], &renewal["sequence"]);
    format!(r#"{{"session":{session},"renewal":{{"projection":{projection},"sequence":{sequence}}}}}"#)
}

/// Whom was offered which sequence.
fn offers(seen: &[Seen]) -> Vec<(Socket, u64)> {
    seen.iter()
        .filter_map(|seen| match seen {
            Seen::Offered(offered) => Some((offered.to, offered.sequence())),
            Seen::Told(..) | Seen::Note(_) => None,
        })
        .collect()
}

/// The one offer that was made.
fn offer(seen: &[Seen]) -> Offered {
    let mut offers = seen.iter().filter_map(|seen| match seen {
        Seen::Offered(offered) => Some(offered.clone()),
        Seen::Told(..) | Seen::Note(_) => None,
    });
    let offer = offers.next().unwrap_or_else(|| panic!("no offer: {seen:?}"));
    assert!(offers.next().is_none(), "two offers: {seen:?}");
    offer
}

fn notes(seen: Vec<Seen>) -> Vec<Note> {
    let note = |seen| match seen {
        Seen::Note(note) => Some(note),
        Seen::Offered(_) | Seen::Told(..) => None,
    };
    seen.into_iter().filter_map(note).collect()
}
