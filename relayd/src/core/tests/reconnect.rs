//! Outage continuity: carried nodes through a lost, a renewed and a returned session.

use super::*;

fn carrying(nodes: u64) -> Script {
    let mut script = Script::registered();
    for socket in 1..=nodes {
        script.carry(socket, &format!("n{socket}"));
    }
    script
}

fn closes(done: &[Did]) -> Vec<Socket> {
    let close = |did: &Did| match did {
        Did::CloseNode(socket) => Some(*socket),
        _ => None,
    };
    done.iter().filter_map(close).collect()
}

/// OUT-05, OUT-09, OUT-11, SES-09: a lost session closes no node; it is dialled again with the backoff.
#[test]
fn nodes_stay_connected_through_an_outage() {
    let mut script = carrying(2);
    let (lines, lost) = logged(|| script.session(session::Event::Closed { connection: 1 }));
    assert_eq!(lost, [Did::Dispatchable(false)]);
    assert_eq!(warnings(&lines).len(), 1, "{lines:?}");
    assert_eq!(script.pass(499 * MS), []);
    assert_eq!(script.pass(MS), [Did::Dial(2)]);
    for (wait, dial) in [(1000, 3), (2000, 4), (4000, 5)] {
        assert_eq!(script.session(session::Event::Closed { connection: dial - 1 }), []);
        assert_eq!(script.pass(wait * MS), [Did::Dial(dial)]);
    }
    assert_eq!(script.core.forwarder.carried(), 2);
}

/// OUT-02, OUT-04, OUT-06, OUT-08, OUT-10, OUT-14: after a reconnect the nodes are asked to register again
/// by closing their sockets, 75 ms apart; each close is logged, and nothing is replayed to anybody.
#[test]
fn a_reconnect_makes_the_nodes_register_again() {
    let mut script = carrying(3);
    let (lines, mut done) = logged(|| {
        let mut done = script.reconnect();
        assert_eq!(closes(&done), [1]);
        for socket in [2, 3] {
            assert_eq!(script.pass(74 * MS), []);
            let due = script.pass(MS);
            assert_eq!(due, [Did::CloseNode(socket)]);
            done.extend(due);
        }
        done
    });
    done.retain(|did| !matches!(did, Did::CloseNode(_) | Did::Keep(_)));
    let [Did::Dispatchable(true), Did::Sent(2, register)] = done.as_slice() else { panic!("{done:?}") };
    assert_eq!(register.method, REGISTER, "REG-02");
    for node in ["n1", "n2", "n3"] {
        let line = format!("node {node} asked to re-register: this relay's Cloudly session changed");
        assert_eq!(lines.iter().filter(|logged| logged.contains(&line)).count(), 1, "{lines:?}");
    }
    script.on(Event::NodeClosed { socket: 1 });
    script.carry(11, "n1");
    script.assert_carried(11, "n1");
}

/// OUT-04, FWD-16: until its turn a node's requests are refused as of an older registration; one that
/// registered again by itself is not closed, and neither is one that is gone.
#[test]
fn a_node_that_registered_again_is_not_closed() {
    let mut script = carrying(4);
    script.reconnect();
    let refusal = Told::Error("runtime-session-foreign: registration".into());
    let told = script.node(3, asked("q", REPORT, &of("n3")));
    assert_eq!(told, [Did::NodeTold(3, "q".into(), refusal)]);
    script.carry(2, "n2");
    script.on(Event::NodeClosed { socket: 4 });
    let mut closed = Vec::new();
    for _ in 0..10 {
        closed.extend(closes(&script.pass(75 * MS)));
    }
    assert_eq!(closed, [3]);
    script.assert_carried(2, "n2");
}

/// OUT-05, OUT-19: a session that is lost half-way stops the closes; they go on once it is dispatchable.
#[test]
fn a_session_lost_half_way_stops_the_closes() {
    let mut script = carrying(3);
    assert_eq!(closes(&script.reconnect()), [1]);
    script.on(Event::NodeClosed { socket: 1 });
    script.session(session::Event::Closed { connection: 2 });
    assert_eq!(closes(&script.pass(900 * MS)), Vec::<Socket>::new());
    script.connection = 3;
    let announced = script.pass(100 * MS);
    assert_eq!(announced, [Did::Dial(3)]);
    assert_eq!(closes(&script.connect()), [2]);
    assert_eq!(closes(&script.pass(75 * MS)), [3]);
}

/// OUT-07: a thousand nodes are asked within five seconds.
#[test]
fn a_thousand_nodes_are_asked_within_five_seconds() {
    let mut script = carrying(1000);
    let mut closed = closes(&script.reconnect());
    let start = script.now.mono;
    while closed.len() < 1000 {
        let due = script.core.next_deadline(script.now).unwrap();
        let next = script.pass(due - script.now.mono);
        closed.extend(closes(&next));
        assert!(script.now.mono - start < 5000 * MS, "{} closed", closed.len());
    }
    closed.dedup();
    assert_eq!(closed.len(), 1000);
}

/// OUT-03, REG-02, SES-08, SES-13: an identity renewed on the unbroken socket closes nobody and is no new
/// session; the relay registers again.
#[test]
fn a_renewed_identity_closes_nobody() {
    let mut script = carrying(2);
    assert_eq!(script.pass(Duration::from_millis(HOUR - 300_000)), [Did::AskIdentity]);
    let announced = script.identity();
    assert_eq!(request(&announced).method, ANNOUNCE);
    let renewed = script.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
    let [Did::Keep(_), Did::Sent(1, sent)] = renewed.as_slice() else { panic!("{renewed:?}") };
    assert_eq!(sent.method, REGISTER);
    assert_eq!(closes(&script.pass(5000 * MS)), Vec::<Socket>::new());
    script.assert_carried(1, "n1");
    script.assert_carried(2, "n2");
}

