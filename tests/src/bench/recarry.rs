//! Nodes carried anew after a session change: Cloudly's end of the session is cut, and each node has to register
//! again. Nodes dial again at once, so that the time is the relay's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::arguments::Arguments;
use super::contestant::{Contestant, Ground, Kind};
use super::latencies::Latencies;
use super::node::{Dial, Node};
use crate::waiting::Change;

/// Longest wait for all nodes.
const BOUND: Duration = Duration::from_secs(120);
/// Cuts, at most: each takes some seconds and has as many samples as nodes.
const ROUNDS: u32 = 3;
/// Pause before a node dials again after a failure, and how many failures it has.
const PAUSE: Duration = Duration::from_millis(100);
const FAILURES: usize = 50;
/// First dials are spread out by as much a node.
const SPREAD: Duration = Duration::from_millis(2);

/// What one relay did, over all rounds.
#[derive(Debug, Default)]
pub struct Recarried {
    /// From the cut to the last node's registration, one a round.
    pub whole: Latencies,
    /// From a node's close to its registration, one a node and round.
    pub each: Latencies,
    /// CPU time the relay's processes used meanwhile, over all rounds.
    pub cpu: Duration,
}

#[derive(Default)]
struct Count {
    registered: BTreeSet<usize>,
    away: Latencies,
    trouble: Option<String>,
}

#[derive(Clone, Default)]
struct Tally {
    count: Arc<Mutex<Count>>,
    change: Change,
}

impl Tally {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Measures both relays, one after the other, with a cut in each round, of which there are a few at most.
///
/// # Errors
/// What did not work, and with whom.
pub async fn measure(
    arguments: &Arguments,
    ground: &Ground<'_>,
) -> Result<BTreeMap<Kind, Recarried>, String> {
    let mut measured = BTreeMap::new();
    for kind in Kind::RELAYS {
        let relay = Contestant::start(kind, ground).await?;
        let tally = Tally::default();
        let mut living = JoinSet::new();
        for number in 0..arguments.recarried {
            living.spawn(live(relay.dial.clone(), number, tally.clone()));
        }
        all_registered(&relay, &tally, arguments.recarried).await?;
        let mut recarried = Recarried::default();
        for _ in 0..arguments.rounds.min(ROUNDS) {
            // Nodes and relay are at rest before the next cut.
            relay.memory_at_rest().await?;
            *tally.count() = Count::default();
            let (begin, cpu) = (Instant::now(), relay.cpu()?);
            relay.cloudly.cut();
            all_registered(&relay, &tally, arguments.recarried).await?;
            recarried.whole.add(begin.elapsed());
            recarried.cpu += relay.cpu()? - cpu;
            recarried.each.merge(std::mem::take(&mut tally.count().away));
        }
        measured.insert(kind, recarried);
    }
    Ok(measured)
}

async fn all_registered(relay: &Contestant, tally: &Tally, nodes: usize) -> Result<(), String> {
    let what = format!("registration of {nodes} nodes");
    let look = || {
        let count = tally.count();
        let done = count.trouble.is_some() || count.registered.len() >= nodes;
        done.then(|| count.trouble.clone())
    };
    match tally.change.until(BOUND, &what, look).await {
        Ok(None) => Ok(()),
        Ok(Some(trouble)) => Err(relay.blame(&trouble)),
        Err(late) => Err(relay.blame(&format!("{late}; {} are", tally.count().registered.len()))),
    }
}

/// One node that comes back whenever it is closed.
async fn live(dial: Dial, number: usize, tally: Tally) {
    tokio::time::sleep(SPREAD * u32::try_from(number).expect("a number of a node is small")).await;
    let (mut closed, mut failures) = (None::<Instant>, 0);
    loop {
        match Node::register(&dial, number).await {
            Ok(mut node) => {
                failures = 0;
                {
                    let mut count = tally.count();
                    count.registered.insert(number);
                    if let Some(closed) = closed {
                        count.away.add(closed.elapsed());
                    }
                }
                tally.change.announce();
                node.idle().await;
                closed = Some(Instant::now());
            }
            Err(trouble) => {
                failures += 1;
                if failures == FAILURES {
                    tally.count().trouble = Some(trouble);
                    return tally.change.announce();
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
