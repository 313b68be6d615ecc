//! The status as text and as JSON.

use std::collections::BTreeMap;

use coreflow_ipc::messages::{
    hub_report::{HubReport, LISTED_SESSIONS, SessionReport},
    readiness::{Hop, Offers, StatedOffer},
    standing::CertificateStanding,
};

use super::{standing::tests::relayd, *};
use crate::{
    constants::{
        CONTROL_ANSWER_BYTES, STATUS_ID, STATUS_LINE, STATUS_NAME, STATUS_REASONS, STATUS_REFUSALS,
        STATUS_RELEASE, STATUS_WAITING,
    },
    control::protocol::Answer,
};

fn offer(release: &str, oldest: &str) -> StatedOffer {
    StatedOffer { release: release.to_owned(), oldest_accepted_peer_release: oldest.to_owned() }
}

fn refused(hop: Hop, peer: Option<StatedOffer>) -> Refusal {
    let offers = Offers { own: offer("33.1.0", "32.0.0"), peer };
    Refusal { hop, refusal: Some(offers), line: "protocol-refused: why".to_owned() }
}

fn reference(id: &str, generation: u64) -> Option<Reference> {
    Some(Reference { id: id.to_owned(), generation })
}

pub(crate) fn ready() -> Status {
    Status {
        version: "33.1.0".to_owned(),
        pid: 17,
        uptime_ms: 7_385_000,
        state: State::Open,
        waiting_for: None,
        readiness: Readiness { ready: true, refusals: vec![] },
        listener: Some(SocketAddr::from(([192, 0, 2, 15], 8443))),
        registration: Registration {
            credential: reference("credential-1", 2),
            record: reference("record-1", 9),
            parked: None,
        },
        relayd: None,
        pulld: None,
        unanswered: vec![],
        vpn_hub: None,
        workers: vec![
            Worker {
                pid: Some(18),
                uptime_ms: Some(59_999),
                ..Worker::in_state("relayd", WorkerState::Running)
            },
            Worker {
                restarts: 3,
                restarts_in_ms: Some(500),
                ..Worker::in_state("pulld", WorkerState::Waiting)
            },
            Worker::in_state("vpnd", WorkerState::Off),
        ],
    }
}

fn blocked(refusals: Vec<Refusal>) -> Status {
    Status { readiness: Readiness { ready: false, refusals }, ..ready() }
}

