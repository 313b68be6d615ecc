//! What the forwarder counts, and the roster that it states.

use coreflow_ipc::messages::{
    Message,
    relayd::FromRelayd,
    standing::{NODES_OF_PAGE, NodeStanding, NodeState, NodesStanding},
};

use super::*;

/// Longer than any budget and any wait.
const LONG: Duration = Duration::from_secs(3600);

/// How far each counter moved in `step`.
fn moved<T>(script: &mut Script, step: impl FnOnce(&mut Script) -> T) -> (Counts, T) {
    let before = script.forwarder.counts();
    let done = step(script);
    let after = script.forwarder.counts();
    let moved = Counts {
        registrations: after.registrations - before.registrations,
        requests: after.requests - before.requests,
        requests_refused: after.requests_refused - before.requests_refused,
        pushes: after.pushes - before.pushes,
        pushes_refused: after.pushes_refused - before.pushes_refused,
    };
    (moved, done)
}

fn none() -> Counts {
    Counts::default()
}

fn request() -> Counts {
    Counts { requests: 1, ..none() }
}

fn request_refused() -> Counts {
    Counts { requests_refused: 1, ..none() }
}

fn push() -> Counts {
    Counts { pushes: 1, ..none() }
}

fn push_refused() -> Counts {
    Counts { pushes_refused: 1, ..none() }
}

#[test]
fn each_request_moves_its_own_counter() {
    let mut script = Script::new();
    let (counts, sent) = moved(&mut script, |script| script.registers(1, "r"));
    assert_eq!(counts, request());
    let (counts, _) = moved(&mut script, |script| script.cloudly(&sent, &ok(&of("n"))));
    assert_eq!(counts, Counts { registrations: 1, ..none() });
    let sent = script.registers(2, "r");
    for told in [refused("not-enrolled"), ok("{}")] {
        let (counts, _) = moved(&mut script, |script| script.cloudly(&sent, &told));
        assert_eq!(counts, none(), "no binding came");
    }

    let (counts, seen) = moved(&mut script, |script| script.ask(1, "q", REPORT, &of("n")));
    assert_eq!(counts, request());
    let (counts, _) = moved(&mut script, |script| script.cloudly(&one(seen), &refused("x")));
    assert_eq!(counts, none(), "Cloudly refused it, not the relay");

    for (socket, method, body) in [
        (9, REPORT, of("n")),
        (1, "unknown", of("n")),
        (1, crate::routes::HOLD, of("n")),
        (3, REGISTER, "{}".into()),
    ] {
        let (counts, _) = moved(&mut script, |script| script.ask(socket, "q", method, &body));
        assert_eq!(counts, request_refused(), "{socket} {method}");
    }

    script.ask(1, "q", REPORT, &of("n"));
    let (counts, _) = moved(&mut script, |script| script.pass(LONG));
    assert_eq!(counts, request_refused(), "it was out of time");
    script.ask(1, "q", REPORT, &of("n"));
    let (counts, _) = moved(&mut script, |script| script.on(Event::Closed { socket: 1 }));
    assert_eq!(counts, none(), "nobody is answered");
}

/// A registration that waits again after a lost session was handed to Cloudly once; one that no session came
/// for was not.
#[test]
fn a_registration_that_waits_counts_once() {
    let mut script = Script::without_session();
    let (counts, _) = moved(&mut script, |script| script.ask(1, "r", REGISTER, &registration()));
    assert_eq!(counts, none());
    for (event, expected) in [
        (Event::SessionUp { count: 1 }, request()),
        (Event::SessionDown, none()),
        (Event::SessionUp { count: 2 }, none()),
        (Event::SessionDown, none()),
    ] {
        assert_eq!(moved(&mut script, |script| script.on(event)).0, expected);
    }
    let (counts, _) = moved(&mut script, |script| script.pass(LONG));
    assert_eq!(counts, request_refused());

    script.up(3);
    script.carry(1, "n");
    script.ask(1, "q", REPORT, &of("n"));
    let (counts, _) = moved(&mut script, |script| script.on(Event::SessionDown));
    assert_eq!(counts, request_refused(), "anything else is refused at once");
    let (counts, _) = moved(&mut script, |script| script.ask(2, "r", REGISTER, &registration()));
    assert_eq!(counts, none());
    let (counts, _) = moved(&mut script, |script| script.pass(LONG));
    assert_eq!(counts, request_refused());
}

