//! What the VPN hub says of itself to the supervisor, and `coreflowctl status` prints: members, sessions,
//! counters and drop reasons; no key and no packet.

use std::{collections::BTreeMap, net::Ipv4Addr, net::SocketAddr};

use bincode::{Decode, Encode, de::Decoder, error::DecodeError};
use serde::{Deserialize, Serialize};

use crate::bounded_map;

/// Reasons of one kind that a report counts at most; one with more is refused by the codec.
pub const COUNTED_REASONS: usize = 32;
/// Longest name of a reason, in bytes; a report with a longer one is refused by the codec.
pub const REASON_NAME: usize = 32;
/// The names under which a hub counts packets that went to nobody.
pub const DROP_REASONS: [&str; 14] = [
    "unknown-frame",
    "fragment-lost",
    "malformed",
    "source-foreign",
    "quoted-foreign",
    "destination-special",
    "destination-unknown",
    "to-itself",
    "no-grant",
    "no-session",
    "too-big",
    "hub-full",
    "leg-full",
    "leg-gone",
];
/// The names under which a hub counts sessions that ended or were not admitted.
pub const END_REASONS: [&str; 14] = [
    "ended",
    "stopping",
    "superseded",
    "not-admitted",
    "withdrawn",
    "expired",
    "malformed",
    "version",
    "busy",
    "late",
    "peer-closed",
    "idle",
    "lost",
    "refused",
];
/// Sessions that a report lists at most; [`HubReport::sessions`] counts all.
pub const LISTED_SESSIONS: usize = 256;

/// One look at the hub, sent when something changed and at most once a second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Serialize, Deserialize)]
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
    /// Packets that did not, by reason; a reason without any is left out. At most [`COUNTED_REASONS`].
    pub dropped: BTreeMap<String, u64>,
    /// Sessions that were admitted.
    pub admitted: u64,
    /// Sessions that ended or were not admitted, by reason; a reason without any is left out. At most
    /// [`COUNTED_REASONS`].
    pub ended: BTreeMap<String, u64>,
    /// The first [`LISTED_SESSIONS`] sessions, by address.
    pub listed: Vec<SessionReport>,
}

impl<C> Decode<C> for HubReport {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(Self {
            bound: Decode::decode(decoder)?,
            revision: Decode::decode(decoder)?,
            control_prefix: Decode::decode(decoder)?,
            members: Decode::decode(decoder)?,
            admissible: Decode::decode(decoder)?,
            sessions: Decode::decode(decoder)?,
            handshakes: Decode::decode(decoder)?,
            forwarded_packets: Decode::decode(decoder)?,
            forwarded_bytes: Decode::decode(decoder)?,
            dropped: bounded_map::decode(decoder, COUNTED_REASONS, REASON_NAME)?,
            admitted: Decode::decode(decoder)?,
            ended: bounded_map::decode(decoder, COUNTED_REASONS, REASON_NAME)?,
            listed: Decode::decode(decoder)?,
        })
    }
}

bincode::impl_borrow_decode!(HubReport);

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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        codec::CodecError,
        frame::HEADER,
        messages::{Message, vpnd::FromVpnd},
    };

    fn session(node_id: &str) -> SessionReport {
        SessionReport {
            node_id: node_id.to_owned(),
            address: Ipv4Addr::new(100, 100, 100, 103),
            remote: ([192, 0, 2, 120], 41_000).into(),
            since: u64::MAX,
            received_packets: 1,
            received_bytes: 2,
            sent_packets: 3,
            sent_bytes: 4,
        }
    }

    fn reasons(count: usize, name: usize) -> BTreeMap<String, u64> {
        (0..count).map(|number| (format!("{number:0>name$}"), u64::MAX - 1)).collect()
    }

    fn over_the_link(report: &HubReport) -> Result<HubReport, CodecError> {
        let mut frame = Vec::new();
        FromVpnd::Report(report.clone()).append(&mut frame).unwrap();
        match FromVpnd::of_bytes(&Bytes::from(frame).slice(HEADER..))? {
            FromVpnd::Report(report) => Ok(report),
            FromVpnd::Worker(_) | FromVpnd::AskSocket { .. } => panic!("another message came back"),
        }
    }

    /// Every member comes back, in its own place, and the largest report passes.
    #[test]
    fn a_report_comes_back_as_it_was() {
        let report = HubReport {
            bound: Some(([192, 0, 2, 15], 51_820).into()),
            revision: Some(1),
            control_prefix: Some("100.100.100.0/24".to_owned()),
            members: 2,
            admissible: 3,
            sessions: 4,
            handshakes: 5,
            forwarded_packets: 6,
            forwarded_bytes: 7,
            dropped: reasons(COUNTED_REASONS, REASON_NAME),
            admitted: 8,
            ended: reasons(COUNTED_REASONS, REASON_NAME - 1),
            listed: vec![session(&"n".repeat(128)); LISTED_SESSIONS],
        };
        assert_eq!(over_the_link(&report), Ok(report.clone()));
        assert_eq!(over_the_link(&HubReport::default()), Ok(HubReport::default()));
    }

    /// ARC-13: of a frame of short reasons each costs many times its bytes in memory; more of them than a hub has,
    /// or a longer name, are no report.
    #[test]
    fn more_reasons_than_a_hub_has_are_refused() {
        for (count, name) in [(COUNTED_REASONS + 1, 4), (2_000, 4), (1, REASON_NAME + 1)] {
            let many = reasons(count, name);
            let dropped = HubReport { dropped: many.clone(), ..HubReport::default() };
            let ended = HubReport { ended: many, ..HubReport::default() };
            for report in [dropped, ended] {
                assert_eq!(over_the_link(&report), Err(CodecError::Malformed), "{count} of {name} bytes");
            }
        }
    }
}
