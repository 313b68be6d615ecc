//! Networks on their way to vpnd: one at a time, in their order, each answered within its budget.

use super::*;

const TIMEOUT: &str = "vpn-hub-timeout: applyClusterVpnNetwork after 8000 ms";

/// VPN-14, VPN-19: one network is given at a time; those that come meanwhile wait in their order and are judged
/// by what is held then. Of five that would wait the fifth fails by name.
#[test]
fn one_network_is_given_at_a_time() {
    let mut script = Script::new();
    assert_eq!(script.push("1", &network(1)), [Seen::Apply(1, 0, snapshot(&network(1)))]);
    for (correlation, revision) in [("2", 3), ("3", 3), ("4", 3), ("5", 2)] {
        assert_eq!(script.push(correlation, &network(revision)), []);
    }
    let busy = "vpn-hub-busy: 4 networks wait for the hub";
    assert_eq!(script.push("6", &network(2)), [failed(busy), told("6", fails(None, busy))]);
    let applied = told("1", Answer::Applied(Some(1)));
    assert_eq!(script.applied(1, 0, Ok(())), [adopted(1), applied, Seen::Apply(1, 1, snapshot(&network(3)))]);
    let stale = "vpn-network-revision-stale";
    let refused = Seen::Note(Note::Refused { name: stale, held: Some(3) });
    let replayed = Seen::Note(Note::Replayed { revision: 3 });
    assert_eq!(
        script.applied(1, 1, Ok(())),
        [
            adopted(3),
            told("2", Answer::Applied(Some(3))),
            replayed.clone(),
            told("3", Answer::Replayed(Some(3))),
            replayed,
            told("4", Answer::Replayed(Some(3))),
            refused,
            told("5", Answer::Refused(stale.to_owned())),
        ]
    );
}

