//! Platform bindings as Cloudly has them: where they are placed, the grant under which a relay may reconcile each, and
//! what a publication under one does (PLT-20, PLT-41, PUB-04, PUB-28, PUB-29).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Cloudly;
use super::judgement::{State, exact};
use crate::corestore::answer::digest;
use crate::envelope::{Outcome, Refusal, raw};
use crate::sealed::{KeyPair, canonical};

/// The organization of every service of this double.
const ORGANIZATION: &str = "organization-1";
/// How long a grant lasts, in milliseconds.
const GRANT_LIFETIME: u64 = 10 * 60_000;

/// A database binding and where Cloudly placed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedBinding {
    /// Its id.
    pub id: String,
    /// The service that it is for.
    pub service: String,
    /// The node whose Corestore holds it.
    pub node: String,
    /// The host and port that a service reaches it at.
    pub endpoint: (String, u16),
}

impl PlacedBinding {
    /// The exact request that its grant covers, under `operation`.
    pub fn request(&self, cluster: &str, operation: &Value) -> Value {
        json!({
            "operation": operation, "bindingId": self.id, "serviceId": self.service, "clusterId": cluster,
            "nodeId": self.node, "capability": "database",
            "endpoint": {"host": self.endpoint.0, "port": self.endpoint.1},
        })
    }
}

struct Known {
    placed: PlacedBinding,
    status: String,
    reason: Value,
    endpoints: Value,
    /// The generation of its latest operation.
    generation: u64,
}

/// What a publication left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The values, as the service's Secrets.
    pub secrets: Value,
    /// The binding's status.
    pub status: String,
    /// Whether a grant is left for it.
    pub granted: bool,
}

/// The platform of one cluster.
pub(super) struct Platform {
    bindings: BTreeMap<String, Known>,
    /// By binding.
    grants: BTreeMap<String, Value>,
    ingress: KeyPair,
    /// Services' Secrets, by binding.
    secrets: BTreeMap<String, Value>,
    /// The digest of the envelope, and the receipt that it got, by mutation.
    receipts: BTreeMap<String, (String, Value)>,
    push_fails: bool,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            bindings: BTreeMap::new(),
            grants: BTreeMap::new(),
            ingress: KeyPair::generate(),
            secrets: BTreeMap::new(),
            receipts: BTreeMap::new(),
            push_fails: false,
        }
    }
}

/// The mutation id of all publications under one grant operation.
pub fn mutation_id(operation: &Value) -> String {
    let digest = digest(canonical(operation).as_bytes());
    format!("corestore-publication:{}", digest.trim_start_matches("sha256:"))
}

fn refused(code: &str) -> Refusal {
    Refusal { text: format!("corestore-publication-refused: {code}"), data: json!({"code": code}) }
}

impl Platform {
    const INGRESS_KEY: &'static str = "secret-ingress-1";

    pub(super) fn ingress_recipient(&self) -> Value {
        json!({"recipient": {"recipientKeyId": Self::INGRESS_KEY, "publicKey": self.ingress.public()}})
    }

    /// Issues the next grant of a binding, which covers its request as it is now.
    fn grant(&mut self, cluster: &str, binding: &str, now: u64) {
        let Some(known) = self.bindings.get_mut(binding) else { return };
        known.generation += 1;
        let operation = json!({"id": format!("operation-of-{binding}"), "generation": known.generation});
        let request = known.placed.request(cluster, &operation);
        let grant = json!({
            "operation": operation, "bindingId": binding, "serviceId": known.placed.service,
            "nodeId": known.placed.node, "capability": "database",
            "requestDigest": digest(canonical(&request).as_bytes()), "retention": null,
            "expiresAt": now + GRANT_LIFETIME,
        });
        self.grants.insert(binding.to_owned(), grant);
    }

    fn desired(&self) -> Value {
        let bindings: Vec<Value> = self
            .bindings
            .values()
            .map(|known| {
                json!({"nodeId": known.placed.node, "binding": {
                    "id": known.placed.id, "serviceId": known.placed.service, "capability": "database",
                    "name": "database", "status": known.status, "statusReason": known.reason,
                    "endpoints": known.endpoints,
                }})
            })
            .collect();
        json!({"bindings": bindings})
    }

