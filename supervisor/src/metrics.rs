//! The relay's figures as OpenMetrics 1.0 text, for `coreflowctl metrics`: made of one [`Status`] and a few counts of
//! the supervisor. No port is opened for them.
//!
//! No label has an open set of values: no node, user or address is one. What a worker did not answer is left out,
//! and never zero.

use coreflow_ipc::messages::{
    hub_report::{DROP_REASONS, END_REASONS, HubReport},
    readiness::Hop,
    standing::{PulldStanding, RelaydStanding},
};

use crate::status::{State, Status, WorkerState};

mod text;

use text::{Kind::*, Text};

/// What the supervisor counts since it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Exchanges of the bearer that brought an identity.
    pub exchanges: u64,
    /// Exchanges that brought none.
    pub exchanges_failed: u64,
    /// Restarts of workers by command.
    pub restarts_by_command: u64,
    /// Records of workers that were not written, for their rate.
    pub records_suppressed: u64,
    /// Answers of workers that came too late.
    pub answers_late: u64,
}

/// The text, with its end.
pub fn render(status: &Status, counters: &Counters) -> String {
    let mut text = Text::default();
    relay(&mut text, status, counters);
    workers(&mut text, status);
    if let Some(relayd) = &status.relayd {
        session(&mut text, relayd);
        nodes(&mut text, relayd);
        custody(&mut text, relayd);
    }
    if let Some(pulld) = &status.pulld {
        registry(&mut text, pulld);
    }
    if let Some(report) = status.vpn_hub.as_ref().and_then(|hub| hub.report.as_ref()) {
        hub(&mut text, report);
    }
    text.end()
}

fn relay(text: &mut Text, status: &Status, counters: &Counters) {
    text.family("coreflow_build", Info, "The build that runs.");
    text.sample("coreflow_build_info", &[("version", &status.version)], 1);
    text.one(
        "coreflow_ready",
        Gauge,
        "Whether the relay is open and nothing blocks a hop.",
        status.readiness.ready,
    );
    text.one(
        "coreflow_open",
        Gauge,
        "Whether the relay is open for Cloudly dispatch.",
        status.state == State::Open,
    );
    text.one("coreflow_parked", Gauge, "Whether the relay is parked.", status.registration.parked.is_some());
    text.family("coreflow_hop_refusals", Gauge, "Things that block a hop.");
    for hop in [Hop::CloudlyClient, Hop::ClusterRelayRegistration, Hop::PalletRuntime, Hop::ClusterIngress] {
        let count = status.readiness.refusals.iter().filter(|refusal| refusal.hop == hop).count();
        text.sample("coreflow_hop_refusals", &[("hop", hop.name())], count as u64);
    }
    text.seconds("coreflow_uptime_seconds", "How long the supervisor runs.", status.uptime_ms);
    text.family("coreflow_identity_exchanges", Counter, "Exchanges of the bearer for an identity.");
    for (outcome, count) in [("granted", counters.exchanges), ("failed", counters.exchanges_failed)] {
        text.sample("coreflow_identity_exchanges_total", &[("outcome", outcome)], count);
    }
    let Counters { restarts_by_command, records_suppressed, answers_late, .. } = *counters;
    for (name, help, count) in [
        ("coreflow_restarts_by_command", "Restarts of workers by command.", restarts_by_command),
        (
            "coreflow_records_suppressed",
            "Records of workers that were left out for their rate.",
            records_suppressed,
        ),
        ("coreflow_worker_answers_late", "Answers of workers to a look that came too late.", answers_late),
    ] {
        text.one(name, Counter, help, count);
    }
}

