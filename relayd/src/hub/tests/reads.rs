//! `getClusterVpnNetwork`, whose answer is admitted as a push is.

use super::*;

fn not_read(class: &str) -> Seen {
    Seen::Note(Note::NotRead { class: class.to_owned(), hub: true })
}

/// VPN-24, REG-66: each acceptance reads, and nothing before the first one does.
#[test]
fn each_acceptance_reads() {
    let mut script = Script::new();
    for _ in 0..2 {
        assert_eq!(script.on(Event::Accepted), [Seen::Read]);
    }
    script.on(Event::SessionDown);
    assert_eq!(script.on(Event::Accepted), [], "without a session there is nobody to ask");
    assert_eq!(script.on(Event::SessionUp), []);
    assert_eq!(script.on(Event::Accepted), [Seen::Read]);
}

/// VPN-25: what is read is admitted as what is pushed: taken over, replayed, refused, or no network.
#[test]
fn what_is_read_is_admitted_as_what_is_pushed() {
    let reads = |script: &mut Script, network: &str| {
        script.on(Event::Accepted);
        script.answer_read(Outcome::Response(carrying(network))).unwrap()
    };
    let mut script = Script::new();
    assert_eq!(reads(&mut script, &network(5)), [Seen::Apply(1, 0, snapshot(&network(5)))]);
    assert_eq!(script.applied(1, 0, Ok(())), [adopted(5)]);
    assert_eq!(reads(&mut script, &network(5)), [Seen::Note(Note::Replayed { revision: 5 })]);
    let stale = Note::Refused { name: "vpn-network-revision-stale", held: Some(5) };
    assert_eq!(reads(&mut script, &network(4)), [Seen::Note(stale)]);
    let foreign = Note::Refused { name: "vpn-network-authority-foreign", held: Some(5) };
    let moved = network(6).replace("10.9.0.0/24", "10.9.0.0/25");
    assert_eq!(reads(&mut script, &moved), [Seen::Note(foreign)]);
    let invalid = Note::Invalid { path: "members[1].address".to_owned() };
    assert_eq!(reads(&mut script, &network(6).replace("10.9.0.2", "10.9.0.0")), [Seen::Note(invalid)]);
    assert_eq!(script.held(), Some(5));
    assert_eq!(reads(&mut script, &network(6)), [Seen::Apply(1, 1, snapshot(&network(6)))]);
    let refused = script.applied(1, 1, Err(NotApplied::Bind("in use".to_owned())));
    assert_eq!(refused, [failed("vpn-hub-bind-refused: in use")]);
}

/// VPN-26: `null` binds nothing, and takes nothing from a hub that serves.
#[test]
fn null_binds_nothing() {
    for mut script in [Script::new(), Script::serving(5)] {
        let held = script.held();
        script.on(Event::Accepted);
        let seen = script.answer_read(Outcome::Response(carrying("null"))).unwrap();
        assert_eq!((seen, script.held()), (vec![Seen::Note(Note::NoNetwork)], held));
    }
}

/// A read that fails is logged by its class and keeps what is held.
#[test]
fn a_failed_read_keeps_what_is_held() {
    let mut script = Script::serving(5);
    script.on(Event::Accepted);
    assert_eq!(
        script.answer_read(plain_refusal("relay-not-connected: x")).unwrap(),
        [not_read("relay-not-connected")]
    );
    script.on(Event::Accepted);
    assert_eq!(script.pass(9_999 * MS), []);
    assert_eq!(script.pass(MS), [not_read("timeout")]);
    assert_eq!(script.answer_read(Outcome::Response(carrying(&network(6)))), None, "it came too late");
    script.on(Event::Accepted);
    assert_eq!(script.on(Event::SessionDown), [not_read("closed")]);
    assert_eq!(script.held(), Some(5));
}

/// A later acceptance reads anew, and what the former read says is nobody's.
#[test]
fn a_superseded_read_says_nothing() {
    let mut script = Script::new();
    script.on(Event::Accepted);
    let former = script.read.clone();
    script.on(Event::Accepted);
    let latest = std::mem::replace(&mut script.read, former);
    assert_eq!(script.answer_read(Outcome::Response(carrying(&network(5)))), None);
    script.read = latest;
    assert!(script.answer_read(Outcome::Response(carrying(&network(5)))).is_some());
}