#[test]
fn each_push_moves_its_own_counter() {
    let mut script = Script::new();
    script.carry(1, "n");
    for told in [ok("{}"), refused("projection-stale")] {
        let (counts, seen) = moved(&mut script, |script| script.push(1, "p", APPLY, &of("n")));
        assert_eq!(counts, push());
        let (counts, _) = moved(&mut script, |script| script.node(1, &one(seen), &told));
        assert_eq!(counts, none(), "the node answered");
    }
    for body in [of("m"), "{}".to_owned()] {
        let (counts, _) = moved(&mut script, |script| script.push(1, "p", APPLY, &body));
        assert_eq!(counts, push_refused());
    }
    script.push(1, "p", APPLY, &of("n"));
    let (counts, _) = moved(&mut script, |script| script.pass(LONG));
    assert_eq!(counts, push_refused(), "it was out of time");
    script.push(1, "p", APPLY, &of("n"));
    let (counts, _) = moved(&mut script, |script| script.on(Event::Closed { socket: 1 }));
    assert_eq!(counts, push_refused(), "the node is gone");
}

#[test]
fn what_waits_is_stated() {
    let mut script = Script::new();
    script.carry(1, "n");
    script.carry(2, "m");
    assert_eq!(script.forwarder.standing(), NodesStanding { carried: 2, ..NodesStanding::default() });
    script.ask(1, "q", REPORT, &of("n"));
    script.registers(3, "r");
    script.push(1, "p", APPLY, &of("n"));
    let waits = NodesStanding { carried: 2, requests: 2, pushes: 1, ..NodesStanding::default() };
    assert_eq!(script.forwarder.standing(), waits);
    script.on(Event::SessionDown);
    // The registration waits for a session.
    assert_eq!(script.forwarder.standing(), NodesStanding { requests: 1, ..waits.clone() });
    script.up(2);
    assert_eq!(script.forwarder.standing(), NodesStanding { awaiting: 2, requests: 1, ..waits });
}

fn states(script: &Script) -> Vec<(String, NodeState)> {
    let page = script.forwarder.page(None);
    page.nodes.into_iter().map(|NodeStanding { id, state }| (id, state)).collect()
}

/// XTR-20: a node is stated by its id and whether it is registered, carried without a session, or awaiting its
/// registration on a new one; and nothing else is.
#[test]
fn a_node_is_stated_by_its_id_and_its_state() {
    use NodeState::{AwaitingRegistration, Carried, Registered};
    let of_both = |m, n| vec![("m".to_owned(), m), ("n".to_owned(), n)];
    let mut script = Script::new();
    script.carry(1, "n");
    script.carry(2, "m");
    assert_eq!(states(&script), of_both(Registered, Registered));
    script.on(Event::SessionDown);
    assert_eq!(states(&script), of_both(Carried, Carried));
    script.up(2);
    assert_eq!(states(&script), of_both(AwaitingRegistration, AwaitingRegistration));
    script.carry(1, "n");
    assert_eq!(states(&script), of_both(AwaitingRegistration, Registered));
    script.on(Event::SessionDown);
    assert_eq!(states(&script), of_both(AwaitingRegistration, Carried));
    let page = serde_json::to_string(&script.forwarder.page(None)).unwrap();
    let expected =
        r#"{"nodes":[{"id":"m","state":"awaitingRegistration"},{"id":"n","state":"carried"}],"more":false}"#;
    assert_eq!(page, expected);
    script.on(Event::Closed { socket: 2 });
    assert_eq!(states(&script), [("n".to_owned(), Carried)]);
}

/// XTR-20: the pages are by id, whoever comes and goes between them, and each fits the link with ids of any
/// length.
#[test]
fn the_roster_is_read_by_pages() {
    let most = u64::try_from(NODES_OF_PAGE).unwrap();
    let name = |number: u64| format!("{number:0>128}");
    let mut script = Script::new();
    for number in (0..2 * most + 5).rev() {
        let body = format!(r#"{{"session":{}}}"#, binding("s", &name(number), "c", 1));
        script.carry_as(number, &body, &name(number));
    }
    let (mut after, mut read) = (None, Vec::new());
    for (length, more) in [(NODES_OF_PAGE, true), (NODES_OF_PAGE, true), (5, false)] {
        let page = script.forwarder.page(after.as_deref());
        assert_eq!((page.nodes.len(), page.more), (length, more));
        read.extend(page.nodes.iter().map(|node| node.id.clone()));
        after = read.last().cloned();
        // The node that the next page follows is gone by then.
        script.on(Event::Closed { socket: u64::try_from(read.len()).unwrap() - 1 });
        let mut frame = Vec::new();
        assert_eq!(FromRelayd::AnswerNodes { id: u64::MAX, page }.append(&mut frame), Ok(()));
        assert!(frame.len() < FromRelayd::LIMIT);
    }
    assert_eq!(read, (0..2 * most + 5).map(name).collect::<Vec<_>>());
    let page = script.forwarder.page(Some("~ no id"));
    assert_eq!((page.nodes.len(), page.more), (0, false));
    assert_eq!(script.forwarder.page(Some("")).nodes.len(), NODES_OF_PAGE);
}
