//! Networks for tests: member `n` has the key of `n`s, address `10.8.0.(n + 2)` and prefix `10.(n + 100).0.0/16`,
//! and everybody may send to everybody.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::Arc,
};

use coreflow_ipc::{
    messages::vpn_network::{Grants, Held, Prefix, SNAPSHOT_SCHEMA, Snapshot, SnapshotMember},
    now::Clock,
};
use quinn::{AsyncUdpSocket, Endpoint, TokioRuntime};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{network::Network, shared::Shared};
use crate::protocol::{noise::StaticKey, socket::Datagrams, tls, transport};

pub(crate) fn prefix(address: [u8; 4], length: u8) -> Prefix {
    Prefix { address: address.into(), length }
}

pub(crate) fn iso(unix_ms: u64) -> String {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000).unwrap();
    moment.format(&Rfc3339).unwrap()
}

pub(crate) fn member(number: u8, expires_at: u64) -> SnapshotMember {
    SnapshotMember {
        node_id: format!("node-{number}"),
        public_key: [number + 1; 32],
        address: Ipv4Addr::new(10, 8, 0, number + 2),
        prefixes: vec![prefix([10, number + 100, 0, 0], 16)],
        enabled: true,
        expires_at: iso(expires_at),
    }
}

pub(crate) fn snapshot(revision: u64, members: Vec<SnapshotMember>) -> Snapshot {
    let mut grants = Grants::none(members.len());
    for from in 0..members.len() {
        (0..members.len()).for_each(|to| grants.grant(from, to));
    }
    let network = Held {
        authority: "cloudly".into(),
        generation: 1,
        revision,
        control_prefix: prefix([10, 8, 0, 0], 24),
        digest: [u8::try_from(revision % 251).unwrap(); 32],
    };
    Snapshot { schema_version: SNAPSHOT_SCHEMA, network, members, grants }
}

pub(crate) fn network(snapshot: Snapshot) -> Arc<Network> {
    Arc::new(Network::of(snapshot).unwrap())
}

/// A hub without its loop, and its endpoint on loopback over what `over` makes of a socket.
pub(super) fn hub(
    over: impl FnOnce(Arc<dyn AsyncUdpSocket>) -> Arc<dyn AsyncUdpSocket>,
) -> (Arc<Shared>, Endpoint) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let bound = socket.local_addr().unwrap();
    let socket = over(Datagrams::over(socket).unwrap());
    let (config, tls) = (transport::endpoint_config(), tls::hub_config().unwrap());
    let endpoint =
        Endpoint::new_with_abstract_socket(config, Some(tls), socket, Arc::new(TokioRuntime)).unwrap();
    let (key, clock) = (Arc::new(StaticKey::generate().unwrap()), Clock::start());
    (Arc::new(Shared::new(key, Arc::new(move || clock.now()), bound)), endpoint)
}
