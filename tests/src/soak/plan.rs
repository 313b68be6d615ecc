//! The plan of a soak: which faults happen when. It is drawn from the seed alone, so that a seed printed by
//! a failing run gives the same faults again.
//!
//! Each party has a lane of its own, in which one fault follows another; lanes run side by side, so that
//! faults of different parties overlap. A lane deals from a shuffled deck of its kinds, so that a run of some
//! length meets all of them.

use std::fmt;
use std::time::Duration;

use super::chance::Chance;
use super::fault::{CloudlyFault, Fault, NodeFault, Role, StrangerFault, WorkerFault};

/// Nodes that share a lane.
const NODES_OF_A_LANE: usize = 4;

/// A run of at least this length also has the long faults: sockets that hang past the relay's patience,
/// sessions that stand long enough to start the backoff over.
const LONG_RUN: Duration = Duration::from_secs(120);

/// How long a session stands until the relay starts its backoff over, and some more.
const PROVEN: Duration = Duration::from_secs(22);

/// A fault and when it begins, from the begin of the faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Duration,
    /// What.
    pub fault: Fault,
}

/// The faults of one party, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Whose.
    pub name: String,
    /// What and when.
    pub entries: Vec<Entry>,
}

/// All faults of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How long the faults last altogether.
    pub length: Duration,
    /// By party.
    pub lanes: Vec<Lane>,
}

impl Plan {
    /// The plan of `seed` for a run of `length` with so many nodes.
    pub fn draw(seed: u64, length: Duration, nodes: usize) -> Self {
        let mut lanes = vec![
            Drawing::of(seed, "Cloudly", length).lane(cloudly),
            Drawing::of(seed, "strangers", length).lane(stranger),
            Drawing::of(seed, "operator", length).lane(operator),
        ];
        for role in Role::ALL {
            let drawing = Drawing::of(seed, role.name(), length);
            lanes.push(drawing.lane(|chance, run| worker(role, chance, run)));
        }
        let count = nodes.div_ceil(NODES_OF_A_LANE);
        for lane in 0..count {
            let own: Vec<usize> = (lane..nodes).step_by(count).collect();
            let drawing = Drawing::of(seed, &format!("nodes {lane}"), length);
            lanes.push(drawing.lane(|chance, run| node(&own, chance, run)));
        }
        Self { length, lanes }
    }

    /// How many faults there are.
    pub fn faults(&self) -> usize {
        self.lanes.iter().map(|lane| lane.entries.len()).sum()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<(&Entry, &str)> = Vec::new();
        for lane in &self.lanes {
            all.extend(lane.entries.iter().map(|entry| (entry, lane.name.as_str())));
        }
        all.sort_by_key(|(entry, lane)| (entry.at, *lane));
        for (entry, lane) in all {
            writeln!(f, "{:>8} ms  {lane:<10}  {}", entry.at.as_millis(), entry.fault)?;
        }
        Ok(())
    }
}

/// What a lane's dealer knows of the run.
struct Run {
    length: Duration,
    /// Where the lane is.
    at: Duration,
}

impl Run {
    fn is_long(&self) -> bool {
        self.length >= LONG_RUN
    }

    /// A gap that scales with the run: `part` of it, between these bounds.
    fn share(&self, part: u32, least: Duration, most: Duration) -> Duration {
        (self.length / part).clamp(least, most)
    }
}

/// A hand of faults, each with the pause that follows it.
type Hand = Vec<(Fault, Duration)>;

struct Drawing {
    chance: Chance,
    name: String,
    run: Run,
}

impl Drawing {
    fn of(seed: u64, name: &str, length: Duration) -> Self {
        let run = Run { length, at: Duration::ZERO };
        Self { chance: Chance::of(seed, name), name: name.to_owned(), run }
    }

    /// Deals hand after hand until the run is full. A fault that would outlast the run is left out.
    fn lane(mut self, deal: impl Fn(&mut Chance, &Run) -> Hand) -> Lane {
        let mut entries = Vec::new();
        self.run.at = self.chance.time(ms(300), ms(2500));
        loop {
            let begun = self.run.at;
            let mut hand = deal(&mut self.chance, &self.run);
            self.chance.shuffle(&mut hand);
            for (fault, pause) in hand {
                let end = self.run.at + fault.lasts();
                if end <= self.run.length && !too_late(&fault, self.run.at, self.run.length) {
                    entries.push(Entry { at: self.run.at, fault });
                    self.run.at = end + pause;
                }
            }
            // A hand of which nothing fits is the lane's end.
            if self.run.at == begun {
                return Lane { name: self.name, entries };
            }
        }
    }
}

