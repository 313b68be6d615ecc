//! The end of a soak: the faults are over, and everything has to be as it was.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::RECOVERY;
use super::census::{self, Census};
use super::fault::Role;
use super::growth;
use super::ledger::Way;
use super::report::Report;
use super::stage::{Stage, look_until};
use crate::processes::is_alive;

/// How long the calm may take until each node had an answer both ways.
const CALM: Duration = Duration::from_secs(30);

/// The shortest calm.
const CALM_AT_LEAST: Duration = Duration::from_secs(4);

/// How long processes may take to come to rest: the sockets that never spoke are closed after 10 s.
const REST: Duration = Duration::from_secs(30);

/// How long the relay may take to stop.
const STOP: Duration = Duration::from_secs(20);

/// Waits until Cloudly has accepted more than `accepted` registrations and all is carried. Says what is
/// missing otherwise.
pub async fn recovered(stage: &Stage, report: &mut Report, accepted: u64, after: &'static str) -> bool {
    let begin = Instant::now();
    let whole = || missing(stage, accepted).is_empty().then_some(());
    if look_until(RECOVERY, whole).await.is_some() {
        report.recoveries.push((after, begin.elapsed()));
        return true;
    }
    for missing in missing(stage, accepted) {
        report.failures.push(format!("{} s after {after}: {missing}", RECOVERY.as_secs()));
    }
    false
}

fn missing(stage: &Stage, accepted: u64) -> Vec<String> {
    let (cloudly, fleet) = (&stage.cloudly, &stage.fleet);
    let mut missing = Vec::new();
    if cloudly.acceptances() <= accepted {
        missing.push("the relay is not accepted".to_owned());
    }
    let open = cloudly.open_connections();
    if open != 1 {
        missing.push(format!("{open} connections are open at Cloudly"));
    }
    for number in 0..fleet.count() {
        let (id, node) = (fleet.id(number), fleet.node(number));
        let issued = cloudly.binding_of(id);
        if issued.is_none() || issued != node.binding() || node.carrier().is_none() {
            missing.push(format!("{id} is not registered"));
        }
    }
    let workers = stage.relay.workers();
    for role in Role::ALL.iter().filter(|role| !workers.contains_key(role.name())) {
        missing.push(format!("there is no {}", role.name()));
    }
    missing
}

/// A last reconnect, from which relay and nodes come back; then a calm, in which each node has its messages
/// answered both ways.
pub async fn settle(stage: &Stage, report: &mut Report) -> bool {
    for method in super::body::REQUESTS {
        stage.cloudly.ordinary(method);
    }
    let accepted = stage.cloudly.acceptances();
    stage.cloudly.drop_connections();
    if !recovered(stage, report, accepted, "the last fault").await {
        return false;
    }
    stage.calm.store(true, Ordering::SeqCst);
    tokio::time::sleep(CALM_AT_LEAST).await;
    let nodes = stage.fleet.count();
    let unheard = || -> Vec<String> {
        let books = stage.books();
        let ways = [Way::Up, Way::Down].into_iter().flat_map(|way| (0..nodes).map(move |node| (way, node)));
        let unheard = ways.filter(|(way, node)| !books.calmly_answered(*way, *node));
        unheard.map(|(way, node)| format!("node {node} had no answer in the calm: {way:?}")).collect()
    };
    let heard = look_until(CALM, || unheard().is_empty().then_some(())).await;
    if heard.is_none() {
        report.failures.extend(unheard());
    }
    heard.is_some()
}

/// A census at rest: two in a row that show the same descriptors and threads, and that `before`, where
/// given, explains.
pub async fn at_rest(stage: &Stage, before: Option<&Census>) -> Census {
    let shape = |census: &Census| -> Vec<(String, Option<usize>, usize)> {
        census.iter().map(|(name, held)| (name.clone(), held.descriptors, held.threads)).collect()
    };
    let mut last = Census::new();
    let begin = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = census::take(stage.relay.pid());
        let still = shape(&now) == shape(&last);
        let explained = before.is_none_or(|before| growth::compare(before, &now).is_empty());
        if still && explained || begin.elapsed() >= REST {
            return now;
        }
        last = now;
    }
}

/// Closes the books and reads what the relay said.
pub fn account(stage: &Stage, report: &mut Report) {
    stage.collect();
    let mut books = stage.books();
    books.close();
    report.up = books.totals(Way::Up);
    report.down = books.totals(Way::Down);
    let (violations, count) = books.violations();
    drop(books);
    report.failures.extend(violations);
    report.violations = count;
    report.failures.extend(stage.take_failures());
    report.failures.extend(stage.unexplained_deaths());
    let zombies = census::zombies_of(stage.relay.pid());
    if !zombies.is_empty() {
        report.failures.push(format!("{} children of the supervisor were not reaped", zombies.len()));
    }
    for text in stage.cloudly.unreadable() {
        report.failures.push(format!("Cloudly got what is no envelope: {text:.160}"));
    }
    report.faults = stage.faults_done();
    report.restarts = stage.fleet.restarts();
    let journal = stage.journal();
    report.deaths = journal.deaths().len();
    report.warnings = journal.warnings().clone();
    report.failures.extend(journal.errors().iter().map(|line| format!("the relay calls an error: {line}")));
}

/// Stops the relay with its nodes connected: exit 0, and nothing is left.
pub async fn stop(mut stage: Stage, report: &mut Report) {
    let supervisor = stage.relay.pid();
    let mut all: Vec<u32> = stage.relay.workers().into_values().collect();
    all.push(supervisor);
    let deaths = report.deaths;
    stage.relay.signal(Signal::SIGTERM);
    match stage.relay.wait_exit(STOP).await {
        Ok(0) => {}
        Ok(code) => report.failures.push(format!("the relay stopped with {code}")),
        Err(late) => report.failures.push(late.to_string()),
    }
    if look_until(Duration::from_secs(5), || all.iter().all(|pid| !is_alive(*pid)).then_some(()))
        .await
        .is_none()
    {
        report.failures.push("a process is left after the stop".to_owned());
    }
    if tokio::net::TcpStream::connect(stage.target.address).await.is_ok() {
        report.failures.push("somebody still listens after the stop".to_owned());
    }
    if let Err(late) = stage.cloudly.wait_open_connections(0).await {
        report.failures.push(format!("after the stop: {late}"));
    }
    let journal = stage.journal();
    if journal.deaths().len() != deaths
        || journal.errors().iter().any(|line| line.contains("during the stop"))
    {
        report.failures.push("a worker crashed during the stop".to_owned());
    }
    report.last_lines = journal.last().map(str::to_owned).collect();
}
