//! The cluster's desired platform bindings, the grants under which they are reconciled, and what the relay reports
//! of them (contract of the Corestore half, section 4). It models PLT-41. The guard of `corestore` is PLT-20;
//! `publications` is PUB-04, PUB-28 and PUB-29.

use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::Cloudly;
use super::judgement::{State, exact};
use crate::envelope::Refusal;
use crate::sealed::digest_of;

/// How long a grant is good, in milliseconds.
const GRANT_LIFETIME: u64 = 10 * 60_000;

/// What a binding is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// A database on the binding's node.
    Database,
    /// A bucket on the binding's node; with these days of retention, where it has any.
    ObjectStorage(Option<u64>),
    /// Nothing that a relay has to do with.
    PushNotification,
}

impl Capability {
    /// The word of the contract.
    pub fn word(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::ObjectStorage(_) => "objectstorage",
            Self::PushNotification => "pushnotification",
        }
    }

    fn retention(self) -> Value {
        match self {
            Self::ObjectStorage(Some(days)) => json!({"mode": "compliance", "days": days}),
            Self::ObjectStorage(None) | Self::Database | Self::PushNotification => Value::Null,
        }
    }
}

/// A binding as Cloudly holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlatformBinding {
    /// Its id.
    pub id: String,
    /// The service that it is of.
    pub service: String,
    /// The node that it was placed on.
    pub node: Option<String>,
    /// What it is for.
    pub capability: Capability,
    /// `provisioning`, `ready` or `failed`.
    pub status: String,
    /// The reason of the last report.
    pub status_reason: Option<String>,
    /// The endpoints of the last report.
    pub endpoints: Vec<Value>,
}

impl PlatformBinding {
    /// A binding that is to be provisioned.
    pub fn new(id: &str, service: &str, node: Option<&str>, capability: Capability) -> Self {
        Self {
            id: id.to_owned(),
            service: service.to_owned(),
            node: node.map(str::to_owned),
            capability,
            status: "provisioning".to_owned(),
            status_reason: None,
            endpoints: Vec::new(),
        }
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "serviceId": self.service,
            "capability": self.capability.word(),
            "name": self.id,
            "status": self.status,
            "statusReason": self.status_reason,
            "endpoints": self.endpoints,
        })
    }
}

/// Where a node's Corestore and its database are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCorestore {
    /// The origin of its control API.
    pub endpoint: Option<String>,
    /// Host and port of its database.
    pub database: Option<(String, u16)>,
}

/// What is desired, granted and published.
#[derive(Clone, Default)]
pub(super) struct Platform {
    cluster: String,
    nodes: BTreeMap<String, NodeCorestore>,
    /// The organization of each service.
    pub(super) services: BTreeMap<String, String>,
    pub(super) bindings: BTreeMap<String, PlatformBinding>,
    /// The grant in force by binding id.
    pub(super) grants: BTreeMap<String, Value>,
    issued: u64,
}

impl Platform {
    /// Adds a binding or changes it, and grants what it needs.
    fn desire(&mut self, binding: PlatformBinding, expires_at: u64) {
        let id = binding.id.clone();
        self.bindings.insert(id.clone(), binding);
        self.grant(&id, expires_at);
    }

    /// Publishes where a node is reached; a request that changes by it gets another grant (PLT-41).
    fn publish(&mut self, node: &str, corestore: NodeCorestore, expires_at: u64) {
        let moved = self.nodes.get(node).is_none_or(|former| former.database != corestore.database);
        self.nodes.insert(node.to_owned(), corestore);
        let here = |binding: &&mut PlatformBinding| {
            binding.node.as_deref() == Some(node) && binding.capability == Capability::Database
        };
        let mut touched = Vec::new();
        for binding in self.bindings.values_mut().filter(here).filter(|_| moved) {
            "provisioning".clone_into(&mut binding.status);
            touched.push(binding.id.clone());
        }
        for id in touched {
            self.grant(&id, expires_at);
        }
    }

    /// Puts the grant in force that covers the request of a binding as it is, or takes away the one that was,
    /// where the request has a part that is not known.
    fn grant(&mut self, id: &str, expires_at: u64) {
        self.grants.remove(id);
        let operation = json!({"id": format!("corestore-operation-{id}"), "generation": self.issued + 1});
        let Some((binding, request)) =
            self.bindings.get(id).and_then(|binding| Some((binding, self.request(binding, &operation)?)))
        else {
            return;
        };
        let grant = json!({
            "operation": operation,
            "bindingId": id,
            "serviceId": binding.service,
            "nodeId": binding.node,
            "capability": binding.capability.word(),
            "requestDigest": digest_of(&request),
            "retention": binding.capability.retention(),
            "expiresAt": expires_at,
        });
        self.issued += 1;
        self.grants.insert(id.to_owned(), grant);
    }

