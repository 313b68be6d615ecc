//! `registerClusterRelay` among the other machines: its body, its acceptance, its refusals.

use super::*;

fn body(sequence: u64) -> String {
    format!(
        r#"{{"protocol":{OFFER},"registrationSequence":{sequence},"relay":{{"version":"{}","nodeId":"node-1","listenAddress":"192.0.2.7","listenPort":8443}}}}"#,
        env!("CARGO_PKG_VERSION")
    )
}

/// REG-01, REG-03, REG-05, REG-06, REG-11, REG-13, REG-16, REG-23, REG-40, REG-67: the registration names
/// the build, the node and the endpoint that was bound, and nothing else.
#[test]
fn a_listening_relay_registers_what_it_bound() {
    let mut script = Script::standing();
    let sent = script.listen();
    let kept = Kept { last_sequence: Some(0), ..Kept::default() };
    assert_eq!(sent, [Did::Keep(kept.clone()), Did::Sent(1, out(REGISTER, &body(0)))]);
    let (lines, accepted) = logged(|| script.answer(&sent, acceptance("https://relay.test", 4, 9)));
    let (credential, record) = (Some(reference("cred", 4)), Some(reference("rec", 9)));
    let kept = Kept { credential, record, ..kept };
    // REG-66: the acceptance is followed by the reads that depend on it.
    let reads =
        [out(CONFIG, &identified()), out(TABLE, "{}"), out(NETWORK, "{}")].map(|read| Did::Sent(1, read));
    assert_eq!(accepted, [vec![Did::Keep(kept)], reads.to_vec()].concat());
    let pinned = "this relay is bound to cluster relay credential cred generation 4";
    assert_eq!(lines.iter().filter(|line| line.contains(pinned)).count(), 1, "REG-42: {lines:?}");
    assert_eq!(warnings(&lines), Vec::<&String>::new());
}

/// REG-04, LIS-08: without a listener nothing is registered, whatever the session does.
#[test]
fn a_relay_without_a_listener_never_registers() {
    let mut script = Script::standing();
    assert_eq!(script.on(Event::Started(Served::new(Published::Nothing))), []);
    assert!(!served(&script.pass(600_000 * MS), REGISTER));
    assert!(!served(&script.reconnect(), REGISTER));
}

/// REG-34, REG-35: an acceptance with another origin stands; one warning names both, and nothing else
/// differs from an acceptance with the served one.
#[test]
fn another_origin_only_warns() {
    let accept = |origin: &str| {
        let mut script = Script::standing();
        let sent = script.listen();
        let (lines, accepted) = logged(|| script.answer(&sent, acceptance(origin, 1, 1)));
        script.carry(1, "n");
        script.assert_carried(1, "n");
        let deadline = script.core.next_deadline(script.now);
        (lines, accepted, deadline)
    };
    let (lines, accepted, deadline) = accept("https://other.test");
    let (plain, expected, plain_deadline) = accept("https://relay.test");
    assert_eq!((accepted, deadline), (expected, plain_deadline));
    let warned = warnings(&lines);
    assert_eq!((warned.len(), warnings(&plain).len()), (1, 0), "{lines:?}");
    assert!(
        warned[0].contains("https://other.test") && warned[0].contains("https://relay.test"),
        "{warned:?}"
    );
    assert_eq!(lines.len(), plain.len() + 1);
}

/// REG-26, REG-27, REG-28, REG-32, REG-33: a refusal by name is logged with its remedy and changes nothing
/// that is served; the next registration is the next renewal's.
#[test]
fn a_refusal_by_name_changes_nothing_that_is_served() {
    let mut script = Script::registered();
    script.carry(1, "n");
    assert_eq!(script.pass(Duration::from_millis(HOUR - 300_000)), [Did::AskIdentity]);
    let announced = script.identity();
    let sent = script.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    assert_eq!(request(&sent), out(REGISTER, &body(1)));
    let (lines, refused) = logged(|| script.answer(&sent, plain_refusal("relay-node-unknown: node-1")));
    assert_eq!(refused, []);
    let warned = warnings(&lines);
    assert!(warned[0].contains("relay-node-unknown") && warned[0].contains("spark enrollnode"), "{warned:?}");
    script.assert_carried(1, "n");
    assert!(!served(&script.pass(600_000 * MS), REGISTER));
    assert!(script.core.registration.parked().is_none(), "REG-56");
    assert!(served(&script.reconnect(), REGISTER));
}

