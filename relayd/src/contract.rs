//! The wire types of both hops, one file per subject; nothing else is in them.
//!
//! What the relay itself reads is exact-key: a missing or unknown member is an invalid body.

pub mod cluster;
mod exact;
pub mod identity;
pub mod ingress;
pub mod members;
pub mod offer;
pub mod registration;
pub mod renewal;
pub mod route_table;
pub mod runtime;
pub mod values;
pub mod vpn_network;
