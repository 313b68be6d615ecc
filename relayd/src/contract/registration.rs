//! `registerClusterRelay`.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{offer::Offer, values::Reference};

/// The request. It states no cluster (REG-11), no generation (REG-40) and no served node (REG-67).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisterRelay<'a> {
    /// This build's offer (REG-05).
    pub protocol: Offer,
    /// Counts the registrations of the service (REG-13).
    pub registration_sequence: u64,
    /// Who registers and where it listens.
    pub relay: Relay<'a>,
}

/// The relay of a registration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Relay<'a> {
    /// The build (REG-06).
    pub version: &'a str,
    /// `COREFLOW_NODE_ID`.
    pub node_id: &'a str,
    /// The bound address, verbatim (REG-16).
    pub listen_address: String,
    /// The bound port.
    pub listen_port: u16,
    /// The hub, absent when there is none (REG-23).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpn_hub: Option<VpnHub>,
}

/// The advertised hub (REG-20); it has neither endpoint id nor TLS identity (REG-22).
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VpnHub {
    /// The hub's Noise public key, base64.
    pub public_key: String,
    /// Configured address, verbatim (REG-21).
    pub address: Ipv4Addr,
    /// Configured UDP port.
    pub quic_port: u16,
}

/// The answer, exact-key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayRegistered {
    /// Cloudly's offer.
    pub protocol: Offer,
    /// The origin that Cloudly published for the cluster (REG-34).
    pub origin: String,
    /// The credential generation that the socket was authenticated as (REG-37).
    pub credential: Reference,
    /// The registration record that Cloudly wrote (REG-38).
    pub registration: Reference,
}
