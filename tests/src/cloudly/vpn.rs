//! The managed VPN as Cloudly makes it (VPN-05), whose compiler alone brings workloads, members and ports in (XTR-06):
//! networks compiled from the nodes' public keys, given to the relay
//! that it accepted and pushed to it (contract, section 6).

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::Cloudly;
use super::judgement::{State, exact};
use crate::carrier::CallFailure;
use crate::envelope::{Outcome, Refusal, raw};
use crate::waiting::{BOUND, Late};

/// How long a membership lasts, unless a test says otherwise.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// `VpnNetwork` of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VpnNetwork {
    /// The authority's id.
    pub authority: String,
    /// The authority's generation.
    pub generation: u64,
    /// The revision under it.
    pub revision: u64,
    /// The control prefix, its address and length.
    pub control_prefix: (Ipv4Addr, u8),
    /// The members.
    pub members: Vec<VpnMember>,
    /// Who may open traffic to whom, by node ids.
    pub grants: Vec<(String, String)>,
}

/// A member of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VpnMember {
    /// The node.
    pub node_id: String,
    /// Its X25519 key, base64.
    pub public_key: String,
    /// Its address in the control prefix.
    pub address: Ipv4Addr,
    /// The ranges behind it.
    pub prefixes: Vec<String>,
    /// Unix milliseconds of its end.
    pub expires_at: u64,
}

impl VpnNetwork {
    /// The first revision of a network with these nodes and keys, at the addresses from 100.100.0.2 on, for an hour
    /// and without a grant.
    pub fn of<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let member = |(place, (node_id, public_key)): (u32, (&str, &str))| VpnMember {
            node_id: node_id.to_owned(),
            public_key: public_key.to_owned(),
            address: Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 100, 0, 2)) + place),
            prefixes: Vec::new(),
            expires_at: in_milliseconds(LIFETIME),
        };
        Self {
            authority: "vpn-authority-1".to_owned(),
            generation: 1,
            revision: 1,
            control_prefix: (Ipv4Addr::new(100, 100, 0, 0), 24),
            members: (0..).zip(members).map(member).collect(),
            grants: Vec::new(),
        }
    }

    /// `from` may open traffic to `to`.
    #[must_use]
    pub fn granting(mut self, from: &str, to: &str) -> Self {
        self.grants.push((from.to_owned(), to.to_owned()));
        self
    }

    /// Both may open traffic to each other.
    #[must_use]
    pub fn linking(self, one: &str, other: &str) -> Self {
        self.granting(one, other).granting(other, one)
    }

    /// The next revision, without the grant.
    #[must_use]
    pub fn withdrawing_grant(mut self, from: &str, to: &str) -> Self {
        self.grants.retain(|grant| (grant.0.as_str(), grant.1.as_str()) != (from, to));
        self.next()
    }

    /// The next revision, without the member and every grant that names it.
    #[must_use]
    pub fn withdrawing_member(mut self, node: &str) -> Self {
        self.members.retain(|member| member.node_id != node);
        self.grants.retain(|(from, to)| from != node && to != node);
        self.next()
    }

    /// The same content as the next revision.
    #[must_use]
    pub fn next(mut self) -> Self {
        self.revision += 1;
        self
    }

    /// Changes one member.
    ///
    /// # Panics
    /// When the node is no member.
    #[must_use]
    pub fn changing(mut self, node: &str, change: impl FnOnce(&mut VpnMember)) -> Self {
        change(self.members.iter_mut().find(|member| member.node_id == node).expect("the node is a member"));
        self
    }

    /// The address of a member.
    ///
    /// # Panics
    /// When the node is no member.
    pub fn address(&self, node: &str) -> Ipv4Addr {
        self.members.iter().find(|member| member.node_id == node).expect("the node is a member").address
    }

    /// The network as it travels.
    pub fn json(&self) -> Value {
        let members = self.members.iter().map(|member| {
            json!({
                "nodeId": member.node_id,
                "publicKey": member.public_key,
                "address": member.address,
                "prefixes": member.prefixes,
                "expiresAt": member.expires_at,
            })
        });
        let grants = self.grants.iter().map(|(from, to)| json!({"from": from, "to": to}));
        let (address, length) = self.control_prefix;
        json!({
            "authority": {"id": self.authority, "generation": self.generation},
            "revision": self.revision,
            "controlPrefix": format!("{address}/{length}"),
            "members": members.collect::<Vec<Value>>(),
            "grants": grants.collect::<Vec<Value>>(),
        })
    }
}

