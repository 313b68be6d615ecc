//! A book that does not balance is noticed, in each way in which it may not.

use super::*;

struct Book {
    ledger: Ledger,
    begin: Instant,
}

impl Book {
    fn new() -> Self {
        Self { ledger: Ledger::default(), begin: Instant::now() }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.begin + Duration::from_secs(seconds)
    }

    fn send(&mut self, way: Way, mark: u64) {
        self.send_when(way, mark, false);
    }

    fn send_when(&mut self, way: Way, mark: u64, calm: bool) {
        let at = self.at(10);
        self.ledger.send(Sent {
            way,
            mark,
            correlation: format!("c{mark}"),
            node: Some(1),
            body: format!("body {mark}"),
            expected: format!("answer {mark}"),
            calm,
            at,
        });
    }

    fn arrive(&mut self, way: Way, mark: u64) {
        self.ledger.arrive(way, Some(mark), &format!("body {mark}"), "relay's", Some(1));
    }

    fn end(&mut self, mark: u64, end: End) {
        let at = self.at(40);
        self.ledger.end(mark, end, at);
    }

    fn answer(&mut self, mark: u64) {
        self.end(mark, End::Answer(format!("answer {mark}")));
    }

    fn violations(mut self) -> Vec<String> {
        self.ledger.close();
        let (violations, count) = self.ledger.violations();
        assert_eq!(u64::try_from(violations.len()).unwrap(), count);
        violations
    }
}

fn refused(text: &str) -> End {
    End::Refusal(text.to_owned())
}

/// What a sound relay does among faults.
#[test]
fn a_sound_run_balances() {
    let mut book = Book::new();
    let ends = [
        (Way::Up, refused("relay-session-unavailable: no Cloudly session after waiting 0 ms")),
        (Way::Up, refused("runtime-session-foreign: socket")),
        (Way::Up, refused("runtime-session-superseded")),
        (Way::Down, refused("relay-node-not-connected: node n is not connected to this relay")),
        (Way::Down, refused(UNKNOWN_METHOD)),
        (Way::Up, End::Broken),
        (Way::Down, End::Broken),
    ];
    for (mark, (way, end)) in (0..).zip(ends) {
        book.send(way, mark);
        book.end(mark, end);
    }
    for (mark, way) in [(10, Way::Up), (11, Way::Down)] {
        book.send(way, mark);
        book.arrive(way, mark);
        book.answer(mark);
    }
    // Asked again, and asked for again.
    book.ledger.ask_again();
    book.send(Way::Up, 12);
    book.arrive(Way::Up, 12);
    book.arrive(Way::Up, 12);
    book.answer(12);
    book.ledger.close_older(Duration::from_secs(1), book.at(60));
    let (up, down) = (book.ledger.totals(Way::Up), book.ledger.totals(Way::Down));
    assert_eq!((up.sent, up.answered, up.broken, up.again), (6, 2, 1, 1));
    assert_eq!(up.refused.values().sum::<u64>(), 3);
    assert_eq!((down.sent, down.answered, down.broken, down.refused.len()), (4, 1, 1, 2));
    assert_eq!(book.violations(), [] as [&str; 0]);
}

