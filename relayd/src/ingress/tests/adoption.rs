//! Which table is held after what Cloudly pushes and answers.

use super::*;

fn accepted(script: &mut Script) -> Sent {
    let seen = script.on(Event::Accepted);
    assert_eq!(seen, [Seen::Sent(sent(None, READ, "{}"))]);
    request(&seen)
}

/// ING-02, ING-05, ING-07: a pushed table is held and answered with its revision, and given to the bound
/// ingress as Cloudly wrote it.
#[test]
fn a_pushed_table_is_held_and_given_as_it_was_written() {
    let mut script = Script::bound(7);
    assert_eq!(script.push(3), [adopted(3), hint(7, 3), held(3)]);
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
}

/// ING-06, ING-07, ING-08: a table that is not newer has no effect, whatever else differs in it, and the
/// answer states the revision that is held.
#[test]
fn an_equal_or_older_table_has_no_effect() {
    let mut script = Script::bound(7);
    script.push(3);
    let no_news = Seen::Note(Note::NotNewer { held: 3 });
    assert_eq!(script.push(3), [no_news.clone(), held(3)]);
    assert_eq!(script.push(2), [no_news.clone(), held(3)]);
    let other = table(3).replace("a.test", "b.test");
    let seen = script.dispatch(1, "p", PUSH, &carrying(&other));
    assert_eq!(seen, [no_news, held(3)]);
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    // Nothing but a greater revision is needed, though all else is the same.
    assert_eq!(script.push(4), [adopted(4), hint(7, 4), held(4)]);
}

