//! What the links of pulld and vpnd carry, and what they have no place for.

use super::{
    hub_report::{HubReport, SessionReport},
    peers::{RelaydToVpnd, VpndToRelayd},
    pulld::{PulldStart, ToPulld},
    vpn_network::{Held, NotApplied, Snapshot, SnapshotMember},
    vpnd::{FromVpnd, ToVpnd},
    *,
};
use crate::codec;

// What a message carries beside numbers of asks, by its members. The matches are exhaustive: a message or a member
// more does not compile before it is weighed here, and what is weighed is stated in the tests below.

fn to_worker(message: &ToWorker) -> &'static [&'static str] {
    match message {
        ToWorker::Hello(Hello { protocol: _, version: _, role: _, pid: _ }) => &["build"],
        ToWorker::PeerLink { role: _ } => &["role", "link"],
        ToWorker::LogLevel(_) => &["level"],
        ToWorker::Ping(_) | ToWorker::Stop => &[],
    }
}

fn from_worker(message: &FromWorker) -> &'static [&'static str] {
    match message {
        FromWorker::Hello(Hello { protocol: _, version: _, role: _, pid: _ }) => &["build"],
        FromWorker::Confined(Report { layers: _ }) => &["layers"],
        FromWorker::Record(Record { level: _, message: _, fields: _ }) => &["words"],
        FromWorker::Pong(_) | FromWorker::Stopped => &[],
    }
}

fn to_pulld(message: &ToPulld) -> &'static [&'static str] {
    match message {
        ToPulld::Worker(message) => to_worker(message),
        ToPulld::Start(PulldStart { registry_origin: _, relay_origin: _, trust_anchors: _ }) => {
            &["registry origin", "relay origin", "trust anchors"]
        }
        ToPulld::AnswerConnection { id: _, answer: Ok(()) | Err(_) } => &["connection"],
        ToPulld::AskStanding { id: _ } => &[],
    }
}

fn to_vpnd(message: &ToVpnd) -> &'static [&'static str] {
    match message {
        ToVpnd::Worker(message) => to_worker(message),
        ToVpnd::AnswerSocket { id: _, answer: Ok(_) | Err(_) } => &["socket"],
    }
}

fn from_vpnd(message: &FromVpnd) -> &'static [&'static str] {
    match message {
        FromVpnd::Worker(message) => from_worker(message),
        FromVpnd::AskSocket { id: _ } => &[],
        FromVpnd::Report(HubReport {
            bound: _,
            revision: _,
            control_prefix: _,
            members: _,
            admissible: _,
            sessions: _,
            handshakes: _,
            forwarded_packets: _,
            forwarded_bytes: _,
            dropped: _,
            admitted: _,
            ended: _,
            listed,
        }) => {
            for SessionReport {
                node_id: _,
                address: _,
                remote: _,
                since: _,
                received_packets: _,
                received_bytes: _,
                sent_packets: _,
                sent_bytes: _,
            } in listed
            {}
            &["addresses", "names", "counts"]
        }
    }
}

fn relayd_to_vpnd(message: &RelaydToVpnd) -> &'static [&'static str] {
    match message {
        RelaydToVpnd::Hello(Hello { protocol: _, version: _, role: _, pid: _ }) => &["build"],
        RelaydToVpnd::Apply { id: _, snapshot } => {
            let Snapshot { schema_version: _, network, members, grants: _ } = &**snapshot;
            let Held { authority: _, generation: _, revision: _, control_prefix: _, digest: _ } = network;
            for SnapshotMember {
                node_id: _,
                public_key: _,
                address: _,
                prefixes: _,
                enabled: _,
                expires_at: _,
            } in members
            {}
            &["network", "public keys of nodes"]
        }
    }
}

fn vpnd_to_relayd(message: &VpndToRelayd) -> &'static [&'static str] {
    match message {
        VpndToRelayd::Hello(Hello { protocol: _, version: _, role: _, pid: _ }) => &["build"],
        VpndToRelayd::Standing { public_key: _, held } => {
            if let Some(Held { authority: _, generation: _, revision: _, control_prefix: _, digest: _ }) =
                held
            {}
            &["public key of the hub", "network"]
        }
        VpndToRelayd::Applied { id: _, outcome: Ok(()) } => &[],
        VpndToRelayd::Applied { id: _, outcome: Err(_) } => &["words"],
    }
}

fn hello(role: Role) -> Hello {
    Hello::of(role)
}

fn network() -> Held {
    let control_prefix = vpn_network::Prefix { address: [100, 100, 0, 0].into(), length: 24 };
    Held { authority: "a".to_owned(), generation: 1, revision: 1, control_prefix, digest: [0; 32] }
}

