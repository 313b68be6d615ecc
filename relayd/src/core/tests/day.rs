//! A day of a whole cluster through the whole core, on a clock in the test's hand: session, registration,
//! forwarder, continuity and escrow, with Cloudly, the supervisor and five hundred nodes played around them.
//! Cloudly is away eight times, for seconds or for hours, and once more while the nodes are being asked to register
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::*;
use crate::routes::{HOLD, PROJECTION, RENEWAL};

mod cloudly;
mod pallet;

use pallet::Pallet;

const NODES: usize = 500;
const MIN: u64 = 60_000;
/// Thirty days after 1970 the certificate of a script is in its first third.
const START: u64 = 30 * 24 * HOUR;
/// From the return of the session to the last node that is carried again: the window of the closes, and the
/// second in which a node is back (OUT-07, OUT-15).
const CARRIED_AGAIN: Duration = Duration::from_secs(6);

/// The run of a node that registers lasts at least so long, in milliseconds.
const HELD: u64 = 100 * MIN;
/// A slow node answers after so long.
const SLOW: Duration = Duration::from_secs(3);

/// What happens beside the core, in its moment.
enum Happens {
    Ends(Socket),
    Registers(usize),
    Answers(Socket, Envelope),
}

struct Day {
    script: Script,
    nodes: Vec<Pallet>,
    of_socket: BTreeMap<Socket, usize>,
    agenda: BTreeMap<(Duration, u64), Happens>,
    /// Whether Cloudly can be reached, and whether the session stands.
    reachable: bool,
    standing: bool,
    returned: Duration,
    /// What Cloudly pushed and the node was not sent yet.
    pushes: BTreeSet<(Socket, String)>,
    /// Pushes and holds that were not answered yet.
    awaited: BTreeSet<String>,
    record: u64,
    next: u64,
}