    /// `BindingRequest` of the contract, section 3.
    fn request(&self, binding: &PlatformBinding, operation: &Value) -> Option<Value> {
        let node = binding.node.as_ref()?;
        let mut request = json!({
            "operation": operation,
            "bindingId": binding.id,
            "serviceId": binding.service,
            "clusterId": self.cluster,
            "nodeId": node,
            "capability": binding.capability.word(),
        });
        match binding.capability {
            Capability::Database => {
                let (host, port) = self.nodes.get(node)?.database.as_ref()?;
                request["endpoint"] = json!({"host": host, "port": port});
            }
            Capability::ObjectStorage(_) => request["retention"] = binding.capability.retention(),
            Capability::PushNotification => return None,
        }
        Some(request)
    }

    /// The endpoint that the database of a binding is addressed to.
    pub(super) fn database_of(&self, binding: &PlatformBinding) -> Option<Value> {
        let (host, port) = self.nodes.get(binding.node.as_ref()?)?.database.as_ref()?;
        Some(json!({"host": host, "port": port}))
    }

    /// The answer to `getClusterPlatformDesiredState`.
    pub(super) fn desired_state(&self, body: &Value) -> Result<Value, Refusal> {
        exact(body, &[], &[], "read")?;
        let entry = |binding: &PlatformBinding| json!({"nodeId": binding.node, "binding": binding.json()});
        Ok(json!({"bindings": self.bindings.values().map(entry).collect::<Vec<Value>>()}))
    }

    /// Takes over what the relay reports, a reason that is `null` included.
    pub(super) fn report(&mut self, body: &Value) -> Result<Value, Refusal> {
        exact(body, &["bindingId", "endpoints", "status", "statusReason"], &[], "report")?;
        let wrong = |member: &str| Refusal::new(format!("report-invalid: {member}"));
        let status = body["status"].as_str().unwrap_or_default();
        if !["provisioning", "ready", "failed"].contains(&status) {
            return Err(wrong("status"));
        }
        let reason = &body["statusReason"];
        if !reason.is_null() && !reason.is_string() {
            return Err(wrong("statusReason"));
        }
        let endpoints = body["endpoints"].as_array().ok_or_else(|| wrong("endpoints"))?;
        for endpoint in endpoints {
            let database = endpoint["capability"] == Capability::Database.word();
            let port: &[&str] = if database { &["port"] } else { &[] };
            let members = [&["capability", "name", "networkAlias", "protocol"], port].concat();
            exact(endpoint, &members, &[], "report")?;
        }
        let id = body["bindingId"].as_str().unwrap_or_default();
        let binding = self.bindings.get_mut(id).ok_or_else(|| Refusal::new("platform-binding-unknown"))?;
        status.clone_into(&mut binding.status);
        binding.status_reason = reason.as_str().map(str::to_owned);
        binding.endpoints.clone_from(endpoints);
        Ok(json!({}))
    }

    /// Fills the cluster document with what belongs to the platform.
    fn complete(&self, config: &mut Value) {
        let service = |(id, organization): (&String, &String)| {
            json!({"id": id, "data": {
                "name": id, "organizationId": organization, "clusterId": self.cluster,
            }})
        };
        config["services"] = self.services.iter().map(service).collect();
        config["corestorePublicationGrants"] = self.grants.values().cloned().collect();
        let nodes = config["configData"]["data"]["nodes"].as_array_mut();
        for node in nodes.into_iter().flatten() {
            let Some(corestore) = node["id"].as_str().and_then(|id| self.nodes.get(id)) else { continue };
            if let Some(endpoint) = &corestore.endpoint {
                node["data"]["corestore"] = json!({"endpoint": endpoint});
            }
            if let Some((host, port)) = &corestore.database {
                node["data"]["corestoreDatabase"] = json!({"host": host, "port": port});
            }
        }
    }
}

impl State {
    /// `ConfigState`, with the platform's part unless a test wrote the whole.
    pub(super) fn config_text(&self) -> String {
        let text = self.settings.config_text();
        if self.settings.config.is_some() {
            return text;
        }
        let mut config: Value = serde_json::from_str(&text).expect("the document was composed as JSON");
        self.corestore.platform.complete(&mut config);
        config.to_string()
    }

    /// The platform of the cluster that the settings name.
    fn platform(&mut self) -> &mut Platform {
        self.settings.cluster_id.clone_into(&mut self.corestore.platform.cluster);
        &mut self.corestore.platform
    }
}

impl Cloudly {
    /// A service and its organization.
    pub fn add_service(&self, service: &str, organization: &str) {
        self.shared.state().platform().services.insert(service.to_owned(), organization.to_owned());
    }

    /// Desires a binding, or changes it, under a grant of its own, which is in the next cluster document.
    pub fn desire(&self, binding: PlatformBinding) {
        let mut state = self.shared.state();
        let expires_at = state.now_ms() + GRANT_LIFETIME;
        state.platform().desire(binding, expires_at);
    }

