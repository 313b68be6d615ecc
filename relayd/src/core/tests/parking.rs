//! A relay whose credential was rotated away: what goes on and what has ended.

use super::*;

/// Everything that a parked relay still does, and nothing that it does not.
fn assert_parked(script: &mut Script) {
    // REG-50, REG-61, SES-15: carried nodes and pushes go on, on the socket that stays open.
    script.assert_carried(1, "n");
    script.carry(2, "m");
    script.assert_carried(2, "m");
    // REG-58, SES-14: nothing is scheduled any more.
    assert_eq!(script.core.next_deadline(script.now), None);
    assert_eq!(script.pass(Duration::from_millis(48 * HOUR)), []);
    script.assert_carried(1, "n");
    // A lost connection is not dialled again; the nodes stay connected.
    let connection = script.connection;
    let lost = script.session(session::Event::Closed { connection });
    assert_eq!(lost, [Did::Dispatchable(false)]);
    assert_eq!(script.core.next_deadline(script.now), None);
    assert_eq!(script.pass(Duration::from_millis(48 * HOUR)), []);
    let refusal = Told::Error("relay-session-unavailable: no Cloudly session after waiting 0 ms".into());
    let told = script.node(1, asked("q", REPORT, &of("n")));
    assert_eq!(told, [Did::NodeTold(1, "q".into(), refusal)]);
}

/// REG-41, REG-43, REG-47, REG-52, REG-54, REG-57, REG-59, REG-60, PROT-33: an answer of another credential
/// generation parks the relay; it is stated once, with the bound generation.
#[test]
fn another_credential_generation_parks() {
    let mut script = Script::registered();
    script.carry(1, "n");
    script.pass(Duration::from_millis(HOUR - 300_000));
    let announced = script.identity();
    let sent = script.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    let (lines, parked) = logged(|| script.answer(&sent, acceptance("https://relay.test", 2, 2)));
    let [Did::Keep(kept), Did::Readiness(stated)] = parked.as_slice() else { panic!("{parked:?}") };
    let line = kept.parked.as_deref().unwrap();
    assert!(line.starts_with("relay-credential-generation-stale: "), "{line}");
    assert!(line.contains("credential cred generation 1") && line.contains("restart"), "{line}");
    assert_eq!(stated, &[format!("clusterRelayRegistration: {line}")]);
    assert_eq!((&kept.credential, &kept.record), (&Some(reference("cred", 1)), &Some(reference("rec", 1))));
    assert_eq!(lines.iter().filter(|logged| logged.contains(line)).count(), 1, "{lines:?}");
    let (lines, ()) = logged(|| assert_parked(&mut script));
    assert!(lines.iter().all(|logged| !logged.contains("generation-stale")), "stated once: {lines:?}");
}

/// REG-55, REG-60: Cloudly's own refusal parks in the same state, and ends what else blocked the hop.
#[test]
fn a_refused_credential_generation_parks() {
    let mut script = Script::standing();
    let sent = script.listen();
    script.carry(1, "n");
    let unusable = script.answer(&sent, ok("{}"));
    assert!(matches!(unusable.as_slice(), [Did::Readiness(lines)] if lines.len() == 1), "{unusable:?}");
    let again = script.pass(300_000 * MS);
    let parked = script.answer(&again, plain_refusal("relay-credential-generation-stale"));
    let [Did::Keep(kept), Did::Readiness(stated)] = parked.as_slice() else { panic!("{parked:?}") };
    assert_eq!(stated, &[format!("clusterRelayRegistration: {}", kept.parked.as_deref().unwrap())]);
    assert_parked(&mut script);
}

/// REG-58, SES-14, PROT-33, ARC-17: a relayd that takes over from one that parked states that first, asks for
/// no identity, and registers nothing.
#[test]
fn a_relayd_that_resumes_parked_registers_nothing() {
    let kept = Kept { parked: Some("parked".into()), last_sequence: Some(3), ..Kept::default() };
    let mut script = Script::resumed(kept);
    let stated = Did::Readiness(vec!["clusterRelayRegistration: parked".into()]);
    assert_eq!(script.session(session::Event::Started), [stated]);
    for _ in 0..100 {
        assert_eq!(script.pass(600_000 * MS), []);
    }
    assert_eq!(script.listen(), []);
}
