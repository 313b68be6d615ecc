use coreflow_ipc::typedrequest::Body;

use super::*;

const MS: Duration = Duration::from_millis(1);
const OFFER: &str = r#"{"release":"33.1.0","oldestAcceptedPeerRelease":"32.0.0"}"#;

struct Script {
    registration: Registration,
    now: Now,
}

impl Script {
    fn listening() -> Self {
        let mut script = Self::resumed(Kept::default());
        script.on(Event::Listening { awaits_hub: false });
        script
    }

    fn resumed(kept: Kept) -> Self {
        let now = Now { wall: 1_000, mono: Duration::ZERO };
        Self { registration: Registration::resume(kept), now }
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.registration.handle(event, self.now)
    }

    /// The sequence that an event makes the relay send, if it does.
    fn sent(&mut self, event: Event) -> Option<u64> {
        sequence(&self.on(event))
    }

    fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now.mono += time;
        self.on(Event::Tick)
    }

    fn accept(&mut self, credential: (&str, u64), record: (&str, u64)) -> Vec<Action> {
        self.respond(&acceptance(OFFER, credential, record))
    }

    fn respond(&mut self, body: &str) -> Vec<Action> {
        self.on(Event::Answered(Answered::Response(Body::from_json(body.to_owned()))))
    }

    fn refuse(&mut self, text: &str) -> Vec<Action> {
        self.on(Event::Answered(Answered::Refused(error(text, "{}"))))
    }
}

fn sequence(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Send { sequence } => Some(*sequence),
        _ => None,
    })
}

fn error(text: &str, data: &str) -> PeerError {
    PeerError { text: text.to_owned(), data: Body::from_json(data.to_owned()) }
}

fn acceptance(offer: &str, credential: (&str, u64), record: (&str, u64)) -> String {
    format!(
        r#"{{"protocol":{offer},"origin":"https://relay.test","credential":{{"id":"{}","generation":{}}},"registration":{{"id":"{}","generation":{}}}}}"#,
        credential.0, credential.1, record.0, record.1
    )
}

fn accepted(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Accepted { .. }))
}

/// REG-01, REG-02, REG-04, REG-13: nothing without a listener; then one registration for each
/// registration of the session, counted from 0.
#[test]
fn each_session_registration_is_followed_by_one_registration() {
    let mut script = Script::resumed(Kept::default());
    assert_eq!(script.sent(Event::SessionRegistered), None);
    assert_eq!(script.sent(Event::Tick), None);
    assert_eq!(script.sent(Event::Listening { awaits_hub: false }), Some(0));
    assert!(accepted(&script.accept(("c", 1), ("r", 1))));
    assert_eq!(script.sent(Event::SessionRegistered), Some(1), "a renewed identity");
    assert!(accepted(&script.accept(("c", 1), ("r", 2))));
    script.on(Event::SessionLost);
    assert_eq!(script.sent(Event::SessionRegistered), Some(2), "a reconnect");
}

/// REG-15: at most one is in flight; what was asked for meanwhile follows its answer.
#[test]
fn one_registration_is_in_flight_at_a_time() {
    let mut script = Script::listening();
    assert_eq!(script.sent(Event::SessionRegistered), Some(0));
    assert_eq!(script.sent(Event::SessionRegistered), None);
    assert_eq!(script.sent(Event::SessionRegistered), None);
    assert_eq!(sequence(&script.accept(("c", 1), ("r", 1))), Some(1));
    assert_eq!(sequence(&script.accept(("c", 1), ("r", 2))), None);
}

/// REG-37, REG-38, REG-41, REG-42: the first acceptance pins, and says so once.
#[test]
fn the_first_acceptance_pins_the_credential() {
    let mut script = Script::listening();
    script.on(Event::SessionRegistered);
    let actions = script.accept(("c", 4), ("r", 1));
    let pinned = KeptReference { id: "c".into(), generation: 4 };
    assert_eq!(
        actions,
        [
            Action::OfferAccepted,
            Action::Keep(Kept {
                last_sequence: Some(0),
                credential: Some(pinned.clone()),
                record: Some(KeptReference { id: "r".into(), generation: 1 }),
                parked: None,
            }),
            Action::Pinned(pinned),
            Action::Accepted { origin: "https://relay.test".into() },
        ]
    );
    script.on(Event::SessionRegistered);
    let actions = script.accept(("c", 4), ("r", 2));
    assert!(accepted(&actions) && !actions.iter().any(|action| matches!(action, Action::Pinned(_))));
}