/// VPN-24, VPN-29: a network that found no vpnd is asked for again once one is there, while the registration stands.
#[test]
fn what_found_no_vpnd_is_asked_for_again() {
    let none = "vpn-hub-unavailable: no hub runs";
    let mut script = Script::configured();
    script.on(Event::Accepted);
    assert_eq!(script.answer_read(Outcome::Response(carrying(&network(5)))).unwrap(), [failed(none)]);
    let linked = Seen::Note(Note::Linked { revision: None });
    assert_eq!(script.link(1, None), [linked.clone(), Seen::Read]);
    let given = script.answer_read(Outcome::Response(carrying(&network(5)))).unwrap();
    assert_eq!(given, [Seen::Apply(1, 0, snapshot(&network(5)))]);
    script.lose(1);
    script.now.mono += 30_000 * MS;
    assert_eq!(script.link(2, None), [linked.clone(), Seen::Read], "it was not applied when the vpnd went");
    script.answer_read(Outcome::Response(carrying("null")));
    script.lose(2);
    assert_eq!(script.link(3, None), std::slice::from_ref(&linked), "nothing was missed");
    script.lose(3);
    script.push("p", &network(5));
    script.on(Event::SessionDown);
    assert_eq!(script.link(4, None), [linked], "the next acceptance reads in any case");
}

/// VPN-24: a vpnd that comes and goes has the network read no more often than once in thirty seconds.
#[test]
fn links_cause_few_reads() {
    let mut script = Script::configured();
    script.on(Event::Accepted);
    script.answer_read(Outcome::Response(carrying(&network(5))));
    let mut reads = 0;
    for link in 1..=60 {
        reads += script.link(link, None).iter().filter(|seen| **seen == Seen::Read).count();
        let answered =
            script.read.is_some().then(|| script.answer_read(Outcome::Response(carrying(&network(5)))));
        assert!(answered.is_some());
        script.lose(link);
        reads += script.pass(1_000 * MS).iter().filter(|seen| **seen == Seen::Read).count();
    }
    assert_eq!(reads, 2);
}

/// VPN-24, VPN-35, REG-57: a read that brought no decision is made again after thirty seconds, while the registration stands and
/// a hub is there; one that brought one is not.
#[test]
fn a_read_without_a_decision_is_made_again() {
    let served = |network: &str| Outcome::Response(carrying(network));
    let undecided: [fn(&mut Script); 4] = [
        |script| {
            script.answer_read(plain_refusal("relay-not-connected"));
        },
        |script| {
            script.pass(10_000 * MS);
            script.now.mono -= 10_000 * MS;
        },
        |script| {
            script.answer_read(Outcome::Response(carrying(&network(5))));
            script.applied(1, 0, Err(NotApplied::Bind("in use".to_owned())));
        },
        |script| {
            script.slow = true;
            for correlation in ["1", "2", "3"] {
                script.push(correlation, &network(1));
            }
            script.answer_read(Outcome::Response(carrying(&network(5))));
            for correlation in ["4", "5", "6", "7"] {
                script.push(correlation, &network(1));
            }
            script.slow = false;
            script.validate();
        },
    ];
    for (at, fails) in undecided.into_iter().enumerate() {
        let mut script = Script::new();
        script.on(Event::Accepted);
        fails(&mut script);
        let later = if at == 1 { 40_000 * MS } else { 30_000 * MS };
        assert!(!script.pass(later - MS).contains(&Seen::Read), "{at}");
        assert!(script.pass(MS).contains(&Seen::Read), "{at}");
        script.answer_read(served("null"));
        assert!(!script.pass(3_600_000 * MS).contains(&Seen::Read), "null is a decision");
    }
    let mut gone = Script::new();
    gone.on(Event::Accepted);
    gone.answer_read(plain_refusal("relay-not-connected"));
    gone.on(Event::SessionDown);
    assert!(!gone.pass(3_600_000 * MS).contains(&Seen::Read), "the next acceptance reads in any case");

    let mut parked = Script::new();
    parked.on(Event::Accepted);
    parked.answer_read(plain_refusal("relay-not-connected"));
    parked.on(Event::Parked);
    assert!(!parked.pass(3_600_000 * MS).contains(&Seen::Read), "a parked relay asks for nothing");
    parked.lose(1);
    assert!(!parked.link(2, None).contains(&Seen::Read), "for a new vpnd neither");

    let mut pushed = Script::new();
    pushed.on(Event::Accepted);
    pushed.answer_read(plain_refusal("relay-not-connected"));
    pushed.push("p", &network(5));
    pushed.applied(1, 0, Ok(()));
    assert!(!pushed.pass(3_600_000 * MS).contains(&Seen::Read), "what is held was pushed");
    for decided in [network(5), network(4), network(6).replace("10.9.0.2", "10.9.0.0")] {
        pushed.on(Event::Accepted);
        pushed.answer_read(served(&decided));
        assert!(!pushed.pass(3_600_000 * MS).contains(&Seen::Read), "{decided}");
    }
}
