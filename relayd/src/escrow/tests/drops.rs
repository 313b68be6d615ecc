//! What ends custody of a run, and what does not.

use super::*;

/// Node `n` is carried on socket 1 and has a run of five windows.
fn holding() -> Script {
    let mut script = Script::new();
    script.carry(1, "n");
    script.holds_grid("n", 0, 5);
    script
}

fn dropped(why: Dropped) -> [Seen; 1] {
    [Seen::Note(Note::Dropped { node: id("n"), why })]
}

fn assert_still_held(script: &mut Script) {
    assert_eq!(script.escrow.held(), 1);
    script.set_wall(MIN);
    assert_eq!(offers(&script.on(Event::SessionDown)), [(1, 0)]);
}

/// ESC-46: another session of the node drops its run, and no other node's.
#[test]
fn another_session_drops_the_run() {
    let cluster = Binding { cluster_id: id("d"), ..binding("n", "s") };
    for other in [binding("n", "t"), cluster] {
        let mut script = holding();
        script.carry(2, "m");
        script.holds_grid("m", 0, 5);
        assert_eq!(script.registers(1, other), dropped(Dropped::OtherSession));
        script.set_wall(MIN);
        assert_eq!(offers(&script.on(Event::SessionDown)), [(2, 0)]);
    }
}

/// ESC-46: the binding that the forwarder states decides, whichever event comes first.
#[test]
fn a_run_of_another_session_is_never_offered() {
    let mut script = holding();
    script.set_wall(MIN);
    script.roster.0.insert(id("n"), (binding("n", "t"), 1));
    assert_eq!(script.on(Event::SessionDown), dropped(Dropped::OtherSession));
}

/// ESC-47: a registration that is answered with the same binding keeps the run, on whichever socket.
#[test]
fn the_same_binding_keeps_the_run() {
    let mut script = holding();
    script.roster.0.clear();
    assert_eq!(script.on(Event::Gone { node: id("n") }), []);
    assert_eq!(script.registers(7, binding("n", "s")), []);
    script.set_wall(MIN);
    assert_eq!(offers(&script.on(Event::SessionDown)), [(7, 0)]);
}

/// ESC-48, ESC-49, FWD-33: an acknowledged projection retires the renewals of one that it replaces.
#[test]
fn an_acknowledged_projection_retires_what_it_replaces() {
    let digest = projection("p", 3).replace("sha256:0", "sha256:f");
    for (acknowledged, keeps) in [
        (projection("p", 3), true),
        (projection("p", 2), true),
        (projection("p", 4), false),
        (digest, false),
        (projection("q", 3), false),
        (projection("q", 2), false),
    ] {
        let mut script = holding();
        let led = script.has(binding("n", "s"), &acknowledged);
        if keeps {
            assert_eq!(led, [], "{acknowledged}");
            assert_still_held(&mut script);
        } else {
            assert_eq!(led, dropped(Dropped::ProjectionReplaced), "{acknowledged}");
        }
    }
}

/// ESC-39, ESC-48: a run that is dropped in an outage takes its offer and its timer along.
#[test]
fn a_run_that_is_dropped_in_an_outage_leaves_no_timer() {
    let mut script = holding();
    script.set_wall(MIN);
    let offered = offer(&script.on(Event::SessionDown));
    assert!(script.escrow.next_deadline(script.now).is_some());
    let projection = read_projection(&projection("p", 4));
    let led = script.on(Event::Acknowledged { session: binding("n", "s"), projection });
    assert_eq!(led, dropped(Dropped::ProjectionReplaced));
    assert_eq!(script.escrow.next_deadline(script.now), None);
    assert_eq!(script.acknowledges(&offered), [], "what the node says to it is of no account");
}

/// ESC-48: the acknowledgement of one node is nothing to another's run.
#[test]
fn an_acknowledgement_concerns_its_node_alone() {
    let mut script = holding();
    script.carry(2, "m");
    assert_eq!(script.has(binding("m", "s"), &projection("p", 9)), []);
    assert_still_held(&mut script);
}

