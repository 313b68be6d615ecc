//! Which method either router answers, and with what.

use super::*;

fn unknown() -> Told {
    Told::Error("There is no available method for this call on the server side".into())
}

/// LIS-19, LIS-20: a changed relay block is reported by name, once, and nothing of it is adopted; every
/// push of the configuration is answered with an empty object.
#[test]
fn a_changed_relay_block_is_reported_and_not_adopted() {
    let mut script = Script::registered();
    script.carry(1, "n");
    let done = Did::Told(1, "c".into(), Told::Response("{}".into()));
    for (relay, reported) in [
        (r#","relay":{"origin":"https://relay.test"}"#, None),
        (r#","relay":{"origin":"https://moved.test"}"#, Some("https://moved.test")),
        (r#","relay":{"origin":"https://moved.test"}"#, None),
        ("", Some("no relay block")),
        (r#","relay":{"origin":"http://relay.test"}"#, Some("scheme is not https")),
        (r#","relay":["https://relay.test"]"#, Some("not an object of exactly the member origin")),
    ] {
        let push = asked("c", "pushClusterConfig", &config(relay));
        let (lines, told) = logged(|| script.cloudly(push));
        assert_eq!(told.as_slice(), std::slice::from_ref(&done), "{relay}");
        let warned = warnings(&lines);
        assert_eq!(warned.len(), usize::from(reported.is_some()), "{relay}: {lines:?}");
        if let Some(reported) = reported {
            assert!(
                warned[0].contains("relay-block-changed: ") && warned[0].contains(reported),
                "{warned:?}"
            );
        }
    }
    script.assert_carried(1, "n");
    assert_eq!(script.core.endpoint.as_ref().unwrap().origin.to_string(), "https://relay.test");
}

/// LIS-19: what is no cluster document is answered, reported, and changes nothing.
#[test]
fn an_unreadable_configuration_is_reported() {
    let mut script = Script::registered();
    let (lines, told) = logged(|| script.cloudly(asked("c", "pushClusterConfig", r#"{"secret":"MARKER"}"#)));
    assert_eq!(told, [Did::Told(1, "c".into(), Told::Response("{}".into()))]);
    assert_eq!(warnings(&lines).len(), 1, "{lines:?}");
    assert!(!lines[0].contains("MARKER"), "{lines:?}");
}

/// RET-01, RET-02, RET-03: a retired method is answered at once, with its new owner.
#[test]
fn a_retired_method_is_refused_at_once() {
    for mut script in [Script::standing(), Script::registered()] {
        for (method, owner) in [
            ("pushContainerUpdate", "Pallet"),
            ("informCoreflowAboutNewContainerVersion", "Pallet"),
            ("triggerServerAction", "Cloudly"),
        ] {
            let refusal = format!("coreflow-retired: {method} is retired; {owner} owns it");
            let told = script.cloudly(asked("x", method, "{}"));
            assert_eq!(told, [Did::Told(1, "x".into(), Told::Error(refusal))]);
        }
    }
}

/// LIS-02, RET-04, RET-05, RET-06, SES-21: neither router answers a method of the other, nor one that is
/// gone.
#[test]
fn neither_router_answers_a_method_of_the_other() {
    let mut script = Script::registered();
    script.carry(1, "n");
    for method in [
        NODE_REGISTERS,
        REPORT,
        "getRuntimeSecretMaterial",
        "registerClusterIngress",
        "executeServiceBackup",
        "executeServiceRestore",
        "coreflowPruneNodeArchive",
        "coreflowGetCorestoreInventory",
        "coreflowGetTrafficStats",
        "nothing",
    ] {
        let told = script.cloudly(asked("x", method, &of("n")));
        assert_eq!(told, [Did::Told(1, "x".into(), unknown())], "{method}");
    }
    for method in [APPLY, "pushClusterConfig", "pushContainerUpdate", "triggerServerAction", "nothing"] {
        let told = script.node(1, asked("x", method, &of("n")));
        assert_eq!(told, [Did::NodeTold(1, "x".into(), unknown())], "{method}");
    }
    let refusal = Told::Error("escrow-cloudly-only".into());
    let told = script.node(1, asked("x", "holdRuntimeNetworkDnsLeaseRenewals", "{}"));
    assert_eq!(told, [Did::NodeTold(1, "x".into(), refusal)], "LIS-22");
}

/// FWD-18, FWD-19: the four pushes are served while the listener runs, and unknown before and after.
#[test]
fn pushes_are_attached_to_the_router_while_the_listener_runs() {
    let pushes = [
        APPLY,
        "applyRuntimeNetworkSigningAuthority",
        "applyRuntimeNetworkProjection",
        "applyRuntimeNetworkDnsLeaseRenewal",
    ];
    let mut script = Script::standing();
    let expect = |script: &mut Script, expected: &Told| {
        for method in pushes {
            let told = script.cloudly(asked("x", method, &of("absent")));
            assert_eq!(told, [Did::Told(1, "x".into(), expected.clone())], "{method}");
        }
    };
    expect(&mut script, &unknown());
    script.listen();
    script.carry(1, "n");
    let absent = "relay-node-not-connected: node absent is not connected to this relay";
    expect(&mut script, &Told::Error(absent.into()));
    // A push in flight keeps the stopping relay's session open.
    let pushed = script.cloudly(asked("p", APPLY, &of("n")));
    script.on(Event::Stop);
    expect(&mut script, &unknown());
    let told = script.node(1, answer_to(&request(&pushed), ok("{}")));
    assert_eq!(told[0], Did::Told(1, "p".into(), Told::Response("{}".into())));
}

/// What arrives on a connection that is not the session's is nobody's.
#[test]
fn an_earlier_connection_is_not_served() {
    let mut script = Script::registered();
    script.reconnect();
    script.connection = 1;
    assert_eq!(script.cloudly(asked("x", "pushClusterConfig", &config(""))), []);
    assert_eq!(script.cloudly(asked("x", "nothing", "{}")), []);
}

/// PROT-14, PROT-21, PROT-22, PROT-23, PROT-31: a node with a foreign offer makes its hop not ready, until
/// one with a servable offer arrives; no timer runs for it.
#[test]
fn a_node_s_offer_makes_its_hop_ready_or_not() {
    let mut script = Script::registered();
    let deadline = script.core.next_deadline(script.now);
    let foreign = r#"{"protocol":{"release":"31.0.0","oldestAcceptedPeerRelease":"31.0.0"}}"#;
    let refused = script.node(1, asked("r", NODE_REGISTERS, foreign));
    let line = "palletRuntime: protocol-refused: palletRuntime peer speaks 31.0.0 and accepts from 31.0.0; this \
                relay speaks 33.1.0 and accepts from 32.10.1";
    assert!(
        matches!(&refused[0], Did::NodeTold(1, _, Told::Error(text)) if line.ends_with(text)),
        "{refused:?}"
    );
    assert_eq!(refused[1..], [Did::Readiness(vec![line.into()])]);
    assert_eq!(script.core.next_deadline(script.now), deadline);
    let again = script.node(2, asked("r", NODE_REGISTERS, foreign));
    assert_eq!(again.len(), 1, "no news: {again:?}");
    let served = script.node(3, asked("r", NODE_REGISTERS, &node_registration()));
    let [Did::Sent(1, _), Did::Readiness(lines)] = served.as_slice() else { panic!("{served:?}") };
    assert!(lines.is_empty());
}

/// FWD-14, OUT-09, OUT-10: the socket that a node left for another one is closed after half a minute, so that whoever
/// holds it registers anew; not without a session, and not if a node is carried on it again.
#[test]
fn a_superseded_socket_is_closed_in_the_end() {
    let mut script = Script::registered();
    script.carry(1, "n");
    script.carry(2, "n");
    assert_eq!(script.pass(29_999 * MS), []);
    assert_eq!(script.pass(MS), [Did::CloseNode(1)]);
    assert_eq!(script.pass(60_000 * MS), []);
    script.assert_carried(2, "n");

    script.carry(3, "n");
    script.session(session::Event::Closed { connection: 1 });
    script.connection += 1;
    script.pass(500 * MS);
    assert!(!script.pass(60_000 * MS).contains(&Did::CloseNode(2)), "no session stands");
    script.connect();
    assert!(script.pass(MS).contains(&Did::CloseNode(2)));

    let mut script = Script::registered();
    script.carry(1, "n");
    script.carry(2, "n");
    script.carry(1, "m");
    assert_eq!(script.pass(60_000 * MS), []);
    script.assert_carried(1, "m");

    let mut script = Script::registered();
    script.carry(1, "n");
    script.carry(2, "n");
    script.on(Event::NodeClosed { socket: 1 });
    assert_eq!(script.pass(60_000 * MS), [], "it ended by itself");
}

/// FWD-10: sockets without a carried node share little of what may be in flight: a carried node's largest request
/// still goes on its way, and a stranger that asks for more is refused by name.
#[test]
fn strangers_do_not_use_up_what_carried_nodes_have() {
    let mut script = Script::registered();
    script.carry(1, "n");
    let padding = "x".repeat(1_000_000);
    let body = format!(r#"{{"protocol":{OFFER},"nodeId":"n","x":"{padding}"}}"#);
    let mut refused = 0;
    for socket in 100..200 {
        let done = script.node(socket, asked("r", NODE_REGISTERS, &body));
        refused += usize::from(matches!(done.as_slice(), [Did::NodeTold(_, _, Told::Error(text))]
            if text == "relay-too-many-in-flight"));
    }
    assert!((60..=70).contains(&refused), "{refused} of 100 megabytes");
    let large = of("n").replace("{\"session\"", &format!("{{\"x\":\"{}\",\"session\"", "x".repeat(15 << 20)));
    assert!(served(&script.node(1, asked("q", REPORT, &large)), REPORT));
    script.core.uplink_full(true);
    let told = script.node(1, asked("q", REPORT, &of("n")));
    assert_eq!(told, [Did::NodeTold(1, "q".into(), Told::Error("relay-too-many-in-flight".into()))]);
    script.core.uplink_full(false);
    script.assert_carried(1, "n");
}

/// PROT-21, PROT-22, PROT-31: a peer that makes one bad offer after the other, each another one, is answered each
/// time, and fills neither the log nor the supervisor's link; the latest is stated.
#[test]
fn a_flood_of_offers_is_stated_within_bounds() {
    let mut script = Script::registered();
    let offer = |patch: u32| {
        format!(r#"{{"protocol":{{"release":"31.0.{patch}","oldestAcceptedPeerRelease":"31.0.0"}}}}"#)
    };
    let (lines, told) = logged(|| {
        (0..1000)
            .flat_map(|patch| script.node(9, asked("r", NODE_REGISTERS, &offer(patch))))
            .collect::<Vec<_>>()
    });
    let answers = told.iter().filter(|did| matches!(did, Did::NodeTold(9, _, Told::Error(_)))).count();
    let stated = told.iter().filter(|did| matches!(did, Did::Readiness(_))).count();
    assert_eq!((answers, warnings(&lines).len()), (1000, 1));
    assert!(stated <= 8, "{stated}");
    let latest = script.pass(1000 * MS);
    assert!(
        matches!(latest.as_slice(), [Did::Readiness(lines)] if lines[0].contains("31.0.999")),
        "{latest:?}"
    );
}