/// A message that one end gets altered, twice, at another node, or from nobody.
#[test]
fn a_wrong_arrival_is_noticed() {
    let mut book = Book::new();
    for mark in 0..4 {
        book.send(Way::Down, mark);
    }
    book.ledger.arrive(Way::Down, Some(0), "body 1", "relay's", Some(1));
    book.ledger.arrive(Way::Down, Some(1), "body 1", "relay's", Some(2));
    book.arrive(Way::Down, 2);
    book.arrive(Way::Down, 2);
    book.ledger.arrive(Way::Up, Some(3), "body 3", "relay's", None);
    book.ledger.arrive(Way::Down, None, "body 9", "relay's", Some(1));
    for mark in 0..3 {
        book.answer(mark);
    }
    book.end(3, End::Broken);
    let found = book.violations();
    assert_eq!(found.len(), 5, "{found:#?}");
    let mut book = Book::new();
    book.ledger.ask_again();
    book.send(Way::Up, 0);
    book.ledger.arrive(Way::Up, Some(0), "body 0", "one", None);
    book.ledger.arrive(Way::Up, Some(0), "body 0", "another", None);
    book.answer(0);
    assert_eq!(book.violations().len(), 1, "again, and not under the same correlation id");
    let mut book = Book::new();
    book.send(Way::Up, 0);
    book.arrive(Way::Up, 0);
    book.arrive(Way::Up, 0);
    book.answer(0);
    assert_eq!(book.violations().len(), 1, "again, and not asked for");
}

/// A foreign answer, an invented one, an unknown refusal, one after forwarding, a second answer.
#[test]
fn a_wrong_end_is_noticed() {
    for (way, arrives, end) in [
        (Way::Up, true, End::Answer("answer 2".to_owned())),
        (Way::Down, false, End::Answer("answer 1".to_owned())),
        (Way::Up, false, refused("runtime-session-unknown: not registered on this carrier connection")),
        (Way::Down, false, refused("relay-session-unavailable: no Cloudly session")),
        (Way::Up, true, refused("runtime-session-foreign: session")),
        (Way::Up, false, End::Unanswered),
    ] {
        let mut book = Book::new();
        book.send(way, 1);
        if arrives {
            book.arrive(way, 1);
        }
        book.end(1, end.clone());
        assert_eq!(book.violations().len(), 1, "{end:?}");
    }
    let mut book = Book::new();
    book.send(Way::Up, 1);
    assert_eq!(book.violations().len(), 1, "no end at all");
    let mut book = Book::new();
    book.send(Way::Up, 1);
    book.arrive(Way::Up, 1);
    book.answer(1);
    book.ledger.stray("c1", "{}");
    book.ledger.stray("c2", "{}");
    book.ledger.end(7, End::Broken, Instant::now());
    book.answer(1);
    assert_eq!(book.violations().len(), 4);
}

/// Only who stood still while the sender waited is an excuse, and for one late answer.
#[test]
fn an_excuse_has_to_fit() {
    for (party, from, until, fits) in [
        (Party::Relayd, 12, Some(30), true),
        (Party::Cloudly, 5, None, true),
        (Party::Node(1), 24, Some(50), true),
        (Party::Node(1), 26, Some(50), false),
        (Party::Node(2), 12, Some(30), false),
        (Party::Relayd, 1, Some(9), false),
        (Party::Cloudly, 41, None, false),
    ] {
        let mut book = Book::new();
        let from = book.at(from);
        book.ledger.stand_still(party, from);
        if let Some(until) = until {
            let until = book.at(until);
            book.ledger.go_on(party, until);
        }
        book.send(Way::Up, 1);
        book.end(1, End::Unanswered);
        book.ledger.stray("c1", "{}");
        assert_eq!(book.violations().is_empty(), fits, "{party:?} {from:?}");
    }
    let mut book = Book::new();
    let begin = book.begin;
    book.ledger.stand_still(Party::Relayd, begin);
    book.send(Way::Up, 1);
    book.end(1, End::Unanswered);
    book.ledger.stray("c1", "{}");
    book.ledger.stray("c1", "{}");
    assert_eq!(book.violations().len(), 1, "late twice");
}

/// In the calm after the faults only the answer will do.
#[test]
fn the_calm_has_no_refusals() {
    for end in [End::Broken, refused("relay-forward-timeout: m after 8000 ms"), refused(UNKNOWN_METHOD)] {
        let mut book = Book::new();
        book.send_when(Way::Down, 1, true);
        book.end(1, end.clone());
        assert_eq!(book.violations().len(), 1, "{end:?}");
    }
}
