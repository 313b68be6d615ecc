//! Who is the ingress: what is refused, what is carried to Cloudly, and which connection is bound.

use super::*;
use crate::constants::INGRESS_REGISTRATION_BYTES;

/// PROT-08, PROT-09, PROT-11, PROT-12, ING-34: the offer of `clusterIngress` is judged first, before the body
/// is validated, with its own oldest release; a refused ingress is never carried to Cloudly.
#[test]
fn the_offer_is_judged_before_the_body_and_the_session() {
    let mut script = Script::without_session();
    let text = "protocol-refused: clusterIngress peer speaks 31.9.9 and accepts from 32.0.0; this relay speaks 33.1.0 and accepts from 32.0.0";
    let body = r#"{"protocol":{"release":"31.9.9","oldestAcceptedPeerRelease":"32.0.0"},"nodeId":7}"#;
    let seen = script.ask(7, "r", REGISTER, body);
    let Seen::Socket(7, correlation, Told::Error { text: told, data }) = &seen[1] else { panic!("{seen:?}") };
    assert_eq!((seen.len(), &seen[0], correlation.as_str()), (2, &Seen::OfferRefused(text.into()), "r"));
    assert_eq!(told, text);
    assert!(data.contains(r#""kind":"clusterIngress""#) && data.contains(r#""received":{"#), "{data}");
    for unreadable in ["{}", r#"{"protocol":null}"#, r#"{"protocol":{"release":"33.1.0"}}"#] {
        let seen = script.ask(7, "r", REGISTER, unreadable);
        assert!(
            matches!(&seen[0], Seen::OfferRefused(line) if line.contains("no readable offer")),
            "{seen:?}"
        );
    }
    // 32.0.0 is served, though a Pallet node of that release is not (PROT-10).
    let oldest = registration("b").replacen("33.1.0", "32.0.0", 1);
    assert_eq!(script.ask(7, "r", REGISTER, &oldest)[0], Seen::OfferServed);
}

/// ING-34: a body that is not the contract's is refused as invalid, also without a session.
#[test]
fn an_invalid_body_is_refused_as_registration_invalid() {
    for mut script in [Script::new(), Script::without_session()] {
        let invalid = Told::Error {
            text: "cluster-ingress-registration-refused: registration-invalid".to_owned(),
            data: r#"{"reason":"registration-invalid","retryAfterMs":5000}"#.to_owned(),
        };
        let expected =
            [Seen::OfferServed, not_bound("registration-invalid"), Seen::Socket(7, "r".into(), invalid)];
        let more = registration("b").replace(r#""nodeId""#, r#""more":1,"nodeId""#);
        assert_eq!(script.ask(7, "r", REGISTER, &more), expected);
        let bearer = INGRESS_REGISTRATION_BYTES - registration("").len();
        let large = |more| registration(&"b".repeat(bearer + more));
        assert_eq!(script.ask(7, "r", REGISTER, &large(1)), expected);
        assert_ne!(script.ask(7, "r", REGISTER, &large(0)), expected);
    }
}

/// ING-32: without a Cloudly session an ingress is refused as not ready, at once.
#[test]
fn without_a_session_an_ingress_is_refused_as_not_ready() {
    let mut script = Script::without_session();
    let expected = [Seen::OfferServed, not_bound("not-ready"), Seen::Socket(7, "r".into(), not_ready())];
    assert_eq!(script.ask(7, "r", REGISTER, &registration("b")), expected);
    script.on(Event::SessionUp);
    script.on(Event::SessionDown);
    assert_eq!(script.ask(7, "r", REGISTER, &registration("b")), expected);
    assert_eq!(script.ingress.next_deadline(), None);
}

/// ING-22, ING-23, ING-24, ING-35: the registration goes up as it came, bearer and all; Cloudly's acceptance
/// comes back byte for byte with the held revision added, and binds the connection.
#[test]
fn an_acceptance_binds_the_connection_and_states_the_held_revision() {
    for (held, stated) in [(None, "null"), (Some(3), "3")] {
        let mut script = Script::new();
        if let Some(revision) = held {
            script.push(revision);
        }
        let body = registration("a bearer \\u00e9\\/");
        let seen = script.ask(7, "r", REGISTER, &body);
        assert_eq!(seen, [Seen::OfferServed, Seen::Sent(sent(None, REGISTER, &body))]);
        assert_eq!(script.pull(7), refused("cluster-ingress-not-bound"));
        let seen = script.cloudly(&request(&seen), &ok(&acceptance(1))).unwrap();
        let answer = acceptance(1);
        let answer = format!(r#"{},"routeTableRevision":{stated}}}"#, answer.strip_suffix('}').unwrap());
        assert_eq!(seen, [bound(false), Seen::Socket(7, "r".into(), ok(&answer))]);
        assert_ne!(script.pull(7), refused("cluster-ingress-not-bound"));
    }
}

/// ING-31, ING-24: Cloudly's refusal reaches the ingress untouched and binds nothing.
#[test]
fn a_refusal_of_cloudly_reaches_the_ingress_untouched() {
    let mut script = Script::new();
    let sent = script.registers(7);
    let refusal = Told::Error {
        text: "cluster-ingress-registration-refused: node-foreign, see \\u00e9".to_owned(),
        data: r#"{ "retryAfterMs":60000,"reason":"node-foreign","more":[1.0] }"#.to_owned(),
    };
    let seen = script.cloudly(&sent, &refusal).unwrap();
    let told = Told::Error {
        text: "cluster-ingress-registration-refused: node-foreign, see é".to_owned(),
        data: r#"{ "retryAfterMs":60000,"reason":"node-foreign","more":[1.0] }"#.to_owned(),
    };
    let class = "cluster-ingress-registration-refused";
    assert_eq!(seen, [not_bound(class), Seen::Socket(7, "r".into(), told)]);
    assert_eq!(script.pull(7), refused("cluster-ingress-not-bound"));
}

/// ING-33: a registration that Cloudly does not answer, or that its session took along, or whose answer
/// accepts nothing, is refused as not ready.
#[test]
fn a_registration_that_is_not_carried_is_refused_as_not_ready() {
    let mut script = Script::new();
    let late = script.registers(7);
    assert_eq!(script.pass(8000 * MS - Duration::from_nanos(1)), []);
    let told = Seen::Socket(7, "r".into(), not_ready());
    assert_eq!(script.pass(Duration::from_nanos(1)), [not_bound("timeout"), told.clone()]);
    assert_eq!(script.cloudly(&late, &ok(&acceptance(1))), None, "what comes later binds nothing");

    let lost = script.registers(7);
    assert_eq!(script.on(Event::SessionDown), [not_bound("closed"), told.clone()]);
    script.on(Event::SessionUp);
    assert_eq!(script.cloudly(&lost, &ok(&acceptance(1))), None);

    let stated = r#"{"ingress":{"id":"i","generation":1},"routeTableRevision":null}"#;
    for answer in ["null", "{}", r#"{"ingress":null}"#, r#"["ingress"]"#, stated] {
        let sent = script.registers(7);
        let seen = script.cloudly(&sent, &ok(answer)).unwrap();
        assert_eq!(seen, [not_bound("unreadable"), told.clone()], "{answer}");
    }
    assert_eq!(script.ingress.bound(), None);
}

/// ING-11, ING-23: a read of the table takes nothing from a registration that is under way.
#[test]
fn a_read_leaves_a_registration_under_way() {
    let mut script = Script::new();
    let sent = script.registers(7);
    for _ in 0..2 {
        script.on(Event::Accepted);
    }
    assert_eq!(script.cloudly(&sent, &ok(&acceptance(1))).unwrap()[0], bound(false));
}

/// ING-23, ING-33: Cloudly may ask to be asked again: the same registration goes out once more, within its time.
#[test]
fn a_registration_is_made_again_when_cloudly_asks_for_it() {
    let mut script = Script::new();
    let sent = script.registers(7);
    assert!(script.ingress.cloudly_answered(later(&sent, 2000), script.now).is_none());
    assert_eq!(script.ingress.next_deadline(), Some(script.now.mono + 2000 * MS));
    let seen = script.pass(2000 * MS);
    assert_eq!(seen, [Seen::Sent(sent.clone())]);
    assert_eq!(request(&seen).id, sent.id);
    assert_eq!(script.ingress.next_deadline(), Some(script.now.mono + 6000 * MS));
    assert_eq!(script.cloudly(&request(&seen), &ok(&acceptance(1))).unwrap()[0], bound(false));
    assert_eq!(script.ingress.next_deadline(), None);
}

/// ING-33: what is in flight is bounded: one registration for each connection, and so many in all.
#[test]
fn registrations_in_flight_are_bounded() {
    let mut script = Script::new();
    let refusal =
        |socket| [Seen::OfferServed, not_bound("not-ready"), Seen::Socket(socket, "r".into(), not_ready())];
    let first = script.registers(0);
    assert_eq!(script.ask(0, "r", REGISTER, &registration("b")), refusal(0));
    for socket in 1..1024 {
        script.registers(socket);
    }
    assert_eq!(script.ask(2000, "r", REGISTER, &registration("b")), refusal(2000));
    assert!(script.cloudly(&first, &refused("cluster-ingress-registration-refused: x")).is_some());
    script.on(Event::Closed { socket: 1 });
    script.registers(0);
    script.registers(2000);
}

/// ING-25: a later accepted registration supersedes the earlier binding; one that is refused does not.
#[test]
fn a_later_accepted_registration_supersedes_the_binding() {
    let mut script = Script::bound(7);
    script.push(3);
    let denied = script.registers(8);
    script.cloudly(&denied, &refused("cluster-ingress-registration-refused: x"));
    assert_eq!(
        (script.pull(7), script.pull(8)),
        (ok(&carrying(&table(3))), refused("cluster-ingress-not-bound"))
    );
    let sent = script.registers(8);
    let seen = script.cloudly(&sent, &ok(&acceptance(2))).unwrap();
    assert_eq!(seen[..2], [Seen::Superseded(7), bound(true)]);
    assert_eq!(
        (script.pull(8), script.pull(7)),
        (ok(&carrying(&table(3))), refused("cluster-ingress-not-bound"))
    );
    // The same connection again is no other ingress.
    let again = script.registers(8);
    assert_eq!(script.cloudly(&again, &ok(&acceptance(3))).unwrap()[0], bound(false));
}

/// ING-25: acceptances that are answered out of order leave the later generation bound; the earlier one's connection is
/// told to come again. Another ingress, and another session of the relay, count for themselves.
#[test]
fn an_acceptance_that_a_later_one_has_passed_binds_nothing() {
    let mut script = Script::new();
    let (first, second) = (script.registers(7), script.registers(8));
    assert_eq!(script.cloudly(&second, &ok(&acceptance(2))).unwrap()[0], bound(false));
    let told = [not_bound("superseded"), Seen::Socket(7, "r".into(), not_ready())];
    assert_eq!(script.cloudly(&first, &ok(&acceptance(1))).unwrap(), told);
    assert_eq!(script.ingress.bound(), Some(8));
    let another = acceptance(1).replace(r#""id":"i""#, r#""id":"j""#);
    for (answer, up) in [(acceptance(2), false), (another, false), (acceptance(1), true)] {
        let mut script = Script::new();
        let first = script.registers(8);
        script.cloudly(&first, &ok(&acceptance(2))).unwrap();
        if up {
            script.on(Event::SessionDown);
            script.on(Event::SessionUp);
        }
        let second = script.registers(7);
        let seen = script.cloudly(&second, &ok(&answer)).unwrap();
        assert_eq!(seen[..2], [Seen::Superseded(8), bound(true)], "{answer}");
    }
}

/// ING-26: the binding is released by the close of its own connection and by nothing else.
#[test]
fn only_the_bound_connection_s_close_releases_the_binding() {
    let mut script = Script::bound(7);
    script.bind(8);
    for socket in [7, 9] {
        assert_eq!(script.on(Event::Closed { socket }), []);
        assert_eq!(script.ingress.bound(), Some(8));
    }
    script.on(Event::SessionDown);
    assert_eq!(script.ingress.bound(), Some(8));
    assert_eq!(script.on(Event::Closed { socket: 8 }), [Seen::Note(Note::Released { node: edge() })]);
    assert_eq!(script.ingress.bound(), None);
}

/// ING-24, ING-26: an acceptance for a connection that ended meanwhile binds nothing.
#[test]
fn an_acceptance_for_a_closed_connection_binds_nothing() {
    let mut script = Script::new();
    let sent = script.registers(7);
    assert_eq!(script.on(Event::Closed { socket: 7 }), []);
    assert_eq!(script.cloudly(&sent, &ok(&acceptance(1))), None);
    assert_eq!((script.ingress.bound(), script.ingress.next_deadline()), (None, None));
}

/// ING-27, ING-28, ING-35: the table is answered on the bound connection alone; every other is refused by
/// name before its body is read.
#[test]
fn the_table_is_answered_on_the_bound_connection_alone() {
    let mut script = Script::bound(7);
    script.push(3);
    for body in [r#"{"appliedRevision":3}"#, "{}", r#"{"appliedRevision":"x"}"#] {
        let seen = script.ask(8, "t", PULL, body);
        let refusal = Seen::Socket(8, "t".into(), refused("cluster-ingress-not-bound"));
        assert_eq!(seen, [Seen::Note(Note::Stranger), refusal]);
    }
    let seen = script.ask(7, "t", PULL, r#"{"appliedRevision":2}"#);
    let pulled = Seen::Note(Note::Pulled { applied: Some(2), held: Some(3) });
    assert_eq!(seen, [pulled, Seen::Socket(7, "t".into(), ok(&carrying(&table(3))))]);
    for body in ["{}", r#"{"appliedRevision":null,"more":1}"#, r#"{"appliedRevision":-1}"#] {
        let refusal = refused("cluster-ingress-request-invalid: appliedRevision");
        assert_eq!(script.ask(7, "t", PULL, body), [Seen::Socket(7, "t".into(), refusal)]);
    }
}

/// RET-06, LIS-24: the ingress's methods are served where it registers, and the retired one nowhere.
#[test]
fn the_routes_of_the_ingress_are_these_and_no_other() {
    let mut script = Script::bound(7);
    assert!(ingress_method(REGISTER).is_some() && ingress_method(PULL).is_some());
    assert!(ingress_dispatch(PUSH).is_some() && ingress_dispatch(STATISTICS).is_some());
    for method in ["coreflowGetTrafficStats", STATISTICS, PUSH, HINT, READ] {
        assert_eq!(ingress_method(method), None, "{method}");
    }
    for method in ["coreflowGetTrafficStats", REGISTER, PULL, HINT, READ] {
        assert_eq!(ingress_dispatch(method), None, "{method}");
    }
    let unknown = refused("There is no available method for this call on the server side");
    let seen = script.dispatch(1, "q", "coreflowGetTrafficStats", "{}");
    assert_eq!(seen, [Seen::Cloudly(1, "q".into(), unknown)]);
}
