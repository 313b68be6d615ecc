//! The account of every request and push of a soak: each has an id of its own in its body, and the books
//! have to balance.
//!
//! - An answer is, byte for byte, the one that the other end gives to that very message, and the other end
//!   got that very message, byte for byte and once (FWD-02, FWD-03, FWD-06, FWD-22, FWD-23). Where an answer
//!   asked to be asked again, it comes again under the same correlation id.
//! - A refusal is one of the relay's names, or a name that Cloudly states in a case which cannot be told
//!   apart before the message is forwarded (FWD-10 to FWD-16, FWD-25).
//! - A message has at most one answer. One without any had its connection broken, or an end of it stood
//!   still (FWD-11).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::envelope::UNKNOWN_METHOD;

/// How many violations are kept as text; all are counted.
const KEPT: usize = 40;

/// How long a party has to stand still within a sender's patience of 30 s, so that this explains why the sender has no
/// answer: the relay answers within 9 s of its own time.
const EXCUSE: Duration = Duration::from_secs(15);

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A node's request to Cloudly.
    Up,
    /// Cloudly's push to a node.
    Down,
}

/// How a message ended for its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With this answer.
    Answer(String),
    /// With a refusal of this text.
    Refusal(String),
    /// The connection ended before an answer.
    Broken,
    /// No answer came within the sender's patience.
    Unanswered,
}

/// Somebody who may stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// Cloudly.
    Cloudly,
    /// The relay.
    Relayd,
    /// The node of this number.
    Node(usize),
}

/// A message as its sender sends it.
pub struct Sent {
    /// Which way.
    pub way: Way,
    /// The number in its body, see [`super::body::mark`].
    pub mark: u64,
    /// The sender's correlation id.
    pub correlation: String,
    /// The node that sends it or that it is for; `None` for a node that does not exist.
    pub node: Option<usize>,
    /// Its body.
    pub body: String,
    /// What the other end answers to it.
    pub expected: String,
    /// Whether nothing disturbs the relay: then only the answer will do.
    pub calm: bool,
    /// When.
    pub at: Instant,
}

struct Entry {
    sent: Sent,
    /// The correlation id of each arrival at the other end.
    arrivals: Vec<String>,
    end: Option<(End, Instant)>,
    late: bool,
}

/// What the books add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages sent.
    pub sent: u64,
    /// Answered by the other end.
    pub answered: u64,
    /// Refused, by name.
    pub refused: BTreeMap<String, u64>,
    /// Ended with their connection.
    pub broken: u64,
    /// Never answered, or answered after the sender's patience.
    pub unanswered: u64,
    /// Arrivals that were asked for again.
    pub again: u64,
}

/// The books.
#[derive(Default)]
pub struct Ledger {
    open: BTreeMap<u64, Entry>,
    /// The mark behind each correlation id, kept for the whole run: an answer that comes twice is noticed
    /// however late it comes.
    marks: BTreeMap<String, u64>,
    stood_still: Vec<(Party, Instant, Option<Instant>)>,
    totals: BTreeMap<Way, Totals>,
    /// How often the other end asked to be asked again.
    asked_again: u64,
    /// The nodes that had an answer in the calm.
    calmly: BTreeSet<(Way, usize)>,
    violations: Vec<String>,
    violated: u64,
}

impl Ledger {
    /// Enters a message before it is sent.
    pub fn send(&mut self, sent: Sent) {
        self.total(sent.way).sent += 1;
        self.marks.insert(sent.correlation.clone(), sent.mark);
        self.open.insert(sent.mark, Entry { sent, arrivals: Vec::new(), end: None, late: false });
    }

    /// Enters how a message ended for its sender.
    pub fn end(&mut self, mark: u64, end: End, at: Instant) {
        let Some(entry) = self.open.get_mut(&mark) else {
            return self.violate(format!("message {mark} ended and was never sent"));
        };
        if let (true, End::Answer(_), Some(node)) = (entry.sent.calm, &end, entry.sent.node) {
            self.calmly.insert((entry.sent.way, node));
        }
        if let Some((former, _)) = entry.end.replace((end, at)) {
            self.violate(format!("message {mark} ended twice, first with {former:?}"));
        }
    }

