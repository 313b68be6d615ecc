//! Pushes of Cloudly on their way to a node, and the acknowledgements on their way back.

use super::*;

const PUSHES: [&str; 4] = [
    APPLY,
    "applyRuntimeNetworkSigningAuthority",
    "applyRuntimeNetworkProjection",
    "applyRuntimeNetworkDnsLeaseRenewal",
];

/// FWD-02, FWD-18, FWD-20, FWD-22, FWD-39: a push goes to the socket of the node that its session names,
/// and both bodies cross byte for byte.
#[test]
fn a_push_goes_to_the_node_that_its_session_names() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.carry(2, "m");
    for (node, socket) in [("n", 1), ("m", 2)] {
        for method in PUSHES {
            // Only the node id is the relay's to read; the rest of the binding is the node's to judge.
            let body = format!(r#"{{{ODD},"session":{{"x":[1.0],"nodeId":"{node}"}}}}"#);
            let sent = one(script.push(7, method, method, &body));
            let expected = (Some(socket), method, body.as_str());
            assert_eq!((sent.to, sent.method.as_str(), sent.body.as_str()), expected);
            let answer = format!("{{{ODD}}}");
            let seen = script.node(socket, &sent, &ok(&answer));
            assert_eq!(seen, [Seen::Cloudly(7, method.into(), ok(&answer))]);
        }
    }
}