    /// Judges a publication, and commits it in one step: values, status and grant all change or none does.
    fn publish(&mut self, cluster: &str, body: &Value, now: u64) -> Outcome {
        exact(body, &["bindingId", "envelope", "mutationId", "operation", "serviceId"], &[], "publication")?;
        let text = |member: &str| body[member].as_str().unwrap_or_default().to_owned();
        let (mutation, binding, service) = (text("mutationId"), text("bindingId"), text("serviceId"));
        let envelope_digest = digest(canonical(&body["envelope"]).as_bytes());
        if let Some((committed, receipt)) = self.receipts.get(&mutation) {
            // PUB-29: the receipt is that envelope's.
            return if *committed == envelope_digest {
                Ok(raw(&json!({"receipt": receipt}).to_string()))
            } else {
                Err(refused("REPLAY_CONFLICT"))
            };
        }
        let grant = self.grants.get(&binding).filter(|grant| grant["operation"] == body["operation"]);
        let grant = grant.ok_or_else(|| refused("GRANT_UNKNOWN"))?;
        if grant["serviceId"] != body["serviceId"] || mutation != mutation_id(&body["operation"]) {
            return Err(refused("PUBLICATION_INVALID"));
        }
        if grant["expiresAt"].as_u64().is_none_or(|end| end <= now) {
            return Err(refused("GRANT_EXPIRED"));
        }
        let context = json!({
            "purpose": "publish-corestore-credential-material", "mutationId": mutation,
            "organizationId": ORGANIZATION, "clusterId": cluster, "serviceId": service, "bindingId": binding,
            "operation": body["operation"], "requestDigest": grant["requestDigest"],
            "recipientKeyId": Self::INGRESS_KEY,
        });
        let material = self.ingress.open(&body["envelope"], &context);
        let material: Option<Value> = material.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let material = material.filter(|material| material["capability"] == "database");
        let material = material.ok_or_else(|| refused("ENVELOPE_INVALID"))?;
        let receipt = json!({
            "mutationId": mutation, "organizationId": ORGANIZATION, "clusterId": cluster, "serviceId": service,
            "bindingId": binding, "operation": body["operation"], "envelopeDigest": envelope_digest,
            "committedAt": now,
        });
        let known = self.bindings.get_mut(&binding).ok_or_else(|| refused("BINDING_UNKNOWN"))?;
        "ready".clone_into(&mut known.status);
        self.grants.remove(&binding);
        self.secrets.insert(binding, material);
        self.receipts.insert(mutation, (envelope_digest, receipt.clone()));
        if self.push_fails {
            return Err(refused("INTERNAL_ERROR"));
        }
        Ok(raw(&json!({"receipt": receipt}).to_string()))
    }
}

impl State {
    /// PLT-20: only on the socket whose registration was accepted and stands.
    pub(super) fn platform_desired_state(&mut self, number: u64, body: &Value) -> Outcome {
        exact(body, &[], &[], "desired-state")?;
        if !self.connections.get(&number).is_some_and(|open| open.accepted) {
            return Err(Refusal::new("relay-not-connected"));
        }
        if self.standing.as_ref().and_then(|relay| relay.connection) != Some(number) {
            return Err(Refusal::new("relay-ambiguous"));
        }
        Ok(raw(&self.platform.desired().to_string()))
    }

    pub(super) fn report_binding(&mut self, body: &Value) -> Outcome {
        exact(body, &["bindingId", "endpoints", "status", "statusReason"], &[], "report")?;
        let known = self.platform.bindings.get_mut(body["bindingId"].as_str().unwrap_or_default());
        let known = known.ok_or_else(|| Refusal::new("binding-unknown"))?;
        body["status"].as_str().unwrap_or_default().clone_into(&mut known.status);
        known.reason = body["statusReason"].clone();
        known.endpoints = body["endpoints"].clone();
        Ok(raw("{}"))
    }

    pub(super) fn publish_material(&mut self, body: &Value) -> Outcome {
        let now = self.now_ms();
        let published = self.platform.publish(&self.settings.cluster_id, body, now);
        self.state_grants();
        published
    }

    fn state_grants(&mut self) {
        self.settings.publication_grants = self.platform.grants.values().cloned().collect();
    }
}

impl Cloudly {
    /// Places a binding, or moves it, and issues a grant for it as it is now (PLT-41). The config states it; the push
    /// of that is the test's.
    pub fn place_binding(&self, placed: PlacedBinding) {
        let mut state = self.shared.state();
        let (now, cluster, id) = (state.now_ms(), state.settings.cluster_id.clone(), placed.id.clone());
        let known = state.platform.bindings.entry(id.clone()).or_insert_with(|| Known {
            placed: placed.clone(),
            status: String::new(),
            reason: Value::Null,
            endpoints: json!([]),
            generation: 0,
        });
        known.placed = placed;
        "provisioning".clone_into(&mut known.status);
        state.platform.grant(&cluster, &id, now);
        state.state_grants();
    }

    /// The grant of a binding, as the config states it.
    pub fn publication_grant(&self, binding: &str) -> Option<Value> {
        self.shared.state().platform.grants.get(binding).cloned()
    }

    /// Whether the config push that follows a publication fails from now on, after the commit (PUB-28).
    pub fn publications_fail_to_push(&self, fail: bool) {
        self.shared.state().platform.push_fails = fail;
    }

    /// What was published of a binding; `None` before.
    pub fn published(&self, binding: &str) -> Option<Published> {
        let state = self.shared.state();
        Some(Published {
            secrets: state.platform.secrets.get(binding)?.clone(),
            status: state.platform.bindings.get(binding)?.status.clone(),
            granted: state.platform.grants.contains_key(binding),
        })
    }
}