    /// Enters what the other end of `way` got: the body of a message, at Cloudly or at `node`.
    pub fn arrive(
        &mut self,
        way: Way,
        mark: Option<u64>,
        body: &str,
        correlation: &str,
        node: Option<usize>,
    ) {
        let entry = mark.and_then(|mark| self.open.get_mut(&mark)).filter(|entry| entry.sent.way == way);
        let Some(entry) = entry else {
            return self.violate(format!("{way:?}: what nobody sent arrived: {}", short(body)));
        };
        let mark = entry.sent.mark;
        entry.arrivals.push(correlation.to_owned());
        let altered = entry.sent.body != body;
        let elsewhere = way == Way::Down && entry.sent.node != node;
        if altered {
            self.violate(format!("message {mark} arrived with another body: {}", short(body)));
        }
        if elsewhere {
            self.violate(format!("message {mark} arrived at node {node:?}"));
        }
    }

    /// Enters an answer for which nobody waits any more: the late one of a message that had none, or one
    /// too many.
    pub fn stray(&mut self, correlation: &str, text: &str) {
        let entry = self.marks.get(correlation).and_then(|mark| self.open.get_mut(mark));
        let late = entry.is_some_and(|entry| {
            let first = !std::mem::replace(&mut entry.late, true);
            first && matches!(&entry.end, Some((End::Unanswered, _)))
        });
        if !late {
            let end =
                self.marks.get(correlation).map(|mark| (mark, self.open.get(mark).map(|entry| &entry.end)));
            self.violate(format!("an answer too many, to a message that {end:?}: {}", short(text)));
        }
    }

    /// The other end asked to be asked again.
    pub fn ask_again(&mut self) {
        self.asked_again += 1;
    }

    /// `party` stands still from here on.
    pub fn stand_still(&mut self, party: Party, at: Instant) {
        self.stood_still.push((party, at, None));
    }

    /// `party` goes on.
    pub fn go_on(&mut self, party: Party, at: Instant) {
        let of_party =
            |(other, _, until): &&mut (Party, Instant, Option<Instant>)| *other == party && until.is_none();
        if let Some((_, _, until)) = self.stood_still.iter_mut().find(of_party) {
            *until = Some(at);
        }
    }

    /// Closes the entries that ended at least `age` before `now`, so that the books stay small.
    pub fn close_older(&mut self, age: Duration, now: Instant) {
        let old = |entry: &Entry| {
            entry.end.as_ref().is_some_and(|(_, at)| now.saturating_duration_since(*at) >= age)
        };
        let marks: Vec<u64> =
            self.open.iter().filter(|(_, entry)| old(entry)).map(|(mark, _)| *mark).collect();
        for mark in marks {
            let entry = self.open.remove(&mark).expect("it was just seen");
            self.judge(entry);
        }
    }

    /// Closes every entry. What has not ended by then is a violation.
    pub fn close(&mut self) {
        for entry in std::mem::take(&mut self.open).into_values() {
            self.judge(entry);
        }
        let again: u64 = self.totals.values().map(|totals| totals.again).sum();
        if again > self.asked_again {
            self.violate(format!("{again} messages came again, {} were asked for", self.asked_again));
        }
    }

    /// How many messages wait for their end.
    pub fn waiting(&self) -> usize {
        self.open.values().filter(|entry| entry.end.is_none()).count()
    }

    /// Whether a message of this node was answered in the calm.
    pub fn calmly_answered(&self, way: Way, node: usize) -> bool {
        self.calmly.contains(&(way, node))
    }

    /// What the closed entries add up to.
    pub fn totals(&self, way: Way) -> Totals {
        self.totals.get(&way).cloned().unwrap_or_default()
    }

    /// The violations, the first ones as text, and how many there are.
    pub fn violations(&self) -> (Vec<String>, u64) {
        (self.violations.clone(), self.violated)
    }

    fn total(&mut self, way: Way) -> &mut Totals {
        self.totals.entry(way).or_default()
    }

    fn violate(&mut self, what: String) {
        self.violated += 1;
        if self.violations.len() < KEPT {
            self.violations.push(what);
        }
    }

