//! What a busy link costs: never the answer to a ping, nor the end, and of messages and records neither.

use std::{collections::BTreeMap, os::unix::net::UnixStream};

use super::*;
use crate::{
    link::{self, Descriptors},
    messages::relayd::{FromRelayd, ToRelayd},
    record::Level,
};

/// What does not come within this time does not come.
const BOUND: Duration = Duration::from_secs(30);

/// The supervisor's end of a worker's link.
struct Supervisor {
    sender: LinkSender<ToRelayd>,
    receiver: LinkReceiver<FromRelayd>,
}

impl Supervisor {
    async fn tell(&mut self, message: ToWorker) {
        self.sender.send(&ToRelayd::Worker(message), &[]).await.unwrap();
    }

    async fn hear(&mut self) -> FromRelayd {
        timeout(BOUND, self.receiver.receive()).await.expect("something is said").unwrap().message
    }
}

/// A worker that lives, where its records go, and its supervisor.
fn alive() -> (Life<FromRelayd, ToRelayd>, mpsc::Sender<Record>, Supervisor) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (sender, inbox) = link::open(ours.into(), Descriptors::Accepted).unwrap();
    let (records, recorded) = mpsc::channel(RECORD_QUEUE);
    let life = Life::begin(sender, inbox, recorded, Verbosity::new(Level::Info));
    let (sender, receiver) = link::open(theirs.into(), Descriptors::Refused).unwrap();
    (life, records, Supervisor { sender, receiver })
}

fn message() -> FromRelayd {
    FromRelayd::Waiting { what: "x".repeat(300) }
}

fn a_record() -> Record {
    Record { level: Level::Info, message: "x".repeat(300), fields: BTreeMap::new() }
}

/// Fills the socket and both queues until neither takes any more.
async fn fill(life: &Life<FromRelayd, ToRelayd>, records: &mpsc::Sender<Record>) {
    let mut idle = 0;
    // The writer gets its turns, and is stuck once the socket is full.
    while idle < 100 {
        let before = idle;
        while life.outbox.0.try_send(message()).is_ok() || records.try_send(a_record()).is_ok() {
            idle = 0;
        }
        idle = if before == idle { idle + 1 } else { 0 };
        tokio::task::yield_now().await;
    }
}

/// ARC-18: a worker whose outbox is full answers the latest ping, and the answer passes all that is queued.
#[tokio::test]
async fn a_full_outbox_costs_no_pong() {
    let (mut life, records, mut supervisor) = alive();
    fill(&life, &records).await;
    for message in [ToWorker::Ping(1), ToWorker::Ping(2), ToWorker::Stop] {
        supervisor.tell(message).await;
    }
    assert!(matches!(life.told().await, Ok(Told::Stop)));
    assert_eq!(life.outbox.0.capacity(), 0);
    let pong = loop {
        if let FromRelayd::Worker(FromWorker::Pong(number)) = supervisor.hear().await {
            break number;
        }
    };
    assert_eq!(pong, 2);
    // Nothing of the full queues came before it.
    for _ in 0..MESSAGE_QUEUE + RECORD_QUEUE - 1 {
        supervisor.hear().await;
    }
}

/// ARC-18: a worker whose other runtime stands still does not answer, however well its own runs; the answer comes with
/// the first turn of the other one.
#[tokio::test]
async fn a_runtime_that_stands_still_costs_the_pong() {
    let (mut life, _records, mut supervisor) = alive();
    // It runs while something is waited for inside it, and stands still else.
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    life.answer_pings_through(other.handle().clone());
    for message in [ToWorker::Ping(1), ToWorker::Stop] {
        supervisor.tell(message).await;
    }
    assert!(matches!(life.told().await, Ok(Told::Stop)), "it took the ping before");
    life.outbox.send(message()).await;
    assert!(matches!(supervisor.hear().await, FromRelayd::Waiting { .. }), "a pong would have passed it");
    let turn = move || other.block_on(tokio::task::yield_now());
    std::thread::spawn(turn).join().unwrap();
    assert!(matches!(supervisor.hear().await, FromRelayd::Worker(FromWorker::Pong(1))));
}

/// ARC-22: messages without end hold back a record for a bounded number of them.
#[tokio::test]
async fn messages_without_end_do_not_starve_records() {
    let (life, records, mut supervisor) = alive();
    for _ in 0..MESSAGE_QUEUE {
        life.outbox.0.try_send(message()).ok().unwrap();
    }
    for _ in 0..4 {
        records.try_send(a_record()).unwrap();
    }
    let mut in_a_row = 0;
    for _ in 0..4 {
        while !matches!(supervisor.hear().await, FromRelayd::Worker(FromWorker::Record(_))) {
            in_a_row += 1;
        }
        assert_eq!(std::mem::take(&mut in_a_row), MESSAGES_IN_A_ROW);
    }
}

/// ARC-22: however many records wait, a message waits for one at most, and for none when it came first.
#[tokio::test]
async fn records_without_end_do_not_starve_messages() {
    let (life, records, mut supervisor) = alive();
    for _ in 0..RECORD_QUEUE {
        records.try_send(a_record()).unwrap();
    }
    for _ in 0..MESSAGES_IN_A_ROW {
        life.outbox.0.try_send(message()).ok().unwrap();
    }
    for _ in 0..MESSAGES_IN_A_ROW {
        assert!(matches!(supervisor.hear().await, FromRelayd::Waiting { .. }));
    }
}

/// ARC-20: a worker whose parts go on speaking says that it stopped, and says it within a bound.
#[tokio::test]
async fn messages_without_end_do_not_hold_back_the_end() {
    let (life, records, mut supervisor) = alive();
    let outbox = life.outbox.clone();
    let speaking = tokio::spawn(async move {
        loop {
            outbox.send(message()).await;
            tokio::task::yield_now().await;
        }
    });
    fill(&life, &records).await;
    let stopped = tokio::spawn(life.stopped());
    let mut before = 0;
    while !matches!(supervisor.hear().await, FromRelayd::Worker(FromWorker::Stopped)) {
        before += 1;
        // What was queued, and what a socket's buffer holds at most.
        assert!(before < 4 * (MESSAGE_QUEUE + RECORD_QUEUE), "it never says that it stopped");
    }
    stopped.await.unwrap();
    speaking.abort();
}

/// What its asker does without never waits: it is queued while there is room, and left out while there is none.
#[test]
fn what_is_offered_waits_for_no_room() {
    let (queue, mut queued) = mpsc::channel(1);
    let outbox = Outbox(queue);
    assert!(outbox.offer(FromRelayd::Open));
    assert!(!outbox.offer(FromRelayd::Open));
    assert!(matches!(queued.try_recv(), Ok(FromRelayd::Open)));
    assert!(outbox.offer(FromRelayd::Open));
    drop(queued);
    assert!(!outbox.offer(FromRelayd::Open), "the link has ended");
}
