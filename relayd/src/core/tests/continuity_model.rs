//! Random histories of nodes, sessions and clocks through the whole core, against a slow, obvious model that
//! shares no code with it: who is carried where and since which connection of the session, the moments at which
//! somebody is to be asked to register again, and whom. Everything that leaves the core is looked at: a close
//! that the model does not owe, a second one, one that is early, late or unlogged, and anything that is sent to
//! anybody without a cause fails.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use proptest::{prelude::*, test_runner::TestRunner};

use super::*;

mod steps;

/// Of all closes, in nanoseconds.
const WINDOW: u64 = 5_000_000_000;
const SPACING: Duration = Duration::from_millis(75);
const GRACE: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(5);
const DAYS: u64 = 20 * 24 * HOUR;

/// Draws one step's choices out of one random number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        let rolled = self.0 % sides;
        self.0 /= sides;
        rolled
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.roll(choices.len() as u64)).unwrap()].clone()
    }
}

/// A registration of a node that was not answered yet.
#[derive(Clone)]
struct Asked {
    socket: Socket,
    node: String,
    at: Duration,
    /// How it was sent to Cloudly, on the connection that stands.
    sent: Option<Sent>,
}

struct Model {
    script: Script,
    names: Vec<String>,
    /// On which socket each node is carried, and the count that it registered under.
    carried: BTreeMap<String, (Socket, u64)>,
    count: u64,
    /// Whether the session is dispatchable, and what was said of it last.
    standing: bool,
    said: bool,
    parked: bool,
    stopped: bool,
    /// The moments to come at which one of the owed is asked.
    slots: Vec<Duration>,
    owed: BTreeMap<String, Socket>,
    /// Sockets on which somebody found no session and did nothing since, and those that are owed a turn.
    turned_away: BTreeSet<Socket>,
    owed_away: BTreeSet<Socket>,
    /// Those of which the log of this moment says that they are asked.
    said_away: BTreeSet<Socket>,
    superseded: BTreeMap<Socket, Duration>,
    open: BTreeSet<Socket>,
    /// Open, and asked to end.
    closing: BTreeSet<Socket>,
    unanswered: BTreeMap<String, Asked>,
    /// Pushes to nodes, none of whom answers.
    pushes: BTreeSet<String>,
    pushed: Option<Socket>,
    /// What the supervisor and Cloudly were asked and have not answered.
    asks_identity: bool,
    dialing: bool,
    announced: Option<Sent>,
    registering: Option<Sent>,
    /// Node registrations of former connections.
    late: Vec<(Connection, Sent)>,
    record: u64,
    next: u64,
    closes: usize,
    closes_away: usize,
}