/// FWD-33, ESC-48: what a node acknowledges late in a session that it has no more drops no run of the one that it
/// has, and refuses none; nor does what it acknowledged before it was gone.
#[test]
fn an_acknowledgement_of_another_session_concerns_nothing_of_this_one() {
    let cluster = Binding { cluster_id: id("d"), ..binding("n", "s") };
    for former in [binding("n", "r"), cluster] {
        let mut script = holding();
        assert_eq!(script.has(former, &projection("q", 9)), []);
        script.holds_grid("n", 0, 5);
        assert_still_held(&mut script);
    }
    let mut script = holding();
    script.roster.0.clear();
    script.on(Event::Gone { node: id("n") });
    assert_eq!(script.has(binding("n", "s"), &projection("q", 9)), []);
    script.carry(1, "n");
    assert_still_held(&mut script);
}

const ENDING: [&str; 5] = [
    "relay-cluster-not-enabled",
    "relay-node-foreign",
    "relay-node-unknown",
    "relay-sequence-not-advancing",
    "relay-credential-generation-stale",
];

/// ESC-50, ESC-51: each of the five refusals drops every run, with or without its reason.
#[test]
fn the_refusals_that_state_another_relay_drop_every_run() {
    for name in ENDING {
        for text in [name.to_owned(), format!("{name}: said Cloudly: so")] {
            let mut script = holding();
            script.carry(2, "m");
            script.holds_grid("m", 0, 5);
            let ended = Note::CustodyEnded { runs: 2, why: name };
            assert_eq!(script.on(Event::RegistrationRefused { text }), [Seen::Note(ended)]);
            let again = Event::RegistrationRefused { text: name.to_owned() };
            assert_eq!(script.on(again), [], "there is nothing left to drop");
            script.set_wall(MIN);
            assert_eq!((script.escrow.held(), script.on(Event::SessionDown)), (0, Vec::new()));
        }
    }
}

/// ESC-51, ESC-52, ESC-55, ESC-56, ESC-61: every other answer keeps custody, also one that contains such a name.
#[test]
fn every_other_answer_keeps_custody() {
    let contained = ENDING.iter().flat_map(|name| {
        [
            format!("Error: {name}"),
            format!("{name} "),
            format!("{name}:{name}"),
            format!("{name}x"),
            format!("x{name}: y"),
            name.to_uppercase(),
        ]
    });
    let others = [
        "relay-identity-unverified",
        "relay-identity-unverified: it could not be read",
        "Internal server error",
        "There is no available method for this call on the server side",
        "registration-invalid: relay.version",
        "registration-conflict",
        "protocol-refused: cluster-relay-registration",
        "",
    ];
    for text in contained.chain(others.map(str::to_owned)) {
        let mut script = holding();
        assert_eq!(script.on(Event::RegistrationRefused { text: text.clone() }), [], "{text}");
        assert_still_held(&mut script);
    }
}

/// ESC-53: after one of the first four, runs are held again once a registration was accepted.
#[test]
fn an_acceptance_lets_the_relay_hold_runs_again() {
    for name in &ENDING[..4] {
        let mut script = holding();
        let p = projection("p", 3);
        let body = hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 5));
        script.arrives("waits", &body);
        let led = script.on(Event::RegistrationRefused { text: (*name).to_owned() });
        assert_eq!(led[0], Seen::Told(1, "waits".into(), Err((*name).to_owned())), "no run outlives it");
        assert_eq!(script.holds(&body), Err((*name).to_owned()));
        assert_eq!(script.on(Event::RegistrationAccepted), []);
        assert_eq!(script.holds(&body), Ok(r#"{"held":5}"#.to_owned()));
    }
}

/// ESC-48, ESC-53: what a node acknowledged before or while nothing was held counts when runs are held again.
#[test]
fn what_a_node_replaced_is_known_beyond_the_end_of_custody() {
    for before in [true, false] {
        let mut script = holding();
        let end = Event::RegistrationRefused { text: ENDING[0].to_owned() };
        let acknowledged = Event::Acknowledged {
            session: binding("n", "s"),
            projection: read_projection(&projection("p", 4)),
        };
        let events = if before { [acknowledged, end] } else { [end, acknowledged] };
        for event in events {
            script.on(event);
        }
        script.on(Event::RegistrationAccepted);
        let of = |generation| {
            let p = projection("p", generation);
            hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 5))
        };
        assert_eq!(script.holds(&of(3)), Err("escrow-run-stale".to_owned()));
        assert_eq!(script.holds(&of(4)), Ok(r#"{"held":5}"#.to_owned()));
    }
}