    fn judge(&mut self, entry: Entry) {
        let way = entry.sent.way;
        let arrivals = entry.arrivals.len();
        let same = entry.arrivals.windows(2).all(|pair| pair[0] == pair[1]);
        // A node of the soak never asks to be asked again.
        let asked_for = way == Way::Up && same;
        if arrivals > 1 && !asked_for {
            self.violate(format!("message {} arrived {arrivals} times", entry.sent.mark));
        }
        let again = if asked_for { u64::try_from(arrivals.saturating_sub(1)).unwrap_or(u64::MAX) } else { 0 };
        let excused = self.is_excused(&entry);
        let wrong = wrong(&entry, excused);
        let total = self.total(way);
        total.again += again;
        match &entry.end {
            Some((End::Answer(_), _)) => total.answered += 1,
            Some((End::Refusal(text), _)) => {
                *total.refused.entry(name(text).to_owned()).or_default() += 1;
            }
            Some((End::Broken, _)) => total.broken += 1,
            Some((End::Unanswered, _)) | None => total.unanswered += 1,
        }
        if let Some(wrong) = wrong {
            let method = short(&entry.sent.body);
            self.violate(format!("{way:?} message {} {wrong}: {method}", entry.sent.mark));
        }
    }

    /// Whether an end of the message, or the relay between them, stood still while its sender waited.
    fn is_excused(&self, entry: &Entry) -> bool {
        let Some((_, ended)) = &entry.end else { return false };
        let concerned = |party: Party| match party {
            Party::Cloudly | Party::Relayd => true,
            Party::Node(number) => entry.sent.node == Some(number),
        };
        self.stood_still.iter().any(|(party, from, until)| {
            let (from, until) = ((*from).max(entry.sent.at), until.unwrap_or(*ended).min(*ended));
            concerned(*party) && until.saturating_duration_since(from) >= EXCUSE
        })
    }
}

/// What is wrong with a message's end, if anything is.
fn wrong(entry: &Entry, excused: bool) -> Option<String> {
    let arrived = !entry.arrivals.is_empty();
    match &entry.end {
        None => Some("has not ended".to_owned()),
        Some((End::Answer(answer), _)) if *answer != entry.sent.expected => {
            Some(format!("was answered with what is not its answer: {}", short(answer)))
        }
        Some((End::Answer(_), _)) if !arrived => {
            Some("was answered, and never reached whom it was for".to_owned())
        }
        Some((End::Answer(_), _)) => None,
        Some((End::Refusal(text), _)) if entry.sent.calm && entry.sent.node.is_some() => {
            Some(format!("was refused although nothing disturbs: {text}"))
        }
        Some((End::Refusal(text), _)) => refusal(entry.sent.way, text, arrived),
        Some((End::Broken, _)) if entry.sent.calm => {
            Some("lost its connection although nothing disturbs".to_owned())
        }
        Some((End::Broken, _)) => None,
        Some((End::Unanswered, _)) if excused => None,
        Some((End::Unanswered, _)) => Some("was never answered".to_owned()),
    }
}

/// What is wrong with a refusal.
fn refusal(way: Way, text: &str, arrived: bool) -> Option<String> {
    let before_forwarding = match (way, name(text)) {
        // Cloudly's own: a second registration of the node got its binding a moment ago.
        (Way::Up, "runtime-session-superseded") => false,
        (Way::Up, "relay-session-unavailable" | "relay-forward-timeout") => false,
        (Way::Up, "runtime-session-foreign" | "relay-too-many-in-flight") => true,
        (Way::Down, "relay-node-not-connected" | "relay-forward-timeout") => false,
        // A relayd whose listener does not run has no pushes (FWD-18, FWD-19).
        (Way::Down, UNKNOWN_METHOD) => true,
        (Way::Up | Way::Down, _) => return Some(format!("was refused by what is no name of its: {text}")),
    };
    (before_forwarding && arrived).then(|| format!("was refused although it was forwarded: {text}"))
}

fn name(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(name, _)| name)
}

fn short(text: &str) -> String {
    text.chars().take(160).collect()
}

#[cfg(test)]
mod tests;