/// ARC-14, ARC-15: all that pulld is told are two origins and whom to trust; its link has no place for an identity
/// or a key.
#[test]
fn pulld_is_told_no_secret() {
    let start = PulldStart {
        registry_origin: "https://cloudly.test".into(),
        relay_origin: "https://relay.test".into(),
        trust_anchors: Vec::new(),
    };
    for (message, carries) in [
        (ToPulld::Worker(ToWorker::Hello(hello(Role::Supervisor))), &["build"][..]),
        (ToPulld::Worker(ToWorker::PeerLink { role: Role::Relayd }), &["role", "link"]),
        (ToPulld::Start(start), &["registry origin", "relay origin", "trust anchors"]),
        (ToPulld::AnswerConnection { id: 1, answer: Ok(()) }, &["connection"]),
    ] {
        assert_eq!(to_pulld(&message), carries);
        let linked = carries.iter().filter(|part| ["link", "connection"].contains(*part)).count();
        assert_eq!(message.descriptors(), linked, "{carries:?}");
    }
}

/// ARC-16: vpnd is handed its links, the one UDP socket and networks with the public keys of nodes, and nothing
/// beside; a descriptor comes with the first two alone, and relayd can hand it none.
#[test]
fn vpnd_receives_its_socket_and_networks_alone() {
    let worker = |message| ToVpnd::Worker(message);
    for (message, carries) in [
        (worker(ToWorker::Hello(hello(Role::Supervisor))), &["build"][..]),
        (worker(ToWorker::PeerLink { role: Role::Relayd }), &["role", "link"]),
        (worker(ToWorker::LogLevel(Level::Info)), &["level"]),
        (worker(ToWorker::Ping(1)), &[]),
        (worker(ToWorker::Stop), &[]),
        (ToVpnd::AnswerSocket { id: 1, answer: Ok(([127, 0, 0, 1], 1).into()) }, &["socket"]),
    ] {
        assert_eq!(to_vpnd(&message), carries);
        let handed = carries.iter().filter(|part| ["link", "socket"].contains(*part)).count();
        assert_eq!(message.descriptors(), handed, "{carries:?}");
    }
    let refused = ToVpnd::AnswerSocket { id: 1, answer: Err("in use".to_owned()) };
    assert_eq!(refused.descriptors(), 0);
    let grants = vpn_network::Grants::none(0);
    let snapshot = Snapshot { schema_version: 1, network: network(), members: Vec::new(), grants };
    for (message, carries) in [
        (RelaydToVpnd::Hello(hello(Role::Relayd)), &["build"][..]),
        (RelaydToVpnd::Apply { id: 1, snapshot: Box::new(snapshot) }, &["network", "public keys of nodes"]),
    ] {
        assert_eq!((relayd_to_vpnd(&message), message.descriptors()), (carries, 0));
    }
}

/// ARC-16: of keys, vpnd states the public one of its hub and no other, to relayd alone: 32 bytes once in a
/// standing, beside what the network is. No descriptor goes with any message.
#[test]
fn vpnd_has_no_message_for_its_private_key() {
    for (message, carries) in [
        (FromVpnd::Worker(FromWorker::Hello(hello(Role::Vpnd))), &["build"][..]),
        (FromVpnd::Worker(FromWorker::Confined(Report { layers: Vec::new() })), &["layers"]),
        (FromVpnd::Worker(FromWorker::Pong(1)), &[]),
        (FromVpnd::Worker(FromWorker::Stopped), &[]),
        (FromVpnd::AskSocket { id: 1 }, &[]),
        (FromVpnd::Report(HubReport::default()), &["addresses", "names", "counts"]),
    ] {
        assert_eq!((from_vpnd(&message), message.descriptors()), (carries, 0));
    }
    let standing = |held| VpndToRelayd::Standing { public_key: [7; 32], held };
    for (message, carries) in [
        (VpndToRelayd::Hello(hello(Role::Vpnd)), &["build"][..]),
        (standing(None), &["public key of the hub", "network"]),
        (VpndToRelayd::Applied { id: 1, outcome: Ok(()) }, &[]),
        (VpndToRelayd::Applied { id: 1, outcome: Err(NotApplied::Bind("in use".to_owned())) }, &["words"]),
    ] {
        assert_eq!((vpnd_to_relayd(&message), message.descriptors()), (carries, 0));
    }
    let length = |message: &VpndToRelayd| codec::encode::<_, 4096>(message).unwrap().len();
    // The variant, the key, and whether there is a network.
    assert_eq!(length(&standing(None)), 1 + 32 + 1);
    let held = network();
    let network = codec::encode::<_, 4096>(&held).unwrap().len();
    assert_eq!(length(&standing(Some(held))), 1 + 32 + 1 + network);
}
