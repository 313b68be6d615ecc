//! Traffic statistics, from Cloudly to the bound ingress and back.

use super::*;

fn told(connection: Connection, told: Told) -> Vec<Seen> {
    vec![Seen::Cloudly(connection, "s".to_owned(), told)]
}

/// ING-29: the question and its page cross byte for byte, and the answer goes to the connection that asked.
#[test]
fn statistics_are_carried_to_the_ingress_and_back_verbatim() {
    let mut script = Script::bound(7);
    let (question, page) = (format!("{{{ODD},\"cursor\":null}}"), format!("[{{ {ODD} }}]"));
    let seen = script.dispatch(3, "s", STATISTICS, &question);
    assert_eq!(seen, [Seen::Sent(sent(Some(7), STATISTICS, &question))]);
    assert_eq!(script.ingress.questions_in_flight(), 1);
    let asked = request(&seen);
    assert_eq!(script.socket(8, &asked, &ok(&page)), None, "another connection answers nothing");
    assert_eq!(script.socket(7, &asked, &ok(&page)).unwrap(), told(3, ok(&page)));
    assert_eq!(script.ingress.questions_in_flight(), 0);
    // A refusal of the ingress is its own.
    let asked = request(&script.dispatch(3, "s", STATISTICS, "{}"));
    let refusal = Told::Error { text: "some-name: x".into(), data: r#"{"a" : 1.0}"#.into() };
    assert_eq!(script.socket(7, &asked, &refusal).unwrap(), told(3, refusal));
}

/// ING-30: with no ingress bound the question is refused by name, also when its connection ends meanwhile.
#[test]
fn without_an_ingress_statistics_are_refused_by_name() {
    let mut script = Script::new();
    let refusal = || told(3, refused("cluster-ingress-not-bound"));
    assert_eq!(script.dispatch(3, "s", STATISTICS, "{}"), refusal());
    script.registers(7);
    assert_eq!(script.dispatch(3, "s", STATISTICS, "{}"), refusal());
    script.on(Event::Closed { socket: 7 });
    script.bind(8);
    script.dispatch(3, "s", STATISTICS, "{}");
    let seen = script.on(Event::Closed { socket: 8 });
    assert_eq!(seen, [refusal(), vec![Seen::Note(Note::Released { node: edge() })]].concat());
    assert_eq!(script.dispatch(3, "s", STATISTICS, "{}"), refusal());
}

/// ING-29: an ingress that does not answer is given eight seconds, and its late page is nobody's.
#[test]
fn statistics_that_are_not_answered_are_refused_in_time() {
    let mut script = Script::bound(7);
    let asked = request(&script.dispatch(3, "s", STATISTICS, "{}"));
    assert_eq!(script.pass(8000 * MS - Duration::from_nanos(1)), []);
    let refusal = refused("relay-forward-timeout: getClusterTrafficStatistics after 8000 ms");
    let expected = [vec![Seen::Note(Note::StatisticsTimeout)], told(3, refusal)].concat();
    assert_eq!(script.pass(Duration::from_nanos(1)), expected);
    assert_eq!(script.socket(7, &asked, &ok("{}")), None);
}

/// ING-29: the ingress may ask to be asked again: the question goes to it once more, within its time.
#[test]
fn statistics_are_asked_for_again_when_the_ingress_asks_for_it() {
    let mut script = Script::bound(7);
    let asked = request(&script.dispatch(3, "s", STATISTICS, "{}"));
    assert!(script.ingress.socket_answered(7, later(&asked, 3000), script.now).is_none());
    assert_eq!(script.ingress.next_deadline(), Some(script.now.mono + 3000 * MS));
    let seen = script.pass(3000 * MS);
    assert_eq!(seen, [Seen::Sent(asked.clone())]);
    assert_eq!(request(&seen).id, asked.id);
    assert_eq!(script.socket(7, &request(&seen), &ok("[]")).unwrap(), told(3, ok("[]")));
    // What is due first on either side decides when the clock is looked at.
    script.registers(8);
    script.pass(1000 * MS);
    script.dispatch(3, "s", STATISTICS, "{}");
    assert_eq!(script.ingress.next_deadline(), Some(script.now.mono + 7000 * MS));
}

/// ING-29: questions under way are bounded; each that ends makes room.
#[test]
fn questions_under_way_are_bounded() {
    let mut script = Script::bound(7);
    let asked: Vec<Sent> = (0..16).map(|_| request(&script.dispatch(3, "s", STATISTICS, "{}"))).collect();
    assert_eq!(script.dispatch(3, "s", STATISTICS, "{}"), told(3, refused("relay-too-many-in-flight")));
    script.socket(7, &asked[0], &ok("{}"));
    request(&script.dispatch(3, "s", STATISTICS, "{}"));
}

/// ING-25, ING-29: a question that is under way to a superseded connection is still its to answer; the next
/// goes to the bound one.
#[test]
fn a_superseded_connection_answers_what_it_was_asked() {
    let mut script = Script::bound(7);
    let asked = request(&script.dispatch(3, "s", STATISTICS, "{}"));
    script.bind(8);
    assert_eq!(script.socket(7, &asked, &ok("{}")).unwrap(), told(3, ok("{}")));
    assert_eq!(request(&script.dispatch(3, "s", STATISTICS, "{}")).to, Some(8));
}
