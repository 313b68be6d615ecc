//! Node requests on their way to Cloudly, and the answers on their way back.

use crate::constants::NODE_IN_FLIGHT;

use super::*;

const OF_SESSION: [&str; 9] = [
    "getRuntimeManagedVpnCredential",
    "getRuntimeRegistryCredential",
    "reportRuntimeNetworkProtection",
    "reportRuntimeAssignmentObservation",
    "reportRuntimeAssignmentTerminalReceipt",
    "getRuntimeSecretRecipientState",
    "beginRuntimeSecretRecipientEnrollment",
    "completeRuntimeSecretRecipientEnrollment",
    "getRuntimeSecretMaterial",
];

/// FWD-01, FWD-02, FWD-03, FWD-04, FWD-17, FWD-27, FWD-39: all ten methods cross in both directions
/// byte for byte, with nothing added.
#[test]
fn ten_methods_are_forwarded_and_answered_untouched() {
    let mut script = Script::new();
    let register = format!("{{{ODD},\"protocol\":{OFFER}}}");
    let seen = script.ask(1, "r", REGISTER, &register);
    let sent = one(seen[1..].to_vec());
    assert_eq!((sent.method.as_str(), sent.body.as_str()), (REGISTER, register.as_str()));
    let issued = format!("{{{ODD},\"session\" : {}}}", binding("s-n", "n", "c", 1));
    let seen = script.cloudly(&sent, &ok(&issued));
    assert_eq!(seen[1], Seen::Node(1, "r".into(), ok(&issued)));
    for method in OF_SESSION {
        let body = format!("{{\"session\":{},{ODD}}}", binding("s-n", "n", "c", 1));
        let sent = one(script.ask(1, method, method, &body));
        assert_eq!((sent.to, sent.method.as_str(), sent.body.as_str()), (None, method, body.as_str()));
        let answer = format!("{{{ODD}}}");
        assert_eq!(script.cloudly(&sent, &ok(&answer)), [Seen::Node(1, method.into(), ok(&answer))]);
    }
}

/// FWD-03: a refusal of Cloudly travels back as it was written, and registers nobody.
#[test]
fn a_refusal_of_cloudly_travels_back_unchanged() {
    let mut script = Script::new();
    let sent = script.registers(1, "r");
    let refusal = Told::Error { text: "node-unknown: n".into(), data: format!("{{{ODD}}}") };
    assert_eq!(script.cloudly(&sent, &refusal), [Seen::Node(1, "r".into(), refusal.clone())]);
    assert_eq!(script.forwarder.carried(), 0);
}

/// FWD-02: the hop's ids are its own, and the node gets its own back.
#[test]
fn each_hop_has_its_own_ids() {
    let mut script = Script::new();
    let sent = script.registers(1, "r");
    assert!(sent.id.starts_with("uni_") && sent.instance.as_deref().unwrap().starts_with("uni_"));
    let actions = script.forwarder.handle(Event::Answered(answer_to(&sent, &ok("{}"))), script.now);
    let frame = actions.iter().find_map(|action| match action {
        Action::SendDown { frame, .. } => Some(frame.as_str()),
        _ => None,
    });
    let expected = format!(
        r#"{{"method":"{REGISTER}","response":{{}},"requestInstanceId":"of-r","correlation":{{"id":"r","phase":"response"}}}}"#
    );
    assert_eq!(frame, Some(expected.as_str()));
}

/// LIS-02, RET-05: a node is not served a method of Cloudly's router, a former one, or any other.
#[test]
fn an_unknown_method_is_answered_as_unknown() {
    let mut script = Script::new();
    script.carry(1, "n");
    for method in [APPLY, "getClusterConfig", "pushClusterConfig", "triggerServerAction", "nothing", ""] {
        let seen = script.ask(1, "x", method, &of("n"));
        assert_eq!(seen, [Seen::Node(1, "x".into(), refused(UNKNOWN_METHOD))], "{method}");
    }
}

/// LIS-22: a hold on the node listener is refused by a name of its own and reaches nobody.
#[test]
fn a_hold_of_a_node_is_refused_by_name() {
    for mut script in [Script::new(), Script::without_session()] {
        let seen = script.ask(1, "x", "holdRuntimeNetworkDnsLeaseRenewals", "{}");
        assert_eq!(seen, [Seen::Node(1, "x".into(), refused("escrow-cloudly-only"))]);
    }
}