/// VPN-14, VPN-19, VPN-22: the newest network is never the one that is lost: those that wait and come before it were
/// passed, and are refused by that name; what is of another authority waits on.
#[test]
fn the_newest_network_passes_those_that_wait() {
    let mut script = Script::new();
    script.push("1", &network(1));
    let other = network(4).replace(r#""id":"a""#, r#""id":"b""#);
    let waiting = [("2", network(2)), ("3", other), ("4", network(2)), ("5", network_of(0, 9, 1))];
    for (correlation, network) in waiting {
        assert_eq!(script.push(correlation, &network), []);
    }
    let stale = "vpn-network-revision-stale";
    let refused = |correlation: &str| {
        let note = Seen::Note(Note::Refused { name: stale, held: None });
        [note, told(correlation, Answer::Refused(stale.to_owned()))]
    };
    assert_eq!(script.push("6", &network(3)), [refused("2"), refused("4"), refused("5")].concat());
    let seen = script.applied(1, 0, Ok(()));
    let foreign = Answer::Refused("vpn-network-authority-foreign".to_owned());
    assert_eq!(seen[3..], [told("3", foreign), Seen::Apply(1, 1, snapshot(&network(3)))]);
    script.applied(1, 1, Ok(()));
    assert_eq!(script.held(), Some(3));
}

/// VPN-34, VPN-35: a bind that the host refuses fails the push with its class; the next push binds again.
#[test]
fn a_refused_bind_fails_the_push_and_the_next_tries_again() {
    let mut script = Script::new();
    for id in 0..3 {
        assert_eq!(script.push("p", &network(5)), [Seen::Apply(1, id, snapshot(&network(5)))]);
        let reason = "vpn-hub-bind-refused: address in use";
        let refused = script.applied(1, id, Err(NotApplied::Bind("address in use".to_owned())));
        assert_eq!(refused, [failed(reason), told("p", fails(None, reason))]);
    }
    script.push("p", &network(5));
    assert_eq!(script.applied(1, 3, Ok(())), [adopted(5), told("p", Answer::Applied(Some(5)))]);
}

/// VPN-23: a network that vpnd does not take leaves the held one, which the answer states.
#[test]
fn a_network_that_vpnd_does_not_take_leaves_the_held_one() {
    for (why, reason) in [
        (NotApplied::Snapshot("members".to_owned()), "vpn-hub-snapshot-refused: members"),
        (NotApplied::Passed, "vpn-hub-snapshot-passed: the hub holds a later network"),
    ] {
        let mut script = Script::serving(5);
        script.push("p", &network(6));
        assert_eq!(script.applied(1, 1, Err(why)), [failed(reason), told("p", fails(Some(5), reason))]);
        assert_eq!(script.push("q", &network(5)).last(), Some(&told("q", Answer::Replayed(Some(5)))));
    }
}

/// VPN-36: a hub whose executable cannot run fails each push under the name of that, and is not advertised.
#[test]
fn a_hub_that_cannot_run_fails_by_its_own_name() {
    let why = "vpn-daemon-unavailable: /x is no executable";
    let mut script = Script::configured();
    script.on(Event::Configured(Some(VpnFacts { unavailable: Some(why.to_owned()), ..facts() })));
    assert_eq!(script.push("p", &network(5)), [failed(why), told("p", fails(None, why))]);
    assert_eq!((script.hub.advertised(), script.hub.lacks_key()), (None, false));
    script.link(1, None);
    assert_eq!(script.hub.advertised(), None);
}

/// VPN-36: so does one that can run no more, also where that is known before the listener is open.
#[test]
fn a_hub_that_can_run_no_more_fails_by_its_own_name() {
    let why = "vpn-hub-executable-missing: /x";
    let gone = || Event::Vpnd(Told::Unavailable { why: why.to_owned() });
    let mut serving = Script::serving(5);
    serving.lose(1);
    assert_eq!(serving.on(gone()), []);
    let mut early = Script { hub: Hub::default(), ..Script::configured() };
    assert_eq!(early.on(gone()), []);
    early.on(Event::Configured(Some(facts())));
    for mut script in [serving, early] {
        assert_eq!(script.push("p", &network(5)), [failed(why), told("p", fails(None, why))]);
        assert_eq!((script.hub.advertised(), script.hub.lacks_key()), (None, false));
    }
}

/// VPN-34, FWD-37: a push is answered within eight seconds of its arrival, a wait included; what vpnd takes later is held
/// all the same.
#[test]
fn a_push_is_answered_within_its_budget() {
    let mut script = Script::serving(5);
    script.push("p", &network(6));
    assert_eq!(script.pass(4_000 * MS), []);
    assert_eq!(script.push("q", &network(7)), []);
    assert_eq!(script.hub.next_deadline(), Some(9_000 * MS));
    assert_eq!(script.pass(3_999 * MS), []);
    assert_eq!(script.pass(MS), [failed(TIMEOUT), told("p", fails(Some(5), TIMEOUT))]);
    assert_eq!(script.hub.next_deadline(), Some(13_000 * MS));
    assert_eq!(script.pass(4_000 * MS), [failed(TIMEOUT), told("q", fails(Some(5), TIMEOUT))]);
    assert_eq!((script.hub.next_deadline(), script.held()), (None, Some(5)));
    assert_eq!(script.push("r", &network(6)), [], "it waits for what vpnd is still at");
    let replayed = Seen::Note(Note::Replayed { revision: 6 });
    let seen = script.applied(1, 1, Ok(()));
    assert_eq!(seen, [adopted(6), replayed, told("r", Answer::Replayed(Some(6)))]);
    assert_eq!(script.applied(1, 1, Ok(())), [], "nothing is asked any more");
}

/// VPN-29: with vpnd goes what it held and what it was to be given; the next vpnd takes the next push.
#[test]
fn with_vpnd_goes_what_it_held() {
    let mut script = Script::serving(5);
    script.push("p", &network(6));
    script.push("q", &network(7));
    let ended = "vpn-hub-unavailable: its link ended";
    assert_eq!(
        script.lose(1),
        [
            Seen::Note(Note::Lost { revision: Some(5) }),
            failed(ended),
            told("p", fails(None, ended)),
            failed(ended),
            told("q", fails(None, ended)),
        ]
    );
    let none = "vpn-hub-unavailable: no hub runs";
    assert_eq!(script.push("r", &network(6)), [failed(none), told("r", fails(None, none))]);
    assert_eq!(script.held(), None);
    script.link(2, None);
    assert_eq!(script.applied(1, 1, Ok(())), [], "what the former one said late");
    // An earlier network than the one that was held: nothing is.
    assert_eq!(script.push("s", &network(2)), [Seen::Apply(2, 2, snapshot(&network(2)))]);
}

/// START-24: every push counts from its arrival to its answer, and no read does.
#[test]
fn pushes_are_counted_until_they_are_answered() {
    let mut script = Script::new();
    script.on(Event::Accepted);
    script.answer_read(Outcome::Response(carrying(&network(1))));
    assert_eq!(script.hub.pushes_in_flight(), 0);
    script.push("p", &network(2));
    assert_eq!(script.hub.pushes_in_flight(), 1);
    script.applied(1, 0, Ok(()));
    script.push("q", &network(3));
    assert_eq!(script.hub.pushes_in_flight(), 2);
    script.applied(1, 1, Ok(()));
    assert_eq!(script.hub.pushes_in_flight(), 1);
    script.pass(8_000 * MS);
    assert_eq!(script.hub.pushes_in_flight(), 0);
}

/// A push is answered on the connection that it came by, whichever is the session's then.
#[test]
fn a_push_is_answered_on_its_own_connection() {
    let mut script = Script::new();
    script.push_on(1, "p", carrying(&network(1)));
    script.on(Event::SessionDown);
    script.on(Event::SessionUp);
    script.push_on(2, "p", carrying(&network(2)));
    let seen = script.applied(1, 0, Ok(()));
    assert_eq!(seen[1], Seen::Told(1, "p".to_owned(), Answer::Applied(Some(1))));
    let seen = script.applied(1, 1, Ok(()));
    assert_eq!(seen[1], Seen::Told(2, "p".to_owned(), Answer::Applied(Some(2))));
}