    /// Publishes where the Corestore of a node and its database are reached, and grants anew what changes by
    /// that (PLT-41).
    pub fn publish_corestore(&self, node: &str, corestore: NodeCorestore) {
        let mut state = self.shared.state();
        let expires_at = state.now_ms() + GRANT_LIFETIME;
        state.platform().publish(node, corestore, expires_at);
    }

    /// A binding as it stands.
    pub fn platform_binding(&self, id: &str) -> Option<PlatformBinding> {
        self.shared.state().corestore.platform.bindings.get(id).cloned()
    }

    /// The grant in force for a binding, `Grant` of the contract.
    pub fn publication_grant(&self, binding: &str) -> Option<Value> {
        self.shared.state().corestore.platform.grants.get(binding).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> NodeCorestore {
        NodeCorestore { endpoint: None, database: Some((host.to_owned(), 27017)) }
    }

    /// PLT-41: an endpoint that moves brings another grant to the database bindings of its node and to no other,
    /// with the digest of the changed request; one that stays brings none, and without one there is none.
    #[test]
    fn a_moved_endpoint_brings_another_grant() {
        let mut platform = Platform { cluster: "cluster-1".to_owned(), ..Platform::default() };
        for (id, node, capability) in [
            ("d1", Some("node-1"), Capability::Database),
            ("d2", Some("node-2"), Capability::Database),
            ("o1", Some("node-1"), Capability::ObjectStorage(Some(7))),
            ("p1", Some("node-1"), Capability::PushNotification),
            ("d3", None, Capability::Database),
        ] {
            platform.desire(PlatformBinding::new(id, "service-1", node, capability), 1);
        }
        assert_eq!(platform.grants.keys().collect::<Vec<_>>(), ["o1"], "no database is reached yet");
        let grant = &platform.grants["o1"];
        let retention = json!({"mode": "compliance", "days": 7});
        let request = json!({
            "operation": grant["operation"], "bindingId": "o1", "serviceId": "service-1",
            "clusterId": "cluster-1", "nodeId": "node-1", "capability": "objectstorage",
            "retention": retention,
        });
        assert_eq!((&grant["requestDigest"], &grant["retention"]), (&json!(digest_of(&request)), &retention));
        platform.publish("node-1", at("a"), 1);
        platform.publish("node-2", at("a"), 1);
        let before = platform.grants.clone();
        assert_eq!(before.keys().collect::<Vec<_>>(), ["d1", "d2", "o1"]);
        let moved = NodeCorestore { endpoint: Some("http://b:1".to_owned()), ..at("a") };
        platform.publish("node-1", moved, 1);
        assert_eq!(platform.grants, before, "the request names the database alone");
        platform.publish("node-1", at("b"), 1);
        assert_eq!((&platform.grants["d2"], &platform.grants["o1"]), (&before["d2"], &before["o1"]));
        let grant = &platform.grants["d1"];
        assert!(grant["operation"]["generation"].as_u64() > before["d1"]["operation"]["generation"].as_u64());
        let request = json!({
            "operation": grant["operation"], "bindingId": "d1", "serviceId": "service-1",
            "clusterId": "cluster-1", "nodeId": "node-1", "capability": "database",
            "endpoint": {"host": "b", "port": 27017},
        });
        assert_eq!(grant["requestDigest"], digest_of(&request));
        platform.publish("node-1", NodeCorestore::default(), 1);
        assert!(!platform.grants.contains_key("d1"));
    }

    /// A report replaces status, reason and endpoints; one with a credential in an endpoint is refused.
    #[test]
    fn a_report_is_taken_over_whole() {
        let mut platform = Platform::default();
        let binding = PlatformBinding::new("d1", "service-1", Some("node-1"), Capability::Database);
        platform.desire(binding, 1);
        let report = |status: &str, reason: Value, endpoints: Value| {
            let members = [("status", json!(status)), ("statusReason", reason), ("endpoints", endpoints)];
            let mut report = json!({"bindingId": "d1"});
            for (member, value) in members {
                report[member] = value;
            }
            report
        };
        platform.report(&report("failed", json!("legacy-adoption-conflict"), json!([]))).unwrap();
        assert_eq!(platform.bindings["d1"].status_reason.as_deref(), Some("legacy-adoption-conflict"));
        let endpoint = json!({"name": "d1", "capability": "database", "protocol": "mongodb",
            "networkAlias": "a", "port": 27017});
        platform.report(&report("ready", Value::Null, json!([endpoint]))).unwrap();
        let held = &platform.bindings["d1"];
        assert_eq!((held.status.as_str(), &held.status_reason), ("ready", &None));
        assert_eq!(held.endpoints, std::slice::from_ref(&endpoint));
        let mut telling = endpoint;
        telling["password"] = json!("x");
        let refused = platform.report(&report("ready", Value::Null, json!([telling]))).unwrap_err();
        assert_eq!(refused.text, "report-invalid: password");
        assert!(platform.report(&report("done", Value::Null, json!([]))).is_err());
    }
}
