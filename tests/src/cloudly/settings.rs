//! The standing facts of the loopback Cloudly: its cluster, its credential, its offer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use super::{HTTP_1, VpnNetwork};
use crate::authority::Issued;
use crate::offer::Offer;

/// How answers are written on the socket (wire notes, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// The contract's own: nothing echoed.
    Minimal,
    /// The 8.x library's: the whole request goes back with the answer.
    Echo8,
    /// The 3.x library's: as 8.x, and `localData` is `null`.
    Echo3,
}

/// What stands at the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// Cloudly.
    Serving,
    /// Something that accepts TCP connections and never says a word.
    Silent,
    /// Something that also completes the TLS handshake, and is silent then.
    SilentInTls,
    /// A proxy that answers every request, upgrades too, with an HTML page and 502.
    HtmlBadGateway,
}

/// The facts. Each may be changed at any time and holds from the next request on.
#[derive(Clone)]
pub struct Settings {
    /// The one bearer that buys an identity.
    pub bearer: String,
    /// The cluster's id.
    pub cluster_id: String,
    /// The node the relay runs on.
    pub relay_node: String,
    /// The origin in acceptances.
    pub origin: String,
    /// The relay block of the cluster config, any JSON; `None` for a cluster without a relay.
    pub relay_block: Option<Value>,
    /// Further members of the cluster's `data`.
    pub cluster_members: BTreeMap<String, Value>,
    /// The whole answer to `getClusterConfig`, in the place of the composed one.
    pub config: Option<String>,
    /// The enrolled Pallet nodes: node id to node bearer.
    pub nodes: BTreeMap<String, String>,
    /// The ingresses that may register: node id to ingress bearer.
    pub ingresses: BTreeMap<String, String>,
    /// The cluster's route table as JSON text; `None` while none has been computed.
    pub route_table: Option<String>,
    /// The cluster's VPN network; `None` while none has been compiled.
    pub vpn_network: Option<VpnNetwork>,
    /// The plan's `vpn.hubPrefix`, its address and length, in which a hub has to lie to be selected; `None` before
    /// `configureManagedVpn`, upon which this double selects any.
    pub hub_prefix: Option<(Ipv4Addr, u8)>,
    /// Node ids that belong to another cluster (REG-31).
    pub foreign_nodes: BTreeSet<String>,
    /// The offer on both carriers of the session.
    pub offer: Offer,
    /// How answers are written.
    pub form: AnswerForm,
    /// What stands at the address.
    pub front: Front,
    /// What Cloudly itself proves itself with; `None` is a sound certificate for `localhost`.
    pub own_certificate: Option<Issued>,
    /// The protocols it offers in TLS, by preference; `h2` is the registry's alone.
    pub alpn: &'static [&'static str],
    /// The credential's id in acceptances.
    pub credential_id: String,
    /// The credential's generation.
    pub credential_generation: u64,
    /// The registration record's id in acceptances.
    pub registration_id: String,
    /// How long an identity lives. Begins with its issue.
    pub identity_lifetime: Duration,
    /// How far Cloudly's clock is ahead of this host's; negative for one that is behind.
    pub clock_ahead_ms: i64,
    /// `type` of an identity.
    pub identity_type: String,
    /// `role` of an identity.
    pub identity_role: String,
    /// Certificates by domain; one is issued for any other domain that is asked for.
    pub certificates: BTreeMap<String, Issued>,
    /// Whether Cloudly's own records cannot be read, which it answers like a credential that is none (ESC-61).
    pub records_unreadable: bool,
    /// Whether a loopback listen address is refused as one Cloudly cannot publish (REG-18).
    /// Off, since tests bind to loopback.
    pub refuses_loopback: bool,
    /// Assignments owed to nodes, pushed after each new binding (OUT-16): node id to JSON text.
    pub owed: BTreeMap<String, String>,
    /// Projections owed to nodes, pushed after each new binding and before the assignment, behind the signing
    /// authority that nodes pin: node id to JSON text.
    pub owed_projections: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::for_origin("https://relay.localhost.test:8443")
    }
}

impl Settings {
    /// A cluster whose relay has `origin`, with nodes `node-1` and `node-2`.
    pub fn for_origin(origin: &str) -> Self {
        let node = |id: &str| (id.to_owned(), format!("pallet-bearer-of-{id}"));
        Self {
            bearer: "test-relay-bearer-0123456789abcdef-ABCDEF".to_owned(),
            cluster_id: "cluster-1".to_owned(),
            relay_node: "relay-node".to_owned(),
            origin: origin.to_owned(),
            relay_block: Some(json!({"origin": origin})),
            cluster_members: BTreeMap::new(),
            config: None,
            nodes: BTreeMap::from([node("node-1"), node("node-2")]),
            ingresses: BTreeMap::from([
                ("edge-1".to_owned(), "ingress-bearer-of-edge-1".to_owned()),
                ("edge-2".to_owned(), "ingress-bearer-of-edge-2".to_owned()),
            ]),
            route_table: None,
            vpn_network: None,
            hub_prefix: None,
            foreign_nodes: BTreeSet::new(),
            offer: Offer::new("33.1.0", "32.0.0"),
            form: AnswerForm::Echo8,
            front: Front::Serving,
            own_certificate: None,
            alpn: HTTP_1,
            credential_id: "relay-credential-1".to_owned(),
            credential_generation: 1,
            registration_id: "relay-registration-1".to_owned(),
            identity_lifetime: Duration::from_secs(60 * 60),
            clock_ahead_ms: 0,
            identity_type: "machine".to_owned(),
            identity_role: "cluster".to_owned(),
            certificates: BTreeMap::new(),
            records_unreadable: false,
            refuses_loopback: false,
            owed: BTreeMap::new(),
            owed_projections: BTreeMap::new(),
        }
    }

    /// `ConfigState` of the contract, section 3.4.
    pub fn config_text(&self) -> String {
        if let Some(config) = &self.config {
            return config.clone();
        }
        let node = |id: &String| json!({"id": id, "data": {"clusterId": self.cluster_id}});
        let nodes: Vec<Value> = self.nodes.keys().chain([&self.relay_node]).map(node).collect();
        let mut data = serde_json::Map::new();
        data.extend(self.cluster_members.clone());
        data.insert("name".to_owned(), json!("test cluster"));
        data.insert("nodes".to_owned(), json!(nodes));
        if let Some(block) = &self.relay_block {
            data.insert("relay".to_owned(), block.clone());
        }
        json!({
            "configData": {"id": self.cluster_id, "data": data},
            "services": [],
            "corestorePublicationGrants": [],
        })
        .to_string()
    }
}