/// REG-08, REG-09, PROT-18, PROT-21, PROT-27: a refused offer blocks the hop and is made again after five
/// minutes; the nodes are served meanwhile.
#[test]
fn a_refused_offer_blocks_only_its_hop() {
    let data = r#"{"kind":"cloudlyClient","offer":{"release":"34.0.0","oldestAcceptedPeerRelease":"34.0.0"},"received":null}"#;
    let refusal = format!(r#"{{"text":"protocol-refused: x","data":{data}}}"#);
    let mut script = Script::standing();
    let sent = script.listen();
    script.carry(1, "n");
    let refused = script.answer(&sent, Outcome::Error(Body::from_json(refusal)));
    let [Did::Readiness(lines)] = refused.as_slice() else { panic!("{refused:?}") };
    assert!(lines[0].starts_with("clusterRelayRegistration: protocol-refused: "), "{lines:?}");
    script.assert_carried(1, "n");
    assert_eq!(script.pass(299_999 * MS), []);
    let again = script.pass(MS);
    assert_eq!(request(&again), out(REGISTER, &body(1)));
    let accepted = script.answer(&again, acceptance("https://relay.test", 1, 1));
    assert_eq!(accepted.last(), Some(&Did::Readiness(vec![])));
}

/// REG-45, REG-48, REG-49, REG-50, REG-51: an answer without a reference is no acceptance: nothing follows
/// it, the hop is not ready, the nodes are served, and the offer is made again.
#[test]
fn an_answer_without_a_reference_is_no_acceptance() {
    let mut script = Script::standing();
    let sent = script.listen();
    script.carry(1, "n");
    let answer = |registration: &str| {
        ok(&format!(
            r#"{{"protocol":{OFFER},"origin":"https://relay.test","credential":{{"id":"cred","generation":1}}{registration}}}"#
        ))
    };
    let (lines, answered) = logged(|| script.answer(&sent, answer("")));
    let line = "clusterRelayRegistration: registerClusterRelay was answered without a valid registration";
    assert_eq!(answered, [Did::Readiness(vec![line.into()])]);
    assert!(lines.iter().all(|line| !line.contains("accepted this relay")), "{lines:?}");
    script.assert_carried(1, "n");
    assert_eq!(script.pass(299_999 * MS), []);
    let again = script.pass(MS);
    assert_eq!(request(&again), out(REGISTER, &body(1)));
    // REG-39: a reference is an object with exactly its members; an array of them is none.
    assert_eq!(script.answer(&again, answer(r#","registration":["rec",1]"#)), []);
    assert!(script.core.registration.parked().is_none());
}

/// REG-29: a registration that is not answered fails by its class and is made again; one whose connection
/// ends is made on the next.
#[test]
fn a_registration_that_fails_is_made_again() {
    let mut script = Script::standing();
    script.listen();
    let (lines, done) = logged(|| script.pass(10_000 * MS));
    assert_eq!(done, []);
    assert!(warnings(&lines)[0].contains("timeout"), "{lines:?}");
    assert_eq!(request(&script.pass(30_000 * MS)), out(REGISTER, &body(1)));
    let (lines, reconnected) = logged(|| script.reconnect());
    assert_eq!(request(&reconnected), out(REGISTER, &body(2)), "REG-15: exactly one");
    assert!(
        lines.iter().any(|line| line.contains("registration failed") && line.contains("closed")),
        "{lines:?}"
    );
}

/// PROT-23, PROT-26, PROT-34, REG-27: a refusal by name says that the offer was settled and the answer is one to act
/// on: what stood on the hop before is over, and nothing else changes.
#[test]
fn a_refusal_by_name_ends_what_stood_on_the_hop() {
    for before in [ok("{}"), plain_refusal("protocol-refused: x")] {
        let mut script = Script::standing();
        let sent = script.listen();
        let refused = script.answer(&sent, before);
        assert!(matches!(refused.as_slice(), [Did::Readiness(lines)] if lines.len() == 1), "{refused:?}");
        let again = script.pass(300_000 * MS);
        let named = script.answer(&again, plain_refusal("relay-node-unknown: node-1"));
        assert_eq!(named, [Did::Readiness(vec![])]);
        assert!(!served(&script.pass(600_000 * MS), REGISTER), "it waits for the next session registration");
    }
    let mut script = Script::standing();
    let sent = script.listen();
    script.answer(&sent, ok("{}"));
    let again = script.pass(300_000 * MS);
    let unknown = plain_refusal("There is no available method for this call on the server side");
    assert_eq!(script.answer(&again, unknown), [], "which settles nothing");
}
