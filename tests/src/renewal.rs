//! DNS lease renewals as the two read them who know their meaning: Cloudly, which signs them, and the node,
//! which checks them (contract, section 4.3; ESC-02, ESC-03).
//!
//! The contract leaves open what is signed and what a projection has beside its reference; both forms are
//! these doubles' own, and opaque to the relay.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// `ProjectionReference` of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// The projection.
    pub id: String,
    /// Which of its generations.
    pub generation: u64,
    /// `sha256:` and 64 digits.
    pub digest: String,
}

impl Projection {
    /// A generation of a projection, with the digest of an own content.
    pub fn new(id: &str, generation: u64) -> Self {
        let content = digest(&SHA256, format!("{id}\n{generation}").as_bytes());
        let digits: String = content.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { id: id.to_owned(), generation, digest: format!("sha256:{digits}") }
    }

    /// The generation after this one.
    #[must_use]
    pub fn next(&self) -> Self {
        Self::new(&self.id, self.generation + 1)
    }

    /// The reference as it travels.
    pub fn json(&self) -> Value {
        json!({"id": self.id, "generation": self.generation, "digest": self.digest})
    }

    /// The projection as it is pushed: the reference and the window of the DNS lease that it carries, from and
    /// to in Unix milliseconds (OUT-20).
    pub fn with_lease(&self, lease: (u64, u64)) -> String {
        let mut projection = self.json();
        projection["dnsLease"] = json!({"notBefore": lease.0, "expiresAt": lease.1});
        projection.to_string()
    }

    /// Reads the reference out of a projection, and the end of the lease that it carries, if it carries one.
    pub fn read(value: &Value) -> Option<(Self, Option<u64>)> {
        let projection = Self {
            id: value["id"].as_str()?.to_owned(),
            generation: value["generation"].as_u64()?,
            digest: value["digest"].as_str()?.to_owned(),
        };
        Some((projection, value["dnsLease"]["expiresAt"].as_u64()))
    }
}

/// `Renewal` of the contract, without its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// What is renewed.
    pub projection: Projection,
    /// Whose lease.
    pub node_id: String,
    /// The node's cluster.
    pub cluster_id: String,
    /// Its place among the renewals of the projection.
    pub sequence: u64,
    /// Begin of its window, Unix milliseconds.
    pub not_before: u64,
    /// End of its window, Unix milliseconds; not within it.
    pub expires_at: u64,
}

impl Renewal {
    /// What is signed: every member, one to a line, below a heading of its own.
    pub fn statement(&self) -> String {
        let Projection { id, generation, digest } = &self.projection;
        let (node, cluster) = (&self.node_id, &self.cluster_id);
        let (sequence, from, to) = (self.sequence, self.not_before, self.expires_at);
        format!(
            "runtime network DNS lease renewal\n{id}\n{generation}\n{digest}\n{node}\n{cluster}\n{sequence}\n{from}\n{to}\n"
        )
    }

    /// The renewal as it travels. Its spaces and the order of its members are ones that a decoder would not
    /// give back.
    pub fn text(&self, signature: &[u8]) -> String {
        let (projection, signature) = (self.projection.json(), STANDARD.encode(signature));
        let (node, cluster) = (&self.node_id, &self.cluster_id);
        let (sequence, from, to) = (self.sequence, self.not_before, self.expires_at);
        format!(
            r#"{{ "signature":"{signature}", "projection" : {projection},"nodeId":"{node}","clusterId":"{cluster}","sequence": {sequence},"notBefore":{from} , "expiresAt":{to} }}"#
        )
    }

    /// Reads a renewal and its signature; `None` for what is none.
    pub fn read(text: &str) -> Option<(Self, Vec<u8>)> {
        let value: Value = serde_json::from_str(text).ok()?;
        let string = |key: &str| Some(value[key].as_str()?.to_owned());
        let renewal = Self {
            projection: Projection::read(&value["projection"])?.0,
            node_id: string("nodeId")?,
            cluster_id: string("clusterId")?,
            sequence: value["sequence"].as_u64()?,
            not_before: value["notBefore"].as_u64()?,
            expires_at: value["expiresAt"].as_u64()?,
        };
        Some((renewal, STANDARD.decode(value["signature"].as_str()?).ok()?))
    }

    /// Whether its window is current at `now`, Unix milliseconds.
    pub fn is_current(&self, now: u64) -> bool {
        (self.not_before..self.expires_at).contains(&now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A renewal has the members of the contract and no other, and is read as it was written; each member is
    /// part of what is signed.
    #[test]
    fn a_renewal_is_what_the_contract_says() {
        let renewal = Renewal {
            projection: Projection::new("network-1", 3),
            node_id: "node-1".to_owned(),
            cluster_id: "cluster-1".to_owned(),
            sequence: 7,
            not_before: 1_000,
            expires_at: 2_000,
        };
        let text = renewal.text(b"signed");
        let mut value: Value = serde_json::from_str(&text).unwrap();
        assert_ne!(text, value.to_string(), "a decoder does not give it back");
        assert_eq!(Renewal::read(&text), Some((renewal.clone(), b"signed".to_vec())));
        assert_eq!(
            value,
            json!({
                "projection": {"id": "network-1", "generation": 3, "digest": Projection::new("network-1", 3).digest},
                "nodeId": "node-1",
                "clusterId": "cluster-1",
                "sequence": 7,
                "notBefore": 1000,
                "expiresAt": 2000,
                "signature": "c2lnbmVk",
            })
        );
        let changes = [
            ("projection", renewal.projection.next().json()),
            ("nodeId", json!("node-2")),
            ("clusterId", json!("cluster-2")),
            ("sequence", json!(8)),
            ("notBefore", json!(1001)),
            ("expiresAt", json!(2001)),
        ];
        for (member, other) in changes {
            let former = std::mem::replace(&mut value[member], other);
            let (changed, _) = Renewal::read(&value.to_string()).unwrap();
            assert_ne!(changed.statement(), renewal.statement(), "{member}");
            value[member] = former;
        }
        assert_eq!([999, 1000, 1999, 2000].map(|now| renewal.is_current(now)), [false, true, true, false]);
    }
}
