//! What Cloudly makes of an accepted registration: the relay that stands for the cluster, and what others
//! are told of it (REG-24, REG-25, REG-64, REG-65, LIS-28,
//! VPN-38).

use std::net::Ipv4Addr;

use serde_json::Value;

use super::Cloudly;

/// The relay that stands for the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingRelay {
    /// The node that it runs on.
    pub node_id: String,
    /// The address that it reported.
    pub listen_address: Ipv4Addr,
    /// The port that it reported.
    pub listen_port: u16,
    /// The hub that it advertised.
    pub hub: Option<AdvertisedHub>,
    /// The connection whose verified session registered it, while that is open; a stored one has none.
    pub connection: Option<u64>,
}

/// A hub as a registration advertises it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertisedHub {
    /// Its Noise public key.
    pub public_key: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its QUIC port.
    pub quic_port: u16,
}

impl StandingRelay {
    /// The relay of a registration that was judged and came on `connection`.
    pub(super) fn of(relay: &Value, address: Ipv4Addr, connection: u64) -> Self {
        let port =
            |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let hub = relay.get("vpnHub").and_then(|hub| {
            let address = text(&hub["address"]).parse().ok()?;
            Some(AdvertisedHub {
                public_key: text(&hub["publicKey"]),
                address,
                quic_port: port(&hub["quicPort"]),
            })
        });
        Self {
            node_id: text(&relay["nodeId"]),
            listen_address: address,
            listen_port: port(&relay["listenPort"]),
            hub,
            connection: Some(connection),
        }
    }
}

impl Cloudly {
    /// The relay that stands for the cluster: the last that registered over a live verified session takes
    /// the place of a stored one (REG-65).
    pub fn standing(&self) -> Option<StandingRelay> {
        let state = self.shared.state();
        let mut standing = state.standing.clone()?;
        standing.connection = standing.connection.filter(|number| state.connections.contains_key(number));
        Some(standing)
    }

    /// Stores a relay that registered at an earlier time.
    pub fn store_relay(&self, relay: StandingRelay) {
        self.shared.state().standing = Some(StandingRelay { connection: None, ..relay });
    }

    /// The A record of `domain`: the address that the standing relay reported, for the domain of the
    /// cluster's relay certificate (REG-64).
    pub fn a_record(&self, domain: &str) -> Option<Ipv4Addr> {
        let host = |origin: &str| origin.strip_prefix("https://")?.split(':').next().map(str::to_owned);
        let origin = self.node_origin()?;
        self.standing().filter(|_| host(&origin).as_deref() == Some(domain)).map(|relay| relay.listen_address)
    }

    /// The cluster's platform endpoint: composed from the hub that the standing relay advertised, or why none is
    /// selected (REG-24, REG-25). One outside of the plan's prefix is not (VPN-38).
    ///
    /// # Errors
    /// `relay-vpn-hub-absent`.
    pub fn platform_endpoint(&self) -> Result<AdvertisedHub, &'static str> {
        let prefix = self.change(|settings| settings.hub_prefix);
        let lies_in = |hub: &AdvertisedHub| {
            prefix.is_none_or(|(network, length)| {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or_default();
                (u32::from(hub.address) ^ u32::from(network)) & mask == 0
            })
        };
        self.standing().and_then(|relay| relay.hub).filter(lies_in).ok_or("relay-vpn-hub-absent")
    }

    /// The origin that the cluster's nodes are told to dial: the relay block's. A cluster with a block is
    /// taken for served, whether or not its relay has registered; without one they dial Cloudly (LIS-28).
    pub fn node_origin(&self) -> Option<String> {
        let block = self.change(|settings| settings.relay_block.clone())?;
        block["origin"].as_str().map(str::to_owned)
    }
}
