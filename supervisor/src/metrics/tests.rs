//! The figures of a full relay and of one that has nothing, as text; that it is OpenMetrics is judged by a strict
//! reader of its own in `tests/tests/operations.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use coreflow_ipc::messages::{
    hub_report::SessionReport,
    readiness::Refusal,
    standing::{CertificateStanding, IngressStanding, SessionStanding},
};

use super::*;
use crate::status::{Memory, Readiness, Registration, VpnHub, Worker};

fn worker(role: &str, state: WorkerState) -> Worker {
    Worker {
        pid: Some(7),
        uptime_ms: Some(1_500),
        restarts: 2,
        memory: Some(Memory { resident_bytes: 4096, proportional_bytes: None }),
        ..Worker::in_state(role, state)
    }
}

fn full() -> Status {
    let session = SessionReport {
        node_id: "node-secret-name".to_owned(),
        address: [100, 100, 100, 2].into(),
        remote: SocketAddr::from(([192, 0, 2, 120], 41_000)),
        since: 0,
        received_packets: 1,
        received_bytes: 1,
        sent_packets: 1,
        sent_bytes: 1,
    };
    let dropped = [("no-grant", 5), ("a\"b\n", 2), ("well-formed", 1)];
    let report = HubReport {
        revision: Some(7),
        forwarded_bytes: 99,
        dropped: dropped.map(|(reason, count)| (reason.to_owned(), count)).into(),
        ended: BTreeMap::new(),
        listed: vec![session],
        ..HubReport::default()
    };
    Status {
        version: "33.1.0".to_owned(),
        pid: 6,
        uptime_ms: 61_005,
        state: State::Open,
        waiting_for: None,
        readiness: Readiness {
            ready: false,
            refusals: vec![Refusal { hop: Hop::PalletRuntime, refusal: None, line: "why".to_owned() }],
        },
        listener: None,
        registration: Registration::default(),
        relayd: Some(RelaydStanding {
            session: SessionStanding { dispatchable: true, connections: 3, identity_ends_at: Some(5_250) },
            certificate: Some(CertificateStanding {
                domain: "d".to_owned(),
                ends_at: 9_000,
                renewed_at: None,
            }),
            ingress: IngressStanding { bound: true, revision: Some(4), routes: 2 },
            ..RelaydStanding::default()
        }),
        pulld: Some(PulldStanding { failed: 8, ..PulldStanding::default() }),
        unanswered: vec!["pulld".to_owned()],
        vpn_hub: Some(VpnHub {
            configured: SocketAddr::from(([192, 0, 2, 15], 51_820)),
            refused: None,
            report: Some(report),
        }),
        workers: vec![
            worker("relayd", WorkerState::Running),
            worker("pulld", WorkerState::Running),
            worker("vpnd", WorkerState::Waiting),
        ],
    }
}

/// Each sample has its value, its labels from a closed set, and no node or address is among them.
#[test]
fn each_figure_is_a_sample() {
    let text = render(&full(), &Counters { exchanges: 4, exchanges_failed: 1, ..Counters::default() });
    for line in [
        "coreflow_build_info{version=\"33.1.0\"} 1",
        "coreflow_ready 0",
        "coreflow_open 1",
        "coreflow_hop_refusals{hop=\"palletRuntime\"} 1",
        "coreflow_hop_refusals{hop=\"cloudlyClient\"} 0",
        "coreflow_uptime_seconds 61.005",
        "coreflow_identity_exchanges_total{outcome=\"granted\"} 4",
        "coreflow_worker_running{worker=\"vpnd\"} 0",
        "coreflow_worker_answering{worker=\"relayd\"} 1",
        "coreflow_worker_answering{worker=\"pulld\"} 0",
        "coreflow_worker_restarts_total{worker=\"relayd\"} 2",
        "coreflow_worker_uptime_seconds{worker=\"relayd\"} 1.500",
        "coreflow_worker_resident_memory_bytes{worker=\"relayd\"} 4096",
        "coreflow_session_connections_total 3",
        "coreflow_identity_expiry_timestamp_seconds 5.250",
        "coreflow_certificate_expiry_timestamp_seconds 9.000",
        "coreflow_ingress_routes 2",
        "coreflow_registry_failed_total 8",
        "# UNIT coreflow_vpn_forwarded_bytes bytes",
        "coreflow_vpn_forwarded_bytes_total 99",
        "coreflow_vpn_dropped_packets_total{reason=\"no-grant\"} 5",
        "coreflow_vpn_dropped_packets_total{reason=\"other\"} 3",
    ] {
        assert_eq!(text.lines().filter(|told| *told == line).count(), 1, "{line}\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
    for foreign in ["node-secret-name", "192.0.2", "100.100"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
}

/// A family is begun once and its samples stand together, so that a reader takes the text.
#[test]
fn a_family_is_begun_once() {
    let text = render(&full(), &Counters::default());
    let mut seen = BTreeSet::new();
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(seen.insert(name.split(' ').next().unwrap()), "{name}");
    }
    assert!(seen.len() > 50, "{}", seen.len());
}

/// What no worker answered is left out, and no figure is made up for it.
#[test]
fn what_is_not_known_is_left_out() {
    let mut status = full();
    (status.relayd, status.pulld, status.vpn_hub) = (None, None, None);
    for worker in &mut status.workers {
        (worker.memory, worker.uptime_ms) = (None, None);
    }
    let text = render(&status, &Counters::default());
    for part in ["coreflow_nodes", "coreflow_session", "coreflow_registry", "coreflow_vpn", "memory_bytes{"] {
        assert!(!text.contains(part), "{part}");
    }
    assert!(text.contains("\ncoreflow_ready 0\n") && text.ends_with("\n# EOF\n"));
}
