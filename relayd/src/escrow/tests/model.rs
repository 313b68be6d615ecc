//! Random histories against a slow, obvious model that shares no code with the escrow: after every event
//! it walks all nodes and all their renewals and says what has to be offered at this moment.
//!
//! ESC-01, ESC-12 – ESC-30, ESC-34 – ESC-38, ESC-41 – ESC-59, ESC-67: what is offered and what a hold is
//! told is exactly what the model says, under jumps of the wall clock and leaps of both.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 3] = ["a", "b", "c"];
const REFUSALS: [&str; 7] = [
    "relay-cluster-not-enabled",
    "relay-node-foreign: n",
    "relay-node-unknown",
    "relay-sequence-not-advancing",
    "relay-credential-generation-stale",
    "relay-identity-unverified",
    "because of relay-node-unknown",
];
/// Milliseconds.
const MARGIN: u64 = 30_000;
const REPEAT: u64 = 30_000;
const BUDGET: u64 = 8_000;

/// Draws one step's choices out of one random number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        let rolled = self.0 % sides;
        self.0 /= sides;
        rolled
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.roll(3)).unwrap()
    }
}

/// Session, cluster and generation of a binding.
type Session = (u64, u64, u64);
/// Id, generation and digest of a projection.
type Shown = (u64, u64, u64);

fn session_text(node: usize, (session, cluster, generation): Session) -> String {
    let node = NAMES[node];
    format!(
        r#"{{"sessionId":"s{session}","nodeId":"{node}","clusterId":"c{cluster}","generation":{generation}}}"#
    )
}

