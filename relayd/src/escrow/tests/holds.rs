//! Custody and precedence: which run is held, for whom, and which hold is refused.

use super::*;
use crate::constants::{ESCROW_HOLD_BYTES, NODE_SOCKETS};

const INVALID: &str = "escrow-run-invalid: ";

fn held(count: u64) -> Result<String, String> {
    Ok(format!(r#"{{"held":{count}}}"#))
}

fn refused(name: &str) -> Result<String, String> {
    Err(name.to_owned())
}

fn standing() -> Script {
    let mut script = Script::new();
    script.carry(1, "n");
    script
}

fn body(generation: u64, first: u64, count: u64) -> String {
    let projection = projection("p", generation);
    hold_body(&binding("n", "s"), &projection, &grid("n", &projection, first, count))
}

/// ESC-03, ESC-04: a run is held, and its hold is told how many renewals that are.
#[test]
fn a_hold_is_answered_with_the_number_of_renewals_held() {
    let mut script = standing();
    assert_eq!(script.holds(&body(3, 0, 5)), held(5));
    assert_eq!(script.escrow.held(), 1);
    assert_eq!(script.holds(&body(3, 1, 32)), Err(format!("{INVALID}renewals[22].expiresAt")));
    assert_eq!(script.escrow.held(), 1, "a refused hold leaves what is held");
}

/// What became of a hold is said by the node and the refusal's name.
#[test]
fn what_became_of_a_hold_is_said() {
    let mut script = standing();
    let node = id("n");
    let said = |script: &mut Script, body: &str| {
        script.arrives("h", body);
        notes(script.on(Event::Tick))
    };
    assert_eq!(said(&mut script, &body(3, 0, 2)), [Note::Held { node: node.clone(), held: 2 }]);
    let stale = Note::HoldRefused { node: Some(node), refusal: "escrow-run-stale", path: None };
    assert_eq!(said(&mut script, &body(2, 0, 2)), [stale]);
    let invalid =
        Note::HoldRefused { node: None, refusal: "escrow-run-invalid", path: Some("session".into()) };
    assert_eq!(said(&mut script, "{}"), [invalid]);
}

/// ESC-01: at most one run per node.
#[test]
fn a_node_has_at_most_one_run() {
    let mut script = standing();
    script.carry(2, "m");
    for first in 0..4 {
        script.holds_grid("n", first, 4);
        script.holds_grid("m", first, 4);
        assert_eq!(script.escrow.held(), 2);
    }
}

/// ESC-01: runs of nodes that are gone make room once there are as many as nodes can be carried.
#[test]
fn no_more_runs_are_held_than_nodes_can_be_carried() {
    let mut script = Script::new();
    let node = |number: usize| format!("n{number}");
    for number in 0..NODE_SOCKETS {
        script.carry(1, &node(number));
        script.holds_grid(&node(number), 0, 1);
        if number >= 3 {
            script.roster.0.remove(&id(&node(number)));
        }
    }
    assert_eq!(script.escrow.held(), NODE_SOCKETS);
    script.carry(1, "another");
    script.holds_grid("another", 0, 1);
    assert_eq!(script.escrow.held(), 4, "three that are carried, and another");
}

/// ESC-08, ESC-09, ESC-10: a hold that is not valid is refused with the path of what is not.
#[test]
fn a_hold_that_is_not_valid_is_refused_with_its_path() {
    let mut script = standing();
    let many: Vec<String> = (0..33)
        .map(|index| renewal("n", &projection("p", 3), index, (START + index, START + index + 1)))
        .collect();
    let of = |renewals: &[String]| hold_body(&binding("n", "s"), &projection("p", 3), renewals);
    assert_eq!(script.holds(&of(&many)), Err(format!("{INVALID}renewals")));
    assert_eq!(script.holds(&of(&many[..32])), held(32));
    let horizon = START + 240 * MIN;
    let late = |end| renewal("n", &projection("p", 3), 50, (horizon - 10 * MIN, end));
    assert_eq!(script.holds(&of(&[late(horizon + 1)])), Err(format!("{INVALID}renewals[0].expiresAt")));
    assert_eq!(script.holds(&of(&[late(horizon)])), held(1));
    assert_eq!(script.holds("{}"), Err(format!("{INVALID}session")));
    let padded = |bytes: usize| {
        let text = of(&[late(horizon)]);
        let spaces = " ".repeat(bytes - text.len());
        text + &spaces
    };
    assert_eq!(script.holds(&padded(ESCROW_HOLD_BYTES)), held(1));
    let over = Seen::Told(1, "o".into(), Err(format!("{INVALID}renewals")));
    assert_eq!(script.arrives("o", &padded(ESCROW_HOLD_BYTES + 1))[0], over);
    let long =
        of(&[renewal("n", &projection("p", 3), 60, window(0)).replace("c2lnbmVk", &"QUJD".repeat(20_000))]);
    assert_eq!(
        script.arrives("l", &long)[0],
        Seen::Told(1, "l".into(), Err(format!("{INVALID}renewals"))),
        "what no run can need is refused unread"
    );
}

/// ESC-08, ESC-11: validity is judged before anything else.
#[test]
fn a_hold_of_a_node_that_is_not_carried_is_refused() {
    let mut script = Script::new();
    assert_eq!(script.holds("{}"), Err(format!("{INVALID}session")));
    assert_eq!(script.holds(&body(3, 0, 1)), refused("escrow-node-not-carried"));
    script.carry(1, "n");
    assert_eq!(script.holds(&body(3, 0, 1)), held(1));
}

/// ESC-11, ESC-12: the node has to be carried at both reads.
#[test]
fn a_node_that_comes_or_goes_during_the_validation_is_not_carried() {
    let mut script = Script::new();
    let tell = |script: &mut Script| script.on(Event::Tick).swap_remove(0);
    let told = Seen::Told(1, "h".into(), refused("escrow-node-not-carried"));
    script.arrives("h", &body(3, 0, 1));
    script.carry(1, "n");
    assert_eq!(tell(&mut script), told, "it was not carried when the hold arrived");
    script.arrives("h", &body(3, 0, 1));
    script.roster.0.clear();
    script.on(Event::Gone { node: id("n") });
    assert_eq!(tell(&mut script), told, "it is gone when the hold is valid");
}

/// ESC-12, ESC-13, ESC-14: the session is read on arrival and after validation, and has to be the same.
#[test]
fn another_session_between_the_two_reads_refuses_the_hold() {
    let other_cluster = Binding { cluster_id: id("d"), ..binding("n", "s") };
    let other_generation: Binding =
        serde_json::from_str(r#"{"sessionId":"s","nodeId":"n","clusterId":"c","generation":2}"#).unwrap();
    for other in [binding("n", "t"), other_cluster, other_generation] {
        let projection = projection("p", 3);
        // Whichever of both the hold names, the two reads differ.
        for session in [binding("n", "s"), other.clone()] {
            let mut script = standing();
            let renewals = [renewal("n", &projection, 0, window(0))
                .replace(r#""clusterId":"c""#, &format!(r#""clusterId":"{}""#, session.cluster_id))];
            script.arrives("h", &hold_body(&session, &projection, &renewals));
            script.registers(1, other.clone());
            let told = Seen::Told(1, "h".into(), refused("escrow-run-foreign-session"));
            assert_eq!(script.on(Event::Tick)[0], told);
        }
    }
    let mut script = standing();
    script.arrives("h", &body(3, 0, 1));
    assert_eq!(script.registers(2, binding("n", "s")), [], "the same binding on another socket");
    assert_eq!(script.on(Event::Tick)[0], Seen::Told(1, "h".into(), held(1)));
}

/// ESC-15: a run of another session, node or cluster than the session's is refused.
#[test]
fn a_run_outside_the_scope_of_the_session_is_refused() {
    let mut script = standing();
    let projection = projection("p", 3);
    let foreign = refused("escrow-run-foreign-session");
    let two = |second: String| [renewal("n", &projection, 0, window(0)), second];
    let session = binding("n", "s");
    let second = renewal("n", &projection, 1, window(1));
    let of_node = two(renewal("m", &projection, 1, window(1)));
    assert_eq!(script.holds(&hold_body(&session, &projection, &of_node)), foreign);
    let of_cluster = two(second.replace(r#""clusterId":"c""#, r#""clusterId":"d""#));
    assert_eq!(script.holds(&hold_body(&session, &projection, &of_cluster)), foreign);
    assert_eq!(script.holds(&hold_body(&binding("n", "t"), &projection, &two(second.clone()))), foreign);
    assert_eq!(script.holds(&hold_body(&session, &projection, &two(second))), held(2));
}

/// ESC-17: holds are applied in the order of their arrival, also when more arrive than may wait.
#[test]
fn holds_are_applied_one_at_a_time_in_their_order() {
    let mut script = standing();
    let mut told = Vec::new();
    let count = 2 * u64::try_from(ESCROW_HOLDS).unwrap() + 3;
    for number in 0..count {
        // Each replaces the one before only if it is applied after it.
        let first = number / 10;
        told.extend(script.arrives(&format!("h{number}"), &body(number + 1, first, 2)));
        assert!(number >= u64::try_from(ESCROW_HOLDS).unwrap() || told.is_empty(), "there is room to wait");
        assert!(script.escrow.arrived.len() <= ESCROW_HOLDS);
    }
    told.extend(script.on(Event::Tick));
    let order: Vec<String> = told
        .iter()
        .filter_map(|seen| match seen {
            Seen::Told(1, id, Ok(_)) => Some(id.clone()),
            Seen::Told(..) | Seen::Offered(_) | Seen::Note(_) => None,
        })
        .collect();
    assert_eq!(order, (0..count).map(|number| format!("h{number}")).collect::<Vec<_>>());
    assert_eq!(script.holds(&body(count - 1, 20, 2)), refused("escrow-run-stale"));
}

/// ESC-16, ESC-18, ESC-19: a later generation of the projection replaces, an earlier one is refused.
#[test]
fn the_generation_of_the_projection_decides_first() {
    let mut script = standing();
    assert_eq!(script.holds(&body(3, 5, 2)), held(2));
    assert_eq!(script.holds(&body(4, 0, 1)), held(1), "a later generation, whatever its sequences");
    assert_eq!(script.holds(&body(3, 9, 2)), refused("escrow-run-stale"));
    assert_eq!(script.holds(&body(3, 9, 0)), refused("escrow-run-stale"), "an empty one too");
    assert_eq!(script.escrow.held(), 1);
}

/// ESC-16, ESC-20, ESC-21: for one projection the last sequence decides, and an equal one replaces.
#[test]
fn the_last_sequence_decides_for_one_projection() {
    let mut script = standing();
    assert_eq!(script.holds(&body(3, 0, 5)), held(5));
    assert_eq!(script.holds(&body(3, 0, 4)), refused("escrow-run-stale"));
    assert_eq!(script.holds(&body(3, 4, 1)), held(1), "the last one is equal");
    assert_eq!(script.holds(&body(3, 4, 2)), held(2));
    assert_eq!(script.escrow.held(), 1);
}

/// ESC-22: an empty run for the same or a later projection gives custody up.
#[test]
fn an_empty_run_gives_custody_up() {
    for generation in [3, 4] {
        let mut script = standing();
        assert_eq!(script.holds(&body(3, 0, 5)), held(5));
        assert_eq!(script.holds(&body(generation, 0, 0)), held(0));
        assert_eq!(script.escrow.held(), 0);
        assert_eq!(offers(&script.on(Event::SessionDown)), []);
    }
    assert_eq!(standing().holds(&body(3, 0, 0)), held(0), "also where nothing is held");
}

/// ESC-18, ESC-19, ESC-22: an empty run leaves its projection behind: no earlier generation is held afterwards in that
/// session, and every other one is.
#[test]
fn no_earlier_generation_is_held_after_an_empty_run() {
    let digest = |text: String| text.replace("sha256:0", "sha256:f");
    let mut script = standing();
    assert_eq!(script.holds(&body(3, 0, 3)), held(3));
    assert_eq!(script.holds(&body(4, 0, 0)), held(0));
    assert_eq!(script.holds(&body(3, 0, 3)), refused("escrow-run-stale"));
    assert_eq!(script.holds(&digest(body(4, 0, 3))), refused("escrow-run-unordered"));
    assert_eq!(
        script.holds(&body(3, 0, 0)),
        held(0),
        "there is nothing to give up, and nothing is forgotten"
    );
    assert_eq!(script.holds(&body(3, 0, 3)), refused("escrow-run-stale"));
    assert_eq!(script.escrow.held(), 0);
    for later in [body(4, 0, 3), body(5, 0, 3)] {
        assert_eq!(script.holds(&later), held(3));
    }
    assert_eq!(script.holds(&body(5, 0, 0)), held(0));
    let another = body(1, 0, 3).replace(r#""id":"p""#, r#""id":"q""#);
    assert_eq!(script.holds(&another), held(3), "of another projection nothing was given up");
    script.registers(1, binding("n", "t"));
    let other = body(3, 0, 2).replace(r#""sessionId":"s""#, r#""sessionId":"t""#);
    assert_eq!(script.holds(&other), held(2), "nor in another session");
}

/// ESC-04, ESC-22: where nothing is held an empty run is accepted whatever the node acknowledged; where a run is held
/// it is ordered against that.
#[test]
fn an_empty_run_with_nothing_to_give_up_is_accepted() {
    let mut script = standing();
    assert_eq!(script.has(binding("n", "s"), &projection("p", 4)), []);
    let another = |count| body(9, 0, count).replace(r#""id":"p""#, r#""id":"q""#);
    assert_eq!((script.holds(&body(3, 0, 0)), script.holds(&another(0))), (held(0), held(0)));
    assert_eq!(script.holds(&body(3, 0, 2)), refused("escrow-run-stale"), "what the node has still counts");
    assert_eq!(script.holds(&another(2)), refused("escrow-run-unordered"));
    assert_eq!(script.holds(&body(4, 0, 2)), held(2));
    assert_eq!(script.holds(&body(3, 0, 0)), refused("escrow-run-stale"));
    assert_eq!(script.holds(&another(0)), refused("escrow-run-unordered"));
    assert_eq!(script.escrow.held(), 1);
}

/// ESC-11, ESC-22: an empty run for a node that is not carried is refused, and yet its run is not kept for the node's
/// return; another session's empty run, an earlier generation's or another projection's changes nothing.
#[test]
fn an_empty_run_for_an_absent_node_drops_what_is_held() {
    let other_session = body(3, 0, 0).replace(r#""sessionId":"s""#, r#""sessionId":"t""#);
    let another = body(9, 0, 0).replace(r#""id":"p""#, r#""id":"q""#);
    for (empty, drops) in [
        (body(3, 0, 0), true),
        (body(4, 0, 0), true),
        (body(2, 0, 0), false),
        (body(4, 0, 3), false),
        (other_session, false),
        (another, false),
    ] {
        let mut script = standing();
        assert_eq!(script.holds(&body(3, 0, 5)), held(5));
        script.roster.0.clear();
        script.on(Event::Gone { node: id("n") });
        assert_eq!(script.arrives("h", &empty), []);
        let (node, refusal) = (Some(id("n")), "escrow-node-not-carried");
        let mut expected = vec![
            Seen::Told(1, "h".into(), refused(refusal)),
            Seen::Note(Note::HoldRefused { node, refusal, path: None }),
        ];
        if drops {
            expected.push(Seen::Note(Note::Dropped { node: id("n"), why: Dropped::GivenUp }));
        }
        assert_eq!(script.on(Event::Tick), expected, "{empty}");
        assert_eq!(script.escrow.held(), usize::from(!drops), "{empty}");
    }
}

/// ESC-08, ESC-10: the log says of which node a run was invalid, where the hold names one, and where; a clock that is
/// behind puts the end of a whole run beyond the horizon.
#[test]
fn an_invalid_run_is_logged_with_its_node_and_path() {
    let mut script = standing();
    let noted = |seen: Vec<Seen>| notes(seen).remove(0);
    let refusal = "escrow-run-invalid";
    let note = |node, path: &str| Note::HoldRefused { node, refusal, path: Some(path.to_owned()) };
    script.set_wall(0);
    script.arrives("h", &body(3, 0, 24));
    assert_eq!(noted(script.on(Event::Tick)), note(Some(id("n")), "renewals[23].expiresAt"));
    script.arrives("h", "{}");
    assert_eq!(noted(script.on(Event::Tick)), note(None, "session"));
    let long = body(3, 0, 1).replace("c2lnbmVk", &"QUJD".repeat(20_000));
    assert_eq!(noted(script.arrives("h", &long)), note(Some(id("n")), "renewals"));
}

/// ESC-23, ESC-24: what cannot be ordered is refused rather than guessed, an empty run too.
#[test]
fn projections_that_cannot_be_ordered_are_refused() {
    let mut script = standing();
    assert_eq!(script.holds(&body(3, 0, 2)), held(2));
    let digest = |text: String| text.replace("sha256:0", "sha256:f");
    let name = |text: String| text.replace(r#""id":"p""#, r#""id":"q""#);
    for other in [
        name(body(3, 0, 3)),
        name(body(9, 0, 3)),
        name(body(4, 0, 0)),
        digest(body(3, 0, 3)),
        digest(body(3, 0, 0)),
    ] {
        assert_eq!(script.holds(&other), refused("escrow-run-unordered"), "{other}");
    }
    assert_eq!(script.holds(&digest(body(4, 0, 3))), held(3), "another generation has another digest");
}

/// ESC-48: no run is taken for a projection that the node replaced in this session.
#[test]
fn a_hold_of_a_projection_that_the_node_replaced_is_refused() {
    let mut script = standing();
    let acknowledge = |script: &mut Script, text: String| {
        assert_eq!(script.has(binding("n", "s"), &text), []);
    };
    acknowledge(&mut script, projection("p", 4));
    acknowledge(&mut script, projection("p", 3));
    assert_eq!(script.holds(&body(3, 0, 2)), refused("escrow-run-stale"));
    assert_eq!(script.holds(&body(4, 0, 2)), held(2));
    assert_eq!(script.holds(&body(5, 0, 2)), held(2), "the node has not left it yet");
    script.registers(1, binding("n", "t"));
    let other = body(3, 0, 2).replace(r#""sessionId":"s""#, r#""sessionId":"t""#);
    assert_eq!(script.holds(&other), held(2), "another session says anew what the node has");
}
