//! The variables that configure the relay: seven names, and no other is read (CFG-30..CFG-34).

use std::fmt;

/// One of the seven variables that configure the relay (CFG-34).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variable {
    /// `CLOUDLY_URL`: the Cloudly endpoint that is dialled, mandatory on every boot (CFG-10).
    CloudlyUrl,
    /// `SERVEZONE_CLUSTER_RELAY_AUTHORIZATION`: the bearer, mandatory on every boot (CFG-12).
    Authorization,
    /// `COREFLOW_NODE_ID`: this node's id as Cloudly knows it, required with a relay block (CFG-17).
    NodeId,
    /// `COREFLOW_RELAY_BIND_HOSTNAME`: where the listener binds, required with a relay block (CFG-19).
    RelayBindHostname,
    /// `COREFLOW_RELAY_BIND_PORT`: the listener's port, `8443` where not given (CFG-21).
    RelayBindPort,
    /// `COREFLOW_VPN_BIND_HOSTNAME`: the address the hub binds and advertises (CFG-23).
    VpnBindHostname,
    /// `COREFLOW_VPN_QUIC_PORT`: the UDP port the hub binds (CFG-25).
    VpnQuicPort,
}

impl Variable {
    /// The complete set, in the order of the documentation (CFG-34).
    pub const ALL: [Self; 7] = [
        Self::CloudlyUrl,
        Self::Authorization,
        Self::NodeId,
        Self::RelayBindHostname,
        Self::RelayBindPort,
        Self::VpnBindHostname,
        Self::VpnQuicPort,
    ];

    /// The two that every boot needs; `qenv.yml` lists exactly these (CFG-05).
    pub const REQUIRED: [Self; 2] = [Self::CloudlyUrl, Self::Authorization];

    /// The name as an operator writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CloudlyUrl => "CLOUDLY_URL",
            Self::Authorization => "SERVEZONE_CLUSTER_RELAY_AUTHORIZATION",
            Self::NodeId => "COREFLOW_NODE_ID",
            Self::RelayBindHostname => "COREFLOW_RELAY_BIND_HOSTNAME",
            Self::RelayBindPort => "COREFLOW_RELAY_BIND_PORT",
            Self::VpnBindHostname => "COREFLOW_VPN_BIND_HOSTNAME",
            Self::VpnQuicPort => "COREFLOW_VPN_QUIC_PORT",
        }
    }

    /// The variable of that exact name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variable| variable.name() == name)
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