/// FWD-07: a registration that arrives during the outage goes out on the returned session.
#[test]
fn a_registration_waits_for_the_returned_session() {
    let mut script = Script::registered();
    script.session(session::Event::Closed { connection: 1 });
    assert_eq!(script.node(5, asked("r", NODE_REGISTERS, &node_registration())), []);
    script.connection = 2;
    assert_eq!(script.pass(500 * MS), [Did::Dial(2)]);
    let done = script.connect();
    let registration = done.iter().find_map(|did| match did {
        Did::Sent(2, sent) if sent.method == NODE_REGISTERS => Some(sent.clone()),
        _ => None,
    });
    let told = script.cloudly(answer_to(&registration.unwrap(), ok(&of("n"))));
    assert_eq!(told, [Did::NodeTold(5, "r".into(), Told::Response(of("n")))]);
    assert_eq!(closes(&script.pass(5000 * MS)), Vec::<Socket>::new());
}

/// Refused registrations on these sockets: the session has been away for longer than they wait.
fn turned_away(script: &mut Script, sockets: std::ops::Range<Socket>) {
    for socket in sockets.clone() {
        assert_eq!(script.node(socket, asked("r", NODE_REGISTERS, &node_registration())), []);
    }
    let refusal = Told::Error("relay-session-unavailable: no Cloudly session after waiting 5000 ms".into());
    let told = script.pass(5000 * MS);
    for socket in sockets {
        assert!(told.contains(&Did::NodeTold(socket, "r".into(), refusal.clone())), "{told:?}");
    }
}

/// FWD-10, OUT-06, OUT-07, OUT-09, OUT-10, OUT-11: nodes that could not register during the outage stay connected until
/// the session is back, and are then asked to register at the pace of the others, each once.
#[test]
fn nodes_that_found_no_session_are_asked_to_register_when_it_is_back() {
    let mut script = carrying(2);
    script.session(session::Event::Closed { connection: 1 });
    turned_away(&mut script, 5..8);
    script.connection = 2;
    assert_eq!(closes(&script.pass(60_000 * MS)), Vec::<Socket>::new());
    let (lines, closed) = logged(|| {
        let mut closed = closes(&script.connect());
        assert_eq!(closed, [1]);
        for socket in [2, 5, 6, 7] {
            assert_eq!(closes(&script.pass(74 * MS)), Vec::<Socket>::new());
            assert_eq!(closes(&script.pass(MS)), [socket]);
            closed.push(socket);
        }
        closed
    });
    let asked = |line: &&String| line.contains("that found no Cloudly session") && line.starts_with("DEBUG");
    assert_eq!(lines.iter().filter(asked).count(), 3, "{lines:?}");
    closed.into_iter().for_each(|socket| drop(script.on(Event::NodeClosed { socket })));
    assert_eq!(closes(&script.pass(60_000 * MS)), Vec::<Socket>::new());
    assert_eq!(closes(&script.reconnect()), Vec::<Socket>::new());
    assert_eq!(closes(&script.pass(60_000 * MS)), Vec::<Socket>::new());
}

/// OUT-07, OUT-10: of a thousand such nodes none is closed that is gone, that registered or registers by itself, or on
/// whose socket the ingress is bound; the others fit the window.
#[test]
fn a_node_that_found_no_session_and_came_again_by_itself_is_not_closed() {
    let mut script = Script::registered();
    script.session(session::Event::Closed { connection: 1 });
    turned_away(&mut script, 100..1100);
    script.on(Event::NodeClosed { socket: 1099 });
    // It tries again: the session comes back while it waits.
    assert_eq!(script.node(1098, asked("r", NODE_REGISTERS, &node_registration())), []);
    script.connection = 2;
    script.pass(500 * MS);
    let start = script.now.mono;
    let mut closed = closes(&script.connect());
    script.carry(1097, "n");
    assert!(served(&script.node(1096, asked("r", NODE_REGISTERS, &node_registration())), NODE_REGISTERS));
    let ingress =
        format!(r#"{{"protocol":{OFFER},"authorization":"a","nodeId":"n","ingressInstanceNonce":"x"}}"#);
    let sent = script.node(1095, asked("i", "registerClusterIngress", &ingress));
    let accepted = format!(r#"{{"protocol":{OFFER},"ingress":{{"id":"i","generation":1}}}}"#);
    script.answer(&sent, ok(&accepted));
    while let Some(due) = script.core.continuity.next_deadline() {
        let next = script.pass(due - script.now.mono);
        closed.extend(closes(&next));
        assert!(script.now.mono - start < 5000 * MS, "{} closed", closed.len());
    }
    assert_eq!(closed, (100..1095).collect::<Vec<Socket>>());
}

/// OUT-05, OUT-19: a session that is lost before their turn leaves them waiting for the next.
#[test]
fn a_session_lost_half_way_leaves_those_without_a_registration_for_the_next() {
    let mut script = Script::registered();
    script.session(session::Event::Closed { connection: 1 });
    turned_away(&mut script, 5..8);
    script.connection = 2;
    script.pass(MS);
    assert_eq!(closes(&script.connect()), [5]);
    script.on(Event::NodeClosed { socket: 5 });
    script.session(session::Event::Closed { connection: 2 });
    script.connection = 3;
    assert_eq!(closes(&script.pass(1000 * MS)), Vec::<Socket>::new());
    assert_eq!(closes(&script.connect()), [6]);
    assert_eq!(closes(&script.pass(75 * MS)), [7]);
}