/// What is kept of nodes that are gone does not pile up.
#[test]
fn nothing_that_a_node_acknowledged_outlasts_its_socket() {
    let mut script = Script::new();
    script.carry(1, "n");
    let acknowledged = || Event::Acknowledged {
        session: binding("n", "s"),
        projection: read_projection(&projection("p", 4)),
    };
    script.on(acknowledged());
    assert_eq!(script.escrow.known.len(), 1);
    script.roster.0.clear();
    script.on(Event::Gone { node: id("n") });
    script.on(acknowledged());
    assert!(script.escrow.known.len() == 0);
}

/// ESC-54, ESC-59: a superseded credential drops every run, and nothing is held again in this process.
#[test]
fn nothing_is_held_again_once_the_relay_is_parked() {
    let stale = || Event::RegistrationRefused { text: ENDING[4].to_owned() };
    for event in [stale(), Event::Parked] {
        let mut script = holding();
        let ended = Note::CustodyEnded { runs: 1, why: ENDING[4] };
        assert_eq!(script.on(event), [Seen::Note(ended)]);
        script.on(Event::RegistrationRefused { text: ENDING[0].to_owned() });
        script.on(Event::RegistrationAccepted);
        let p = projection("p", 3);
        let body = hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 5));
        assert_eq!(script.holds(&body), Err(ENDING[4].to_owned()));
        assert_eq!(script.escrow.held(), 0);
    }
}

/// ESC-57: a run whose last window has ended is dropped at the release that finds it.
#[test]
fn a_run_is_dropped_when_its_last_window_has_ended() {
    for ms in [55 * MIN, 55 * MIN + 1, 600 * MIN] {
        let mut script = holding();
        script.set_wall(ms);
        assert_eq!(script.on(Event::SessionDown), dropped(Dropped::Ended));
    }
    let mut script = holding();
    script.set_wall(55 * MIN - 1);
    let offered = offer(&script.on(Event::SessionDown));
    assert_eq!((offered.sequence(), script.escrow.held()), (4, 1));
    script.acknowledges(&offered);
    assert_eq!(script.pass(Duration::from_millis(1)), dropped(Dropped::Ended), "in the moment of its end");
    assert_eq!(script.escrow.next_deadline(script.now), None);
}

/// ESC-01, ESC-57: the ended run of a node that is gone is forgotten while the session stands.
#[test]
fn an_ended_run_of_a_node_that_is_gone_is_forgotten() {
    let mut script = holding();
    script.roster.0.clear();
    script.on(Event::Gone { node: id("n") });
    assert_eq!(script.pass(54 * 60 * S), []);
    assert_eq!(script.pass(60 * S), dropped(Dropped::Ended));
}

/// ESC-39, ESC-58: a stop drops every run, ends its offers and leaves no timer; holds are served no more.
#[test]
fn a_stop_drops_every_run_and_clears_the_timer() {
    for outage in [false, true] {
        let mut script = holding();
        script.set_wall(MIN);
        if outage {
            assert_eq!(offers(&script.on(Event::SessionDown)), [(1, 0)]);
        }
        let p = projection("p", 3);
        let body = hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 5));
        script.arrives("waits", &body);
        let led = script.on(Event::Stop);
        let unknown = || Err(UNKNOWN_METHOD.to_owned());
        assert_eq!(led[0], Seen::Told(1, "waits".into(), unknown()));
        assert_eq!(led[1..], [Seen::Note(Note::CustodyEnded { runs: 1, why: "stop" })]);
        assert_eq!((script.escrow.held(), script.escrow.next_deadline(script.now)), (0, None));
        assert_eq!(script.arrives("late", &body), [Seen::Told(1, "late".into(), unknown())]);
        assert_eq!(script.on(Event::SessionDown), []);
        assert_eq!(script.pass(3600 * S), []);
    }
}

/// ESC-54: nor is it by a process that resumes parked.
#[test]
fn an_escrow_that_resumes_parked_holds_nothing() {
    let p = projection("p", 3);
    let body = hold_body(&binding("n", "s"), &p, &grid("n", &p, 0, 5));
    for (parked, told) in [(false, Ok(r#"{"held":5}"#.to_owned())), (true, Err(ENDING[4].to_owned()))] {
        let mut script = Script::new();
        script.escrow = Escrow::resume(parked);
        script.carry(1, "n");
        script.on(Event::RegistrationAccepted);
        assert_eq!(script.holds(&body), told);
    }
}
