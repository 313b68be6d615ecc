//! The runtime sessions of nodes as Cloudly keeps them: one binding per node and carrier
//! connection, issued by registration and checked on every later request (OUT-01, PROT-16).

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::judgement::State;
use crate::envelope::{Message, Outcome, Refusal, raw};

/// The methods of a registered node (contract, section 4.1).
pub(super) const CARRIED: [&str; 9] = [
    "getRuntimeManagedVpnCredential",
    "getRuntimeRegistryCredential",
    "reportRuntimeNetworkProtection",
    "reportRuntimeAssignmentObservation",
    "reportRuntimeAssignmentTerminalReceipt",
    "getRuntimeSecretRecipientState",
    "beginRuntimeSecretRecipientEnrollment",
    "completeRuntimeSecretRecipientEnrollment",
    "getRuntimeSecretMaterial",
];

/// A binding and the registration that it answers.
pub(super) struct Issue {
    pub(super) binding: Value,
    registration: String,
}

impl State {
    /// An identical registration on the same carrier gets the historical binding (OUT-18); any
    /// other gets a new one, which supersedes the node's former one.
    pub(super) fn register_node(&mut self, number: u64, message: &Message, body: &Value) -> Outcome {
        let node = body["nodeId"].as_str().unwrap_or_default().to_owned();
        let Some(open) = self.connections.get_mut(&number).filter(|open| open.session.is_some()) else {
            return Err(Refusal::new("runtime-carrier-unregistered"));
        };
        if self.settings.nodes.get(&node).map(String::as_str) != body["authorization"].as_str() {
            return Err(Refusal::new("runtime-session-unauthorized"));
        }
        if !body["nodeInstanceNonce"].is_string() || !body["credentialGeneration"].is_u64() {
            return Err(Refusal::new("runtime-session-invalid"));
        }
        let historical = open.bindings.get(&node).filter(|issue| issue.registration == message.request());
        let binding = match historical {
            Some(issue) => issue.binding.clone(),
            None => {
                let generation = self.issues.entry(node.clone()).or_insert(0);
                *generation += 1;
                let binding = json!({
                    "sessionId": format!("session-{node}-{generation}"),
                    "nodeId": node,
                    "clusterId": self.settings.cluster_id,
                    "generation": *generation,
                });
                let registration = message.request().to_owned();
                open.bindings.insert(node, Issue { binding: binding.clone(), registration });
                binding
            }
        };
        Ok(raw(&json!({"session": binding, "protocol": self.settings.offer.json()}).to_string()))
    }

    /// The answer names the method and returns the body as it came, so that a test sees every
    /// byte of both directions.
    pub(super) fn carried(&self, number: u64, message: &Message, body: &Value) -> Outcome {
        let session = &body["session"];
        let node = session["nodeId"].as_str().unwrap_or_default();
        let open = self.connections.get(&number);
        match open.and_then(|open| open.bindings.get(node)) {
            Some(issue) if issue.binding == *session => Ok(echo(&message.method, message.request())),
            Some(_) => Err(Refusal::new("runtime-session-superseded")),
            None => Err(Refusal::new("runtime-session-unknown: not registered on this carrier connection")),
        }
    }

    /// The node that a registration was answered with `answer` to, and what it is owed then: methods and bodies.
    pub(super) fn owed_after(&self, answer: &str) -> Option<(String, Vec<(&'static str, String)>)> {
        let answer: Value = serde_json::from_str(answer).ok()?;
        let session = &answer["session"];
        let node = session["nodeId"].as_str()?;
        let mut owed = Vec::new();
        let mut owe = |method, member, body: &str| {
            owed.push((method, format!(r#"{{"session":{session},"{member}":{body}}}"#)));
        };
        if let Some(projection) = self.settings.owed_projections.get(node) {
            let authority = self.signing.json().to_string();
            owe("applyRuntimeNetworkSigningAuthority", "authority", &authority);
            owe("applyRuntimeNetworkProjection", "projection", projection);
        }
        if let Some(assignment) = self.settings.owed.get(node) {
            owe("applyRuntimeAssignment", "assignment", assignment);
        }
        Some((node.to_owned(), owed))
    }
}

fn echo(method: &str, body: &str) -> Box<RawValue> {
    raw(&format!(r#"{{"answered":"{method}","received":{body}}}"#))
}
