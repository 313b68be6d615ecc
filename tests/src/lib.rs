//! Test peers of the relay and the harness that runs the real thing among them.
//!
//! Every peer is written from the contract file and the wire notes, never from the relay's own
//! types, so that one misreading is not made twice (TST-03). A double models what the
//! requirement list marks P for its peer, and is scriptable: each says first what that peer
//! does by itself, then how a test makes it differ.
//!
//! - [`cloudly`]: a loopback Cloudly, [`pallet`]: a Pallet node, [`ingress`]: the cluster ingress,
//!   [`raw_socket`] and [`https`]: clients without manners, [`stranger`]: who only takes places,
//!   [`silent`]: a port that answers no dial, [`black_hole`]: a network that is gone.
//! - [`renewal`]: what Cloudly and a node know of a DNS lease renewal, and the relay does not.
//! - [`registry`]: the image registry at Cloudly's origin.
//! - [`relay`]: the real `coreflow` as a unit would start it, [`binaries`]: the build of it.
//! - [`processes`] and [`sockets`]: what the kernel shows of it.
//! - [`control`]: the control socket, over `coreflowctl` and without it.
//! - [`link_tap`]: a release whose links are tapped.
//! - [`memory`]: the search of a process's memory for a secret, [`disclosure`]: of what it wrote.
//! - [`demo`]: the story that `cargo demo` tells, [`bench`]: the figures of `cargo relay-bench`.
//! - [`vpn_node`]: a node of the managed VPN with a TUN device, [`vpn_stand`]: its hub without a relay around it,
//!   [`field`]: both in network namespaces, [`vpn_idle`]: what a node costs the hub that says nothing.
//! - [`puller`]: a client of pulls as the wire sees it, [`pull_bed`]: a relay before the scripted registry.
//! - [`pull_stand`]: the relay as the target of a pull bench.
//! - [`tunnel`]: a node's end of the managed VPN, [`ipv4`]: what goes through it, [`vpn_bed`]: a relay with a hub.
//! - [`soak`]: a run of faults of every party, drawn from a seed.
//! - [`systemd_peers`]: whom the relay meets under a real systemd, led by the script in `tests/systemd`.
//! - [`attacks`]: the attacks on the isolation, for `cargo attacks`.
//! - [`pull_clients`]: real container clients pulling from a real registry, for `cargo pull-clients`.

pub mod attacks;
pub mod authority;
pub mod bench;
pub mod binaries;
pub mod black_hole;
pub mod carrier;
pub mod cloudly;
pub mod control;
pub mod corestore;
pub mod demo;
pub mod dial;
pub mod disclosure;
pub mod envelope;
pub mod field;
pub mod free_port;
pub mod https;
pub mod ingress;
pub mod ipv4;
pub mod link_tap;
pub mod memory;
pub mod notify;
pub mod offer;
pub mod pallet;
pub mod processes;
pub mod pull_bed;
pub mod pull_clients;
pub mod pull_stand;
pub mod puller;
pub mod raw_socket;
pub mod registry;
pub mod relay;
pub mod renewal;
pub mod sealed;
pub mod silent;
pub mod soak;
pub mod sockets;
pub mod stranger;
pub mod systemd_peers;
pub mod tunnel;
mod unverified;
pub mod vpn_bed;
pub mod vpn_idle;
pub mod vpn_node;
pub mod vpn_stand;
pub mod waiting;
