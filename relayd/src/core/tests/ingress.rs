//! The ingress among the other machines: it registers on the nodes' listener, and what it is given
//! outlasts every refusal.

use super::*;

const INGRESS_REGISTERS: &str = "registerClusterIngress";
const PULL: &str = "getClusterIngressRouteTable";
const STATISTICS: &str = "getClusterTrafficStatistics";

fn table(revision: u64) -> String {
    format!(r#"{{"clusterId":"c","revision":{revision},"routes":[],"certificates":[]}}"#)
}

fn registration(release: &str) -> String {
    format!(
        r#"{{"protocol":{{"release":"{release}","oldestAcceptedPeerRelease":"32.0.0"}},"authorization":"a","nodeId":"n","ingressInstanceNonce":"x"}}"#
    )
}

impl Script {
    /// A registered relay with an ingress bound on socket 9 and revision 3 of the table.
    fn with_ingress() -> Self {
        let mut script = Self::registered();
        let pushed = format!(r#"{{"routeTable":{}}}"#, table(3));
        let told = script.cloudly(asked("t", "pushClusterRouteTable", &pushed));
        assert_eq!(told, [Did::Told(1, "t".into(), Told::Response(r#"{"revision":3}"#.into()))]);
        let sent = script.node(9, asked("i", INGRESS_REGISTERS, &registration("32.0.0")));
        assert_eq!(sent, [Did::Sent(1, out(INGRESS_REGISTERS, &registration("32.0.0")))]);
        let accepted = format!(r#"{{"protocol":{OFFER},"ingress":{{"id":"i","generation":1}}}}"#);
        let told = script.answer(&sent, ok(&accepted));
        let [Did::NodeTold(9, _, Told::Response(body))] = told.as_slice() else { panic!("{told:?}") };
        assert!(body.contains(r#""routeTableRevision":3"#), "{body}");
        script
    }

    /// The bound ingress is given revision 3.
    fn assert_pulled(&mut self) {
        let told = self.node(9, asked("p", PULL, r#"{"appliedRevision":null}"#));
        let body = format!(r#"{{"routeTable":{}}}"#, table(3));
        assert_eq!(told, [Did::NodeTold(9, "p".into(), Told::Response(body))]);
    }
}

/// LIS-24, ING-24, ING-27, ING-28, ING-35: the ingress registers on the nodes' listener, is bound by
/// Cloudly's acceptance, and is given the table; a node on the same listener is not.
#[test]
fn the_ingress_registers_on_the_nodes_listener() {
    let mut script = Script::with_ingress();
    script.carry(1, "n");
    script.assert_pulled();
    let told = script.node(1, asked("p", PULL, r#"{"appliedRevision":null}"#));
    let [Did::NodeTold(1, _, Told::Error(text))] = told.as_slice() else { panic!("{told:?}") };
    assert!(text.starts_with("cluster-ingress-not-bound"), "{text}");
    script.assert_carried(1, "n");
    let asked_for = script.cloudly(asked("s", STATISTICS, r#"{"page":1.0}"#));
    assert_eq!(asked_for, [Did::NodeSent(9, out(STATISTICS, r#"{"page":1.0}"#))]);
    let told = script.node(9, answer_to(&request(&asked_for), ok(r#"{"rows":[]}"#)));
    assert_eq!(told, [Did::Told(1, "s".into(), Told::Response(r#"{"rows":[]}"#.into()))]);
}

/// ING-16, ING-20: that there is no table is one line in the log, however often Cloudly says it; and so is a hint
/// that failed.
#[test]
fn no_table_and_a_failed_hint_are_one_line_each() {
    let mut script = Script::with_ingress();
    let mut none = |record| {
        let registered = script.renew();
        let reads = script.answer(&registered, acceptance("https://relay.test", 1, record));
        logged(|| script.answer_table(&reads, "null")).0
    };
    let lines = none(2);
    assert!(lines.len() == 1 && lines[0].contains("computed no route table"), "{lines:?}");
    assert_eq!(none(3), Vec::<String>::new());
    let pushed = format!(r#"{{"routeTable":{}}}"#, table(4));
    let hinted = request(&script.cloudly(asked("t", "pushClusterRouteTable", &pushed)));
    let (lines, _) = logged(|| script.node(9, answer_to(&hinted, plain_refusal("some-name: words"))));
    assert_eq!(warnings(&lines).len(), 1, "{lines:?}");
    assert!(lines[0].contains("could not be hinted") && !lines[0].contains("words"), "{lines:?}");
}

/// ING-26, ING-30: the end of its connection releases the binding, and no other's does: Cloudly's question is then
/// refused by name.
#[test]
fn the_end_of_its_connection_releases_the_ingress() {
    let mut script = Script::with_ingress();
    script.on(Event::NodeClosed { socket: 8 });
    script.assert_pulled();
    let (lines, _) = logged(|| script.on(Event::NodeClosed { socket: 9 }));
    assert!(warnings(&lines)[0].contains("the cluster ingress on node n is gone"), "{lines:?}");
    let told = script.cloudly(asked("s", STATISTICS, "{}"));
    assert_eq!(told, [Did::Told(1, "s".into(), Told::Error("cluster-ingress-not-bound".into()))]);
}

/// PROT-20, ING-36: a refused protocol leaves the table served, and so does a lost session.
#[test]
fn a_refused_protocol_leaves_the_table_served() {
    let mut script = Script::with_ingress();
    let registered = script.renew();
    let refused = script.answer(&registered, plain_refusal("protocol-refused: x"));
    assert!(matches!(refused.as_slice(), [Did::Readiness(lines)] if lines.len() == 1), "{refused:?}");
    script.assert_pulled();
    script.session(session::Event::Closed { connection: 1 });
    script.assert_pulled();
}

/// ING-25, OUT-10: the connection of a superseded ingress is closed after its grace, as a superseded node's is, so that
/// whoever holds it registers anew; one that is bound again by then is not, and without a session none is (OUT-09).
#[test]
fn a_superseded_ingress_s_connection_is_closed() {
    let mut script = Script::with_ingress();
    let register = |script: &mut Script, socket, generation| {
        let sent = script.node(socket, asked("i", INGRESS_REGISTERS, &registration("32.0.0")));
        let accepted = format!(r#"{{"protocol":{OFFER},"ingress":{{"id":"i","generation":{generation}}}}}"#);
        script.answer(&sent, ok(&accepted));
        assert_eq!(script.core.ingress.bound(), Some(socket));
    };
    register(&mut script, 10, 2);
    assert_eq!(script.pass(29_999 * MS), []);
    assert_eq!(script.pass(MS), [Did::CloseNode(9)]);
    script.on(Event::NodeClosed { socket: 9 });
    register(&mut script, 11, 3);
    register(&mut script, 10, 4);
    script.pass(20_000 * MS);
    script.session(session::Event::Closed { connection: 1 });
    assert!(!script.pass(60_000 * MS).contains(&Did::CloseNode(11)));
    script.connection = 2;
    script.connect();
    let done = script.pass(MS);
    assert!(done.contains(&Did::CloseNode(11)) && !done.contains(&Did::CloseNode(10)), "{done:?}");
}

/// REG-57, ING-14: a relay that parks reads no table any more, also where the last read had failed.
#[test]
fn a_parked_relay_reads_no_table_again() {
    let mut script = Script::with_ingress();
    let registered = script.renew();
    let reads = script.answer(&registered, acceptance("https://relay.test", 1, 2));
    script.cloudly(answer_to(&read_among(&reads, TABLE), plain_refusal("Internal server error")));
    script.answer_network(&reads, "null");
    assert!(served(&script.pass(30_000 * MS), TABLE), "it is read again as long as the relay is not parked");
    let announced = script.renew();
    script.answer(&announced, plain_refusal("relay-credential-generation-stale"));
    script.assert_pulled();
    for _ in 0..10 {
        assert!(!served(&script.pass(30_000 * MS), TABLE));
    }
}

/// REG-61, ING-36: a parked relay keeps serving the table to the bound ingress, which stays carried.
#[test]
fn a_parked_relay_keeps_serving_the_table() {
    let mut script = Script::with_ingress();
    let registered = script.renew();
    let parked = script.answer(&registered, plain_refusal("relay-credential-generation-stale"));
    assert!(!served(&parked, TABLE));
    script.assert_pulled();
}

/// REG-66, VPN-24, ING-11, ING-12: each acceptance is followed by the reads that depend on it, and nothing else is.
#[test]
fn each_acceptance_reads_the_config_the_table_and_the_network() {
    let mut script = Script::standing();
    let sent = script.listen();
    let reads = script.answer(&sent, acceptance("https://relay.test", 1, 1));
    let sent = |method: &str, body: &str| Did::Sent(1, out(method, body));
    assert_eq!(reads[1..], [sent(CONFIG, &identified()), sent(TABLE, "{}"), sent(NETWORK, "{}")]);
    assert_eq!(script.answer_table(&reads, &table(3)), []);
    let registered = script.reconnect();
    assert!(served(&registered, REGISTER), "{registered:?}");
    assert!(!served(&registered, TABLE) && !served(&registered, NETWORK), "{registered:?}");
    let reads = script.answer(&registered, acceptance("https://relay.test", 1, 2));
    assert!(served(&reads, TABLE) && served(&reads, NETWORK) && served(&reads, CONFIG));
}

/// PROT-08, PROT-11, PROT-13, PROT-15, PROT-31: the ingress has a hop and an oldest release of its own; a
/// refused offer stands on it until a servable one arrives, and nothing of it reaches Cloudly.
#[test]
fn a_refused_ingress_stands_on_its_own_hop() {
    let mut script = Script::registered();
    let refused = script.node(9, asked("i", INGRESS_REGISTERS, &registration("31.9.9")));
    let [Did::NodeTold(9, _, Told::Error(text)), Did::Readiness(lines)] = refused.as_slice() else {
        panic!("{refused:?}")
    };
    assert!(text.starts_with("protocol-refused: clusterIngress peer speaks 31.9.9"), "{text}");
    assert!(lines[0].starts_with("clusterIngress: ") && lines.len() == 1, "{lines:?}");
    let served = script.node(9, asked("i", INGRESS_REGISTERS, &registration("32.0.0")));
    let [Did::Sent(1, _), Did::Readiness(lines)] = served.as_slice() else { panic!("{served:?}") };
    assert!(lines.is_empty());
}

/// START-24: a stop waits for what Cloudly asked the ingress.
#[test]
fn a_stop_waits_for_the_ingress_s_answer() {
    let mut script = Script::with_ingress();
    let asked_for = script.cloudly(asked("s", STATISTICS, "{}"));
    assert!(!script.on(Event::Stop).contains(&Did::Drained));
    let told = script.node(9, answer_to(&request(&asked_for), ok("{}")));
    assert!(told.contains(&Did::Drained), "{told:?}");
}
