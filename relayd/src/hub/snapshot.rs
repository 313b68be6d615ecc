//! A network in the daemon's words. `schemaVersion`, the ISO-8601 expiry and `enabled` are made here, when a
//! network is handed to vpnd, and are in nothing that relayd holds (VPN-31, VPN-32).

use coreflow_ipc::messages::vpn_network::{Held, Prefix, SNAPSHOT_SCHEMA, Snapshot, SnapshotMember};
use ring::digest::{Context, SHA256};
use time::{
    OffsetDateTime,
    format_description::well_known::{
        Iso8601,
        iso8601::{Config, EncodedConfig, TimePrecision},
    },
};

use crate::contract::vpn_network::{Member, VpnNetwork};

/// The last millisecond that four digits of a year can state: 9999-12-31T23:59:59.999Z. The contract's `Time`
/// goes on; who is admitted so long is admitted for good.
const LAST_STATED: u64 = 253_402_300_799_999;

const MILLISECONDS: EncodedConfig = Config::DEFAULT
    .set_time_precision(TimePrecision::Second { decimal_digits: std::num::NonZeroU8::new(3) })
    .encode();

/// The whole network, for vpnd.
pub fn compose(network: &VpnNetwork) -> Snapshot {
    Snapshot {
        schema_version: SNAPSHOT_SCHEMA,
        network: Held {
            authority: network.authority.as_str().to_owned(),
            generation: network.generation.get(),
            revision: network.revision.get(),
            control_prefix: network.control_prefix,
            digest: digest(network),
        },
        members: network.members.iter().map(member).collect(),
        grants: network.grants.clone(),
    }
}

fn member(member: &Member) -> SnapshotMember {
    SnapshotMember {
        node_id: member.node_id.as_str().to_owned(),
        public_key: member.public_key,
        address: member.address,
        prefixes: member.prefixes.clone(),
        enabled: true,
        expires_at: iso_8601(member.expires_at),
    }
}

fn iso_8601(unix_ms: u64) -> String {
    let nanoseconds = i128::from(unix_ms.min(LAST_STATED)) * 1_000_000;
    let at = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).expect("a year of four digits is a date");
    at.format(&Iso8601::<MILLISECONDS>).expect("a date in UTC has this form")
}

/// SHA-256 over the content, each part after its length; a network has one order (see [`VpnNetwork`]).
pub(super) fn digest(network: &VpnNetwork) -> [u8; 32] {
    let mut content = Content(Context::new(&SHA256));
    content.text(network.authority.as_str());
    content.number(network.generation.get());
    content.number(network.revision.get());
    content.prefix(network.control_prefix);
    content.length(network.members.len());
    for member in &network.members {
        content.text(member.node_id.as_str());
        content.0.update(&member.public_key);
        content.0.update(&member.address.octets());
        content.length(member.prefixes.len());
        member.prefixes.iter().for_each(|prefix| content.prefix(*prefix));
        content.number(member.expires_at);
    }
    network.grants.words().iter().for_each(|word| content.number(*word));
    content.0.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

struct Content(Context);

impl Content {
    fn number(&mut self, number: u64) {
        self.0.update(&number.to_be_bytes());
    }

    fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).expect("lengths fit 64 bits"));
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.update(text.as_bytes());
    }

    fn prefix(&mut self, prefix: Prefix) {
        self.0.update(&prefix.address.octets());
        self.0.update(&[prefix.length]);
    }
}
