//! The network of the VPN hub, from Cloudly's text to the hub: what relayd admits crosses its link, vpnd serves it as
//! it is, and each member is told an address that its node takes (VPN-06, VPN-14, VPN-31, VPN-32).
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use coreflow_fuzz::memory::peak_of;
use coreflow_ipc::{
    frame::HEADER,
    messages::{
        Message,
        peers::RelaydToVpnd,
        vpn_network::{Prefix, Snapshot},
    },
};
use coreflow_relayd::{
    contract::vpn_network::{VpnNetwork, validate_cluster_vpn_network},
    hub::snapshot::compose,
};
use coreflow_vpnd::{
    hub::{network::Network, routes::bounds},
    protocol::control::Grant,
};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, value::RawValue};

/// Bytes that a network costs in memory, in multiples of its text, beside the square of its grants.
const MULTIPLE: usize = 24;
const LEAST: usize = 8 << 10;
/// Longest path of what is wrong: two positions and a name.
const LONGEST_PATH: usize = 120;

fn read(text: &str) -> Option<VpnNetwork> {
    validate_cluster_vpn_network(serde_json::from_str::<&RawValue>(text).ok()?).ok()
}

fn meet(one: Prefix, other: Prefix) -> bool {
    let ((first, last), (from, to)) = (bounds(one), bounds(other));
    first <= to && from <= last
}

fn is_sound(network: &VpnNetwork) {
    let members = &network.members;
    assert!(members.is_sorted_by(|one, next| one.node_id < next.node_id));
    let (first, last) = bounds(network.control_prefix);
    for (place, member) in members.iter().enumerate() {
        let address = u32::from(member.address);
        assert!(first + 1 < address && address < last, "not the network's, the hub's or the broadcast's");
        assert!(!member.prefixes.iter().any(|prefix| meet(*prefix, network.control_prefix)));
        for other in &members[..place] {
            assert!(other.address != member.address && other.public_key != member.public_key);
            let shared = other.prefixes.iter().any(|one| member.prefixes.iter().any(|two| meet(*one, *two)));
            assert!(!shared, "an address has one owner");
        }
    }
}

/// The snapshot as vpnd has it.
fn over_the_link(snapshot: Snapshot) -> Snapshot {
    let (mut frame, expected) = (Vec::new(), snapshot.clone());
    let apply = RelaydToVpnd::Apply { id: 1, snapshot: Box::new(snapshot) };
    apply.append(&mut frame).expect("a valid network fits its link");
    let Ok(RelaydToVpnd::Apply { snapshot, .. }) =
        RelaydToVpnd::of_bytes(&Bytes::from(frame).slice(HEADER..))
    else {
        panic!("a network is read as one")
    };
    assert!(*snapshot == expected);
    *snapshot
}

fn is_served(network: &VpnNetwork) {
    let served = Network::of(over_the_link(compose(network))).expect("vpnd serves what relayd admits");
    for (place, member) in network.members.iter().enumerate() {
        assert_eq!(served.place(&member.public_key), Some(place));
        assert_eq!(served.routes().member(member.address), Some(place));
        for prefix in &member.prefixes {
            let (first, last) = bounds(*prefix);
            assert!(served.routes().owns(place, first.into()) && served.routes().owns(place, last.into()));
        }
        for to in 0..network.members.len() {
            assert_eq!(served.granted(place, to), network.grants.granted(place, to));
        }
        let grant = Grant {
            address: member.address,
            control_prefix: network.control_prefix,
            mtu: 1280,
            keepalive: Duration::from_secs(4),
            generation: network.generation.get(),
            revision: network.revision.get(),
        };
        assert_eq!(Grant::decode(&grant.encode()), Ok(grant), "a node takes what it is given");
    }
}

fuzz_target!(|text: &str| {
    let Ok(raw) = serde_json::from_str::<&RawValue>(text) else { return };
    let (network, peak) = peak_of(|| validate_cluster_vpn_network(raw));
    assert!(peak <= MULTIPLE * text.len() + LEAST, "{peak} bytes for a network of {}", text.len());
    match network {
        Ok(network) => {
            is_sound(&network);
            is_served(&network);
            // The order of its parts means nothing.
            let mut value: Value = serde_json::from_str(text).expect("a valid network has no depth");
            for list in ["members", "grants"] {
                value[list].as_array_mut().expect("a list").reverse();
            }
            assert!(read(&value.to_string()).is_some_and(|other| other == network));
        }
        Err(invalid) => {
            let path = invalid.path;
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".[]".contains(&byte);
            assert!((1..=LONGEST_PATH).contains(&path.len()) && path.bytes().all(plain), "{path:?}");
        }
    }
});
