//! The hint at a newer table.

use super::*;

/// ING-17, ING-18: each adoption of a greater revision hints the bound ingress, with the revision alone.
#[test]
fn each_adoption_hints_the_bound_ingress_with_the_revision_alone() {
    let mut script = Script::bound(7);
    let seen = script.push(3);
    assert_eq!(seen, [adopted(3), hint(7, 3), held(3)]);
    assert_eq!(request(&seen).body, r#"{"revision":3}"#);
    assert_eq!(script.socket(7, &request(&seen), &ok("{}")), Some(vec![]));
    let read = request(&script.on(Event::Accepted));
    assert_eq!(script.cloudly(&read, &ok(&carrying(&table(4)))).unwrap(), [adopted(4), hint(7, 4)]);
}

/// ING-20: a hint that is refused, unreadable, unanswered or cut off is logged and never repeated.
#[test]
fn a_failed_hint_is_logged_and_not_repeated() {
    let failed = |revision, class: &str| Seen::Note(Note::HintFailed { revision, class: class.to_owned() });
    let mut script = Script::bound(7);
    let sent = request(&script.push(1));
    assert_eq!(script.socket(7, &sent, &refused("some-name: with words")).unwrap(), [failed(1, "some-name")]);
    let sent = request(&script.push(2));
    assert_eq!(script.socket(7, &sent, &ok("null")).unwrap(), [failed(2, "unreadable")]);
    script.push(3);
    assert_eq!(script.pass(8000 * MS), [failed(3, "timeout")]);
    assert_eq!(script.ingress.next_deadline(), None);
    assert_eq!(script.pass(3_600_000 * MS), []);
    script.push(4);
    let released = Seen::Note(Note::Released { node: edge() });
    assert_eq!(script.on(Event::Closed { socket: 7 }), [failed(4, "closed"), released]);
    script.bind(8);
    assert_eq!(script.pass(3_600_000 * MS), []);
}

/// ING-20: a hint that is under way when the same ingress registers again is still waited for, and its failure
/// logged.
#[test]
fn a_hint_outlasts_another_registration_of_its_connection() {
    let mut script = Script::bound(7);
    let sent = request(&script.push(1));
    script.bind(7);
    let failed = Note::HintFailed { revision: 1, class: "some-name".to_owned() };
    assert_eq!(script.socket(7, &sent, &refused("some-name")).unwrap(), [Seen::Note(failed)]);
}

/// ING-17: one hint is under way at a time, and it is the latest.
#[test]
fn a_later_hint_takes_the_place_of_an_earlier_one() {
    let mut script = Script::bound(7);
    let first = request(&script.push(1));
    script.pass(7000 * MS);
    let second = request(&script.push(2));
    assert_eq!(script.socket(7, &first, &refused("late")), None);
    assert_eq!(script.pass(7000 * MS), [], "the earlier hint's bound is nobody's");
    assert_eq!(script.socket(7, &second, &ok("{}")), Some(vec![]));
    assert_eq!(script.ingress.next_deadline(), None);
}

/// ING-21, ING-22: a table that is adopted with no ingress bound is hinted to nobody, not even to the ingress
/// that registers next; its registration states the revision.
#[test]
fn a_table_adopted_without_an_ingress_is_hinted_to_nobody() {
    let mut script = Script::new();
    assert_eq!(script.push(3), [adopted(3), held(3)]);
    let sent = script.registers(7);
    assert_eq!(script.push(4), [adopted(4), held(4)], "a registration that is under way binds nothing yet");
    let seen = script.cloudly(&sent, &ok(&acceptance(1))).unwrap();
    let [Seen::Note(_), Seen::Socket(7, _, Told::Response(answer))] = seen.as_slice() else {
        panic!("{seen:?}")
    };
    assert!(answer.ends_with(r#","routeTableRevision":4}"#), "{answer}");
    script.on(Event::Closed { socket: 7 });
    assert_eq!(script.push(5), [adopted(5), held(5)]);
}

/// ING-17, ING-25: the hint goes to the connection that is bound; one that is under way to a superseded one is
/// forgotten, and another's answer to it is nobody's.
#[test]
fn a_hint_is_the_bound_connection_s_alone() {
    let mut script = Script::bound(7);
    let sent = request(&script.push(1));
    assert_eq!(script.socket(8, &sent, &ok("{}")), None);
    script.bind(8);
    assert_eq!(script.socket(7, &sent, &refused("late")), None);
    assert_eq!(script.pass(8000 * MS), []);
    assert_eq!(script.push(2), [adopted(2), hint(8, 2), held(2)]);
}
