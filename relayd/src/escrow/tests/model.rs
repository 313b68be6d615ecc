//! Random histories against a slow, obvious model that shares no code with the escrow: after every event
//! it walks all nodes and all their renewals and says what has to be offered at this moment.
//! Compared are all offers, all answers to holds, the number of runs and of offers in flight, under jumps of
//! the wall clock and leaps of both.

use proptest::prelude::*;

use super::*;

mod steps;

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
    /// When an offer of it failed last in this outage.
    failed: Option<u64>,
    done: bool,
}

struct Run {
    session: Session,
    projection: Shown,
    renewals: Vec<Signed>,
}

impl Run {
    fn repeats_end(&self, index: usize) -> u64 {
        if index == 0 { self.renewals[0].until } else { self.renewals[index - 1].until }
    }
}

struct Open {
    index: usize,
    at: u64,
    offered: Offered,
}

/// What a session of a node has shown beside the run that is held.
struct Knowledge {
    session: Session,
    has: Option<Shown>,
    given_up: Option<Shown>,
}

#[derive(Default)]
struct Node {
    latest: Session,
    carried: Option<Socket>,
    knows: Option<Knowledge>,
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

    /// What is known of this session and no other.
    fn knowledge(&mut self, of: Session) -> &mut Knowledge {
        self.knows.take_if(|known| known.session != of);
        self.knows.get_or_insert(Knowledge { session: of, has: None, given_up: None })
    }

    /// The answer to its open offer will be of no account.
    fn fail_open(&mut self, at: u64) {
        if let (Some(open), Some(run)) = (self.open.take(), &mut self.run) {
            run.renewals[open.index].failed = Some(at);
        }
    }

    /// The session is back: only repeats that ended by the window before stay ended.
    fn end_outage(&mut self, wall: u64) {
        self.open = None;
        let Some(run) = &mut self.run else { return };
        let ends: Vec<u64> = (0..run.renewals.len()).map(|index| run.repeats_end(index)).collect();
        for (renewal, end) in run.renewals.iter_mut().zip(ends) {
            renewal.done |= renewal.failed.take().is_some() && end <= wall;
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
        let (wall, mono) = (self.script.now.wall, self.mono());
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
        if let Some(at) = run.renewals[due].failed {
            if mono < at + REPEAT {
                return;
            }
            if run.repeats_end(due) <= wall {
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
        if told == Err("escrow-node-not-carried".to_owned()) && hold.renewals.is_empty() {
            let node = &mut self.nodes[hold.node];
            let (id, generation, _) = hold.projection;
            let gives_up = |run: &Run| {
                let same_or_later = hold.projection == run.projection
                    || id == run.projection.0 && generation > run.projection.1;
                hold.session == run.session && same_or_later
            };
            if node.run.as_ref().is_some_and(gives_up) {
                (node.run, node.open) = (None, None);
            }
        }
        if told.is_ok() {
            let Waiting { node, session, projection, renewals, .. } = hold;
            if renewals.is_empty() {
                let given_up = &mut self.nodes[node].knowledge(session).given_up;
                let earlier = |former: &mut Shown| former.0 == projection.0 && projection.1 < former.1;
                if !given_up.as_mut().is_some_and(earlier) {
                    *given_up = Some(projection);
                }
            }
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
        let new = hold.projection;
        let mut known: Vec<Shown> = held.into_iter().collect();
        // An empty run holds nothing that the node could have left behind.
        let knows = node.knows.as_ref().filter(|knows| knows.session == second);
        if let Some(knows) = knows.filter(|_| !hold.renewals.is_empty()) {
            known.extend(knows.has);
            known.extend(knows.given_up.filter(|given_up| given_up.0 == new.0));
        }
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
                node.fail_open(mono);
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

    /// ESC-01, ESC-12, ESC-13, ESC-14, ESC-15, ESC-17, ESC-18, ESC-19, ESC-20, ESC-21, ESC-22, ESC-23,
    /// ESC-24, ESC-25, ESC-26, ESC-27, ESC-28, ESC-29, ESC-30, ESC-32, ESC-34, ESC-35, ESC-36, ESC-37,
    /// ESC-38, ESC-41, ESC-42, ESC-43, ESC-46, ESC-47, ESC-48, ESC-49, ESC-50, ESC-53, ESC-54, ESC-57,
    /// ESC-58, ESC-59, ESC-67: nothing else is offered, and no hold is told anything else.
    #[test]
    fn what_is_offered_is_what_the_model_says(steps in prop::collection::vec(any::<u64>(), 1..40)) {
        let mut model = Model::new();
        for step in steps {
            model.step(&mut Dice(step));
        }
        model.finish();
    }
}