/// PROT-10, PROT-12, PROT-13, PROT-14, PROT-15: an offer of another major is refused at once, whatever
/// else the body holds and whether or not there is a session; nothing of it reaches Cloudly.
#[test]
fn an_offer_is_judged_before_anything_else() {
    let own = r#"{"oldestAcceptedPeerRelease":"32.10.1","release":"33.1.0"}"#;
    let body = r#"{"protocol":{"release":"31.9.0","oldestAcceptedPeerRelease":"31.0.0"},"nodeId":7}"#;
    let line = "protocol-refused: palletRuntime peer speaks 31.9.0 and accepts from 31.0.0; this relay speaks \
                33.1.0 and accepts from 32.10.1";
    let received = r#"{"oldestAcceptedPeerRelease":"31.0.0","release":"31.9.0"}"#;
    for mut script in [Script::new(), Script::without_session()] {
        let seen = script.ask(1, "r", REGISTER, body);
        let [Seen::OfferRefused(stated), Seen::Node(1, _, Told::Error { text, data })] = seen.as_slice()
        else {
            panic!("not refused alone: {seen:?}")
        };
        assert_eq!((stated.as_str(), text.as_str()), (line, line));
        let expected = format!(r#"{{"kind":"palletRuntime","offer":{own},"received":{received}}}"#);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(data), value(&expected));
        assert_eq!(script.forwarder.next_deadline(), None);
    }
}

/// PROT-14: what states no readable offer is refused the same way, with `received` null.
#[test]
fn a_registration_without_a_readable_offer_is_refused() {
    for protocol in
        ["null", "3", r#"["33.1.0","32.0.0"]"#, r#"{"release":"33.1.0"}"#, &OFFER.replace('}', ",\"x\":1}")]
    {
        let mut script = Script::new();
        let seen = script.ask(1, "r", REGISTER, &format!(r#"{{"protocol":{protocol}}}"#));
        let [Seen::OfferRefused(_), Seen::Node(1, _, Told::Error { text, data })] = seen.as_slice() else {
            panic!("not refused: {seen:?}")
        };
        assert!(
            text.starts_with("protocol-refused: palletRuntime peer states no readable offer; "),
            "{text}"
        );
        assert!(data.contains(r#""received":null"#), "{data}");
    }
    let mut script = Script::new();
    assert!(matches!(script.ask(1, "r", REGISTER, "{}")[0], Seen::OfferRefused(_)));
    let twice = format!(r#"{{"protocol":{OFFER},"protocol":{OFFER}}}"#);
    assert!(matches!(script.ask(1, "r", REGISTER, &twice)[0], Seen::OfferRefused(_)));
    assert_eq!(script.registers(1, "again").method, REGISTER, "PROT-31: a servable offer is served at once");
}

/// FWD-07, FWD-10, FWD-34: a registration waits 5 s for a session and is then refused by name; nothing
/// of it goes out later, and nobody is registered.
#[test]
fn a_registration_without_a_session_is_refused_after_five_seconds() {
    let mut script = Script::without_session();
    assert_eq!(script.ask(1, "r", REGISTER, &registration()), [Seen::OfferServed]);
    assert_eq!(script.forwarder.next_deadline(), Some(script.now.mono + 5000 * MS));
    assert_eq!(script.pass(4999 * MS), []);
    let refusal = refused("relay-session-unavailable: no Cloudly session after waiting 5000 ms");
    assert_eq!(script.pass(MS), [Seen::Node(1, "r".into(), refusal)]);
    assert_eq!((script.up(1), script.forwarder.carried()), (vec![], 0));
    assert_eq!(script.forwarder.next_deadline(), None);
}

/// FWD-07, FWD-08: a session that returns within the wait takes the registration; 9 s after its arrival,
/// the wait included, it is refused by name.
#[test]
fn a_waiting_registration_goes_out_with_the_session_and_keeps_its_budget() {
    let mut script = Script::without_session();
    script.ask(1, "r", REGISTER, &registration());
    assert_eq!(script.pass(4900 * MS), []);
    let sent = one(script.up(1));
    assert_eq!(sent.body, registration());
    assert_eq!(script.pass(4099 * MS), []);
    let refusal = refused("relay-forward-timeout: registerPalletRuntimeSession after 9000 ms");
    let note = Note::Timeout { method: REGISTER.into(), node: None };
    assert_eq!(script.pass(MS), [Seen::Node(1, "r".into(), refusal), Seen::Note(note)]);
    assert_eq!(script.cloudly(&sent, &ok(&of("n"))), [], "a late answer registers nobody");
    assert_eq!(script.forwarder.carried(), 0);
}

/// FWD-07: registrations that waited go out in the order in which they arrived.
#[test]
fn waiting_registrations_go_out_in_order() {
    let mut script = Script::without_session();
    for socket in [3, 1, 2] {
        script.ask(socket, "r", REGISTER, &format!(r#"{{"protocol":{OFFER},"nonce":{socket}}}"#));
    }
    let bodies: Vec<String> = script.up(1).into_iter().map(|seen| one(vec![seen]).body).collect();
    let nonces: Vec<bool> =
        bodies.iter().zip([3, 1, 2]).map(|(body, n)| body.ends_with(&format!(":{n}}}"))).collect();
    assert_eq!(nonces, [true; 3], "{bodies:?}");
}

/// FWD-09: any other forward is bounded at 8 s.
#[test]
fn a_forward_is_refused_after_eight_seconds() {
    for method in OF_SESSION {
        let mut script = Script::new();
        script.carry(1, "n");
        let sent = one(script.ask(1, "x", method, &of("n")));
        assert_eq!(script.pass(7999 * MS), []);
        let refusal = refused(&format!("relay-forward-timeout: {method} after 8000 ms"));
        let note = Note::Timeout { method: method.into(), node: Some(id("n")) };
        assert_eq!(script.pass(MS), [Seen::Node(1, "x".into(), refusal), Seen::Note(note)]);
        assert_eq!(script.cloudly(&sent, &ok("{}")), []);
    }
}

/// FWD-11: a request that finds no session, or loses it, is refused by name at once.
#[test]
fn a_request_without_a_session_is_refused_at_once() {
    let refusal = refused("relay-session-unavailable: no Cloudly session after waiting 0 ms");
    let mut script = Script::new();
    script.carry(1, "n");
    let sent = one(script.ask(1, "first", REPORT, &of("n")));
    assert_eq!(script.on(Event::SessionDown), [Seen::Node(1, "first".into(), refusal.clone())]);
    assert_eq!(script.ask(1, "second", REPORT, &of("n")), [Seen::Node(1, "second".into(), refusal)]);
    assert_eq!(script.cloudly(&sent, &ok("{}")), []);
    assert_eq!(script.forwarder.carried(), 1, "OUT-11: the node stays carried");
}

/// FWD-07, FWD-10: a registration in flight when the session drops waits again within its own 5 s and
/// goes out on the new session; an answer of the old one is nobody's.
#[test]
fn a_registration_in_flight_survives_a_reconnect() {
    let mut script = Script::new();
    let first = script.registers(1, "r");
    script.pass(2000 * MS);
    assert_eq!(script.on(Event::SessionDown), []);
    assert_eq!(script.pass(2999 * MS), []);
    let second = one(script.up(2));
    assert_eq!((second.method.as_str(), &second.body), (REGISTER, &first.body));
    assert_ne!(second.id, first.id);
    assert_eq!(script.cloudly(&first, &ok(&of("n"))), []);
    assert_eq!(script.cloudly(&second, &ok(&of("n"))).len(), 2);
    assert!(script.forwarder.stale().is_empty(), "registered under the new connection");
    // Its own wait: it ends 5 s after the arrival, and 5 s of it were granted.
    let refusal = refused("relay-session-unavailable: no Cloudly session after waiting 5000 ms");
    script.registers(2, "s");
    script.pass(3000 * MS);
    assert_eq!(script.on(Event::SessionDown), []);
    assert_eq!(script.pass(1999 * MS), []);
    assert_eq!(script.pass(MS), [Seen::Node(2, "s".into(), refusal.clone())]);
    script.up(3);
    script.registers(2, "t");
    script.pass(5000 * MS);
    assert_eq!(script.on(Event::SessionDown), [Seen::Node(2, "t".into(), refusal)]);
}

/// FWD-12 – FWD-16: only the socket that registered a binding may use it, and only as it was issued.
#[test]
fn a_request_that_is_not_of_the_socket_s_session_is_refused() {
    let mut script = Script::new();
    script.carry_as(1, &format!(r#"{{"session":{}}}"#, binding("s", "n", "c", 4)), "n");
    script.carry(2, "other");
    let cases = [
        (2, binding("s", "n", "c", 4), Foreign::Socket),
        (3, binding("s", "n", "c", 4), Foreign::Socket),
        (1, binding("s", "absent", "c", 4), Foreign::Socket),
        (1, binding("superseded", "n", "c", 4), Foreign::Session),
        (1, binding("s", "n", "d", 4), Foreign::Cluster),
        (1, binding("s", "n", "c", 3), Foreign::Registration),
        (1, binding("s", "n", "c", 5), Foreign::Registration),
        (1, "null".to_owned(), Foreign::Session),
        (1, r#"["s","n","c",4]"#.to_owned(), Foreign::Session),
        (1, binding("s", "n", "c", 4).replace('}', ",\"x\":0}"), Foreign::Session),
    ];
    for (socket, session, which) in cases {
        let body = format!(r#"{{"session":{session}}}"#);
        let name = format!("{which:?}").to_lowercase();
        let refusal = refused(&format!("runtime-session-foreign: {name}"));
        let expected = [foreign(REPORT, which), Seen::Node(socket, "x".into(), refusal)];
        assert_eq!(script.ask(socket, "x", REPORT, &body), expected, "{body}");
    }
    let body = format!(r#"{{"session":{}}}"#, binding("s", "n", "c", 4));
    assert_eq!(one(script.ask(1, "x", REPORT, &body)).body, body);
}

/// FWD-16, OUT-04, OUT-12: a binding of an earlier connection of the session is older than the current
/// registration, and is listed to be made again.
#[test]
fn a_binding_of_an_earlier_connection_is_refused() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.on(Event::SessionDown);
    assert!(script.forwarder.stale().is_empty(), "OUT-09: without a session nobody is");
    script.up(2);
    let refusal = refused("runtime-session-foreign: registration");
    let expected = [foreign(REPORT, Foreign::Registration), Seen::Node(1, "x".into(), refusal)];
    assert_eq!(script.ask(1, "x", REPORT, &of("n")), expected);
    assert_eq!(script.forwarder.stale(), [(id("n"), 1)]);
    assert!(script.forwarder.is_stale(&id("n"), 1) && !script.forwarder.is_stale(&id("n"), 2));
    script.carry(1, "n");
    assert!(script.forwarder.stale().is_empty() && !script.forwarder.is_stale(&id("n"), 1));
}

/// FWD-13, FWD-14, FWD-24: a node that registers on a new socket is that socket's, and the end of the
/// old one changes nothing.
#[test]
fn a_new_socket_supersedes_the_old_one() {
    let mut script = Script::new();
    script.carry(1, "n");
    let sent = script.registers(2, "registers");
    assert_eq!(script.cloudly(&sent, &ok(&of("n")))[0], Seen::Superseded(1));
    let refusal = refused("runtime-session-foreign: socket");
    let expected = [foreign(REPORT, Foreign::Socket), Seen::Node(1, "x".into(), refusal)];
    assert_eq!(script.ask(1, "x", REPORT, &of("n")), expected);
    assert_eq!(script.on(Event::Closed { socket: 1 }), []);
    assert_eq!(one(script.ask(2, "x", REPORT, &of("n"))).method, REPORT);
    let sent = script.registers(2, "registers");
    assert_eq!(script.cloudly(&sent, &ok(&of("m")))[0], Seen::Note(Note::Gone { node: id("n") }));
    let refusal = refused("runtime-session-foreign: socket");
    let expected = [foreign(REPORT, Foreign::Socket), Seen::Node(2, "y".into(), refusal)];
    assert_eq!(script.ask(2, "y", REPORT, &of("n")), expected, "the socket is another node's now");
    assert_eq!(script.forwarder.carried(), 1);
}

/// FWD-16: of two registrations of a node that are answered out of order, the later one stays.
#[test]
fn an_older_registration_that_is_answered_late_supersedes_nothing() {
    let mut script = Script::new();
    let older = script.registers(1, "older");
    let later = script.registers(2, "later");
    let body = |generation| format!(r#"{{"session":{}}}"#, binding("s", "n", "c", generation));
    script.cloudly(&later, &ok(&body(2)));
    let answer = Seen::Node(1, "older".into(), ok(&body(1)));
    assert_eq!(script.cloudly(&older, &ok(&body(1))), [answer], "answered, and not carried");
    assert_eq!(one(script.ask(2, "x", REPORT, &body(2))).method, REPORT);
    let refusal = refused("runtime-session-foreign: socket");
    let expected = [foreign(REPORT, Foreign::Socket), Seen::Node(1, "y".into(), refusal)];
    assert_eq!(script.ask(1, "y", REPORT, &body(1)), expected);
}

/// Answers are matched by id: order means nothing, a second one is nobody's, and one with a foreign
/// `requestInstanceId` is no answer.
#[test]
fn answers_come_back_in_any_order_and_once() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.carry(2, "m");
    let first = one(script.ask(1, "a", REPORT, &of("n")));
    let second = one(script.ask(2, "a", REPORT, &of("m")));
    let third = one(script.ask(1, "b", REPORT, &of("n")));
    let stranger = Sent { instance: Some("another".into()), ..first.clone() };
    assert_eq!(script.cloudly(&stranger, &ok("0")), []);
    assert_eq!(script.cloudly(&third, &ok("3")), [Seen::Node(1, "b".into(), ok("3"))]);
    assert_eq!(script.cloudly(&second, &ok("2")), [Seen::Node(2, "a".into(), ok("2"))]);
    let older = Sent { instance: None, ..first.clone() };
    assert_eq!(script.cloudly(&older, &ok("1")), [Seen::Node(1, "a".into(), ok("1"))]);
    assert_eq!(script.cloudly(&first, &ok("1")), []);
}

/// FWD-28: a request that a peer library echoes in its answer goes no further.
#[test]
fn an_echoed_request_is_not_carried_on() {
    let mut script = Script::new();
    let sent = script.registers(1, "r");
    let echo = format!(
        r#"{{"method":"{REGISTER}","request":{{"authorization":"MARKER"}},"response":{},"correlation":{{"id":"{}","phase":"response"}},"localData":null}}"#,
        of("n"),
        sent.id
    );
    let Envelope::Answer(answer) = envelope(&echo) else { panic!("no answer") };
    let frames: Vec<String> = script
        .forwarder
        .handle(Event::Answered(answer), script.now)
        .into_iter()
        .filter_map(|action| match action {
            Action::SendDown { frame, .. } => Some(frame),
            _ => None,
        })
        .collect();
    assert_eq!(frames.len(), 1);
    assert!(!frames[0].contains("MARKER") && !frames[0].contains(r#""request""#), "{}", frames[0]);
    assert_eq!(script.forwarder.carried(), 1);
}

/// Contract section 1, `retry`: asked again with the same correlation and another instance, three times,
/// and never past the request's own budget (FWD-09).
#[test]
fn an_answer_that_asks_for_the_request_again_gets_it() {
    let mut script = Script::new();
    script.carry(1, "n");
    let mut sent = one(script.ask(1, "x", REPORT, &of("n")));
    for _ in 0..3 {
        let again = Answer { retry_after_ms: Some(1000), ..answer_to(&sent, &ok("null")) };
        assert_eq!(script.on(Event::Answered(again)), []);
        assert_eq!(script.pass(999 * MS), []);
        let next = one(script.pass(MS));
        assert_eq!((&next.id, &next.body), (&sent.id, &sent.body));
        assert_ne!(next.instance, sent.instance);
        sent = next;
    }
    let fourth = Answer { retry_after_ms: Some(1000), ..answer_to(&sent, &ok("null")) };
    assert_eq!(script.on(Event::Answered(fourth)), [Seen::Node(1, "x".into(), ok("null"))]);
    let sent = one(script.ask(1, "y", REPORT, &of("n")));
    let late = Answer { retry_after_ms: Some(8000), ..answer_to(&sent, &ok("null")) };
    assert_eq!(script.on(Event::Answered(late)), [Seen::Node(1, "y".into(), ok("null"))]);
}

/// A socket may have 256 requests in flight; the next is refused by name, another socket's is not.
#[test]
fn requests_in_flight_are_bounded_per_socket() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.carry(2, "m");
    let first = one(script.ask(1, "0", REPORT, &of("n")));
    for number in 1..NODE_IN_FLIGHT {
        assert_eq!(one(script.ask(1, &number.to_string(), REPORT, &of("n"))).method, REPORT);
    }
    let refusal = refused("relay-too-many-in-flight");
    assert_eq!(script.ask(1, "x", REPORT, &of("n")), [Seen::Node(1, "x".into(), refusal.clone())]);
    let registers = script.ask(1, "x", REGISTER, &registration());
    assert_eq!(registers, [Seen::OfferServed, Seen::Node(1, "x".into(), refusal)]);
    assert_eq!(one(script.ask(2, "x", REPORT, &of("m"))).method, REPORT);
    script.cloudly(&first, &ok("{}"));
    assert_eq!(one(script.ask(1, "x", REPORT, &of("n"))).method, REPORT);
}

/// FWD-06, FWD-24, FWD-26: an identical registration is asked again; what belonged to a closed socket is
/// answered to nobody, registers nobody, and no call to Cloudly says that a node went.
#[test]
fn nothing_is_answered_from_memory() {
    let mut script = Script::new();
    script.carry(1, "n");
    let again = script.registers(1, "again");
    let sent = one(script.ask(1, "x", REPORT, &of("n")));
    assert_eq!(script.on(Event::Closed { socket: 1 }), [Seen::Note(Note::Gone { node: id("n") })]);
    assert_eq!(script.cloudly(&again, &ok(&of("n"))), []);
    assert_eq!(script.cloudly(&sent, &ok("{}")), []);
    assert_eq!((script.forwarder.carried(), script.forwarder.next_deadline()), (0, None));
    let refusal = refused("runtime-session-foreign: socket");
    let expected = [foreign(REPORT, Foreign::Socket), Seen::Node(2, "x".into(), refusal)];
    assert_eq!(script.ask(2, "x", REPORT, &of("n")), expected);
}

/// FWD-24: a registration that waits for a session ends with its socket.
#[test]
fn a_waiting_registration_ends_with_its_socket() {
    let mut script = Script::without_session();
    script.ask(1, "r", REGISTER, &registration());
    assert_eq!(script.on(Event::Closed { socket: 1 }), []);
    assert_eq!((script.up(1), script.forwarder.next_deadline()), (vec![], None));
}

/// FWD-03, FWD-34: an answer whose binding cannot be read is returned as it is, and carries nobody.
#[test]
fn an_answer_without_a_readable_binding_registers_nobody() {
    let extra = binding("s", "n", "c", 1).replace('}', ",\"x\":0}");
    let array = r#"{"session":["s","n","c",1]}"#.to_owned();
    for body in ["null".to_owned(), "{}".to_owned(), array, format!(r#"{{"session":{extra}}}"#)] {
        let mut script = Script::new();
        let sent = script.registers(1, "r");
        let seen = script.cloudly(&sent, &ok(&body));
        assert_eq!(seen, [Seen::Note(Note::Unbound), Seen::Node(1, "r".into(), ok(&body))]);
        assert_eq!(script.forwarder.carried(), 0);
    }
}

/// FWD-10, OUT-11: a socket whose registration was refused for want of a session is remembered, also where the session
/// took the registration along; until it ends, tries again or is carried.
#[test]
fn who_found_no_session_is_remembered() {
    let mut script = Script::without_session();
    for socket in 1..4 {
        script.ask(socket, "r", REGISTER, &registration());
    }
    script.pass(4_999 * MS);
    assert!(script.forwarder.turned_away().is_empty());
    script.pass(MS);
    assert_eq!(script.forwarder.turned_away(), [1, 2, 3]);
    script.on(Event::Closed { socket: 1 });
    script.ask(2, "again", REGISTER, &registration());
    assert_eq!(script.forwarder.turned_away(), [3]);
    script.up(1);
    assert_eq!(script.forwarder.turned_away(), [3]);
    script.carry(3, "n");
    script.carry(4, "m");
    assert!(script.forwarder.turned_away().is_empty());
    // One of them is carried, and two waited for an answer longer than they would for a session.
    for socket in [4, 5] {
        script.registers(socket, "taken along");
    }
    script.pass(5_000 * MS);
    script.registers(6, "recent");
    script.on(Event::SessionDown);
    assert_eq!(script.forwarder.turned_away(), [2, 5]);
    script.up(2);
    script.on(Event::Closed { socket: 6 });
    assert_eq!(script.forwarder.turned_away(), [2, 5]);
    // Whose first registration is refused while the second waits is not idle.
    script.on(Event::SessionDown);
    script.ask(7, "first", REGISTER, &registration());
    script.pass(3_000 * MS);
    script.ask(7, "second", REGISTER, &registration());
    let refused = script.pass(2_000 * MS);
    assert!(
        matches!(&refused[..], [Seen::Node(7, first, Told::Error { .. })] if first == "first"),
        "{refused:?}"
    );
    assert_eq!(script.forwarder.turned_away(), [2, 5]);
    script.pass(3_000 * MS);
    assert_eq!(script.forwarder.turned_away(), [2, 5, 7]);
}
