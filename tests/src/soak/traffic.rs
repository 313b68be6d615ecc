//! The steady traffic of a soak: requests of every node up, pushes of Cloudly down, each entered into the
//! books when it is sent and when it ends.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::body::{self, Exchange};
use super::chance::Chance;
use super::ledger::{End, Ledger, Sent, Way};
use super::stage::Stage;
use crate::carrier::{CallFailure, Carrier};
use crate::envelope::{Ids, request};

/// How long a sender waits: well past every bound of the relay's, so that only what is never answered is
/// unanswered.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest pause between two requests of one node.
const PAUSE_OF_A_NODE: Duration = Duration::from_millis(500);

/// The longest pause between two pushes to one node, on average.
const PAUSE_OF_PUSHES: Duration = Duration::from_millis(800);

/// Messages of one sender that may wait for their answers.
const IN_FLIGHT: usize = 100;

/// One push in so many is for a node that does not exist.
const FOR_NOBODY: usize = 50;

/// Sends until `stopped`, then waits for every end.
pub async fn run(stage: &Stage, seed: u64, stopped: &watch::Receiver<bool>) {
    let nodes = (0..stage.fleet.count()).map(|number| requests(stage, number, seed, stopped.clone()));
    tokio::join!(join_all(nodes), pushes(stage, seed, stopped.clone()));
}

/// Waits a time of chance; false once the traffic is stopped.
async fn pause(chance: &mut Chance, longest: Duration, stopped: &mut watch::Receiver<bool>) -> bool {
    let time = chance.time(Duration::ZERO, longest);
    tokio::time::timeout(time, stopped.wait_for(|stopped| *stopped)).await.is_err()
}

async fn requests(stage: &Stage, number: usize, seed: u64, mut stopped: watch::Receiver<bool>) {
    let mut chance = Chance::of(seed, &format!("requests of node {number}"));
    let mut calls = JoinSet::new();
    while pause(&mut chance, PAUSE_OF_A_NODE, &mut stopped).await {
        while calls.try_join_next().is_some() {}
        let node = stage.fleet.node(number);
        let (Some(carrier), Some(binding)) = (node.carrier(), node.binding()) else { continue };
        if calls.len() < IN_FLIGHT {
            let mark = stage.next_mark();
            let exchange = body::request(mark, &binding, &mut chance);
            calls.spawn(call(stage, Way::Up, Some(number), mark, exchange, carrier));
        }
    }
    while calls.join_next().await.is_some() {}
}

async fn pushes(stage: &Stage, seed: u64, mut stopped: watch::Receiver<bool>) {
    let mut chance = Chance::of(seed, "pushes");
    let mut calls = JoinSet::new();
    let count = stage.fleet.count();
    let longest = PAUSE_OF_PUSHES / u32::try_from(count).expect("there are few nodes");
    while pause(&mut chance, longest, &mut stopped).await {
        while calls.try_join_next().is_some() {}
        let Some(carrier) = stage.cloudly.carrier() else { continue };
        if calls.len() >= IN_FLIGHT {
            continue;
        }
        let (number, mark) = (chance.below(count), stage.next_mark());
        let node = (!chance.one_in(FOR_NOBODY)).then_some(number);
        let id = node.map_or("nobody", |number| stage.fleet.id(number));
        let unbound = || format!(r#"{{"nodeId":"{id}"}}"#);
        let binding = stage.cloudly.binding_of(id).unwrap_or_else(unbound);
        let exchange = body::push(mark, &binding, &mut chance);
        calls.spawn(call(stage, Way::Down, node, mark, exchange, carrier));
    }
    while calls.join_next().await.is_some() {}
}

/// Enters a message and gives what sends it and enters its end.
fn call(
    stage: &Stage,
    way: Way,
    node: Option<usize>,
    mark: u64,
    exchange: Exchange,
    carrier: Carrier,
) -> impl Future<Output = ()> + Send + use<> {
    let Exchange { method, body, expected } = exchange;
    let ids = Ids::fresh();
    let text = request(method, &body, &ids);
    let calm = stage.calm.load(Ordering::SeqCst);
    let correlation = ids.correlation.clone();
    let at = Instant::now();
    stage.books().send(Sent { way, mark, correlation, node, body, expected, calm, at });
    let books: Arc<Mutex<Ledger>> = stage.books.clone();
    async move {
        let end = match carrier.call_text(method, ids, text, PATIENCE).await {
            Ok(message) => match message.outcome() {
                Ok(answer) => End::Answer(answer.get().to_owned()),
                Err(refusal) => End::Refusal(refusal.text),
            },
            Err(CallFailure::NotConnected) => End::Broken,
            Err(CallFailure::Unanswered(_)) => End::Unanswered,
        };
        let mut books = books.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        books.end(mark, end, Instant::now());
    }
}