fn workers(text: &mut Text, status: &Status) {
    let labelled = |text: &mut Text, name: &str, value: &dyn Fn(&crate::status::Worker) -> Option<u64>| {
        for worker in &status.workers {
            if let Some(value) = value(worker) {
                text.sample(name, &[("worker", &worker.role)], value);
            }
        }
    };
    text.family("coreflow_worker_running", Gauge, "Whether the worker greeted, and answers pings.");
    let running = |worker: &crate::status::Worker| Some(u64::from(worker.state == WorkerState::Running));
    labelled(text, "coreflow_worker_running", &running);
    text.family(
        "coreflow_worker_answering",
        Gauge,
        "Whether the worker answered this very look, of those that run.",
    );
    let answering = |worker: &crate::status::Worker| {
        let asked =
            worker.state == WorkerState::Running && ["relayd", "pulld"].contains(&worker.role.as_str());
        asked.then(|| u64::from(!status.unanswered.contains(&worker.role)))
    };
    labelled(text, "coreflow_worker_answering", &answering);
    text.family(
        "coreflow_worker_restarts",
        Counter,
        "How often the worker was started again after it had died.",
    );
    labelled(text, "coreflow_worker_restarts_total", &|worker| Some(worker.restarts));
    text.unit_family(
        "coreflow_worker_uptime_seconds",
        Gauge,
        "seconds",
        "How long the worker's process runs.",
    );
    for worker in &status.workers {
        if let Some(up) = worker.uptime_ms {
            text.sample_seconds("coreflow_worker_uptime_seconds", &[("worker", &worker.role)], up);
        }
    }
    let resident = "coreflow_worker_resident_memory_bytes";
    text.unit_family(resident, Gauge, "bytes", "Resident memory of the worker; no sample where /proc is hidden from the relay, as by the unit's ProtectProc=.");
    labelled(text, resident, &|worker| worker.memory.map(|memory| memory.resident_bytes));
}

fn session(text: &mut Text, relayd: &RelaydStanding) {
    let session = &relayd.session;
    text.one(
        "coreflow_session_dispatchable",
        Gauge,
        "Whether Cloudly's session dispatches.",
        session.dispatchable,
    );
    let connections = "Connections on which the session registered.";
    text.one("coreflow_session_connections", Counter, connections, session.connections);
    if let Some(ends) = session.identity_ends_at {
        text.seconds("coreflow_identity_expiry_timestamp_seconds", "When the held identity ends.", ends);
    }
    if let Some(certificate) = &relayd.certificate {
        let help = "When the listener's certificate ends.";
        text.seconds("coreflow_certificate_expiry_timestamp_seconds", help, certificate.ends_at);
    }
}

fn nodes(text: &mut Text, relayd: &RelaydStanding) {
    let (nodes, counters) = (&relayd.nodes, &relayd.counters);
    for (name, help, value) in [
        ("coreflow_node_sockets", "WebSocket connections of the listener.", nodes.sockets),
        ("coreflow_nodes_carried", "Nodes that are carried.", nodes.carried),
        (
            "coreflow_nodes_awaiting",
            "Carried nodes whose registration is of an older connection.",
            nodes.awaiting,
        ),
        ("coreflow_requests_pending", "Requests of nodes that wait for Cloudly.", nodes.requests),
        ("coreflow_pushes_pending", "Pushes that wait for a node.", nodes.pushes),
        ("coreflow_pulls_pending", "Image pulls under way.", relayd.pulls),
    ] {
        text.one(name, Gauge, help, value);
    }
    for (name, help, value) in [
        (
            "coreflow_registrations",
            "Registrations of nodes that were answered with a binding.",
            counters.registrations,
        ),
        ("coreflow_requests", "Requests of nodes that were handed to Cloudly.", counters.requests),
        (
            "coreflow_requests_refused",
            "Requests of nodes that the relay answered itself.",
            counters.requests_refused,
        ),
        ("coreflow_pushes", "Pushes that were handed to a node.", counters.pushes),
        ("coreflow_pushes_refused", "Pushes that the relay answered itself.", counters.pushes_refused),
        ("coreflow_nodes_asked_again", "Nodes that were asked to register again.", counters.asked_again),
        ("coreflow_renewals_offered", "Renewals that were offered to a node.", counters.renewals_offered),
        (
            "coreflow_renewals_acknowledged",
            "Renewals that a node acknowledged.",
            counters.renewals_acknowledged,
        ),
        ("coreflow_pulls", "Pulls that were answered by the registry.", counters.pulls),
        ("coreflow_pulls_refused", "Pulls that the relay answered itself.", counters.pulls_refused),
        (
            "coreflow_connections_refused",
            "Connections that found no place or did not finish their handshake.",
            counters.connections_refused,
        ),
    ] {
        text.one(name, Counter, help, value);
    }
}

