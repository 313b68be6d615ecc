//! A snapshot as vpnd gets it over its link: whatever it is, it is a network or refused, at a bounded cost (VPN-06,
//! VPN-14, VPN-23).
#![no_main]

use bytes::Bytes;
use coreflow_fuzz::memory::peak_of;
use coreflow_ipc::messages::{
    Message,
    peers::RelaydToVpnd,
    vpn_network::{MOST_MEMBERS, MOST_PREFIXES, NotApplied, Snapshot},
};
use coreflow_vpnd::hub::{network::Network, routes::bounds};
use libfuzzer_sys::fuzz_target;

/// Bytes that a network costs beside its snapshot, in multiples of the message; and the look-up by address, which
/// goes by where in its prefix a member is.
const MULTIPLE: usize = 16;
const LEAST: usize = 512 << 10;

fn is_sound(network: &Network, snapshot: &Snapshot) {
    let members = &snapshot.members;
    assert!(
        members.len() <= MOST_MEMBERS
            && members.iter().map(|member| member.prefixes.len()).sum::<usize>() <= MOST_PREFIXES
    );
    let (first, last) = bounds(snapshot.network.control_prefix);
    for (place, member) in members.iter().enumerate() {
        assert_eq!(network.place(&member.public_key), Some(place));
        assert_eq!(network.routes().member(member.address), Some(place));
        assert!((first + 2..last).contains(&member.address.to_bits()));
        for prefix in &member.prefixes {
            let (from, to) = bounds(*prefix);
            assert!(network.routes().owns(place, from.into()) && network.routes().owns(place, to.into()));
        }
        assert!(!network.granted(place, members.len()), "nobody is granted to be sent to");
    }
    for special in [network.hub(), first.into(), last.into()] {
        assert!(network.is_special(special) && network.routes().member(special).is_none());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let message = Bytes::copy_from_slice(bytes);
    let Ok(RelaydToVpnd::Apply { snapshot, .. }) = RelaydToVpnd::of_bytes(&message) else { return };
    let copy = snapshot.clone();
    let (network, peak) = peak_of(|| Network::of(*snapshot));
    assert!(peak <= MULTIPLE * bytes.len() + LEAST, "{peak} bytes for a message of {}", bytes.len());
    match network {
        Ok(network) => is_sound(&network, &copy),
        Err(why) => {
            let answer = NotApplied::from(why).to_string();
            assert!(answer.len() < 100 && !answer.chars().any(char::is_control));
        }
    }
});
