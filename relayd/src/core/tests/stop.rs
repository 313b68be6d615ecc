//! The end of the relay: what Cloudly still waits for is answered, and the session goes last.

use super::*;

/// START-22: a relay with nothing in flight closes its session and is drained.
#[test]
fn a_stop_closes_the_session() {
    let mut script = Script::registered();
    script.carry(1, "n");
    assert_eq!(script.on(Event::Stop), [Did::Hangup(1), Did::Dispatchable(false), Did::Drained]);
    assert_eq!(script.on(Event::Stop), [], "once");
    assert_eq!(script.session(session::Event::Closed { connection: 1 }), []);
    assert_eq!(script.pass(Duration::from_millis(HOUR)), [], "nothing is dialled again");
}

/// START-24: a stop waits for the pushes in flight; each is answered before the session closes.
#[test]
fn a_stop_waits_for_pushes_in_flight() {
    let mut script = Script::registered();
    script.carry(1, "n");
    script.carry(2, "m");
    let first = script.cloudly(asked("p", APPLY, &of("n")));
    let second = script.cloudly(asked("q", APPLY, &of("m")));
    assert_eq!(script.on(Event::Stop), []);
    let told = script.node(2, answer_to(&request(&second), ok("{}")));
    assert_eq!(told, [Did::Told(1, "q".into(), Told::Response("{}".into()))]);
    let told = script.node(1, answer_to(&request(&first), ok("[1]")));
    let answered = Did::Told(1, "p".into(), Told::Response("[1]".into()));
    assert_eq!(told, [answered, Did::Hangup(1), Did::Dispatchable(false), Did::Drained]);
}

/// START-24, FWD-21: a node that does not answer holds a stop up for 8 s at most.
#[test]
fn a_silent_node_holds_a_stop_up_for_the_push_s_budget() {
    let mut script = Script::registered();
    script.carry(1, "n");
    script.cloudly(asked("p", APPLY, &of("n")));
    script.on(Event::Stop);
    assert_eq!(script.pass(7999 * MS), []);
    let refusal = Told::Error("relay-forward-timeout: applyRuntimeAssignment after 8000 ms".into());
    let drained = [Did::Told(1, "p".into(), refusal), Did::Hangup(1), Did::Dispatchable(false), Did::Drained];
    assert_eq!(script.pass(MS), drained);
}

/// START-24, FWD-25: the end of the node's socket ends the wait.
#[test]
fn a_node_that_goes_ends_the_wait_of_a_stop() {
    let mut script = Script::registered();
    script.carry(1, "n");
    script.cloudly(asked("p", APPLY, &of("n")));
    script.on(Event::Stop);
    let done = script.on(Event::NodeClosed { socket: 1 });
    assert_eq!(done[1..], [Did::Hangup(1), Did::Dispatchable(false), Did::Drained]);
}

/// START-22: a relay that stops asks no further node to register with it, also on a session that returns
/// meanwhile.
#[test]
fn a_stop_ends_the_closes() {
    let mut script = Script::registered();
    for socket in 1..=3 {
        script.carry(socket, &format!("n{socket}"));
    }
    assert!(script.reconnect().contains(&Did::CloseNode(1)));
    script.cloudly(asked("p", APPLY, &of("n3")));
    script.on(Event::Stop);
    assert_eq!(script.pass(1000 * MS), []);
    script.session(session::Event::Closed { connection: 2 });
    script.connection = 3;
    assert_eq!(script.pass(1000 * MS), [Did::Dial(3)]);
    assert!(!script.connect().iter().any(|did| matches!(did, Did::CloseNode(_))));
    assert_eq!(script.pass(1000 * MS), []);
}

/// A relay that never had a session stops at once.
#[test]
fn a_relay_without_a_session_stops_at_once() {
    let mut script = Script::resumed(Kept::default());
    script.session(session::Event::Started);
    assert_eq!(script.on(Event::Stop), [Did::Drained]);
    assert_eq!(script.identity(), [], "an identity that comes too late dials nobody");
}
