//! Credential material that a relay publishes: the ingress recipient that it is sealed to, and the transaction that
//! takes it in (contract of the Corestore half, section 4). It models PUB-04, PUB-28 and PUB-29.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Cloudly;
use super::corestore::coded;
use super::judgement::exact;
use super::platform::{Capability, Platform, PlatformBinding};
use crate::carrier::CallFailure;
use crate::envelope::{Message, Refusal};
use crate::sealed::{KeyPair, digest_of};

/// How its refusals begin.
const REFUSED: &str = "corestore-publication-refused";

/// What goes wrong within Cloudly while it takes material in. The answer is `INTERNAL_ERROR` each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicationFault {
    /// The transaction, once the Secrets were written in it: nothing of it is left.
    Transaction,
    /// The push of the cluster document that follows the commit: all of it is left (PUB-28).
    ConfigPush,
}

struct Committed {
    request: String,
    receipt: Value,
}

/// The ingress recipient, the Secrets of the services, and what was committed.
pub(super) struct Publications {
    recipient: KeyPair,
    recipient_number: u64,
    /// Material by service and binding.
    secrets: BTreeMap<(String, String), Value>,
    /// By mutation id.
    committed: BTreeMap<String, Committed>,
    fault: Option<PublicationFault>,
}

impl Default for Publications {
    fn default() -> Self {
        Self {
            recipient: KeyPair::generate(),
            recipient_number: 1,
            secrets: BTreeMap::new(),
            committed: BTreeMap::new(),
            fault: None,
        }
    }
}

impl Publications {
    fn key_id(&self) -> String {
        format!("secret-ingress:{}", self.recipient_number)
    }

    /// The answer to `getSecretIngressRecipient`.
    pub(super) fn recipient(&self, body: &Value) -> Result<Value, Refusal> {
        exact(body, &[], &[], "read")?;
        let key = self.recipient.public();
        Ok(json!({"recipient": {"recipientKeyId": self.key_id(), "publicKey": key}}))
    }

    /// Takes material in. A request that is the committed one gets the committed receipt, any other under its
    /// mutation id `REPLAY_CONFLICT`.
    pub(super) fn publish(
        &mut self,
        platform: &mut Platform,
        cluster: &str,
        body: &Value,
        now: u64,
    ) -> Result<Value, Refusal> {
        exact(body, &["bindingId", "envelope", "mutationId", "operation", "serviceId"], &[], "publication")?;
        let mutation = mutation_id(&body["operation"]);
        if body["mutationId"] != mutation.as_str() {
            return Err(coded(REFUSED, "MUTATION_ID_MISMATCH"));
        }
        let request = digest_of(body);
        if let Some(committed) = self.committed.get(&mutation) {
            if committed.request != request {
                return Err(coded(REFUSED, "REPLAY_CONFLICT"));
            }
            return Ok(json!({"receipt": committed.receipt}));
        }
        let (binding, grant) = granted(platform, body, now)?;
        let organization = platform.services.get(&binding.service);
        let organization = organization.ok_or_else(|| coded(REFUSED, "SERVICE_UNKNOWN"))?.clone();
        let material = self.opened(cluster, &organization, &grant, body)?;
        judge_material(platform, &binding, &material)?;
        let receipt = json!({
            "mutationId": mutation,
            "organizationId": organization,
            "clusterId": cluster,
            "serviceId": binding.service,
            "bindingId": binding.id,
            "operation": body["operation"],
            "envelopeDigest": digest_of(&body["envelope"]),
            "committedAt": now,
        });
        self.commit(platform, &binding, material, Committed { request, receipt: receipt.clone() })?;
        Ok(json!({ "receipt": receipt }))
    }

    /// The material, from an envelope whose context is the one of its grant.
    fn opened(
        &self,
        cluster: &str,
        organization: &str,
        grant: &Value,
        body: &Value,
    ) -> Result<Value, Refusal> {
        let envelope = &body["envelope"];
        if envelope["recipientKeyId"] != self.key_id().as_str() {
            return Err(coded(REFUSED, "RECIPIENT_NOT_ACTIVE"));
        }
        let expected = json!({
            "purpose": "publish-corestore-credential-material",
            "mutationId": body["mutationId"],
            "organizationId": organization,
            "clusterId": cluster,
            "serviceId": grant["serviceId"],
            "bindingId": grant["bindingId"],
            "operation": grant["operation"],
            "requestDigest": grant["requestDigest"],
            "recipientKeyId": self.key_id(),
        });
        if envelope["context"] != expected {
            return Err(coded(REFUSED, "CONTEXT_MISMATCH"));
        }
        let plaintext = self.recipient.open(envelope, &expected);
        let plaintext = plaintext.ok_or_else(|| coded(REFUSED, "ENVELOPE_UNREADABLE"))?;
        serde_json::from_slice(&plaintext).map_err(|_| coded(REFUSED, "MATERIAL_INVALID"))
    }

