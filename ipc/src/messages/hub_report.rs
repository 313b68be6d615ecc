//! What the VPN hub says of itself to the supervisor, and `coreflowctl status` prints: members, sessions,
//! counters and drop reasons; no key and no packet.

use std::{collections::BTreeMap, net::Ipv4Addr, net::SocketAddr};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Sessions that a report lists at most; [`HubReport::sessions`] counts all.
pub const LISTED_SESSIONS: usize = 256;

/// One look at the hub, sent when something changed and at most once a second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HubReport {
    /// What is bound, while a network is held (VPN-37).
    pub bound: Option<SocketAddr>,
    /// The held revision.
    pub revision: Option<u64>,
    /// The control prefix, as `address/length`.
    pub control_prefix: Option<String>,
    /// Members of the held network.
    pub members: u32,
    /// Members whose time has not passed.
    pub admissible: u32,
    /// Members with a session.
    pub sessions: u32,
    /// Handshakes under way.
    pub handshakes: u32,
    /// Packets that went on to a member.
    pub forwarded_packets: u64,
    /// Their bytes.
    pub forwarded_bytes: u64,
    /// Packets that did not, by reason; a reason without any is left out.
    pub dropped: BTreeMap<String, u64>,
    /// Sessions that were admitted.
    pub admitted: u64,
    /// Sessions that ended or were not admitted, by reason; a reason without any is left out.
    pub ended: BTreeMap<String, u64>,
    /// The first [`LISTED_SESSIONS`] sessions, by address.
    pub listed: Vec<SessionReport>,
}

/// One session of a member.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionReport {
    /// The node.
    pub node_id: String,
    /// Its address in the control prefix.
    pub address: Ipv4Addr,
    /// Where it dials from at present.
    pub remote: SocketAddr,
    /// Unix milliseconds of its admission.
    pub since: u64,
    /// Packets that came from it.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that went to it.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}
