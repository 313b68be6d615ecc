//! A wall clock that jumps by an hour: what it may change, and what follows the monotonic clock.

use super::*;

/// The registration that follows a renewed identity: its sequence.
fn renew(script: &mut Script) -> u64 {
    let announced = script.identity();
    assert_eq!(request(&announced).method, ANNOUNCE);
    let registered = script.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    let sent = request(&registered);
    assert_eq!(sent.method, REGISTER);
    let body: serde_json::Value = serde_json::from_str(&sent.body).unwrap();
    let sequence = body["registrationSequence"].as_u64().unwrap();
    let read = script.answer(&registered, acceptance("https://relay.test", 1, 1 + sequence));
    let published = config(r#","relay":{"origin":"https://relay.test"}"#);
    assert_eq!(script.answer(&read, ok(&published)), []);
    sequence
}

/// SES-08, SES-13, REG-02, REG-13, OUT-03, FWD-21: an hour ahead costs one renewal on the same socket, whose
/// registration counts on; a push in flight keeps its eight seconds, and the node is not asked to register again.
#[test]
fn an_hour_ahead_costs_one_renewal_and_nothing_else() {
    let mut script = Script::registered();
    script.carry(1, "n1");
    let pushed = script.cloudly(asked("p", APPLY, &of("n1")));
    script.now.wall += HOUR;
    assert_eq!(script.on(Event::Tick), [Did::AskIdentity], "the push is not late");
    assert_eq!(script.on(Event::Tick), [], "it is asked for once");
    assert_eq!(renew(&mut script), 1);
    let acknowledged = script.node(1, answer_to(&request(&pushed), ok("{}")));
    assert_eq!(acknowledged, [Did::Told(1, "p".into(), Told::Response("{}".into()))]);
    script.assert_carried(1, "n1");
    assert_eq!(script.pass(54 * 60_000 * MS), [], "the new identity has an hour");
}

/// SES-08, REG-13, REG-44, FWD-21: an hour back changes nothing by itself; the identity is renewed when it would
/// have been, and a push is late when it would have been.
#[test]
fn an_hour_back_changes_no_deadline() {
    let mut script = Script::registered();
    script.carry(1, "n1");
    script.now.wall += 2 * HOUR;
    assert_eq!(script.on(Event::Tick), [Did::AskIdentity]);
    assert_eq!(renew(&mut script), 1);
    script.cloudly(asked("p", APPLY, &of("n1")));
    script.now.wall -= HOUR;
    assert_eq!(script.on(Event::Tick), []);
    assert_eq!(script.pass(8_000 * MS - MS), []);
    let late = script.pass(MS);
    let [Did::Told(1, id, Told::Error(text))] = late.as_slice() else { panic!("{late:?}") };
    assert_eq!((id.as_str(), text.split(':').next()), ("p", Some("relay-forward-timeout")));
    script.assert_carried(1, "n1");
    assert_eq!(script.pass(55 * 60_000 * MS - 8_001 * MS), []);
    assert_eq!(script.pass(MS), [Did::AskIdentity]);
    assert_eq!(renew(&mut script), 2);
    script.assert_carried(1, "n1");
}

/// SES-14, REG-58: a parked relay makes nothing of a jump, either way.
#[test]
fn a_parked_relay_makes_nothing_of_a_jump() {
    let mut script = Script::standing();
    let sent = script.listen();
    let stale = plain_refusal("relay-credential-generation-stale");
    script.answer(&sent, stale);
    script.now.wall += 2 * HOUR;
    assert_eq!(script.on(Event::Tick), []);
    script.now.wall -= HOUR;
    assert_eq!(script.on(Event::Tick), []);
    assert_eq!(script.core.next_deadline(script.now), None);
}