/// REG-43, REG-44, REG-46, REG-48, REG-49, REG-51: a record that does not advance, or another record,
/// is no acceptance; the offer is made again every five minutes.
#[test]
fn a_record_that_does_not_advance_is_no_acceptance() {
    for record in [("r", 2), ("r", 1), ("other", 9)] {
        let mut script = Script::listening();
        script.on(Event::SessionRegistered);
        script.accept(("c", 1), ("r", 2));
        script.on(Event::SessionRegistered);
        let actions = script.accept(("c", 1), record);
        assert!(!accepted(&actions) && matches!(actions[..], [Action::OfferAccepted, Action::Unusable(_)]));
        assert_eq!(sequence(&script.pass(REFUSED_OFFER_RETRY - MS)), None);
        assert_eq!(sequence(&script.pass(MS)), Some(2));
        assert!(accepted(&script.accept(("c", 1), ("r", 3))), "an answer to act on ends it");
        assert_eq!(script.registration.next_deadline(), None);
    }
}

/// REG-39, REG-45: an answer without a reference, or with one that the reader refuses.
#[test]
fn an_answer_without_a_readable_reference_is_no_acceptance() {
    let valid = acceptance(OFFER, ("c", 1), ("r", 1));
    for (body, path) in [
        ("null".to_owned(), "body"),
        ("{}".to_owned(), "protocol"),
        (valid.replace(r#""id":"c","#, ""), "credential"),
        (valid.replace(r#""id":"r""#, r#""id":"r","more":1"#), "registration"),
        (valid.replace(r#""origin""#, r#""extra":1,"origin""#), "set of members"),
        (valid.replace(r#""origin":"https://relay.test","#, ""), "origin"),
        (valid.replace(OFFER, r#"{"release":"33.1.0"}"#), "protocol"),
    ] {
        let mut script = Script::listening();
        script.on(Event::SessionRegistered);
        let actions = script.respond(&body);
        let Some(Action::Unusable(line)) = actions.last() else { panic!("{body}: {actions:?}") };
        assert!(line.ends_with(&format!("without a valid {path}")), "{line}");
    }
}

/// REG-09, REG-10, PROT-28: a refused offer, and an acceptance in a contract that this build cannot
/// serve, are made again every five minutes.
#[test]
fn a_protocol_refusal_is_offered_again() {
    let foreign = OFFER.replace("32.0.0", "34.0.0");
    let data = format!(r#"{{"kind":"cloudlyClient","offer":{foreign},"received":null}}"#);
    let refusals = [
        Answered::Refused(error("protocol-refused: cloudlyClient peer", &data)),
        Answered::Response(Body::from_json(acceptance(&foreign, ("c", 1), ("r", 1)))),
    ];
    for refusal in refusals {
        let mut script = Script::listening();
        script.on(Event::SessionRegistered);
        let actions = script.on(Event::Answered(refusal));
        let [Action::OfferRefused(disagreement)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!(disagreement.peer.unwrap().oldest_accepted_peer_release.to_string(), "34.0.0");
        assert_eq!(sequence(&script.pass(REFUSED_OFFER_RETRY)), Some(1));
    }
}

/// REG-26, REG-27, REG-32, REG-33: the refusals are stated by name, one with its remedy, and wait for
/// the next registration of the session.
#[test]
fn a_named_refusal_waits_for_the_next_session_registration() {
    for name in REGISTRATION.into_iter().filter(|name| *name != CREDENTIAL_STALE) {
        let mut script = Script::listening();
        script.on(Event::SessionRegistered);
        let text = format!("{name}: because");
        let actions = script.refuse(&text);
        let remedy = (name == NODE_UNKNOWN).then_some("enroll the node first: run `spark enrollnode` on it");
        let refused = Action::Refused { text, remedy, named: true };
        assert_eq!(actions, [Action::OfferAccepted, Action::Usable, refused]);
        assert_eq!(sequence(&script.pass(24 * 3_600_000 * MS)), None);
        assert_eq!(script.sent(Event::SessionRegistered), Some(1));
    }
}

/// REG-19: a bind that Cloudly cannot publish is stated by the name that Cloudly gave it.
#[test]
fn another_refusal_is_stated_by_its_name() {
    let mut script = Script::listening();
    script.on(Event::SessionRegistered);
    let text = "relay-listen-address-unpublishable: 127.0.0.1".to_owned();
    assert_eq!(script.refuse(&text), [Action::Refused { text, remedy: None, named: false }]);
}

/// REG-29: a failed call is stated by class and made again while the session stands.
#[test]
fn a_failed_call_is_made_again() {
    let mut script = Script::listening();
    script.on(Event::SessionRegistered);
    let actions = script.on(Event::Answered(Answered::Failed("timeout".into())));
    assert_eq!(actions, [Action::Failed { class: "timeout".into() }]);
    assert_eq!(sequence(&script.pass(REGISTRATION_RETRY)), Some(1));
}

/// REG-47, REG-52 – REG-57, REG-59, PROT-32: another credential, or the stale refusal, parks the relay
/// in the specified order, and nothing is offered again.
#[test]
fn a_superseded_credential_parks_in_order() {
    let rotations: [fn(&mut Script) -> Vec<Action>; 3] = [
        |script| script.accept(("c", 2), ("r", 2)),
        |script| script.accept(("other", 1), ("r", 2)),
        |script| script.refuse("relay-credential-generation-stale: rotated"),
    ];
    for rotate in rotations {
        let mut script = Script::listening();
        script.on(Event::SessionRegistered);
        script.accept(("c", 1), ("r", 1));
        script.on(Event::SessionRegistered);
        let actions = rotate(&mut script);
        let steps: Vec<&Action> = actions.iter().skip(1).collect();
        let [Action::GiveUpCustody, Action::Keep(kept), Action::ParkSession, Action::StateParked(line)] =
            steps[..]
        else {
            panic!("{actions:?}")
        };
        assert_eq!(kept.parked.as_ref(), Some(line));
        assert!(line.starts_with("relay-credential-generation-stale: "), "{line}");
        assert!(line.contains("cluster relay credential c generation 1"), "{line}");
        assert!(line.contains("only a restart with the bearer of the current generation"), "{line}");
        assert_eq!(script.sent(Event::SessionRegistered), None);
        assert!(script.pass(24 * 3_600_000 * MS).is_empty());
        assert_eq!(script.registration.next_deadline(), None);
    }
}

/// ARC-17: a restarted relayd goes on with sequence, pin, record and parking.
#[test]
fn what_was_kept_is_gone_on_with() {
    let reference = |id: &str, generation| Some(KeptReference { id: id.into(), generation });
    let kept = Kept {
        last_sequence: Some(6),
        credential: reference("c", 1),
        record: reference("r", 5),
        parked: None,
    };
    let mut script = Script::resumed(kept.clone());
    script.on(Event::Listening { awaits_hub: false });
    assert_eq!(script.sent(Event::SessionRegistered), Some(7));
    assert!(!accepted(&script.accept(("c", 1), ("r", 5))));
    script.on(Event::SessionRegistered);
    assert!(accepted(&script.accept(("c", 1), ("r", 6))));

    let mut script = Script::resumed(Kept { parked: Some("parked".into()), ..kept });
    assert_eq!(script.registration.parked(), Some("parked"));
    script.on(Event::Listening { awaits_hub: false });
    assert!(script.on(Event::SessionRegistered).is_empty());
}

/// VPN-41: the first registration waits for the key of a hub, for three seconds, whenever the session
/// comes; then it goes without one.
#[test]
fn the_first_registration_waits_for_the_hub() {
    let waiting = |session: bool| {
        let mut script = Script::resumed(Kept::default());
        script.now.mono = 1_000 * MS;
        script.on(Event::Listening { awaits_hub: true });
        assert_eq!(script.registration.next_deadline(), Some(4_000 * MS));
        if session {
            assert_eq!(script.sent(Event::SessionRegistered), None);
        }
        script
    };
    let mut script = waiting(true);
    assert_eq!(script.sent(Event::HubChanged), Some(0));
    let mut script = waiting(true);
    assert_eq!(sequence(&script.pass(2_999 * MS)), None);
    assert_eq!(sequence(&script.pass(MS)), Some(0));
    let mut script = waiting(true);
    assert_eq!(script.sent(Event::SessionLost), None);
    assert_eq!(script.sent(Event::HubChanged), None, "REG-01: nothing without a session");
    assert_eq!(script.sent(Event::SessionRegistered), Some(0));
    let mut script = waiting(false);
    assert_eq!((sequence(&script.pass(3_000 * MS)), script.registration.next_deadline()), (None, None));
    assert_eq!(script.sent(Event::SessionRegistered), Some(0));
}

/// VPN-42, REG-15: a hub's key that comes or changes later is registered at once, or after the registration that is
/// in flight; a parked relay registers nothing (REG-58).
#[test]
fn a_hub_s_key_that_changes_is_registered() {
    let mut script = Script::resumed(Kept::default());
    assert_eq!(script.sent(Event::HubChanged), None, "REG-04");
    assert_eq!(script.sent(Event::Listening { awaits_hub: false }), None);
    assert_eq!(script.sent(Event::HubChanged), None);
    assert_eq!(script.sent(Event::SessionRegistered), Some(0));
    assert_eq!(script.sent(Event::HubChanged), None);
    assert_eq!(sequence(&script.accept(("cred", 1), ("rec", 1))), Some(1));
    assert_eq!(sequence(&script.accept(("cred", 1), ("rec", 2))), None);
    script.pass(1_000 * MS);
    assert_eq!(script.sent(Event::HubChanged), Some(2));
    script.refuse("relay-credential-generation-stale");
    script.pass(3_600_000 * MS);
    assert_eq!(script.sent(Event::HubChanged), None);
}

/// VPN-42: keys that change again and again are registered after 1, 2, 4 and so on up to 60 seconds, each time the
/// latest; a key that stood is no such.
#[test]
fn keys_that_keep_changing_are_registered_ever_more_rarely() {
    let mut script = Script::listening();
    script.on(Event::SessionRegistered);
    script.accept(("c", 1), ("r", 1));
    let mut record = 2;
    let mut registered = Vec::new();
    // Ten keys a second for ten minutes.
    for _ in 0..6_000 {
        for actions in [script.on(Event::HubChanged), script.pass(100 * MS)] {
            if sequence(&actions).is_some() {
                registered.push(script.now.mono.as_secs());
                script.accept(("c", 1), ("r", record));
                record += 1;
            }
        }
    }
    assert_eq!(registered[..8], [0, 1, 3, 7, 15, 31, 63, 123]);
    assert_eq!(registered.len(), 15);
    script.pass(60_000 * MS);
    script.accept(("c", 1), ("r", record));
    script.pass(120_000 * MS);
    assert!(script.sent(Event::HubChanged).is_some(), "it is registered at once");
    script.accept(("c", 1), ("r", record + 1));
    assert_eq!(script.sent(Event::HubChanged), None);
    assert!(sequence(&script.pass(1_000 * MS)).is_some());
}

/// PROT-28, VPN-42: a key that changes makes no refused offer and no failed call again before its time; what is sent then
/// states it.
#[test]
fn a_key_that_changes_overrides_no_wait() {
    let refusal = error("protocol-refused: cloudlyClient peer", "{}");
    for (answered, wait) in [
        (Answered::Refused(refusal), REFUSED_OFFER_RETRY),
        (Answered::Failed("timeout".into()), REGISTRATION_RETRY),
    ] {
        for while_in_flight in [true, false] {
            let mut script = Script::listening();
            script.on(Event::SessionRegistered);
            if while_in_flight {
                script.on(Event::HubChanged);
            }
            assert_eq!(sequence(&script.on(Event::Answered(answered.clone()))), None);
            assert_eq!(script.sent(Event::HubChanged), None);
            assert_eq!(sequence(&script.pass(wait - MS)), None);
            assert_eq!(script.sent(Event::HubChanged), None);
            assert_eq!(sequence(&script.pass(MS)), Some(1));
        }
    }
}