/// The lines on what blocks the hops: those before the empty one, without the first.
fn lines(refusal: Refusal) -> Vec<String> {
    let text = blocked(vec![refusal]).text();
    text.lines().skip(1).take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

/// The text of a relay that serves, as a whole.
#[test]
fn the_text_of_a_ready_relay_is_one_look() {
    let text = "\
ready

relay         coreflow 33.1.0, pid 17, up 2 h 3 min, open for Cloudly dispatch
listener      192.0.2.15:8443
credential    credential-1 generation 2
registration  record-1 generation 9
session       -
certificate   -
nodes         -
escrow        -
ingress       -
pulls         - under way; pulld: -
vpn hub       not configured
workers       relayd  running   pid 18, up 59 s
              pulld   waiting   started again in 500 ms, restarts 3
              vpnd    off
";
    assert_eq!(ready().text(), text);
}

/// What a start waits for, and what it has not got yet.
#[test]
fn the_text_of_a_start_says_what_it_waits_for() {
    let status = Status {
        state: State::Starting,
        waiting_for: Some("Cloudly to answer getClusterConfig".to_owned()),
        readiness: Readiness { ready: false, refusals: vec![] },
        listener: None,
        registration: Registration::default(),
        ..ready()
    };
    let text = status.text();
    assert!(
        text.starts_with("not ready\n  waiting for Cloudly to answer getClusterConfig\n\nrelay "),
        "{text}"
    );
    for part in [
        ", starting\n",
        "listener      not bound\n",
        "none pinned\n",
        "registration  none accepted\n",
        "vpn hub       not known yet\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// PROT-22, PROT-24, PROT-35: a refused protocol is both offers, and which build has to be upgraded to at
/// least which release: this relay, the peer, or both.
#[test]
fn a_refused_protocol_says_which_build_to_upgrade() {
    let own = "this relay           speaks 33.1.0, accepts from 32.0.0";
    let hop = Hop::CloudlyClient;
    assert_eq!(
        lines(refused(hop, Some(offer("34.2.0", "33.10.0")))),
        [
            "cloudlyClient: protocol-refused: why",
            own,
            "Cloudly              speaks 34.2.0, accepts from 33.10.0",
            "upgrade this relay to at least 33.10.0",
        ]
    );
    for (hop, peer, peers) in [
        (Hop::CloudlyClient, "Cloudly             ", "Cloudly"),
        (Hop::ClusterRelayRegistration, "Cloudly             ", "Cloudly"),
        (Hop::PalletRuntime, "the Pallet node     ", "the Pallet nodes"),
        (Hop::ClusterIngress, "the cluster ingress ", "the cluster ingress"),
    ] {
        assert_eq!(
            lines(refused(hop, Some(offer("31.9.9", "3.5.0")))),
            [
                format!("{}: protocol-refused: why", hop.name()),
                own.to_owned(),
                format!("{peer} speaks 31.9.9, accepts from 3.5.0"),
                format!("upgrade {peers} to at least 32.0.0"),
            ]
        );
    }
    let both = lines(refused(hop, Some(offer("31.0.0", "40.0.0"))));
    assert_eq!(both[3..], ["upgrade this relay to at least 40.0.0", "upgrade Cloudly to at least 32.0.0"]);
}

/// PROT-24: a peer without an offer that can be read is the one to upgrade; offers that meet say so.
#[test]
fn a_peer_without_a_readable_offer_is_the_one_to_upgrade() {
    let unread = lines(refused(Hop::PalletRuntime, None));
    assert_eq!(unread[2], "the Pallet node      states no readable offer");
    assert_eq!(unread[3..], ["upgrade the Pallet nodes to at least 32.0.0"]);
    let none = lines(refused(Hop::CloudlyClient, Some(offer("latest", "1.0.0"))));
    assert_eq!(none[3..], ["upgrade Cloudly to at least 32.0.0"]);
    let meet = lines(refused(Hop::CloudlyClient, Some(offer("33.1.0", "32.0.0"))));
    assert_eq!(meet[3..], ["no upgrade follows from these two offers; see the log of Cloudly"]);
}

/// PROT-25: an answer outside the contract is its line, and no version is named for it.
#[test]
fn an_unusable_answer_is_its_line_alone() {
    let refusal = Refusal { hop: Hop::CloudlyClient, refusal: None, line: "answered without it".to_owned() };
    assert_eq!(lines(refusal), ["cloudlyClient: answered without it"]);
}

/// What a peer wrote can act on no terminal, in neither form.
#[test]
fn foreign_text_is_escaped() {
    let mut refusal = refused(Hop::CloudlyClient, Some(offer("\u{1b}[2J", "1.0.0\nready")));
    refusal.line = "a\u{9b}1m\r\n\u{7f}ready".to_owned();
    let status = blocked(vec![refusal]);
    let text = status.text();
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
    assert!(text.contains("a\\u{9b}1m\\r\\n\\u{7f}ready\n") && text.contains("\\u{1b}[2J"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("ready")).count(), 0);
    let json = status.json();
    assert!(json.chars().all(|character| character == '\n' || !character.is_control()), "{json:?}");
    assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
}

/// PROT-21, PROT-22, PROT-24: `readiness` has the form of the contract, section 9, and the document as a
/// whole the members that it is documented with.
#[test]
fn the_json_has_the_documented_form() {
    let json: serde_json::Value = serde_json::from_str(&ready().json()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "version": "33.1.0",
            "pid": 17,
            "uptimeMs": 7_385_000,
            "state": "open",
            "waitingFor": null,
            "readiness": {"ready": true, "refusals": []},
            "listener": "192.0.2.15:8443",
            "registration": {
                "credential": {"id": "credential-1", "generation": 2},
                "record": {"id": "record-1", "generation": 9},
                "parked": null,
            },
            "relayd": null,
            "pulld": null,
            "unanswered": [],
            "vpnHub": null,
            "workers": [
                {"role": "relayd", "state": "running", "pid": 18, "uptimeMs": 59_999, "restarts": 0,
                 "restartsInMs": null, "level": "info", "memory": null},
                {"role": "pulld", "state": "waiting", "pid": null, "uptimeMs": null, "restarts": 3,
                 "restartsInMs": 500, "level": "info", "memory": null},
                {"role": "vpnd", "state": "off", "pid": null, "uptimeMs": null, "restarts": 0,
                 "restartsInMs": null, "level": "info", "memory": null},
            ],
        })
    );
    let status = Status { relayd: Some(relayd()), pulld: Some(PulldStanding::default()), ..ready() };
    let json: serde_json::Value = serde_json::from_str(&status.json()).unwrap();
    assert_eq!(json["relayd"]["nodes"]["carried"], 12);
    assert_eq!(json["relayd"]["certificate"]["endsAt"], 1_769_904_000_000_u64);
    assert_eq!(json["pulld"]["exchanges"], 0);
    assert_eq!(serde_json::from_str::<Status>(&status.json()).unwrap(), status);
    let refused = blocked(vec![refused(Hop::PalletRuntime, None)]);
    let json: serde_json::Value = serde_json::from_str(&refused.json()).unwrap();
    assert_eq!(
        json["readiness"],
        serde_json::json!({"ready": false, "refusals": [{
            "hop": "palletRuntime",
            "refusal": {"own": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"}, "peer": null},
            "line": "protocol-refused: why",
        }]})
    );
    assert_eq!(serde_json::from_str::<Status>(&refused.json()).unwrap(), refused);
}

/// The longest status that relayd can bring about is an answer.
#[test]
fn the_longest_status_has_room_in_an_answer() {
    // A control character is six bytes in JSON, more than any other.
    let long = |characters: usize| "\u{1}".repeat(characters);
    let mut refusal = refused(Hop::PalletRuntime, Some(offer(&long(STATUS_RELEASE), &long(STATUS_RELEASE))));
    refusal.line = long(STATUS_LINE);
    refusal.refusal.as_mut().unwrap().own = offer(&long(STATUS_RELEASE), &long(STATUS_RELEASE));
    let mut status = blocked(vec![refusal; STATUS_REFUSALS + 1]);
    status.waiting_for = Some(long(STATUS_WAITING));
    status.registration = Registration {
        credential: reference(&long(STATUS_ID), u64::MAX),
        record: reference(&long(STATUS_ID), u64::MAX),
        parked: Some(long(STATUS_LINE)),
    };
    let reasons: BTreeMap<String, u64> = (0..STATUS_REASONS + 1)
        .map(|number| (format!("{number:02}{}", long(STATUS_NAME)), u64::MAX))
        .collect();
    let report = HubReport {
        control_prefix: Some(long(STATUS_NAME + 1)),
        dropped: reasons.clone(),
        ended: reasons,
        listed: vec![session(&long(STATUS_NAME + 1), u64::MAX); LISTED_SESSIONS + 1],
        ..hub_report()
    };
    status.vpn_hub = Some(VpnHub {
        refused: Some(format!("vpn-hub-executable-refused: {}", long(4096))),
        ..hub(Some(VpnHub::bounded(report)))
    });
    let mut standing = RelaydStanding::default();
    standing.escrow.custody = long(STATUS_LINE + 1);
    let domain = long(STATUS_LINE + 1);
    standing.certificate =
        Some(CertificateStanding { domain, ends_at: u64::MAX, renewed_at: Some(u64::MAX) });
    let standing = bounded_standing(standing);
    assert_eq!(standing.escrow.custody.len(), STATUS_LINE);
    status.relayd = Some(standing);
    let line = Answer::Status(Box::new(status)).line();
    assert!(line.len() > CONTROL_ANSWER_BYTES / 4 && line.len() <= CONTROL_ANSWER_BYTES, "{}", line.len());
    assert!(line.starts_with(r#"{"status":{"#));
}

fn session(node_id: &str, count: u64) -> SessionReport {
    SessionReport {
        node_id: node_id.to_owned(),
        address: [100, 100, 100, 103].into(),
        remote: SocketAddr::from(([192, 0, 2, 120], 41_000)),
        since: 1_769_817_600_999,
        received_packets: count,
        received_bytes: count,
        sent_packets: count,
        sent_bytes: count,
    }
}

fn hub_report() -> HubReport {
    HubReport {
        bound: Some(SocketAddr::from(([192, 0, 2, 15], 51_820))),
        revision: Some(7),
        control_prefix: Some("100.100.100.0/24".to_owned()),
        members: 4,
        admissible: 3,
        sessions: 2,
        handshakes: 1,
        forwarded_packets: 12,
        forwarded_bytes: 3_456,
        dropped: BTreeMap::from([("no-grant".to_owned(), 5), ("source".to_owned(), 1)]),
        admitted: 9,
        ended: BTreeMap::new(),
        listed: vec![session("node-1", 5), session("a-node-of-another-name", 70)],
    }
}

fn hub(report: Option<HubReport>) -> VpnHub {
    VpnHub { configured: SocketAddr::from(([192, 0, 2, 15], 51_820)), refused: None, report }
}

fn hub_lines(hub: VpnHub) -> Vec<String> {
    let text = Status { vpn_hub: Some(hub), ..ready() }.text();
    let from = text.lines().skip_while(|line| !line.starts_with("vpn hub"));
    from.take_while(|line| !line.starts_with("workers")).map(str::to_owned).collect()
}

/// What the hub serves, carried and dropped, and who is there, in columns.
#[test]
fn the_text_tells_of_the_hub_and_its_sessions() {
    let mut report = hub_report();
    report.sessions = 5;
    let told = "\
vpn hub       UDP 192.0.2.15:51820, revision 7, prefix 100.100.100.0/24
              members 4, admissible 3, sessions 5, handshakes 1
              forwarded 12 packets, 3456 bytes
              dropped: no-grant 5, source 1
              admitted 9, ended: none
              node                    address          remote             up since              from it (packets/bytes)  to it (packets/bytes)
              node-1                  100.100.100.103  192.0.2.120:41000  2026-01-31T00:00:00Z  5/5                      5/5
              a-node-of-another-name  100.100.100.103  192.0.2.120:41000  2026-01-31T00:00:00Z  70/70                    70/70
              and 3 sessions more";
    assert_eq!(hub_lines(hub(Some(report))), told.lines().collect::<Vec<_>>());
}

/// A hub that is not bound says so, and why where there is a reason; a report of a vpnd that has
/// bound nothing is none of a served network.
#[test]
fn a_hub_that_is_not_bound_says_so() {
    let unbound = "vpn hub       192.0.2.15:51820 not bound";
    assert_eq!(hub_lines(hub(None)), [unbound]);
    assert_eq!(hub_lines(hub(Some(HubReport::default()))), [unbound]);
    let refused = "vpn-hub-executable-missing: /a/vpnd".to_owned();
    let hub = VpnHub { refused: Some(refused), ..hub(None) };
    assert_eq!(hub_lines(hub), [format!("{unbound}: vpn-hub-executable-missing: /a/vpnd")]);
}

/// A node's name and a reason act on no terminal, and an escaped name keeps its column.
#[test]
fn foreign_text_of_the_hub_is_escaped() {
    let mut report = hub_report();
    report.listed[0].node_id = "\u{1b}[2J\nready".to_owned();
    report.ended = BTreeMap::from([("\u{9b}1m".to_owned(), 1)]);
    let status = Status { vpn_hub: Some(hub(Some(report))), ..ready() };
    let text = status.text();
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
    let columns: Vec<usize> = text.lines().filter_map(|line| line.find("192.0.2.120")).collect();
    assert!(columns.len() == 2 && columns[0] == columns[1], "{text}");
    assert_eq!(serde_json::from_str::<Status>(&status.json()).unwrap(), status);
}

/// The hub's part of the document, with the members that it is documented with.
#[test]
fn the_json_of_the_hub_has_the_documented_form() {
    let mut report = hub_report();
    report.listed.truncate(1);
    let status = Status { vpn_hub: Some(hub(Some(report))), ..ready() };
    let json: serde_json::Value = serde_json::from_str(&status.json()).unwrap();
    assert_eq!(
        json["vpnHub"],
        serde_json::json!({
            "configured": "192.0.2.15:51820",
            "refused": null,
            "report": {
                "bound": "192.0.2.15:51820",
                "revision": 7,
                "controlPrefix": "100.100.100.0/24",
                "members": 4,
                "admissible": 3,
                "sessions": 2,
                "handshakes": 1,
                "forwardedPackets": 12,
                "forwardedBytes": 3_456,
                "dropped": {"no-grant": 5, "source": 1},
                "admitted": 9,
                "ended": {},
                "listed": [{
                    "nodeId": "node-1", "address": "100.100.100.103", "remote": "192.0.2.120:41000",
                    "since": 1_769_817_600_999_u64, "receivedPackets": 5, "receivedBytes": 5, "sentPackets": 5,
                    "sentBytes": 5,
                }],
            },
        })
    );
}

/// A duration is its two largest units.
#[test]
fn a_duration_is_told_in_two_units() {
    for (milliseconds, told) in [
        (999, "up 0 s,"),
        (60_000, "up 1 min 0 s,"),
        (3_599_999, "up 59 min 59 s,"),
        (86_399_000, "up 23 h 59 min,"),
        (200_000_000, "up 2 d 7 h,"),
    ] {
        let text = Status { uptime_ms: milliseconds, ..ready() }.text();
        assert!(text.contains(told), "{told} {text}");
    }
}
