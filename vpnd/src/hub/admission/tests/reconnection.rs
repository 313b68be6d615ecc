//! A whole cluster behind one address that comes back at once, in virtual time: the hub's admission and the nodes'
//! own machines, and between them a network that needs a while.

use super::*;
use crate::{
    node::{
        Why,
        dialing::{Action, Dial, Dialing, Event},
    },
    protocol::close::Close,
};

/// What happens at a moment.
enum Happens {
    /// A first packet of a node arrives at the hub, its address proven or not.
    Arrives(usize, Dial, bool),
    /// A node's handshake is complete at the hub.
    Completes(usize, Dial, Number),
    /// A node hears how its dial ended.
    Hears(usize, Event),
    /// A node's deadline passes.
    Ticks(usize),
    /// Somebody else opens a connection from the same address, and says nothing on it.
    Intrudes,
    /// A packet that names the address, of somebody who does not have it.
    Forges,
}

struct Field {
    admission: Admission,
    nodes: Vec<Dialing>,
    up: Vec<bool>,
    places: BTreeMap<Number, Place>,
    schedule: BTreeMap<(Duration, u64), Happens>,
    scheduled: u64,
    random: u32,
    round_trip: Duration,
    /// So many of the nodes know a former key of the hub alone.
    stale: usize,
}

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
const MINUTE: Duration = Duration::from_secs(60);

impl Field {
    /// Nodes that all dial at the start.
    fn new(nodes: usize, stale: usize, round_trip: Duration) -> Self {
        let mut field = Self {
            admission: Admission::default(),
            nodes: (0..nodes).map(|_| Dialing::default()).collect(),
            up: vec![false; nodes],
            places: BTreeMap::new(),
            schedule: BTreeMap::new(),
            scheduled: 0,
            random: 1,
            round_trip,
            stale,
        };
        for node in 0..nodes {
            field.node(node, Event::Started, Duration::ZERO);
        }
        field
    }

    fn at(&mut self, when: Duration, happens: Happens) {
        self.scheduled += 1;
        self.schedule.insert((when, self.scheduled), happens);
    }

    fn node(&mut self, node: usize, event: Event, now: Duration) {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let random = self.random.rotate_left(13);
        for action in self.nodes[node].handle(event, now, random) {
            match action {
                Action::Dial(dial) => {
                    self.at(now + self.round_trip / 2, Happens::Arrives(node, dial, false));
                }
                Action::TellUp(_) => self.up[node] = true,
                Action::Abandon(_) | Action::TellDown(_) => {}
                Action::Hangup(_) => panic!("nobody stops it"),
            }
        }
        if let Some(deadline) = self.nodes[node].next_deadline() {
            self.at(deadline, Happens::Ticks(node));
        }
    }

    /// The place that is given, if one is.
    fn judged(&mut self, proven: bool, now: Duration) -> Result<Number, Judgement> {
        match self.admission.judge(ADDRESS, proven, now) {
            Judgement::Accept { place, instead_of } => {
                let number = place.number();
                instead_of.and_then(|former| self.places.remove(&former));
                self.places.insert(number, place);
                Ok(number)
            }
            other => Err(other),
        }
    }

    fn arrives(&mut self, node: usize, dial: Dial, proven: bool, now: Duration) {
        let (after, happens) = match self.judged(proven, now) {
            Ok(number) => (2 * self.round_trip, Happens::Completes(node, dial, number)),
            Err(Judgement::Retry) => (self.round_trip, Happens::Arrives(node, dial, true)),
            Err(_) => (self.round_trip / 2, Happens::Hears(node, Event::Ended(dial, Why::Refused))),
        };
        self.at(now + after, happens);
    }

    fn completes(&mut self, node: usize, dial: Dial, number: Number, now: Duration) {
        let close = match self.places.remove(&number) {
            None => Some(Close::Busy),
            Some(place) => {
                let answered = self.admission.noise(now);
                let known = node >= self.stale;
                let key = [u8::try_from(node % 250).unwrap(); 32];
                let admitted = answered && known && self.admission.member(&key, now);
                let outcome = if admitted { Outcome::Session } else { Outcome::Failed };
                self.admission.give_back(place, outcome, now);
                let why = if answered && !known { Close::Malformed } else { Close::Busy };
                (!admitted).then_some(why)
            }
        };
        let heard = close.map_or(Event::Admitted(dial), |why| Event::Ended(dial, Why::Closed(why)));
        self.at(now + self.round_trip / 2, Happens::Hears(node, heard));
    }

    /// Lets a minute pass, after which every node is up that can be.
    fn all_are_up_after_a_minute(mut self) {
        while let Some(((now, _), happens)) = self.schedule.pop_first() {
            if now > MINUTE {
                break;
            }
            match happens {
                Happens::Arrives(node, dial, proven) => self.arrives(node, dial, proven, now),
                Happens::Completes(node, dial, number) => self.completes(node, dial, number, now),
                Happens::Hears(node, event) => self.node(node, event, now),
                Happens::Ticks(node) => self.node(node, Event::Tick, now),
                Happens::Intrudes => drop(self.judged(true, now)),
                Happens::Forges => {
                    if let Ok(number) = self.judged(false, now) {
                        let place = self.places.remove(&number).unwrap();
                        self.admission.give_back(place, Outcome::Failed, now);
                    }
                }
            }
        }
        let missing = self.up[self.stale..].iter().filter(|up| !**up).count();
        assert_eq!(missing, 0, "are not up");
    }
}

/// 250 nodes behind one NAT that all dial at the same moment are in within a minute, near and far.
#[test]
fn a_cluster_behind_one_address_is_back_within_a_minute() {
    for round_trip in [MS, 50 * MS, 400 * MS] {
        Field::new(250, 0, round_trip).all_are_up_after_a_minute();
    }
}

/// The same while somebody behind the same NAT opens ten connections a second and says nothing, and somebody else
/// sends packets with its address.
#[test]
fn a_cluster_behind_one_address_is_back_among_silent_and_forged_ones() {
    let mut field = Field::new(250, 0, 50 * MS);
    for tenth in 0..600 {
        field.at(S * tenth / 10, Happens::Intrudes);
        for _ in 0..10 {
            field.at(S * tenth / 10, Happens::Forges);
        }
    }
    field.all_are_up_after_a_minute();
}

/// The same while as many again of the address know the hub's former key, and are refused each time.
#[test]
fn a_cluster_behind_one_address_is_back_among_those_that_are_refused() {
    Field::new(500, 250, 50 * MS).all_are_up_after_a_minute();
}