impl Day {
    fn new() -> Self {
        let mut script = Script::registered();
        script.now.wall = START;
        let nodes = (0..NODES).map(Pallet::new).collect();
        let mut day = Self {
            script,
            nodes,
            of_socket: BTreeMap::new(),
            agenda: BTreeMap::new(),
            reachable: true,
            standing: true,
            returned: Duration::ZERO,
            pushes: BTreeSet::new(),
            awaited: BTreeSet::new(),
            record: 1,
            next: 0,
        };
        (0..NODES).for_each(|node| day.at(Duration::ZERO, Happens::Registers(node)));
        day.pass(CARRIED_AGAIN);
        day.assert_all_are_carried();
        day
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Has something happen after `wait`.
    fn at(&mut self, wait: Duration, happens: Happens) {
        let key = (self.script.now.mono + wait, self.number());
        self.agenda.insert(key, happens);
    }

    /// Hands an event over; whoever something is sent to does its part, until nobody has one.
    fn on(&mut self, event: Event) {
        let mut done: VecDeque<Did> = self.script.on(event).into();
        while let Some(did) = done.pop_front() {
            for event in self.led_to(did) {
                done.extend(self.script.on(event));
            }
        }
    }

    fn led_to(&mut self, did: Did) -> Vec<Event> {
        match did {
            Did::AskIdentity => vec![self.identity()],
            Did::Dial(connection) => {
                self.script.connection = connection;
                vec![Event::Session(if self.reachable {
                    session::Event::Connected { connection }
                } else {
                    session::Event::Closed { connection }
                })]
            }
            Did::Sent(connection, sent) => {
                assert!(self.reachable && connection == self.script.connection);
                vec![self.asked_cloudly(&sent)]
            }
            Did::Told(_, correlation, told) => {
                assert!(self.awaited.remove(&correlation));
                assert!(matches!(told, Told::Response(_)), "{told:?}");
                Vec::new()
            }
            Did::NodeSent(socket, sent) => self.asked_node(socket, &sent).into_iter().collect(),
            Did::NodeTold(socket, _, told) => self.told_node(socket, &told),
            Did::CloseNode(socket) => {
                assert!(self.standing, "OUT-05, OUT-09");
                let node = self.of_socket[&socket];
                self.at(MS, Happens::Ends(socket));
                self.at(MS * (2 + u32::try_from(node * 7 % 990).unwrap()), Happens::Registers(node));
                Vec::new()
            }
            Did::Dispatchable(dispatchable) => {
                if dispatchable {
                    (self.standing, self.returned) = (true, self.script.now.mono);
                }
                assert_eq!(dispatchable, self.standing);
                Vec::new()
            }
            Did::Waiting(_) | Did::Keep(_) | Did::Readiness(_) => Vec::new(),
            Did::Hangup(_) | Did::Answer(..) | Did::Serve(_) | Did::Apply(..) | Did::Drained => {
                panic!("{did:?}")
            }
        }
    }

    fn happens(&mut self, happens: Happens) {
        match happens {
            Happens::Ends(socket) => self.ends(socket),
            Happens::Registers(node) => {
                let socket = self.number();
                self.of_socket.insert(socket, node);
                self.nodes[node].socket = Some(socket);
                self.registers(node, socket);
            }
            Happens::Answers(socket, envelope) => {
                if let Some(node) = self.of_socket.get(&socket) {
                    self.nodes[*node].open = None;
                    self.on(Event::FromNode { socket, envelope });
                }
            }
        }
    }

    fn registers(&mut self, node: usize, socket: Socket) {
        let body = format!(r#"{{"protocol":{OFFER},"node":{node}}}"#);
        let envelope = asked(&format!("r{}", self.number()), NODE_REGISTERS, &body);
        self.on(Event::FromNode { socket, envelope });
    }

    fn ends(&mut self, socket: Socket) {
        let node = self.of_socket.remove(&socket).expect("a socket ends once");
        (self.nodes[node].socket, self.nodes[node].open) = (None, None);
        self.on(Event::NodeClosed { socket });
    }

    /// A node that is told that there is no session asks again within a second.
    fn told_node(&mut self, socket: Socket, told: &Told) -> Vec<Event> {
        let node = self.of_socket[&socket];
        match told {
            Told::Response(_) => {
                self.nodes[node].carried_since = Some(self.script.now.mono);
                self.nodes[node].assert_lease(self.script.now.wall);
                self.nodes[node].away = false;
                let delivery = self.deliver(node);
                delivery.into_iter().chain(self.hold(node, HELD)).collect()
            }
            Told::Error(text) => {
                assert!(!self.standing && text.starts_with("relay-session-unavailable"), "{text}");
                self.ends(socket);
                self.at(MS * u32::try_from(node * 7 % 990).unwrap(), Happens::Registers(node));
                Vec::new()
            }
        }
    }

    fn go_to(&mut self, mono: Duration) {
        let passed = mono.saturating_sub(self.script.now.mono);
        self.script.now.mono += passed;
        self.script.now.wall += u64::try_from(passed.as_millis()).unwrap();
    }

    /// Time passes; whatever is due comes in its moment.
    fn pass(&mut self, time: Duration) {
        let end = self.script.now.mono + time;
        loop {
            let tick = self.script.core.next_deadline(self.script.now);
            let first = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = tick.into_iter().chain(first).min().filter(|next| *next <= end) else { break };
            self.go_to(next);
            if first == Some(next) {
                let (_, happens) = self.agenda.pop_first().unwrap();
                self.happens(happens);
            } else {
                self.on(Event::Tick);
            }
        }
        self.go_to(end);
    }

    fn pass_until(&mut self, minute: u64) {
        let time = Duration::from_millis(START + minute * MIN - self.script.now.wall);
        self.pass(time);
    }

    /// The connection ends, and Cloudly cannot be reached.
    fn goes(&mut self) {
        (self.reachable, self.standing) = (false, false);
        self.nodes.iter_mut().for_each(Pallet::outage_begins);
        let connection = self.script.connection;
        self.on(Event::Session(session::Event::Closed { connection }));
    }

    /// Cloudly can be reached, and is at the next dial.
    fn returns(&mut self) {
        self.reachable = true;
        for _ in 0..61 {
            if !self.standing {
                self.pass(Duration::from_secs(1));
            }
        }
        assert!(self.standing, "it is dialled at least once a minute");
        self.nodes.iter().for_each(|node| node.assert_lease(self.script.now.wall));
    }

    /// Every node that is there is carried again in time.
    fn carried_again(&mut self) {
        self.pass(CARRIED_AGAIN);
        self.assert_all_are_carried();
        self.pass(SLOW);
        assert!(self.awaited.is_empty(), "what Cloudly sent is answered");
    }

    fn outage(&mut self, time: Duration) {
        self.goes();
        self.pass(time);
        self.returns();
    }

    fn assert_all_are_carried(&self) {
        let present = self.nodes.iter().filter(|node| !node.away);
        for node in present.clone() {
            let since = node.carried_since.filter(|since| *since >= self.returned);
            let since = since.unwrap_or_else(|| panic!("{} is not carried again", node.name));
            assert!(since - self.returned <= CARRIED_AGAIN, "{}: {since:?}", node.name);
        }
        assert_eq!(self.script.core.forwarder.carried(), present.count(), "OUT-12");
        assert!(self.script.core.escrow.held() <= NODES, "ESC-01");
    }

    fn leaves(&mut self, node: usize) {
        self.nodes[node].away = true;
        let socket = self.nodes[node].socket.unwrap();
        self.ends(socket);
    }
}

/// OUT-04, OUT-05, OUT-07, OUT-09, OUT-12, OUT-19, ESC-01, ESC-25, ESC-26, ESC-28, ESC-29, ESC-30, ESC-34,
/// ESC-35, ESC-38, ESC-45, ESC-47, ESC-48, ESC-60, FWD-33: no lease of a node that answers runs out, with
/// a clock half a minute beside the relay's and refusals on the way; nobody is offered anything while the session
/// stands, or a second thing while one is under way; each return has every node carried again within seconds; one
/// that answers nothing costs a bounded number of offers, and nothing is left of who went.
#[test]
fn a_day_of_outages_lets_no_lease_run_out() {
    const SECOND: Duration = Duration::from_secs(1);
    let minutes = |minutes: u64| Duration::from_millis(minutes * MIN);
    let nodes = |at: usize| (0..NODES).filter(move |node| node % 25 == at);
    let mut day = Day::new();
    for (minute, time) in
        [(30, 5 * SECOND), (60, 45 * SECOND), (120, minutes(4)), (180, minutes(20)), (300, minutes(60))]
    {
        day.pass_until(minute);
        day.prepare(u64::try_from(time.as_millis()).unwrap());
        day.outage(time);
        day.carried_again();
    }

    // Some leave while Cloudly is away, and ask to register again before it is back, or hours after.
    day.pass_until(480);
    day.prepare(150 * MIN);
    day.goes();
    day.pass(minutes(145));
    for (at, back) in [(7, minutes(1)), (8, minutes(120))] {
        for node in nodes(at) {
            day.leaves(node);
            day.at(back, Happens::Registers(node));
        }
    }
    day.pass(minutes(5));
    day.returns();
    day.carried_again();

    // The longest that a run can reach; the session is lost again while the nodes are being asked.
    day.pass_until(840);
    day.prepare(220 * MIN);
    day.outage(minutes(220));
    day.pass(2 * SECOND);
    day.outage(30 * SECOND);
    day.carried_again();

    // Two nodes in fifty have another projection, and one of the two a run for it.
    day.pass_until(1200);
    day.prepare(30 * MIN);
    nodes(9).for_each(|node| day.replace_projection(node, node % 50 == 9));
    day.outage(minutes(30));
    day.carried_again();

    day.pass_until(24 * 60);
    let offers: u64 = day.nodes.iter().map(|node| node.offers).sum();
    for node in &day.nodes {
        assert!(node.offers <= node.most_offers(), "{}: {} offers", node.name, node.offers);
    }
    assert!(offers > 20_000, "{offers} offers");
    (0..NODES).for_each(|node| day.leaves(node));
    day.pass(minutes(5 * 60));
    let core = &day.script.core;
    assert_eq!((core.forwarder.carried(), core.escrow.held()), (0, 0));
    assert_eq!((core.forwarder.next_deadline(), core.continuity.next_deadline()), (None, None));
    assert_eq!((core.escrow.next_deadline(day.script.now), core.superseded_deadline()), (None, None));
}