/// Unix milliseconds of the time after `wait`.
///
/// # Panics
/// When the host's clock is before 1970.
pub fn in_milliseconds(wait: Duration) -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from((since_epoch + wait).as_millis()).expect("the clock is before the year 500 million")
}

impl State {
    /// Only the relay whose registration was accepted is given the network.
    pub(super) fn read_vpn_network(&self, number: u64, body: &Value) -> Outcome {
        exact(body, &[], &[], "read")?;
        if !self.connections.get(&number).is_some_and(|open| open.accepted) {
            return Err(Refusal::new("relay-not-connected"));
        }
        let network = self.settings.vpn_network.as_ref().map_or(Value::Null, VpnNetwork::json);
        Ok(raw(&json!({ "network": network }).to_string()))
    }
}

impl Cloudly {
    /// Compiles `network` and pushes it: the relay's answer, or its refusal.
    ///
    /// # Errors
    /// [`CallFailure`].
    pub async fn push_vpn_network(
        &self,
        network: &VpnNetwork,
    ) -> Result<Result<Value, Refusal>, CallFailure> {
        self.change(|settings| settings.vpn_network = Some(network.clone()));
        self.push_vpn_json(&network.json()).await
    }

    /// Pushes what may be no network, and keeps what was compiled.
    ///
    /// # Errors
    /// [`CallFailure`].
    pub async fn push_vpn_json(&self, network: &Value) -> Result<Result<Value, Refusal>, CallFailure> {
        let body = json!({ "network": network }).to_string();
        let answer = self.push("applyClusterVpnNetwork", &body).await?;
        let read = |text: &str| serde_json::from_str(text).expect("an answer is JSON");
        Ok(answer.outcome().map(|response| read(response.get())))
    }

    /// Waits until the standing relay advertises a hub whose key is not `former`, and gives it.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_hub(&self, former: Option<&str>) -> Result<super::AdvertisedHub, Late> {
        let look = || self.platform_endpoint().ok().filter(|hub| Some(hub.public_key.as_str()) != former);
        self.shared.change.until(BOUND, "registration that advertises a hub", look).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network has the members of the contract and no other, and each change is a revision of its own.
    #[test]
    fn a_network_is_what_the_contract_says() {
        let network = VpnNetwork::of([("a", "A="), ("b", "B=")]).linking("a", "b");
        let mut json = network.json();
        for member in json["members"].as_array_mut().unwrap() {
            assert!(member["expiresAt"].take().as_u64() > Some(in_milliseconds(Duration::ZERO)));
        }
        let member = |node: &str, key: &str, address: &str| json!({"nodeId": node, "publicKey": key, "address": address, "prefixes": [], "expiresAt": null});
        assert_eq!(
            json,
            json!({
                "authority": {"id": "vpn-authority-1", "generation": 1},
                "revision": 1,
                "controlPrefix": "100.100.0.0/24",
                "members": [member("a", "A=", "100.100.0.2"), member("b", "B=", "100.100.0.3")],
                "grants": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}],
            })
        );
        let narrowed = network.withdrawing_grant("a", "b");
        assert_eq!((narrowed.revision, narrowed.grants.len(), narrowed.members.len()), (2, 1, 2));
        let without = narrowed.withdrawing_member("b");
        assert_eq!((without.revision, without.grants.len(), without.members.len()), (3, 0, 1));
        assert_eq!(without.address("a"), Ipv4Addr::new(100, 100, 0, 2));
    }
}