impl Model {
    /// A registered relay that carries `nodes`.
    fn new(nodes: u64) -> Self {
        let mut script = Script::registered();
        script.now.wall += DAYS;
        let mut model = Self {
            script,
            names: (0..nodes).map(|node| format!("n{node}")).collect(),
            carried: BTreeMap::new(),
            count: 1,
            standing: true,
            said: true,
            parked: false,
            stopped: false,
            slots: Vec::new(),
            owed: BTreeMap::new(),
            turned_away: BTreeSet::new(),
            owed_away: BTreeSet::new(),
            said_away: BTreeSet::new(),
            superseded: BTreeMap::new(),
            open: BTreeSet::new(),
            closing: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            pushes: BTreeSet::new(),
            pushed: None,
            asks_identity: false,
            dialing: false,
            announced: None,
            registering: None,
            late: Vec::new(),
            record: 1,
            next: 0,
            closes: 0,
            closes_away: 0,
        };
        for node in model.names.clone() {
            let socket = model.socket();
            model.register(&node, socket);
            model.answer_registrations(true);
        }
        assert_eq!(model.carried.len(), model.names.len());
        model
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn socket(&mut self) -> Socket {
        let socket = self.number();
        self.open.insert(socket);
        socket
    }

    /// The session is dispatchable on a new connection: every carried node is of an older one.
    fn session_changed(&mut self) {
        self.count += 1;
        (self.standing, self.owed, self.owed_away) = (true, BTreeMap::new(), BTreeSet::new());
        self.slots = Vec::new();
        if self.stopped {
            return;
        }
        self.owed = self.carried.iter().map(|(node, (socket, _))| (node.clone(), *socket)).collect();
        let idle = |socket: &Socket| {
            !self.owed.values().any(|at| at == socket)
                && !self.unanswered.values().any(|asked| asked.socket == *socket)
        };
        self.owed_away = self.turned_away.iter().copied().filter(idle).collect();
        let count = (self.owed.len() + self.owed_away.len()) as u64;
        let spacing = SPACING.min(Duration::from_nanos(WINDOW / count.max(1)));
        self.slots =
            (0..u32::try_from(count).unwrap()).map(|turn| self.script.now.mono + spacing * turn).collect();
        let end = self.script.now.mono + Duration::from_nanos(WINDOW);
        assert!(self.slots.iter().all(|slot| *slot < end), "OUT-07");
    }

    /// Nobody is asked any more.
    fn session_ended(&mut self) {
        (self.standing, self.announced, self.registering) = (false, None, None);
        self.slots.clear();
        self.owed.clear();
        self.owed_away.clear();
        for asked in self.unanswered.values_mut() {
            let connection = self.script.connection;
            self.late.extend(asked.sent.take().map(|sent| (connection, sent)));
        }
    }

    /// Cloudly's binding ties a node to a socket.
    fn bind(&mut self, node: &str, socket: Socket) {
        let now = self.script.now.mono;
        self.leaves(socket);
        if let Some((former, _)) = self.carried.insert(node.to_owned(), (socket, self.count))
            && former != socket
        {
            self.superseded.insert(former, now);
        }
        self.owed.remove(node);
        self.acts(socket);
    }

    /// Whoever found no session on the socket waits for it no more.
    fn acts(&mut self, socket: Socket) {
        self.turned_away.remove(&socket);
        self.owed_away.remove(&socket);
    }

    fn leaves(&mut self, socket: Socket) {
        let gone = |(at, _): &(Socket, u64)| *at == socket;
        self.owed.retain(|_, at| *at != socket);
        self.carried.retain(|_, carried| !gone(carried));
    }

    /// Hands an event over and looks at everything that it leads to.
    fn on(&mut self, event: Event) -> Vec<Did> {
        let turn = self.script.now.mono;
        let (lines, done) = logged(|| self.script.on(event));
        let due = self.slots.iter().filter(|slot| **slot <= turn).count();
        self.slots.drain(..due);
        self.said_away = lines.iter().filter_map(|line| asked_without_a_name(line)).collect();
        let (mut named, away) = (Vec::new(), self.said_away.len());
        self.closes_away += away;
        for did in &done {
            self.look(did, &mut named);
        }
        if self.stopped && self.pushes.is_empty() && self.standing {
            // The last push was answered: the session goes.
            self.session_ended();
        }
        assert!(self.said_away.is_empty(), "said and not asked: {:?}", self.said_away);
        assert!(named.len() + away <= due, "{named:?} and {away} more were asked, and the turn is {due}'s");
        let owed = self.owed.len() + self.owed_away.len();
        assert!(owed <= self.slots.len(), "somebody was passed over: {:?} {:?}", self.owed, self.owed_away);
        let mut said: Vec<&str> = lines.iter().filter_map(|line| asked_to_register(line)).collect();
        said.sort_unstable();
        named.sort_unstable();
        assert_eq!(said, named, "OUT-08");
        self.closes += named.len();
        assert_eq!(self.said, self.standing, "whether the session is dispatchable");
        assert_eq!(self.script.core.forwarder.carried(), self.carried.len(), "OUT-12");
        assert_eq!(self.script.core.session.count(), self.count, "OUT-02, OUT-03");
        self.pushed = None;
        done
    }

    fn look(&mut self, did: &Did, named: &mut Vec<String>) {
        match did {
            Did::CloseNode(socket) => self.closes(*socket, named),
            Did::Sent(connection, sent) => {
                assert_eq!(*connection, self.script.connection);
                match sent.method.as_str() {
                    ANNOUNCE => self.announced = Some(sent.clone()),
                    REGISTER => self.registering = Some(sent.clone()),
                    NODE_REGISTERS => self.forwarded(sent),
                    method => assert!([CONFIG, TABLE, NETWORK].contains(&method), "OUT-14: {method}"),
                }
            }
            Did::Told(_, correlation, _) => assert!(self.pushes.remove(correlation)),
            Did::NodeSent(socket, sent) => {
                assert_eq!((self.pushed, sent.method.as_str()), (Some(*socket), APPLY), "OUT-14");
            }
            Did::NodeTold(socket, correlation, told) => {
                let asked = self.unanswered.remove(correlation).expect("an answer to who asked");
                assert_eq!(asked.socket, *socket);
                assert!(self.script.now.mono <= asked.at + 2 * WAIT || matches!(told, Told::Error(_)));
                match told {
                    Told::Response(_) => {
                        assert!(self.standing);
                        self.bind(&asked.node, *socket);
                    }
                    Told::Error(text) => {
                        if text.starts_with("relay-session-unavailable") {
                            assert!(!self.standing || self.stopped, "FWD-10");
                            self.turned_away.insert(*socket);
                        }
                    }
                }
            }
            Did::AskIdentity => self.asks_identity = true,
            Did::Dial(connection) => {
                assert!(!self.standing && !self.parked && *connection == self.script.connection + 1);
                (self.script.connection, self.dialing) = (*connection, true);
            }
            Did::Hangup(_) => (self.announced, self.dialing) = (None, false),
            Did::Dispatchable(dispatchable) => self.said = *dispatchable,
            Did::Waiting(_) | Did::Keep(_) | Did::Readiness(_) | Did::Drained => {}
            Did::Answer(..) | Did::Serve(_) | Did::Apply(..) => panic!("{did:?}"),
        }
    }

    fn closes(&mut self, socket: Socket, named: &mut Vec<String>) {
        assert!(self.standing, "OUT-05, OUT-09: {socket} is closed without a session");
        assert!(self.open.contains(&socket));
        let carried = self.carried.iter().find(|(_, (at, _))| *at == socket);
        if let Some((node, (_, count))) = carried {
            assert!(!self.stopped && *count < self.count, "{node} is of the connection that stands");
            assert_eq!(self.owed.remove(node), Some(socket), "{node} is asked twice");
            named.push(node.clone());
        } else if self.said_away.remove(&socket) {
            assert!(!self.stopped && self.owed_away.remove(&socket), "{socket} is asked twice");
        } else {
            let since = self.superseded.remove(&socket).expect("nothing is known of it");
            assert!(since + GRACE <= self.script.now.mono, "its grace is not over");
        }
        self.closing.insert(socket);
    }

    /// A registration goes up: once on each connection, and within its own wait.
    fn forwarded(&mut self, sent: &Sent) {
        let body: serde_json::Value = serde_json::from_str(&sent.body).unwrap();
        let asked = self.unanswered.get_mut(body["via"].as_str().unwrap()).expect("OUT-14: it was answered");
        assert!(self.open.contains(&asked.socket) && asked.sent.is_none());
        assert!(self.script.now.mono <= asked.at + WAIT, "FWD-07");
        asked.sent = Some(sent.clone());
    }
}

fn asked_to_register(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(" asked to re-register: this relay's Cloudly session changed")?;
    before.rsplit_once("node ").map(|(_, node)| node)
}

fn asked_without_a_name(line: &str) -> Option<Socket> {
    let (_, socket) =
        line.split_once("socket=").filter(|_| line.contains("that found no Cloudly session"))?;
    socket.split(' ').next()?.parse().ok()
}

/// Plays a history; how often somebody was asked to register again, and how often for want of a session before.
fn play(nodes: u64, steps: &[u64]) -> (usize, usize) {
    let mut model = Model::new(nodes);
    for step in steps {
        model.step(&mut Dice(*step));
    }
    model.finish();
    (model.closes, model.closes_away)
}

/// Plays random histories of `nodes`; in all, at least `closes` nodes are asked, and `away` that found no session.
fn play_many(cases: u32, nodes: std::ops::Range<u64>, closes: usize, away: usize) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let steps = prop::collection::vec(any::<u64>(), 1..30);
    let (asked, asked_away) = (Cell::new(0), Cell::new(0));
    let played = TestRunner::new(config).run(&(nodes, steps), |(nodes, steps)| {
        let (closes, away) = play(nodes, &steps);
        asked.set(asked.get() + closes);
        asked_away.set(asked_away.get() + away);
        Ok(())
    });
    played.unwrap_or_else(|failed| panic!("{failed}"));
    assert!(asked.get() >= closes, "{} were asked", asked.get());
    assert!(asked_away.get() >= away, "{} were asked that found no session", asked_away.get());
}

/// OUT-02, OUT-03, OUT-04, OUT-05, OUT-06, OUT-07, OUT-08, OUT-09, OUT-11, OUT-12, OUT-14, OUT-19, FWD-07: each
/// node of an older connection, and each that found no session and waits since, is asked once, at its turn and while the
/// session stands; nobody else ever is.
#[test]
fn who_is_asked_to_register_again_is_whom_the_model_says() {
    play_many(10_000, 1..6, 15_000, 300);
}

/// OUT-06, OUT-07: the same where the nodes are too many for the usual spacing.
#[test]
fn a_crowd_is_asked_within_the_window() {
    play_many(60, 60..200, 2_000, 0);
}