    /// All of it or nothing: the values become Secrets of the service, the binding ready, the grant used up.
    fn commit(
        &mut self,
        platform: &mut Platform,
        binding: &PlatformBinding,
        material: Value,
        committed: Committed,
    ) -> Result<(), Refusal> {
        let fault = self.fault.take();
        let (mut secrets, mut changed) = (self.secrets.clone(), platform.clone());
        secrets.insert((binding.service.clone(), binding.id.clone()), material);
        if fault == Some(PublicationFault::Transaction) {
            return Err(coded(REFUSED, "INTERNAL_ERROR"));
        }
        if let Some(binding) = changed.bindings.get_mut(&binding.id) {
            "ready".clone_into(&mut binding.status);
            binding.status_reason = None;
        }
        changed.grants.remove(&binding.id);
        (self.secrets, *platform) = (secrets, changed);
        self.committed.insert(mutation_id(&committed.receipt["operation"]), committed);
        match fault {
            Some(PublicationFault::ConfigPush) => Err(coded(REFUSED, "INTERNAL_ERROR")),
            Some(PublicationFault::Transaction) | None => Ok(()),
        }
    }
}

/// `corestore-publication:` and the digest of the operation.
pub fn mutation_id(operation: &Value) -> String {
    format!("corestore-publication:{}", digest_of(operation).trim_start_matches("sha256:"))
}

/// The binding and the grant that a publication is under.
fn granted(platform: &Platform, body: &Value, now: u64) -> Result<(PlatformBinding, Value), Refusal> {
    let id = body["bindingId"].as_str().unwrap_or_default();
    let found = platform.bindings.get(id).zip(platform.grants.get(id));
    let matching = |grant: &Value| ["operation", "serviceId"].iter().all(|key| grant[key] == body[key]);
    let Some((binding, grant)) = found.filter(|(_, grant)| matching(grant)) else {
        return Err(coded(REFUSED, "GRANT_UNKNOWN"));
    };
    if grant["expiresAt"].as_u64().is_none_or(|end| end <= now) {
        return Err(coded(REFUSED, "GRANT_EXPIRED"));
    }
    Ok((binding.clone(), grant.clone()))
}

/// `Material` of the contract, section 3, for what the binding is.
fn judge_material(platform: &Platform, binding: &PlatformBinding, material: &Value) -> Result<(), Refusal> {
    let members: &[&str] = match binding.capability {
        Capability::Database => &["capability", "databaseName", "endpoint", "uri"],
        Capability::ObjectStorage(_) | Capability::PushNotification => {
            &["accessKey", "accessSecret", "bucketName", "capability", "endpoint", "region"]
        }
    };
    let of_kind = exact(material, members, &[], "material").is_ok()
        && material["capability"] == binding.capability.word();
    let addressed = binding.capability != Capability::Database
        || Some(&material["endpoint"]) == platform.database_of(binding).as_ref();
    if of_kind && addressed { Ok(()) } else { Err(coded(REFUSED, "MATERIAL_INVALID")) }
}

impl Cloudly {
    /// The next publication that would commit meets this fault.
    pub fn fail_publication(&self, fault: PublicationFault) {
        self.shared.state().corestore.publications.fault = Some(fault);
    }

    /// The ingress recipient is another one from now on.
    pub fn rotate_ingress_recipient(&self) {
        let publications = &mut self.shared.state().corestore.publications;
        publications.recipient = KeyPair::generate();
        publications.recipient_number += 1;
    }

    /// The material that was saved as Secrets of a service for a binding.
    pub fn service_secret(&self, service: &str, binding: &str) -> Option<Value> {
        let key = (service.to_owned(), binding.to_owned());
        self.shared.state().corestore.publications.secrets.get(&key).cloned()
    }

    /// Pushes the cluster document as it stands: the relay's answer.
    ///
    /// # Errors
    /// [`CallFailure`]; a refusal is an answer.
    pub async fn push_config(&self) -> Result<Message, CallFailure> {
        self.push("pushClusterConfig", &self.config()).await
    }
}
