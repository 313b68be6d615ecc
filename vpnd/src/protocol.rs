//! The tunnel protocol, both ends of it: what the hub and a node say to each other, byte by byte (VPN-08,
//! VPN-44).
//!
//! QUIC carries it ([`tls`], [`transport`], [`socket`]). On the control stream the two prove their keys
//! ([`noise`]) and agree on the tunnel ([`control`]); then packets travel in datagrams ([`frame`]), a packet
//! too large for the path in two ([`egress`], [`fragments`]). `docs/vpn-protocol.md` states it for others.

pub mod close;
pub mod closing;
pub mod control;
pub mod egress;
pub mod fragments;
pub mod frame;
pub mod icmp;
pub mod ipv4;
pub mod noise;
pub mod socket;
pub mod tls;
pub mod transport;
