//! From the start to a registered session, and the reads on it.

use super::*;

/// SES-01, SES-03, SES-04, SES-11, LIS-12, PROT-04, PROT-06, PROT-07: identity, connection,
/// announcement; then the session takes the start's reads, with the identity as Cloudly wrote it.
#[test]
fn the_start_reads_over_a_registered_session() {
    let mut script = Script::resumed(Kept::default());
    assert_eq!(script.session(session::Event::Started), [Did::AskIdentity]);
    assert_eq!(script.identity(), [Did::Dial(1)]);
    let announced = script.session(session::Event::Connected { connection: 1 });
    let body = format!(r#"{{"identity":{IDENTITY},"clientType":"coreflow","protocol":{OFFER}}}"#);
    assert_eq!(announced, [Did::Sent(1, out(ANNOUNCE, &body))]);
    let early = Event::Read(Read { number: 1, call: OwnCall::ClusterConfig });
    assert_eq!(script.on(early), [Did::Answer(1, Err("failed: no-session".into()))]);
    let answered = script.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    assert_eq!(answered, [Did::Dispatchable(true)]);

    let read = script.on(Event::Read(Read { number: 2, call: OwnCall::ClusterConfig }));
    assert_eq!(read, [Did::Sent(1, out(CONFIG, &identified()))]);
    assert_eq!(script.answer(&read, ok(r#"{"a":1.0}"#)), [Did::Answer(2, Ok(r#"{"a":1.0}"#.into()))]);
    let call = OwnCall::Certificate { domain: "relay.test".to_owned() };
    let read = script.on(Event::Read(Read { number: 3, call }));
    let body = format!(r#"{{"identity":{IDENTITY},"domainName":"relay.test","type":"ssl"}}"#);
    assert_eq!(read, [Did::Sent(1, out("getCertificateForDomain", &body))]);
    let refused = script.answer(&read, plain_refusal("certificate-unknown"));
    assert_eq!(refused, [Did::Answer(3, Err("refused: certificate-unknown".into()))]);
}

/// SES-16: a read that nobody answers fails after 10 s, and one whose connection ends fails then; each by
/// its class.
#[test]
fn a_read_fails_by_class() {
    let mut script = Script::standing();
    script.on(Event::Read(Read { number: 1, call: OwnCall::ClusterConfig }));
    assert_eq!(script.pass(9_999 * MS), []);
    assert_eq!(script.pass(MS), [Did::Answer(1, Err("failed: timeout".into()))]);
    script.on(Event::Read(Read { number: 2, call: OwnCall::ClusterConfig }));
    let closed = script.session(session::Event::Closed { connection: 1 });
    assert_eq!(closed, [Did::Dispatchable(false), Did::Answer(2, Err("failed: closed".into()))]);
}

/// OPS-02, PROT-21, PROT-24: a Cloudly of the reconciler's time does not know the session's method; it is shown
/// as one that states no offer, and offered to again.
#[test]
fn a_cloudly_of_another_age_states_no_offer() {
    let mut script = Script::resumed(Kept::default());
    script.session(session::Event::Started);
    script.identity();
    let announced = script.session(session::Event::Connected { connection: 1 });
    let unknown = "There is no available method for this call on the server side";
    let refused = script.answer(&announced, plain_refusal(unknown));
    let [Did::Waiting(_), Did::Readiness(lines)] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(lines[0].contains("states no readable offer"), "{lines:?}");
    assert_eq!(script.pass(299_999 * MS), []);
    let again = script.pass(MS);
    let accepted = script.answer(&again, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    assert_eq!(accepted, [Did::Dispatchable(true), Did::Readiness(vec![])]);
}

/// PROT-17, PROT-21, PROT-23, PROT-24, PROT-28, PROT-30, START-27: a Cloudly that refuses the offer leaves
/// the relay waiting on the open socket, not ready, until the offer made again is accepted.
#[test]
fn a_cloudly_that_refuses_the_offer_is_waited_for() {
    let data = r#"{"kind":"cloudlyClient","offer":{"release":"34.0.0","oldestAcceptedPeerRelease":"34.0.0"},"received":null}"#;
    let refusal = format!(r#"{{"text":"protocol-refused: x","data":{data}}}"#);
    let mut script = Script::resumed(Kept::default());
    script.session(session::Event::Started);
    script.identity();
    let announced = script.session(session::Event::Connected { connection: 1 });
    let line = "cloudlyClient: protocol-refused: cloudlyClient peer speaks 34.0.0 and accepts from 34.0.0; this \
                relay speaks 33.1.0 and accepts from 32.0.0";
    let waiting = Did::Waiting("Cloudly to accept the protocol offer".into());
    let refused = script.answer(&announced, Outcome::Error(Body::from_json(refusal.clone())));
    assert_eq!(refused, [waiting.clone(), Did::Readiness(vec![line.into()])]);
    assert_eq!(script.pass(299_999 * MS), []);
    let again = script.pass(MS);
    assert_eq!(request(&again).method, ANNOUNCE);
    let refused = script.answer(&again, Outcome::Error(Body::from_json(refusal)));
    assert_eq!(refused, [waiting], "the same refusal is no news");
    let again = script.pass(300_000 * MS);
    let accepted = script.answer(&again, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    assert_eq!(accepted, [Did::Dispatchable(true), Did::Readiness(vec![])]);
}

/// PROT-25, PROT-26: an answer that is not the contract's names no version and ends with one that is.
#[test]
fn an_unusable_announcement_is_waited_out() {
    let mut script = Script::resumed(Kept::default());
    script.session(session::Event::Started);
    script.identity();
    let announced = script.session(session::Event::Connected { connection: 1 });
    let unusable = script.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER},"more":1}}"#)));
    let line = "cloudlyClient: registerCloudlyClientSession was answered without a valid protocol";
    let waiting = Did::Waiting("a usable answer of Cloudly".into());
    assert_eq!(unusable, [waiting, Did::Readiness(vec![line.into()])]);
    let again = script.pass(300_000 * MS);
    let accepted = script.answer(&again, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    assert_eq!(accepted, [Did::Dispatchable(true), Did::Readiness(vec![])]);
}

/// SES-20: an announcement refused by another name hangs up, and a fresh identity is asked for.
#[test]
fn a_refused_identity_is_exchanged_again() {
    let mut script = Script::resumed(Kept::default());
    script.session(session::Event::Started);
    script.identity();
    let announced = script.session(session::Event::Connected { connection: 1 });
    let (lines, refused) = logged(|| script.answer(&announced, plain_refusal("identity-expired")));
    assert_eq!(refused, [Did::Hangup(1)]);
    assert!(warnings(&lines)[0].contains("identity-expired") && !lines[0].contains("JWT"), "{lines:?}");
    assert_eq!(script.pass(500 * MS), [Did::AskIdentity]);
}

/// LOG and SES-17's counterpart: the identity is in no log line of a whole life.
#[test]
fn no_log_line_holds_the_identity() {
    let (lines, ()) = logged(|| {
        let mut script = Script::registered();
        script.carry(1, "n");
        script.reconnect();
        script.on(Event::Stop);
    });
    assert!(lines.len() > 4, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("JWT") && !line.contains("sessionId")), "{lines:?}");
}