/// FWD-31, FWD-32: of an acknowledgement the projection is read, and only where it is bound to the push: the
/// very projection of the request, in its session, in a response, to that method.
#[test]
fn an_acknowledged_projection_is_stated_only_where_it_is_the_pushed_one() {
    const PROJECTION: &str = "applyRuntimeNetworkProjection";
    let stated = |generation: u64| {
        format!(r#"{{"id":"p","generation":{generation},"digest":"sha256:{}"}}"#, "ab".repeat(32))
    };
    let session = binding("s-n", "n", "c", 1);
    let pushed = format!(r#"{{"session":{session},"projection":{},"x":1e9}}"#, stated(4));
    let mut script = Script::new();
    script.carry(1, "n");
    let bound = format!(r#"{{"session":{session},"projection":{}}}"#, stated(4));
    let sent = one(script.push(1, "p", PROJECTION, &pushed));
    let of: Binding = serde_json::from_str(&session).unwrap();
    let acknowledged = Seen::Acknowledged(of, "p".into(), 4);
    let seen = script.node(1, &sent, &ok(&bound));
    assert_eq!(seen, [acknowledged, Seen::Cloudly(1, "p".into(), ok(&bound))]);
    let foreign = format!(r#"{{"session":{session},"projection":{}}}"#, stated(5));
    for (method, answer) in [
        (PROJECTION, ok(&foreign)),
        (PROJECTION, ok("{}")),
        (PROJECTION, ok("null")),
        (PROJECTION, refused("projection-stale")),
        (APPLY, ok(&bound)),
    ] {
        let sent = one(script.push(1, "p", method, &pushed));
        assert_eq!(script.node(1, &sent, &answer), [Seen::Cloudly(1, "p".into(), answer.clone())]);
    }
}

/// FWD-24: a socket that registers another node carries that one alone; the former node is gone.
#[test]
fn a_node_that_loses_its_socket_to_another_is_gone() {
    let mut script = Script::new();
    script.carry(1, "n");
    let sent = script.registers(1, "r");
    let seen = script.cloudly(&sent, &ok(&of("m")));
    let notes = [Note::Gone { node: id("n") }, Note::Registered { node: id("m") }].map(Seen::Note);
    assert_eq!(seen[..2], notes);
    assert_eq!(script.forwarder.carried(), 1);
}

/// FWD-22: a node's refusal travels back as it was written.
#[test]
fn a_refusal_of_a_node_travels_back_unchanged() {
    let mut script = Script::new();
    script.carry(1, "n");
    let sent = one(script.push(1, "p", APPLY, &of("n")));
    let refusal = Told::Error { text: "assignment-stale: 3".into(), data: format!("{{{ODD}}}") };
    assert_eq!(script.node(1, &sent, &refusal), [Seen::Cloudly(1, "p".into(), refusal.clone())]);
}

/// FWD-25: a push for a node that is not carried is refused by name; so is one that names no node.
#[test]
fn a_push_for_an_absent_node_is_refused() {
    let mut script = Script::new();
    script.carry(1, "n");
    let refusal = refused("relay-node-not-connected: node m is not connected to this relay");
    assert_eq!(script.push(1, "p", APPLY, &of("m")), [Seen::Cloudly(1, "p".into(), refusal)]);
    for body in
        ["{}", r#"{"session":{}}"#, r#"{"session":["n"]}"#, r#"{"session":{"nodeId":"n","nodeId":"n"}}"#]
    {
        let seen = script.push(1, "p", APPLY, body);
        let [Seen::Cloudly(1, _, Told::Error { text, .. })] = seen.as_slice() else { panic!("{seen:?}") };
        assert!(text.starts_with("relay-node-not-connected: "), "{text}");
    }
    assert_eq!(script.forwarder.pushes_in_flight(), 0);
}

/// FWD-21, FWD-23: a node that does not answer within 8 s is not answered for.
#[test]
fn a_push_is_refused_after_eight_seconds() {
    let mut script = Script::new();
    script.carry(1, "n");
    let sent = one(script.push(1, "p", APPLY, &of("n")));
    assert_eq!(script.pass(7999 * MS), []);
    let refusal = refused("relay-forward-timeout: applyRuntimeAssignment after 8000 ms");
    let note = Note::Timeout { method: APPLY.into(), node: Some(id("n")) };
    assert_eq!(script.pass(MS), [Seen::Cloudly(1, "p".into(), refusal), Seen::Note(note)]);
    assert_eq!(script.node(1, &sent, &ok("{}")), [], "a late acknowledgement is nobody's");
    assert_eq!(script.forwarder.pushes_in_flight(), 0);
}

/// FWD-23, FWD-24, FWD-25, FWD-26: a node that goes with a push in flight is not connected any more.
#[test]
fn a_node_that_goes_during_a_push_is_not_connected() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.carry(2, "m");
    let first = one(script.push(1, "p", APPLY, &of("n")));
    one(script.push(2, "q", APPLY, &of("n")));
    let other = one(script.push(1, "r", APPLY, &of("m")));
    let refusal = refused("relay-node-not-connected: node n is not connected to this relay");
    let expected = [
        Seen::Cloudly(1, "p".into(), refusal.clone()),
        Seen::Cloudly(2, "q".into(), refusal.clone()),
        Seen::Note(Note::Gone { node: id("n") }),
    ];
    assert_eq!(script.on(Event::Closed { socket: 1 }), expected);
    assert_eq!(script.node(1, &first, &ok("{}")), []);
    assert_eq!(script.push(1, "s", APPLY, &of("n")), [Seen::Cloudly(1, "s".into(), refusal)]);
    assert_eq!(script.node(2, &other, &ok("{}")).len(), 1, "another node's push goes on");
}

/// A push is answered by the socket that it was sent to, and once.
#[test]
fn an_acknowledgement_of_another_socket_is_ignored() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.carry(2, "m");
    let sent = one(script.push(1, "p", APPLY, &of("n")));
    assert_eq!(script.node(2, &sent, &ok(r#"{"forged":true}"#)), []);
    assert_eq!(script.forwarder.pushes_in_flight(), 1);
    assert_eq!(script.node(1, &sent, &ok("{}")), [Seen::Cloudly(1, "p".into(), ok("{}"))]);
    assert_eq!(script.node(1, &sent, &ok("{}")), []);
}

/// An answer to an upward request is not one to a push, whoever states its id.
#[test]
fn a_node_cannot_answer_its_own_request() {
    let mut script = Script::new();
    let sent = script.registers(1, "r");
    assert_eq!(script.node(1, &sent, &ok(&of("stolen"))), []);
    assert_eq!(script.forwarder.carried(), 0);
    assert_eq!(script.cloudly(&sent, &ok(&of("n"))).len(), 2);
}

/// FWD-21: what a node asks to be sent again is, within the push's own budget.
#[test]
fn a_node_may_ask_for_a_push_again() {
    let mut script = Script::new();
    script.carry(1, "n");
    let sent = one(script.push(1, "p", APPLY, &of("n")));
    let again = Answer { retry_after_ms: Some(500), ..answer_to(&sent, &ok("null")) };
    assert_eq!(script.on(Event::NodeAnswered { socket: 1, answer: again }), []);
    let second = one(script.pass(500 * MS));
    assert_eq!((second.to, &second.id, &second.body), (Some(1), &sent.id, &sent.body));
    assert_eq!(script.node(1, &sent, &ok("{}")), [], "the first instance was answered already");
    assert_eq!(script.node(1, &second, &ok("{}")), [Seen::Cloudly(1, "p".into(), ok("{}"))]);
}

/// FWD-20: after a superseding registration pushes go to the new socket, and the old one may still
/// answer what it was sent.
#[test]
fn pushes_follow_the_node_to_its_new_socket() {
    let mut script = Script::new();
    script.carry(1, "n");
    let old = one(script.push(1, "p", APPLY, &of("n")));
    script.carry(2, "n");
    assert_eq!(one(script.push(1, "q", APPLY, &of("n"))).to, Some(2));
    assert_eq!(script.node(1, &old, &ok("{}")), [Seen::Cloudly(1, "p".into(), ok("{}"))]);
}

/// FWD-23, OUT-14: a push outlives its connection and is answered to that connection alone; nothing is
/// sent to a node a second time.
#[test]
fn a_push_is_answered_to_the_connection_that_it_came_by() {
    let mut script = Script::new();
    script.carry(1, "n");
    let sent = one(script.push(1, "p", APPLY, &of("n")));
    assert_eq!(script.on(Event::SessionDown), []);
    assert_eq!(script.up(2), []);
    assert_eq!(script.node(1, &sent, &ok("{}")), [Seen::Cloudly(1, "p".into(), ok("{}"))]);
}

/// FWD-28, FWD-30: what the log is told names a method and a node and nothing of a body.
#[test]
fn no_note_holds_anything_of_a_body() {
    let mut script = Script::new();
    let secret = |body: &str| body.replacen('{', r#"{"secret":"MARKER","#, 1);
    let mut seen = script.ask(1, "r", REGISTER, &secret(&registration()));
    let sent = one(seen.split_off(1));
    seen.extend(script.cloudly(&sent, &ok(&secret(&of("n")))));
    seen.extend(script.ask(2, "x", REPORT, &secret(&of("n"))));
    seen.extend(script.ask(1, "x", REPORT, &secret(&of("n"))));
    seen.extend(script.push(1, "p", APPLY, &secret(&of("n"))));
    seen.extend(script.pass(8000 * MS));
    let sent = script.registers(3, "s");
    seen.extend(script.cloudly(&sent, &ok(r#"{"secret":"MARKER"}"#)));
    seen.extend(script.on(Event::Closed { socket: 1 }));
    let notes: Vec<String> = seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Note(note) => Some(format!("{note:?}")),
            _ => None,
        })
        .collect();
    assert_eq!(notes.len(), 6, "{notes:?}");
    assert!(notes.iter().all(|note| !note.contains("MARKER")), "{notes:?}");
}
