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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Kind;

    /// REG-20, REG-21, REG-22, REG-23: the hub is its key, address and port, verbatim, and nothing else; a relay
    /// without one states no member for it.
    #[test]
    fn a_hub_is_stated_by_key_address_and_port() {
        let body = |vpn_hub| {
            let listen_address = "192.0.2.7".to_owned();
            let relay = Relay { version: "33.1.0", node_id: "n", listen_address, listen_port: 8443, vpn_hub };
            let protocol = Kind::CloudlyClient.own_offer();
            serde_json::to_value(RegisterRelay { protocol, registration_sequence: 0, relay }).unwrap()
        };
        let public_key = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=".to_owned();
        let hub = VpnHub {
            public_key: public_key.clone(),
            address: Ipv4Addr::new(198, 51, 100, 9),
            quic_port: 51_820,
        };
        let stated =
            serde_json::json!({"publicKey": public_key, "address": "198.51.100.9", "quicPort": 51_820});
        assert_eq!(body(Some(hub))["relay"]["vpnHub"], stated);
        let without = body(None);
        assert_eq!(
            without["relay"].as_object().unwrap().keys().collect::<Vec<_>>(),
            ["listenAddress", "listenPort", "nodeId", "version"]
        );
        assert_eq!(without.as_object().unwrap().len(), 3, "REG-12: it states no cluster");
    }
}