/// ING-09, ING-10: a table that its validator refuses is answered with the first reason, which is a path,
/// and what was held stays.
#[test]
fn an_invalid_table_is_refused_by_path_and_changes_nothing() {
    let mut script = Script::bound(7);
    script.push(3);
    let invalid = table(4).replace(r#""certificateId":"k""#, r#""certificateId":"absent""#);
    let cases = [
        (carrying(&invalid), "routes[0].certificateId"),
        (
            carrying(&table(4).replace(r#""address":"::1""#, r#""address":"TUFURVJJQUw=""#)),
            "routes[0].destinations[0].address",
        ),
        (carrying("null"), "routeTable"),
        ("{}".to_owned(), "routeTable"),
        (format!(r#"{{"routeTable":{},"more":1}}"#, table(4)), "routeTable"),
    ];
    for (body, path) in cases {
        let refusal = Seen::Cloudly(1, "p".into(), refused(&format!("cluster-route-table-invalid: {path}")));
        let note = Seen::Note(Note::Invalid { path: path.to_owned() });
        assert_eq!(script.dispatch(1, "p", PUSH, &body), [note, refusal]);
        assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    }
}

/// ING-11, ING-12, REG-66: every acceptance reads the table, the registration of the session does not.
#[test]
fn every_acceptance_reads_the_table_and_the_session_alone_does_not() {
    let mut script = Script::new();
    for (revision, news) in [(5, adopted(5)), (5, Seen::Note(Note::NotNewer { held: 5 })), (6, adopted(6))] {
        let read = accepted(&mut script);
        assert_eq!(script.cloudly(&read, &ok(&carrying(&table(revision)))).unwrap(), [news]);
    }
    assert_eq!(script.on(Event::SessionDown), []);
    assert_eq!(script.on(Event::Accepted), [], "there is nobody to ask");
    assert_eq!(script.on(Event::SessionUp), []);
    assert_eq!(script.pass(60_000 * MS), []);
}

/// ING-14: a read that is refused, invalid, unanswered, or lost with its session keeps the table in service.
#[test]
fn a_failed_read_keeps_the_last_valid_table() {
    let mut script = Script::bound(7);
    let hinted = request(&script.push(3));
    assert_eq!(script.socket(7, &hinted, &ok("{}")), Some(vec![]));
    let failed = |class: &str| Seen::Note(Note::NotRead { class: class.to_owned() });
    for (answer, note) in [
        (refused("relay-not-connected: not yet"), failed("relay-not-connected")),
        (refused("Internal server error"), failed("Internal server error")),
        (refused("-----BEGIN PRIVATE KEY-----"), failed("a refusal without a name")),
        (ok("null"), Seen::Note(Note::Invalid { path: "routeTable".into() })),
        (ok("{}"), Seen::Note(Note::Invalid { path: "routeTable".into() })),
        (
            ok(&carrying(&table(9).replace("::1", "x"))),
            Seen::Note(Note::Invalid { path: "routes[0].destinations[0].address".into() }),
        ),
    ] {
        let read = accepted(&mut script);
        assert_eq!(script.cloudly(&read, &answer).unwrap(), [note]);
        assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    }
    accepted(&mut script);
    assert_eq!(script.pass(10_000 * MS), [failed("timeout")]);
    accepted(&mut script);
    assert_eq!(script.on(Event::SessionDown), [failed("closed")]);
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
}

/// ING-11, ING-14: a read that told nothing is made again every 30 s until one does: a relay that has just started
/// would hold no table for the rest of its session.
#[test]
fn a_failed_read_is_made_again_until_one_tells_something() {
    let again = [Seen::Sent(sent(None, READ, "{}"))];
    for told in [ok(&carrying(&table(3))), ok(r#"{"routeTable":null}"#)] {
        let mut script = Script::bound(7);
        let mut read = accepted(&mut script);
        for failure in [refused("Internal server error"), ok("{}"), refused("relay-not-connected: not yet")] {
            script.cloudly(&read, &failure).unwrap();
            assert_eq!(script.pull(7), ok(r#"{"routeTable":null}"#));
            assert_eq!(script.pass(30_000 * MS - Duration::from_nanos(1)), []);
            let due = script.ingress.next_deadline();
            assert_eq!(due, Some(script.now.mono + Duration::from_nanos(1)));
            let seen = script.pass(Duration::from_nanos(1));
            assert_eq!(seen, again);
            read = request(&seen);
        }
        assert_eq!(script.pass(10_000 * MS), [Seen::Note(Note::NotRead { class: "timeout".into() })]);
        assert_eq!(script.cloudly(&read, &told), None, "it came too late");
        let seen = script.pass(30_000 * MS);
        assert_eq!(seen, again);
        script.cloudly(&request(&seen), &told).unwrap();
        assert_eq!(script.pull(7), told);
        assert!(script.pass(3_600_000 * MS).iter().all(|seen| !matches!(seen, Seen::Sent(_))));
    }
}

/// ING-11, ING-12, REG-57: a failed read is not made again once Cloudly has pushed a table, once its session is over or
/// the relay is parked; a new acceptance reads at once, in its place.
#[test]
fn what_came_since_ends_the_repeats_of_a_failed_read() {
    let failed = |script: &mut Script| {
        let read = accepted(script);
        script.cloudly(&read, &refused("Internal server error")).unwrap();
        assert_eq!(script.ingress.next_deadline(), Some(script.now.mono + 30_000 * MS));
    };
    let quiet = |script: &mut Script| {
        assert_eq!(script.ingress.next_deadline(), None);
        assert_eq!(script.pass(3_600_000 * MS), []);
    };
    let mut script = Script::new();
    for revision in [3, 3] {
        failed(&mut script);
        script.push(revision);
        quiet(&mut script);
    }
    // A push that crossed the read is as good as one that follows it.
    let read = accepted(&mut script);
    script.push(4);
    script.cloudly(&read, &refused("Internal server error")).unwrap();
    quiet(&mut script);
    failed(&mut script);
    script.on(Event::SessionDown);
    quiet(&mut script);
    script.on(Event::SessionUp);
    quiet(&mut script);
    failed(&mut script);
    let read = accepted(&mut script);
    assert_eq!(script.pass(9_999 * MS), [], "one read at a time");
    script.cloudly(&read, &ok(&carrying(&table(4)))).unwrap();
    quiet(&mut script);
    failed(&mut script);
    assert_eq!(script.on(Event::Parked), []);
    quiet(&mut script);
    // Nor is one that was under way when the relay parked.
    let mut script = Script::new();
    let read = accepted(&mut script);
    script.on(Event::Parked);
    script.cloudly(&read, &refused("relay-not-connected")).unwrap();
    quiet(&mut script);
}

/// ING-15, ING-16: `null` is logged once per transition, and answered as `null`.
#[test]
fn no_table_is_said_once_per_transition_and_answered_as_null() {
    let mut script = Script::bound(7);
    assert_eq!(script.pull(7), ok(r#"{"routeTable":null}"#));
    let none = |script: &mut Script| {
        let read = accepted(script);
        script.cloudly(&read, &ok(r#"{"routeTable": null}"#)).unwrap()
    };
    assert_eq!(none(&mut script), [Seen::Note(Note::NoTable)]);
    assert_eq!(none(&mut script), []);
    assert_eq!(script.pull(7), ok(r#"{"routeTable":null}"#));
    script.push(3);
    assert_eq!(none(&mut script), [Seen::Note(Note::NoTable)]);
    assert_eq!(none(&mut script), []);
    assert_eq!(script.pull(7), ok(r#"{"routeTable":null}"#));
    // What is held is none: any revision is greater.
    assert_eq!(script.push(1), [adopted(1), hint(7, 1), held(1)]);
}

/// ING-08, ING-14: an answer that crossed a push is older than it: `null` takes nothing away, a lower
/// revision changes nothing.
#[test]
fn a_read_that_crossed_a_push_takes_nothing_back() {
    let mut script = Script::bound(7);
    let read = accepted(&mut script);
    script.push(3);
    assert_eq!(script.cloudly(&read, &ok(r#"{"routeTable":null}"#)).unwrap(), []);
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    // Nor where the push was no news: it says that there is a table.
    let read = accepted(&mut script);
    script.push(3);
    assert_eq!(script.cloudly(&read, &ok(r#"{"routeTable":null}"#)).unwrap(), []);
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    let read = accepted(&mut script);
    script.push(5);
    let seen = script.cloudly(&read, &ok(&carrying(&table(4)))).unwrap();
    assert_eq!(seen, [Seen::Note(Note::NotNewer { held: 5 })]);
}

/// ING-11: of two reads under way the later counts; the earlier's answer is nobody's.
#[test]
fn a_later_read_takes_the_place_of_an_earlier_one() {
    let mut script = Script::new();
    let (first, second) = (accepted(&mut script), accepted(&mut script));
    assert_eq!(script.cloudly(&first, &ok(&carrying(&table(9)))), None);
    assert_eq!(script.cloudly(&second, &ok(&carrying(&table(3)))).unwrap(), [adopted(3)]);
}

/// ING-36, PROT-20, REG-61: without a session, and after a refused offer, the held table is served to the
/// bound ingress.
#[test]
fn the_table_is_served_without_a_session_and_after_a_refusal() {
    let mut script = Script::bound(7);
    script.push(3);
    let stranger = registration("b").replace("33.1.0", "31.0.0");
    let seen = script.ask(8, "q", REGISTER, &stranger);
    assert!(matches!(seen[0], Seen::OfferRefused(_)), "{seen:?}");
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    script.on(Event::SessionDown);
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    script.on(Event::SessionUp);
    assert_eq!(script.pull(7), ok(&carrying(&table(3))));
    assert_eq!(script.push(4), [adopted(4), hint(7, 4), held(4)]);
}
