//! The escrow among the other machines: what an outage, a registration, an acknowledgement and the stop
//! mean to the runs that it holds.

use super::*;
use crate::routes::{HOLD, PROJECTION, RENEWAL};

const MIN: u64 = 60_000;

fn projection(generation: u64) -> String {
    format!(r#"{{"id":"p","generation":{generation},"digest":"sha256:{}"}}"#, "ab".repeat(32))
}

/// One renewal of projection `generation` for node `n`, whose window is open for a minute at `now`.
fn renewal(now: Now, generation: u64) -> String {
    let (begin, end) = (now.wall - MIN, now.wall + 14 * MIN);
    let projection = projection(generation);
    format!(
        r#"{{"projection":{projection},"nodeId":"n","clusterId":"c","sequence":1,"notBefore":{begin},"expiresAt":{end},"signature":"c2lnbmVk"}}"#
    )
}

fn session_of(node: &str) -> String {
    of(node).trim_start_matches(r#"{"session":"#).trim_end_matches('}').to_owned() + "}"
}

impl Script {
    /// Cloudly hands over a run of one renewal for node `n`; what it is told.
    fn hold(&mut self, generation: u64) -> Vec<Did> {
        let (session, renewal) = (session_of("n"), renewal(self.now, generation));
        let body = format!(
            r#"{{"session":{session},"projection":{},"renewals":[{renewal}]}}"#,
            projection(generation)
        );
        let arrived = self.cloudly(asked("h", HOLD, &body));
        if arrived.is_empty() { self.on(Event::Tick) } else { arrived }
    }

    /// A carried node for which a run is held.
    fn escrowed() -> Self {
        let mut script = Self::registered();
        script.now.wall += 20 * MIN;
        script.now.mono += Duration::from_millis(20 * MIN);
        script.on(Event::Tick);
        script.carry(1, "n");
        assert_eq!(script.hold(1), [Did::Told(1, "h".into(), Told::Response(r#"{"held":1}"#.into()))]);
        script
    }

    /// The session ends; the renewals that are offered to node `n` at once.
    fn lose(&mut self) -> usize {
        let connection = self.connection;
        let done = self.session(session::Event::Closed { connection });
        let offered = |did: &&Did| matches!(did, Did::NodeSent(1, sent) if sent.method == RENEWAL);
        done.iter().filter(offered).count()
    }
}

/// ESC-25, ESC-29, ESC-31: the moment the session is lost the due renewal goes to the node, in the binding
/// that it has; the return of the session ends the offers.
#[test]
fn an_outage_offers_what_is_held() {
    let mut script = Script::escrowed();
    let connection = script.connection;
    let renewal = renewal(script.now, 1);
    let done = script.session(session::Event::Closed { connection });
    let body = format!(r#"{{"session":{},"renewal":{renewal}}}"#, session_of("n"));
    assert!(done.contains(&Did::NodeSent(1, out(RENEWAL, &body))), "{done:?}");
    script.connection += 1;
    script.pass(500 * MS);
    script.connect();
    for _ in 0..20 {
        assert!(!served(&script.pass(60_000 * MS), RENEWAL), "the session stands");
    }
}

/// ESC-33, ESC-37: what a node answers to an offer reaches the escrow: a renewal that it acknowledged is not
/// offered again, one that it refused is.
#[test]
fn what_a_node_answers_to_an_offer_counts() {
    for (acknowledges, offered_again) in [(true, false), (false, true)] {
        let mut script = Script::escrowed();
        let connection = script.connection;
        let done = script.session(session::Event::Closed { connection });
        let offer = done.iter().find_map(|did| match did {
            Did::NodeSent(1, sent) if sent.method == RENEWAL => Some(sent.clone()),
            _ => None,
        });
        let (session, projection) = (session_of("n"), projection(1));
        let acknowledgement =
            format!(r#"{{"session":{session},"renewal":{{"projection":{projection},"sequence":1}}}}"#);
        let outcome = if acknowledges { ok(&acknowledgement) } else { plain_refusal("clock-not-qualified") };
        let (lines, _) = logged(|| script.node(1, answer_to(&offer.expect("an offer"), outcome)));
        let said = if acknowledges {
            "node n has a renewed DNS lease"
        } else {
            "not delivered: clock-not-qualified"
        };
        assert!(lines.iter().any(|line| line.contains(said)), "{lines:?}");
        let mut again = false;
        for _ in 0..60 {
            again |= served(&script.pass(1000 * MS), RENEWAL);
        }
        assert_eq!(again, offered_again);
    }
}

/// ESC-34: a node that goes while it is offered a renewal does not answer: that is logged at once.
#[test]
fn a_node_that_goes_is_waited_for_no_longer() {
    let mut script = Script::escrowed();
    assert_eq!(script.lose(), 1);
    let (lines, _) = logged(|| script.on(Event::NodeClosed { socket: 1 }));
    for said in ["node n is gone", "a DNS lease renewal was not delivered: gone"] {
        assert_eq!(lines.iter().filter(|line| line.contains(said)).count(), 1, "{lines:?}");
    }
    assert_eq!(script.core.escrow.held(), 1, "ESC-47: it may be back with the same binding");
}

/// ESC-50, ESC-53: a refusal of the registration that states another relay drops every run, and an acceptance
/// lets the relay hold runs again. ESC-55, ESC-56: any other answer leaves what is held, and is logged.
#[test]
fn only_a_refusal_that_states_another_relay_drops_every_run() {
    let answers = [
        Some("registration-invalid: relay.version"),
        Some("registration-conflict"),
        Some("something-else: x"),
        Some("Internal server error"),
        Some("There is no available method for this call on the server side"),
        Some("relay-identity-unverified"),
        None,
    ];
    for answer in answers {
        let mut script = Script::escrowed();
        let registered = script.renew();
        script.hold(2);
        let (lines, _) = logged(|| match answer {
            Some(text) => script.answer(&registered, plain_refusal(text)),
            None => script.pass(10_000 * MS),
        });
        let warned = warnings(&lines);
        assert!(warned.len() == 1 && warned[0].contains("registerClusterRelay"), "{answer:?} {lines:?}");
        assert_eq!(script.lose(), 1, "{answer:?}");
    }
    let mut script = Script::escrowed();
    let registered = script.renew();
    script.hold(2);
    script.answer(&registered, plain_refusal("relay-node-unknown: node-1"));
    assert_eq!(script.core.escrow.held(), 0);
    let refused = Did::Told(1, "h".into(), Told::Error("relay-node-unknown".into()));
    assert_eq!(script.hold(2), [refused]);
    let registered = script.renew();
    script.answer(&registered, acceptance("https://relay.test", 1, 2));
    assert_eq!(script.hold(3), [Did::Told(1, "h".into(), Told::Response(r#"{"held":1}"#.into()))]);
}

/// OUT-21, ESC-63: all that an outage brings a node is its DNS renewal: nothing of a managed tunnel is sent, and
/// a node that asks for a credential is told that there is no session.
#[test]
fn an_outage_brings_no_credential_of_a_managed_tunnel() {
    let mut script = Script::escrowed();
    let connection = script.connection;
    let mut done = script.session(session::Event::Closed { connection });
    let asks = asked("v", "getRuntimeManagedVpnCredential", &of("n"));
    done.extend(script.node(1, asks));
    for _ in 0..120 {
        done.extend(script.pass(1000 * MS));
    }
    let sent = done.iter().filter_map(|did| match did {
        Did::NodeSent(_, sent) => Some(sent.method.as_str()),
        _ => None,
    });
    assert!(sent.clone().count() > 1 && sent.clone().all(|method| method == RENEWAL));
    let told = done.iter().filter(|did| matches!(did, Did::NodeTold(1, id, Told::Error(_)) if id == "v"));
    assert_eq!(told.count(), 1, "{done:?}");
    assert!(!done.iter().any(|did| matches!(did, Did::NodeTold(_, _, Told::Response(_)))));
}

/// OUT-20: a projection that Cloudly replays after a reconnect is carried also when the lease in it has expired,
/// and what the node then acknowledges keeps the run that renews it.
#[test]
fn a_replayed_projection_is_carried_with_an_expired_lease() {
    let mut script = Script::escrowed();
    script.reconnect();
    script.carry(1, "n");
    let lease = format!(r#""dnsLease":{{"expiresAt":{}}}"#, script.now.wall - 1);
    let projection = projection(1);
    let pushed = projection.replace('}', &format!(",{lease}}}"));
    let body = |projection: &str| format!(r#"{{"session":{},"projection":{projection}}}"#, session_of("n"));
    let push = script.cloudly(asked("p", PROJECTION, &body(&pushed)));
    assert_eq!(push, [Did::NodeSent(1, out(PROJECTION, &body(&pushed)))]);
    let told = script.node(1, answer_to(&request(&push), ok(&body(&projection))));
    assert_eq!(told, [Did::Told(2, "p".into(), Told::Response(body(&projection)))]);
    assert_eq!((script.core.escrow.held(), script.lose()), (1, 1));
}

/// FWD-33: an acknowledged later projection retires the run that renews the former one; an acknowledgement
/// that is not bound to its push retires nothing.
#[test]
fn an_acknowledged_projection_retires_the_run_that_it_replaces() {
    for (acknowledged, offered) in [(2, 0), (1, 1), (3, 1)] {
        let mut script = Script::escrowed();
        let pushed = if acknowledged == 3 { 2 } else { acknowledged };
        let body = |generation| {
            format!(r#"{{"session":{},"projection":{}}}"#, session_of("n"), projection(generation))
        };
        let push = script.cloudly(asked("p", PROJECTION, &body(pushed)));
        script.node(1, answer_to(&request(&push), ok(&body(acknowledged))));
        assert_eq!(script.lose(), offered, "generation {acknowledged} was acknowledged");
    }
}

/// FWD-33, ESC-48: a superseded socket that acknowledges the former session's projection late drops nothing of what is
/// held for the node's session of now.
#[test]
fn a_late_acknowledgement_of_a_former_session_drops_no_run() {
    let mut script = Script::registered();
    script.now.wall += 20 * MIN;
    script.now.mono += Duration::from_millis(20 * MIN);
    script.on(Event::Tick);
    script.carry(2, "n");
    let former = of("n").replace("s-n", "r-n");
    let sent = script.node(2, asked("r", NODE_REGISTERS, &node_registration()));
    script.answer(&sent, ok(&former));
    let session = former.trim_end_matches('}').to_owned() + "}";
    let body = format!("{session},\"projection\":{}}}", projection(7));
    let push = script.cloudly(asked("p", PROJECTION, &body));
    script.carry(1, "n");
    assert_eq!(script.hold(1), [Did::Told(1, "h".into(), Told::Response(r#"{"held":1}"#.into()))]);
    let told = script.node(2, answer_to(&request(&push), ok(&body)));
    assert_eq!(told, [Did::Told(1, "p".into(), Told::Response(body))], "it is carried all the same");
    assert_eq!((script.core.escrow.held(), script.lose()), (1, 1));
}

/// PROT-19: a refused protocol on either carrier of the session leaves what is held, and an outage offers it.
#[test]
fn a_protocol_refusal_keeps_what_is_held() {
    let mut script = Script::escrowed();
    let connection = script.connection;
    let registered = script.renew();
    let refused = script.answer(&registered, plain_refusal("protocol-refused: x"));
    assert!(matches!(refused.as_slice(), [Did::Readiness(lines)] if lines.len() == 1), "{refused:?}");
    assert_eq!(script.core.escrow.held(), 1);
    script.hold(2);
    assert_eq!((script.connection, script.lose()), (connection, 1));
}

/// REG-53, ESC-54, ESC-59: an answer that names another credential drops every run, and nothing is held
/// again; a restarted relayd of a parked relay holds nothing either.
#[test]
fn parking_drops_every_run() {
    let mut script = Script::escrowed();
    let registered = script.renew();
    script.hold(1);
    let (lines, _) = logged(|| script.answer(&registered, acceptance("https://relay.test", 2, 2)));
    assert!(
        lines.iter().any(|line| line.contains("every run of DNS lease renewals is dropped")),
        "{lines:?}"
    );
    assert_eq!(script.core.escrow.held(), 0);
    script.assert_carried(1, "n");
    let told = script.hold(1);
    assert!(matches!(told.as_slice(), [Did::Told(_, _, Told::Error(_))]), "{told:?}");
    assert_eq!(script.lose(), 0);

    let parked = Kept { parked: Some("parked".into()), ..Kept::default() };
    let mut core = Core::resume(parked);
    let now = Now { wall: 1_000_000, mono: Duration::ZERO };
    assert_eq!(core.escrow.held(), 0);
    core.handle(Event::Tick, now, 0);
}

/// LIS-26, ESC-40: the stop ends custody while the nodes are still carried: no node is offered anything by
/// a relay that goes.
#[test]
fn a_stop_ends_custody_before_the_nodes_go() {
    let mut script = Script::escrowed();
    script.cloudly(asked("p", APPLY, &of("n")));
    script.on(Event::Stop);
    assert_eq!((script.core.escrow.held(), script.core.forwarder.carried()), (0, 1));
    assert_eq!(script.lose(), 0);
}

/// ESC-05, ESC-06, ESC-07, LIS-22: Cloudly's router takes a hold while the listener runs; a node's is
/// refused, whatever it says.
#[test]
fn a_hold_is_cloudly_s_alone() {
    let mut script = Script::escrowed();
    let told = script.node(1, asked("h", HOLD, &of("n")));
    assert_eq!(told, [Did::NodeTold(1, "h".into(), Told::Error("escrow-cloudly-only".into()))]);
    let mut script = Script::standing();
    let unknown = Told::Error("There is no available method for this call on the server side".into());
    assert_eq!(script.cloudly(asked("h", HOLD, &of("n"))), [Did::Told(1, "h".into(), unknown)]);
}

/// ESC-46: a node that goes and registers another session leaves no run behind.
#[test]
fn another_session_of_the_node_drops_its_run() {
    let mut script = Script::escrowed();
    let other = of("n").replace("s-n", "t-n");
    let sent = script.node(2, asked("r", NODE_REGISTERS, &node_registration()));
    script.answer(&sent, ok(&other));
    assert_eq!(script.core.escrow.held(), 0);
}