fn projection_text((id, generation, digest): Shown) -> String {
    format!(r#"{{"id":"p{id}","generation":{generation},"digest":"sha256:{digest:064x}"}}"#)
}

#[derive(Clone)]
struct Signed {
    sequence: u64,
    from: u64,
    until: u64,
    text: String,
    /// When an offer of it failed last, and in which outage.
    failed: Option<(u64, u64)>,
    done: bool,
}

struct Run {
    session: Session,
    projection: Shown,
    renewals: Vec<Signed>,
}

struct Open {
    index: usize,
    at: u64,
    offered: Offered,
}

#[derive(Default)]
struct Node {
    latest: Session,
    carried: Option<Socket>,
    has: Option<(Session, Shown)>,
    run: Option<Run>,
    open: Option<Open>,
    /// Offers in all, and as many as there may be.
    offers: u64,
    allowed: u64,
}

impl Node {
    fn session(&self) -> Option<Session> {
        self.carried.map(|_| self.latest)
    }

    /// The answer to its open offer will be of no account.
    fn fail_open(&mut self, at: u64, outage: u64) {
        if let (Some(open), Some(run)) = (self.open.take(), &mut self.run) {
            run.renewals[open.index].failed = Some((at, outage));
        }
    }
}

struct Waiting {
    name: String,
    node: usize,
    first: Option<Session>,
    session: Session,
    projection: Shown,
    renewals: Vec<Signed>,
    /// It is of another node or cluster than its session.
    foreign: bool,
    /// Its second sequence does not rise.
    invalid: bool,
}

#[derive(Clone, PartialEq, Eq)]
enum Custody {
    Open,
    Ended(&'static str),
    Stopped,
}

struct Model {
    script: Script,
    nodes: [Node; 3],
    waiting: Vec<Waiting>,
    session: bool,
    custody: Custody,
    outage: u64,
    next: u64,
    sweep: u64,
}

/// What an event has to lead to: answers in their order, offers in any.
#[derive(Default)]
struct Expected {
    told: Vec<(String, Result<String, String>)>,
    offers: Vec<(usize, String)>,
}

impl Model {
    fn new() -> Self {
        let mut model = Self {
            script: Script::new(),
            nodes: Default::default(),
            waiting: Vec::new(),
            session: true,
            custody: Custody::Open,
            outage: 0,
            next: 0,
            sweep: 0,
        };
        model.script.now.mono = Duration::ZERO;
        model
    }

    fn mono(&self) -> u64 {
        u64::try_from(self.script.now.mono.as_millis()).unwrap()
    }

    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What is due to the node at this moment, if anything, is on its way from here on.
    fn look(&mut self, index: usize, expected: &mut Expected) {
        let (wall, mono, outage) = (self.script.now.wall, self.mono(), self.outage);
        let node = &mut self.nodes[index];
        let Some(run) = node.run.as_mut().filter(|_| !self.session) else { return };
        if run.renewals.iter().all(|renewal| renewal.until <= wall) {
            (node.run, node.open) = (None, None);
            return;
        }
        let Some(socket) = node.carried else { return };
        let current = |renewal: &Signed| renewal.from + MARGIN <= wall && wall < renewal.until;
        let Some(due) = (0..run.renewals.len()).rev().find(|index| current(&run.renewals[*index])) else {
            return;
        };
        if run.renewals[due].done || node.open.as_ref().is_some_and(|open| open.index == due) {
            return;
        }
        if let Some((at, when)) = run.renewals[due].failed {
            if when == outage && mono < at + REPEAT {
                return;
            }
            let end = if due == 0 { run.renewals[0].until } else { run.renewals[due - 1].until };
            if end <= wall {
                run.renewals[due].done = true;
                return;
            }
        }
        let session = session_text(index, run.session);
        let body = format!(r#"{{"session":{session},"renewal":{}}}"#, run.renewals[due].text);
        let offered = Offered { to: socket, body: body.clone(), id: String::new(), instance: None };
        node.open = Some(Open { index: due, at: mono, offered });
        node.offers += 1;
        expected.offers.push((index, body));
    }

    /// What the hold is told, and what is held from here on.
    fn apply(&mut self, hold: Waiting, expected: &mut Expected) {
        let told = self.judge(&hold);
        if told.is_ok() {
            let Waiting { node, session, projection, renewals, .. } = hold;
            self.nodes[node].open = None;
            self.nodes[node].allowed += 1;
            self.nodes[node].run = (!renewals.is_empty()).then_some(Run { session, projection, renewals });
            self.look(node, expected);
        }
        expected.told.push((hold.name, told));
    }

    fn judge(&self, hold: &Waiting) -> Result<String, String> {
        let refused = |name: &str| Err(format!("escrow-{name}"));
        let horizon = self.script.now.wall + 4 * 60 * MIN;
        for (index, renewal) in hold.renewals.iter().enumerate() {
            if index == 1 && hold.invalid {
                return refused("run-invalid: renewals[1].sequence");
            }
            if renewal.until > horizon {
                return refused(&format!("run-invalid: renewals[{index}].expiresAt"));
            }
        }
        if let Custody::Ended(name) = self.custody {
            return Err(name.to_owned());
        }
        let node = &self.nodes[hold.node];
        let (Some(first), Some(second)) = (hold.first, node.session()) else {
            return refused("node-not-carried");
        };
        if first != second || hold.session != second || hold.foreign {
            return refused("run-foreign-session");
        }
        let held = node.run.as_ref().map(|run| run.projection);
        let has = node.has.filter(|(session, _)| *session == second).map(|(_, projection)| projection);
        let new = hold.projection;
        let known: Vec<Shown> = [held, has].into_iter().flatten().collect();
        if known.iter().any(|known| known.0 != new.0 || (known.1 == new.1 && known.2 != new.2)) {
            return refused("run-unordered");
        }
        let last = |renewals: &[Signed]| renewals.last().map(|renewal| renewal.sequence);
        let lower = node
            .run
            .as_ref()
            .filter(|run| run.projection == new)
            .is_some_and(|run| last(&hold.renewals).is_some_and(|new| Some(new) < last(&run.renewals)));
        if lower || known.iter().any(|known| new.1 < known.1) {
            return refused("run-stale");
        }
        Ok(format!(r#"{{"held":{}}}"#, hold.renewals.len()))
    }

    /// Hands the event over; what it led to is what was expected.
    fn on(&mut self, event: Event, mut expected: Expected) {
        let now = self.script.now.wall;
        let (mut told, mut offers) = (Vec::new(), Vec::new());
        for seen in self.script.on(event) {
            match seen {
                Seen::Told(_, name, what) => told.push((name, what)),
                Seen::Offered(offered) => {
                    assert!(!self.session, "an offer while the session stands");
                    let index = self.nodes.iter().position(|node| node.carried == Some(offered.to));
                    let index = index.expect("an offer to a node that is carried");
                    let body: serde_json::Value = serde_json::from_str(&offered.body).unwrap();
                    let at = |name: &str| body["renewal"][name].as_u64().unwrap();
                    assert!(at("notBefore") + MARGIN <= now && now < at("expiresAt"), "early or ended");
                    offers.push((index, offered.body.clone()));
                    if let Some(open) = &mut self.nodes[index].open
                        && open.offered.body == offered.body
                    {
                        open.offered = offered;
                    }
                }
                Seen::Note(_) => {}
            }
        }
        offers.sort();
        expected.offers.sort();
        assert_eq!(offers, expected.offers);
        assert_eq!(told, expected.told);
        let held = self.nodes.iter().filter(|node| node.run.is_some()).count();
        assert_eq!(self.script.escrow.held(), held, "runs");
        let open = self.nodes.iter().filter(|node| node.open.is_some()).count();
        assert_eq!(self.script.escrow.offers.len(), open, "offers in flight, one for a node");
    }

    fn tick(&mut self) {
        let (mono, mut expected) = (self.mono(), Expected::default());
        if self.sweep <= mono {
            self.sweep = mono + 30_000;
            let wall = self.script.now.wall;
            for node in self.nodes.iter_mut().filter(|node| node.carried.is_none()) {
                node.run.take_if(|run| run.renewals.iter().all(|renewal| renewal.until <= wall));
            }
        }
        for index in 0..3 {
            let node = &mut self.nodes[index];
            if node.open.as_ref().is_some_and(|open| open.at + BUDGET <= mono) {
                node.fail_open(mono, self.outage);
            }
            self.look(index, &mut expected);
        }
        for hold in std::mem::take(&mut self.waiting) {
            self.apply(hold, &mut expected);
        }
        self.on(Event::Tick, expected);
    }

    fn pass(&mut self, ms: u64) {
        let end = self.script.now.mono + Duration::from_millis(ms);
        while let Some(due) = self.script.escrow.next_deadline(self.script.now).filter(|due| *due <= end) {
            self.script.go_to(due);
            self.tick();
            let next = self.script.escrow.next_deadline(self.script.now);
            assert!(next.is_none_or(|next| next > self.script.now.mono), "a tick does what is due");
        }
        self.script.go_to(end);
        self.tick();
    }

    fn step(&mut self, dice: &mut Dice) {
        match dice.roll(24) {
            0 | 1 => self.register(dice),
            2 => self.leave(dice.node()),
            3 => self.acknowledge_projection(dice),
            4..=8 => self.hold(dice),
            9 => {
                self.session = true;
                self.outage += 1;
                self.nodes.iter_mut().for_each(|node| node.open = None);
                self.on(Event::SessionUp, Expected::default());
            }
            10..=12 => {
                self.session = false;
                let mut expected = Expected::default();
                for index in 0..3 {
                    self.nodes[index].allowed += 1;
                    self.look(index, &mut expected);
                }
                self.on(Event::SessionDown, expected);
            }
            13 => self.registration(dice),
            14..=17 => self.answer(dice),
            18 => {
                let ms =
                    [5_000, 60_000, 600_000, 3_600_000, 18_000_000][usize::try_from(dice.roll(5)).unwrap()];
                let wall = &mut self.script.now.wall;
                *wall = if dice.roll(2) == 0 { *wall + ms } else { *wall - ms };
                self.nodes.iter_mut().for_each(|node| node.allowed += 34);
                self.tick();
            }
            19 => {
                // The host slept: nothing was done in its moment.
                self.script.go_to(self.script.now.mono + Duration::from_secs(1 + dice.roll(2000)));
                self.tick();
            }
            _ => {
                let ms = [1, 1_000, 8_000, 30_000, 31_500, 300_000, 600_000];
                self.pass(ms[usize::try_from(dice.roll(7)).unwrap()]);
            }
        }
    }

    fn register(&mut self, dice: &mut Dice) {
        let (index, change, socket) = (dice.node(), dice.roll(8), self.name());
        let fresh = self.name();
        let node = &mut self.nodes[index];
        let (session, cluster, generation) = node.latest;
        node.latest = match change {
            0..=4 => node.latest,
            5 => (fresh, cluster, generation),
            6 => (session, 1 - cluster, generation),
            _ => (session, cluster, generation + 1),
        };
        node.carried = Some(socket);
        let latest = node.latest;
        if node.run.as_ref().is_some_and(|run| run.session != latest) {
            (node.run, node.open) = (None, None);
        }
        let binding: Binding = serde_json::from_str(&session_text(index, latest)).unwrap();
        self.script.roster.0.insert(id(NAMES[index]), (binding, socket));
        // What was offered on the former socket is answered by nobody.
        if let Some(open) = &mut self.nodes[index].open {
            open.offered.to = 0;
        }
        let mut expected = Expected::default();
        self.look(index, &mut expected);
        self.on(Event::Registered { node: id(NAMES[index]) }, expected);
    }

    fn leave(&mut self, index: usize) {
        let (mono, outage) = (self.mono(), self.outage);
        let node = &mut self.nodes[index];
        if node.carried.take().is_none() {
            return;
        }
        node.has = None;
        node.fail_open(mono, outage);
        self.script.roster.0.remove(&id(NAMES[index]));
        self.on(Event::Gone { node: id(NAMES[index]) }, Expected::default());
    }

    fn shown(dice: &mut Dice) -> Shown {
        let (name, generation) = (u64::from(dice.roll(8) == 0), 1 + dice.roll(3));
        (name, generation, generation + 10 * u64::from(dice.roll(8) == 0))
    }

    fn acknowledge_projection(&mut self, dice: &mut Dice) {
        let (index, shown) = (dice.node(), Self::shown(dice));
        let node = &mut self.nodes[index];
        let replaces = |held: Shown| held != shown && !(held.0 == shown.0 && shown.1 < held.1);
        if node.run.as_ref().is_some_and(|run| replaces(run.projection)) {
            (node.run, node.open) = (None, None);
        }
        if let Some(session) = node.session() {
            let known = node.has.filter(|(known, _)| *known == session);
            if known.is_none_or(|(_, has)| has.0 != shown.0 || has.1 <= shown.1) {
                node.has = Some((session, shown));
            }
        }
        let projection = read_projection(&projection_text(shown));
        self.on(Event::Acknowledged { node: id(NAMES[index]), projection }, Expected::default());
    }

    fn hold(&mut self, dice: &mut Dice) {
        let (index, projection, count) = (dice.node(), Self::shown(dice), dice.roll(6));
        let (spacing, length) =
            [(10, 15), (10, 15), (10, 8), (1, 15)][usize::try_from(dice.roll(4)).unwrap()];
        let start = self.script.now.wall / MIN + [0, 0, 1, 230][usize::try_from(dice.roll(4)).unwrap()];
        let first = (start - dice.roll(16)) / spacing;
        let foreign = dice.roll(12);
        let invalid = dice.roll(12) == 0 && count > 1;
        let node = &self.nodes[index];
        let (session, cluster, generation) = node.latest;
        let stated = if foreign == 0 { (session, cluster, generation + 1) } else { node.latest };
        let (of, cluster) =
            (NAMES[if foreign == 1 { (index + 1) % 3 } else { index }], cluster + u64::from(foreign == 2));
        let shown = projection_text(projection);
        let renewals: Vec<Signed> = (first..first + count)
            .map(|number| {
                let (from, until) = (number * spacing * MIN, (number * spacing + length) * MIN);
                let sequence = if invalid { 7 } else { number };
                let text = format!(
                    r#"{{"nodeId":"{of}","clusterId":"c{cluster}","projection":{shown},"notBefore":{from},"expiresAt":{until},"sequence":{sequence},"signature":""}}"#
                );
                Signed { sequence, from, until, text, failed: None, done: false }
            })
            .collect();
        let texts: Vec<&str> = renewals.iter().map(|renewal| renewal.text.as_str()).collect();
        let body = format!(
            r#"{{"session":{},"projection":{shown},"renewals":[{}]}}"#,
            session_text(index, stated),
            texts.join(",")
        );
        let foreign = (foreign == 1 || foreign == 2) && count > 0;
        let first = node.session();
        let name = format!("h{}", self.name());
        let mut expected = Expected::default();
        if self.custody == Custody::Stopped {
            expected.told.push((name.clone(), Err(UNKNOWN_METHOD.to_owned())));
        } else {
            let session = stated;
            let name = name.clone();
            self.waiting.push(Waiting {
                name,
                node: index,
                first,
                session,
                projection,
                renewals,
                foreign,
                invalid,
            });
        }
        let ids = Ids { correlation: name, instance: None };
        let request = Request { method: HOLD.to_owned(), ids, body: Body::from_json(body) };
        self.on(Event::Hold { connection: 1, request }, expected);
    }

    /// What becomes of this relay's registration, and the stop.
    fn registration(&mut self, dice: &mut Dice) {
        let kind = dice.roll(40);
        let (event, custody) = match kind {
            0..=17 => {
                if self.custody != Custody::Stopped && self.custody != Custody::Ended(REFUSALS[4]) {
                    self.custody = Custody::Open;
                }
                return self.on(Event::RegistrationAccepted, Expected::default());
            }
            18..=37 => {
                // The fifth, which is for good, is rare.
                let which = [0, 1, 2, 3, 5, 6, 5, 6, 5, 4][usize::try_from(dice.roll(10)).unwrap()];
                let event = Event::RegistrationRefused { text: REFUSALS[which].to_owned() };
                if which > 4 {
                    return self.on(event, Expected::default());
                }
                let name = REFUSALS[which].split(": ").next().unwrap();
                (event, Custody::Ended(name))
            }
            38 => (Event::Parked, Custody::Ended(REFUSALS[4])),
            _ => (Event::Stop, Custody::Stopped),
        };
        let for_good = self.custody == Custody::Stopped
            || self.custody == Custody::Ended(REFUSALS[4]) && custody != Custody::Stopped;
        if !for_good {
            self.custody = custody;
        }
        let told = match &self.custody {
            Custody::Ended(name) => (*name).to_owned(),
            Custody::Stopped | Custody::Open => UNKNOWN_METHOD.to_owned(),
        };
        let told = std::mem::take(&mut self.waiting).into_iter().map(|hold| (hold.name, Err(told.clone())));
        let expected = Expected { told: told.collect(), offers: Vec::new() };
        for node in &mut self.nodes {
            (node.run, node.open, node.has) = (None, None, None);
        }
        self.on(event, expected);
    }

    fn answer(&mut self, dice: &mut Dice) {
        let (mono, outage) = (self.mono(), self.outage);
        let node = &mut self.nodes[dice.node()];
        let Some(open) = node.open.as_ref().filter(|open| node.carried == Some(open.offered.to)) else {
            return;
        };
        let offered = open.offered.clone();
        let acknowledged = acknowledgement(&offered.body);
        let body = |text: String| Outcome::Response(Body::from_json(text));
        let (from, outcome) = match dice.roll(6) {
            0..=2 => {
                let index = open.index;
                let run = node.run.as_mut().unwrap();
                run.renewals[..=index].iter_mut().for_each(|renewal| renewal.done = true);
                node.open = None;
                (offered.to, body(acknowledged))
            }
            3 => {
                node.fail_open(mono, outage);
                (offered.to, plain_refusal("no"))
            }
            4 => {
                node.fail_open(mono, outage);
                (offered.to, body(acknowledged.replace(r#""sequence":"#, r#""sequence":1"#)))
            }
            _ => (offered.to + 1000, body(acknowledged)),
        };
        let (correlation, instance) = (offered.id, offered.instance);
        let answer = Answer { correlation, instance, outcome, retry_after_ms: None };
        self.on(Event::NodeAnswered { socket: from, answer }, Expected::default());
    }

    /// However long a node refused: a bound of offers in all.
    fn finish(&self) {
        let windows = self.next * 6;
        for node in &self.nodes {
            let allowed = node.allowed + windows + self.mono() / REPEAT;
            assert!(node.offers <= allowed, "{} offers, {allowed} allowed", node.offers);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_offered_is_what_the_model_says(steps in prop::collection::vec(any::<u64>(), 1..48)) {
        let mut model = Model::new();
        for step in steps {
            model.step(&mut Dice(step));
        }
        model.finish();
    }
}
