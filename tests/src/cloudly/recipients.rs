//! To whom Cloudly seals the credential of a cluster's Corestore control API: one active recipient, proven to hold its
//! private key, and a bounded memory of those that are revoked (CST-22).

use std::collections::{BTreeMap, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Cloudly;
use super::judgement::{State, exact};
use crate::envelope::{Outcome, Refusal, random_bytes, raw};
use crate::sealed::seal;

/// How many revoked recipients are known.
pub const REVOKED_KEPT: usize = 4;
/// How a recipient's key id begins.
const KEY_ID: &str = "relay-corestore-control:";

struct Enrolling {
    public: String,
    challenge: [u8; 32],
}

/// The recipients of one cluster.
#[derive(Default)]
pub(super) struct Recipients {
    active: Option<(String, String)>,
    enrolling: BTreeMap<String, Enrolling>,
    revoked: VecDeque<String>,
    /// The token of the control API and its generation.
    credential: (String, u64),
}

fn refused(code: &str) -> Refusal {
    Refusal { text: format!("cluster-secret-recipient-refused: {code}"), data: json!({"code": code}) }
}

impl Recipients {
    fn begin(&mut self, cluster: &str, key_id: &str, public: &str) -> Outcome {
        let known = self.revoked.iter().any(|revoked| revoked == key_id);
        let active = self.active.as_ref().is_some_and(|(active, _)| active == key_id);
        if known || active || self.enrolling.contains_key(key_id) {
            return Err(refused("RECIPIENT_KEY_REUSED"));
        }
        if key_id.strip_prefix(KEY_ID).is_none_or(str::is_empty) {
            return Err(refused("RECIPIENT_KEY_INVALID"));
        }
        let challenge: [u8; 32] = random_bytes();
        let context = json!({
            "purpose": "cluster-secret-recipient-challenge", "clusterId": cluster, "recipientKeyId": key_id,
        });
        let sealed =
            seal(key_id, public, &context, &challenge).ok_or_else(|| refused("RECIPIENT_KEY_INVALID"))?;
        self.enrolling.insert(key_id.to_owned(), Enrolling { public: public.to_owned(), challenge });
        Ok(raw(&json!({"challenge": sealed}).to_string()))
    }

    fn complete(&mut self, key_id: &str, proof: &str) -> Outcome {
        let enrolling = self.enrolling.remove(key_id).ok_or_else(|| refused("RECIPIENT_UNKNOWN"))?;
        if STANDARD.decode(proof).ok().as_deref() != Some(&enrolling.challenge[..]) {
            return Err(refused("RECIPIENT_PROOF_INVALID"));
        }
        let former = self.active.replace((key_id.to_owned(), enrolling.public));
        self.revoked.extend(former.map(|(key_id, _)| key_id));
        while self.revoked.len() > REVOKED_KEPT {
            self.revoked.pop_front();
        }
        Ok(raw(&json!({"active": {"recipientKeyId": key_id}}).to_string()))
    }

    fn material(&self, cluster: &str, key_id: &str) -> Outcome {
        let active = self.active.as_ref().filter(|(active, _)| active == key_id);
        let (_, public) = active.ok_or_else(|| refused("RECIPIENT_NOT_ACTIVE"))?;
        let (token, generation) = &self.credential;
        let credential = json!({"id": "corestore-control-1", "generation": generation});
        let context = json!({
            "purpose": "corestore-control-credential", "clusterId": cluster, "recipientKeyId": key_id,
            "credential": credential,
        });
        let secret = json!({"token": token}).to_string();
        let envelope = seal(key_id, public, &context, secret.as_bytes());
        let envelope = envelope.ok_or_else(|| refused("RECIPIENT_KEY_INVALID"))?;
        Ok(raw(&json!({"credential": credential, "envelope": envelope}).to_string()))
    }
}

fn text<'a>(body: &'a Value, member: &str) -> &'a str {
    body[member].as_str().unwrap_or_default()
}

impl State {
    pub(super) fn recipient_state(&self) -> Outcome {
        let active = self.recipients.active.as_ref().map(|(key_id, _)| json!({"recipientKeyId": key_id}));
        Ok(raw(&json!({"active": active}).to_string()))
    }

    pub(super) fn begin_enrollment(&mut self, body: &Value) -> Outcome {
        exact(body, &["capability", "publicKey", "recipientKeyId"], &[], "enrollment")?;
        if body["capability"] != "corestore-control" {
            return Err(refused("CAPABILITY_UNKNOWN"));
        }
        let cluster = self.settings.cluster_id.clone();
        self.recipients.begin(&cluster, text(body, "recipientKeyId"), text(body, "publicKey"))
    }

    pub(super) fn complete_enrollment(&mut self, body: &Value) -> Outcome {
        exact(body, &["proof", "recipientKeyId"], &[], "enrollment")?;
        self.recipients.complete(text(body, "recipientKeyId"), text(body, "proof"))
    }

    pub(super) fn control_credential(&mut self, body: &Value) -> Outcome {
        exact(body, &["recipientKeyId"], &[], "credential")?;
        self.recipients.material(&self.settings.cluster_id, text(body, "recipientKeyId"))
    }
}

impl Cloudly {
    /// From now on the control credential is this token, of the next generation.
    pub fn corestore_token(&self, token: &str) {
        let mut state = self.shared.state();
        let generation = state.recipients.credential.1 + 1;
        state.recipients.credential = (token.to_owned(), generation);
    }

    /// The revoked recipients that Cloudly still knows, the oldest first.
    pub fn revoked_recipients(&self) -> Vec<String> {
        self.shared.state().recipients.revoked.iter().cloned().collect()
    }
}
