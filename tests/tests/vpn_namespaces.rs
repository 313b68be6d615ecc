//! The managed VPN among real networks: three nodes with TUN devices and the confined hub, each in a network
//! namespace of its own (VPN-01, VPN-02, VPN-04, VPN-06).
//!
//! It takes root, `ip`, `ping` and `ethtool`. Without them these tests fail; none of them is left out.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

#[path = "vpn_namespaces/authority.rs"]
mod authority;
#[path = "vpn_namespaces/crossing.rs"]
mod crossing;
#[path = "vpn_namespaces/floods.rs"]
mod floods;
#[path = "vpn_namespaces/forged.rs"]
mod forged;
#[path = "vpn_namespaces/lives.rs"]
mod lives;
#[path = "vpn_namespaces/paths.rs"]
mod paths;

use std::time::Duration;

/// The hub's program; the node's lies beside it.
const STAND: &str = env!("CARGO_BIN_EXE_coreflow-vpn-stand");

/// The nodes' places in a field.
const A: usize = 0;
/// See [`A`].
const B: usize = 1;
/// See [`A`].
const C: usize = 2;

/// The most that anything may take that states no bound of its own.
const BOUND: Duration = Duration::from_secs(20);
