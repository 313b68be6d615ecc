//! The managed VPN hub in a status: what it serves, who is there, what it carried and what it dropped, and why
//! (VPN-33, VPN-36, VPN-37). No key and no packet has a place in it.

use std::{collections::BTreeMap, net::SocketAddr};

use coreflow_ipc::messages::hub_report::{HubReport, LISTED_SESSIONS, SessionReport};
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{State, Status};
use crate::constants::{STATUS_NAME, STATUS_REASONS};

/// A hub that is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VpnHub {
    /// What it binds and advertises: the VPN pair of the launch facts.
    pub configured: SocketAddr,
    /// Why it is not bound, by name: its executable, or the last bind that the host refused.
    pub refused: Option<String>,
    /// What the living vpnd last said of itself.
    pub report: Option<HubReport>,
}

impl VpnHub {
    /// As much of a report as a status has room for: what a worker says is not trusted to have a length.
    pub fn bounded(mut report: HubReport) -> HubReport {
        let cut = |text: &str| text.chars().take(STATUS_NAME).collect::<String>();
        let few = |reasons: BTreeMap<String, u64>| {
            let reasons = reasons.into_iter().take(STATUS_REASONS);
            reasons.map(|(reason, count)| (cut(&reason), count)).collect::<BTreeMap<_, _>>()
        };
        report.control_prefix = report.control_prefix.as_deref().map(cut);
        report.dropped = few(report.dropped);
        report.ended = few(report.ended);
        report.listed.truncate(LISTED_SESSIONS);
        for session in &mut report.listed {
            session.node_id = cut(&session.node_id);
        }
        report
    }
}

/// The lines of the text that tell of the hub.
pub(super) fn told(status: &Status) -> Vec<String> {
    let Some(hub) = &status.vpn_hub else {
        let why = if status.state == State::Starting { "not known yet" } else { "not configured" };
        return vec![format!("vpn hub       {why}")];
    };
    let report = hub.report.as_ref();
    let Some((bound, report)) = report.and_then(|report| Some((report.bound?, report))) else {
        let why = hub.refused.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        return vec![format!("vpn hub       {} not bound{why}", hub.configured)];
    };
    let revision = report.revision.map_or_else(|| "none".to_owned(), |revision| revision.to_string());
    let prefix = report.control_prefix.as_deref().unwrap_or("none");
    let mut lines = vec![
        format!("vpn hub       UDP {bound}, revision {revision}, prefix {prefix}"),
        indented(&format!(
            "members {}, admissible {}, sessions {}, handshakes {}",
            report.members, report.admissible, report.sessions, report.handshakes
        )),
        indented(&format!(
            "forwarded {} packets, {} bytes",
            report.forwarded_packets, report.forwarded_bytes
        )),
        indented(&format!("dropped: {}", counted(&report.dropped))),
        indented(&format!("admitted {}, ended: {}", report.admitted, counted(&report.ended))),
    ];
    lines.extend(table(&report.listed).iter().map(|row| indented(row)));
    let unlisted = usize::try_from(report.sessions).unwrap_or(usize::MAX).saturating_sub(report.listed.len());
    if unlisted > 0 {
        lines.push(indented(&format!("and {unlisted} sessions more")));
    }
    lines
}

fn indented(text: &str) -> String {
    format!("{:14}{text}", "")
}

fn counted(reasons: &BTreeMap<String, u64>) -> String {
    if reasons.is_empty() {
        return "none".to_owned();
    }
    let each: Vec<String> = reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    each.join(", ")
}

/// The sessions in columns; nothing where there is none.
fn table(sessions: &[SessionReport]) -> Vec<String> {
    if sessions.is_empty() {
        return Vec::new();
    }
    let heading =
        ["node", "address", "remote", "up since", "from it (packets/bytes)", "to it (packets/bytes)"];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(sessions.iter().map(|session| {
        [
            // Escaped before it is measured; an escaped text is left as it is when its line is escaped.
            escaped(&session.node_id),
            session.address.to_string(),
            session.remote.to_string(),
            moment(session.since),
            format!("{}/{}", session.received_packets, session.received_bytes),
            format!("{}/{}", session.sent_packets, session.sent_bytes),
        ]
    }));
    columns(&rows)
}

/// Rows in columns as wide as their widest cell.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let padded = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(padded).collect()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    coreflow_ipc::record::escape_into(&mut escaped, text);
    escaped
}

/// Unix milliseconds as a time of UTC, to the second.
pub(super) fn moment(unix: u64) -> String {
    let seconds =
        i64::try_from(unix / 1000).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    seconds.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| "unknown".to_owned())
}