fn custody(text: &mut Text, relayd: &RelaydStanding) {
    let (escrow, ingress) = (&relayd.escrow, &relayd.ingress);
    text.one(
        "coreflow_escrow_open",
        Gauge,
        "Whether renewals are kept and offered.",
        escrow.custody == "open",
    );
    for (name, help, value) in [
        ("coreflow_escrow_runs", "Runs of renewals that are held.", escrow.runs),
        ("coreflow_escrow_windows", "Renewals whose window has not ended.", escrow.windows),
        ("coreflow_escrow_due", "Runs with a renewal that is due.", escrow.due),
        ("coreflow_escrow_offers", "Offers that wait for a node.", escrow.offers),
    ] {
        text.one(name, Gauge, help, value);
    }
    text.one("coreflow_ingress_bound", Gauge, "Whether a cluster ingress is bound.", ingress.bound);
    text.one("coreflow_ingress_routes", Gauge, "Routes of the held table.", ingress.routes);
    if let Some(revision) = ingress.revision {
        text.one("coreflow_ingress_revision", Gauge, "Revision of the held table.", revision);
    }
}

fn registry(text: &mut Text, pulld: &PulldStanding) {
    for (name, help, value) in [
        ("coreflow_registry_exchanges_pending", "Exchanges with the registry under way.", pulld.exchanges),
        ("coreflow_registry_connections", "Connections to the registry.", pulld.connections),
        ("coreflow_registry_dials_pending", "Connections to the registry that are being made.", pulld.asks),
    ] {
        text.one(name, Gauge, help, value);
    }
    text.one("coreflow_registry_answered", Counter, "Exchanges that the registry answered.", pulld.answered);
    text.one(
        "coreflow_registry_failed",
        Counter,
        "Exchanges that failed before or within their answer.",
        pulld.failed,
    );
}

fn hub(text: &mut Text, report: &HubReport) {
    text.one("coreflow_vpn_bound", Gauge, "Whether the hub's address is bound.", report.bound.is_some());
    for (name, help, value) in [
        ("coreflow_vpn_members", "Members of the held network.", report.members),
        ("coreflow_vpn_members_admissible", "Members whose time has not passed.", report.admissible),
        ("coreflow_vpn_sessions", "Members with a session.", report.sessions),
        ("coreflow_vpn_handshakes", "Handshakes under way.", report.handshakes),
    ] {
        text.one(name, Gauge, help, value);
    }
    if let Some(revision) = report.revision {
        text.one("coreflow_vpn_revision", Gauge, "Revision of the held network.", revision);
    }
    let forwarded = "Packets that went on to a member.";
    text.one("coreflow_vpn_forwarded_packets", Counter, forwarded, report.forwarded_packets);
    text.unit_family("coreflow_vpn_forwarded_bytes", Counter, "bytes", "Bytes of the packets that went on.");
    text.sample("coreflow_vpn_forwarded_bytes_total", &[], report.forwarded_bytes);
    text.by_reason(
        "coreflow_vpn_dropped_packets",
        "Packets that went to nobody.",
        &DROP_REASONS,
        &report.dropped,
    );
    text.one("coreflow_vpn_admitted_sessions", Counter, "Sessions that were admitted.", report.admitted);
    text.by_reason(
        "coreflow_vpn_ended_sessions",
        "Sessions that ended or were not admitted.",
        &END_REASONS,
        &report.ended,
    );
}

#[cfg(test)]
mod tests;