/// The last third of a run spares the relayd that lives then: growth shows in a life of some length.
fn too_late(fault: &Fault, at: Duration, length: Duration) -> bool {
    matches!(fault, Fault::Worker(Role::Relayd, WorkerFault::Kill | WorkerFault::Hang))
        && at + fault.lasts() > length * 2 / 3
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn cloudly(chance: &mut Chance, run: &Run) -> Hand {
    let out_of_contract =
        ["getIdentityByToken", "registerCloudlyClientSession", "registerClusterRelay", "getClusterConfig"];
    let hanging = if run.is_long() && chance.one_in(3) { s(45) } else { s(6) };
    let hand = [
        CloudlyFault::Drop,
        CloudlyFault::Drop,
        CloudlyFault::Close([1000, 1001, 1008, 1011, 1012, 4000][chance.below(6)]),
        CloudlyFault::GoAway(chance.time(ms(500), s(6))),
        CloudlyFault::Silent(chance.time(s(1), s(6))),
        CloudlyFault::BadGateway(chance.time(s(1), s(6))),
        CloudlyFault::StopReading(chance.time(s(1), hanging)),
        CloudlyFault::WithholdAnswers(chance.time(s(1), s(10))),
        CloudlyFault::BreakOff,
        CloudlyFault::RefuseExchange(chance.time(s(1), s(5))),
        CloudlyFault::OutOfContract(out_of_contract[chance.below(4)], chance.time(s(1), s(4))),
        CloudlyFault::AskAgain,
        CloudlyFault::AskAgain,
        CloudlyFault::Garbage,
    ];
    let mut paused = Vec::new();
    for fault in hand.map(Fault::Cloudly) {
        let quick = chance.time(ms(700), s(3));
        // A short run would else spend its time in the waits before dials.
        let standing = run.share(4, s(2), PROVEN);
        // Now and then one end follows another, and the waits between dials grow.
        let pause = if fault.ends_session() && !chance.one_in(3) { standing + quick } else { quick };
        paused.push((fault, pause));
    }
    paused
}

fn worker(role: Role, chance: &mut Chance, run: &Run) -> Hand {
    let mut hand = vec![WorkerFault::Kill];
    for longest in [s(1), s(3), s(7)] {
        hand.push(WorkerFault::Pause(chance.time(ms(200), longest)));
    }
    // relayd carries everybody: it hangs less often than the others.
    if role != Role::Relayd || chance.one_in(2) {
        hand.push(WorkerFault::Hang);
    }
    let rest = run.share(8, s(2), s(30));
    hand.into_iter().map(|fault| (Fault::Worker(role, fault), chance.time(s(1), rest * 2))).collect()
}

fn node(own: &[usize], chance: &mut Chance, run: &Run) -> Hand {
    // Past two silences of 45 s the relay closes the socket; below, the node comes round by itself.
    let hanging = if run.is_long() && chance.one_in(4) { s(110) } else { chance.time(ms(500), s(12)) };
    let hand = [
        NodeFault::Cut,
        NodeFault::Cut,
        NodeFault::Close,
        NodeFault::HalfOpen(hanging),
        NodeFault::SlowReader(chance.time(s(1), s(8))),
        NodeFault::RegisterTwice,
        NodeFault::Garbage,
    ];
    hand.into_iter()
        .map(|fault| (Fault::Node(own[chance.below(own.len())], fault), chance.time(ms(300), s(3))))
        .collect()
}

fn stranger(chance: &mut Chance, _: &Run) -> Hand {
    let hand = [
        StrangerFault::NeverUpgrade(5 + chance.below(40), chance.time(s(1), s(12))),
        StrangerFault::NeverTls(20 + chance.below(100), chance.time(s(1), s(12))),
        StrangerFault::Flood(200 + chance.below(200)),
        StrangerFault::Garbage(10 + chance.below(20)),
        StrangerFault::TooLarge,
    ];
    hand.into_iter().map(|fault| (Fault::Stranger(fault), chance.time(s(1), s(5)))).collect()
}

fn operator(chance: &mut Chance, run: &Run) -> Hand {
    let rest = run.share(6, s(2), s(60));
    vec![(Fault::Trace(chance.time(s(1), s(5))), chance.time(rest, rest * 2))]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What a failing run prints is enough to have its faults again.
    #[test]
    fn a_seed_draws_the_same_plan_again() {
        let drawn = Plan::draw(7, s(300), 12);
        assert_eq!(Plan::draw(7, s(300), 12), drawn);
        assert_eq!(Plan::draw(7, s(300), 12).to_string(), drawn.to_string());
        assert_ne!(Plan::draw(8, s(300), 12), drawn);
        assert_eq!(drawn.to_string().lines().count(), drawn.faults());
    }

    /// A lane is in order, one fault at a time, and over with the run; relayd's last life is spared.
    #[test]
    fn a_plan_keeps_to_its_run() {
        for seed in 0..40 {
            for length in [s(20), s(90), s(600)] {
                let plan = Plan::draw(seed, length, 10);
                for lane in &plan.lanes {
                    let mut free = Duration::ZERO;
                    for Entry { at, fault } in &lane.entries {
                        assert!(*at >= free, "{}: {fault} at {at:?}", lane.name);
                        free = *at + fault.lasts();
                        assert!(free <= length, "{fault} outlasts the run");
                        let ends = matches!(
                            fault,
                            Fault::Worker(Role::Relayd, WorkerFault::Kill | WorkerFault::Hang)
                        );
                        assert!(!ends || *at <= length * 2 / 3, "{fault} at {at:?} of {length:?}");
                    }
                }
            }
        }
    }

    /// A run of some minutes meets every kind of fault, and one of seconds most of them.
    #[test]
    fn a_run_meets_every_kind_of_fault() {
        let kinds = |length| {
            let plan = Plan::draw(3, length, 12);
            let all = plan.lanes.iter().flat_map(|lane| &lane.entries);
            all.map(|entry| entry.fault.kind()).collect::<BTreeSet<String>>()
        };
        let (long, short) = (kinds(s(1200)), kinds(s(25)));
        assert_eq!(long.len(), 36, "{long:#?}");
        assert!(short.len() >= 18, "{short:#?}");
    }
}
