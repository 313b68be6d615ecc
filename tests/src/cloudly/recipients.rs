//! The cluster's secret recipient for the capability `corestore-control`, as Cloudly keeps it, and the control
//! credential that it seals to the active one (contract of the Corestore half, section 2). It models CST-22.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Cloudly;
use super::corestore::coded;
use super::judgement::exact;
use crate::envelope::Refusal;
use crate::sealed::seal;

/// How many revoked recipients are kept; the oldest beyond are dropped (CST-22).
pub const REVOKED_KEPT: usize = 4;

/// The capability that a recipient is enrolled for.
const CAPABILITY: &str = "corestore-control";

/// How its refusals begin.
const REFUSED: &str = "cluster-secret-recipient-refused";

struct Enrolment {
    key_id: String,
    public_key: String,
    challenge: [u8; 32],
}

/// The recipients of one cluster, and the credential for the active one.
pub(super) struct Recipients {
    active: Option<(String, String)>,
    enrolling: Option<Enrolment>,
    /// Key ids, the oldest first.
    revoked: VecDeque<String>,
    token: String,
    credential_generation: u64,
}

impl Default for Recipients {
    fn default() -> Self {
        Self {
            active: None,
            enrolling: None,
            revoked: VecDeque::new(),
            token: "corestore-control-token-1".to_owned(),
            credential_generation: 1,
        }
    }
}

impl Recipients {
    pub(super) fn state(&self, body: &Value) -> Result<Value, Refusal> {
        exact(body, &["capability"], &[], "recipient")?;
        capability(body)?;
        let active = self.active.as_ref().map(|(key_id, _)| json!({"recipientKeyId": key_id}));
        Ok(json!({ "active": active }))
    }

    /// Begins an enrolment of a key id that was not used; another one that waited for its proof is forgotten.
    pub(super) fn begin(
        &mut self,
        cluster: &str,
        body: &Value,
        challenge: [u8; 32],
    ) -> Result<Value, Refusal> {
        exact(body, &["capability", "publicKey", "recipientKeyId"], &[], "recipient")?;
        capability(body)?;
        let key_id = body["recipientKeyId"].as_str().unwrap_or_default();
        if !is_key_id(key_id) {
            return Err(coded(REFUSED, "RECIPIENT_KEY_ID_INVALID"));
        }
        let active = self.active.as_ref().is_some_and(|(active, _)| active == key_id);
        if active || self.revoked.iter().any(|revoked| revoked == key_id) {
            return Err(coded(REFUSED, "RECIPIENT_KEY_ID_REUSED"));
        }
        let public_key = body["publicKey"].as_str().unwrap_or_default().to_owned();
        let context = json!({
            "purpose": "cluster-secret-recipient-challenge",
            "clusterId": cluster,
            "recipientKeyId": key_id,
        });
        let envelope = seal(key_id, &public_key, &context, &challenge)
            .ok_or_else(|| coded(REFUSED, "RECIPIENT_PUBLIC_KEY_INVALID"))?;
        self.enrolling = Some(Enrolment { key_id: key_id.to_owned(), public_key, challenge });
        Ok(json!({ "challenge": envelope }))
    }

    /// The proof makes the key id the active one and revokes the one before. A wrong proof ends the enrolment.
    pub(super) fn complete(&mut self, body: &Value) -> Result<Value, Refusal> {
        exact(body, &["proof", "recipientKeyId"], &[], "recipient")?;
        let begun = self.enrolling.take_if(|begun| body["recipientKeyId"] == begun.key_id.as_str());
        let Some(begun) = begun else {
            return Err(coded(REFUSED, "RECIPIENT_ENROLLMENT_UNKNOWN"));
        };
        let proof = body["proof"].as_str().and_then(|proof| STANDARD.decode(proof).ok());
        if proof.as_deref() != Some(&begun.challenge[..]) {
            return Err(coded(REFUSED, "RECIPIENT_PROOF_INVALID"));
        }
        let answer = json!({"active": {"recipientKeyId": begun.key_id}});
        if let Some((former, _)) = self.active.replace((begun.key_id, begun.public_key)) {
            self.revoked.push_back(former);
        }
        while self.revoked.len() > REVOKED_KEPT {
            self.revoked.pop_front();
        }
        Ok(answer)
    }

    /// The control credential, sealed to the active recipient, which has to be the one that asks.
    pub(super) fn material(&self, cluster: &str, body: &Value) -> Result<Value, Refusal> {
        exact(body, &["recipientKeyId"], &[], "recipient")?;
        let active = self.active.as_ref().filter(|(key_id, _)| body["recipientKeyId"] == key_id.as_str());
        let Some((key_id, public_key)) = active else {
            return Err(coded(REFUSED, "RECIPIENT_NOT_ACTIVE"));
        };
        let credential =
            json!({"id": "corestore-control-credential", "generation": self.credential_generation});
        let context = json!({
            "purpose": "corestore-control-credential",
            "clusterId": cluster,
            "recipientKeyId": key_id,
            "credential": credential,
        });
        let plaintext = json!({"token": self.token}).to_string();
        let envelope = seal(key_id, public_key, &context, plaintext.as_bytes())
            .expect("an enrolled key was sealed to before");
        Ok(json!({"credential": credential, "envelope": envelope}))
    }
}

fn capability(body: &Value) -> Result<(), Refusal> {
    if body["capability"] == CAPABILITY { Ok(()) } else { Err(coded(REFUSED, "CAPABILITY_UNKNOWN")) }
}

/// `relay-corestore-control:` and a UUID.
fn is_key_id(key_id: &str) -> bool {
    let Some(uuid) = key_id.strip_prefix("relay-corestore-control:") else { return false };
    let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && uuid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

impl Cloudly {
    /// The key id of the active recipient.
    pub fn active_recipient(&self) -> Option<String> {
        self.shared.state().corestore.recipients.active.as_ref().map(|(key_id, _)| key_id.clone())
    }

    /// The key ids of the revoked recipients that it still has, the oldest first.
    pub fn revoked_recipients(&self) -> Vec<String> {
        self.shared.state().corestore.recipients.revoked.iter().cloned().collect()
    }

    /// The token that Corestore is authorized with.
    pub fn control_token(&self) -> String {
        self.shared.state().corestore.recipients.token.clone()
    }

    /// The control credential is `token` from now on, one generation further.
    pub fn rotate_control_token(&self, token: &str) {
        let mut state = self.shared.state();
        token.clone_into(&mut state.corestore.recipients.token);
        state.corestore.recipients.credential_generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::KeyPair;

    fn key_id(number: u32) -> String {
        format!("relay-corestore-control:00000000-0000-4000-8000-{number:012}")
    }

    fn begin(recipients: &mut Recipients, key_id: &str, keys: &KeyPair) -> Result<Value, Refusal> {
        let body = json!({"capability": CAPABILITY, "recipientKeyId": key_id, "publicKey": keys.public()});
        recipients.begin("cluster-1", &body, [7; 32])
    }

    fn complete(recipients: &mut Recipients, key_id: &str, proof: [u8; 32]) -> Result<Value, Refusal> {
        recipients.complete(&json!({"recipientKeyId": key_id, "proof": STANDARD.encode(proof)}))
    }

    /// CST-22: each enrolment retires the one before, and only so many of the retired are kept.
    #[test]
    fn a_new_enrolment_retires_the_previous_recipient_within_a_bound() {
        let (mut recipients, keys) = (Recipients::default(), KeyPair::generate());
        for number in 0..7 {
            begin(&mut recipients, &key_id(number), &keys).unwrap();
            complete(&mut recipients, &key_id(number), [7; 32]).unwrap();
        }
        assert_eq!(recipients.active.as_ref().map(|(active, _)| active.clone()), Some(key_id(6)));
        assert_eq!(recipients.revoked, [2, 3, 4, 5].map(key_id));
        for taken in [5, 6] {
            let refused = begin(&mut recipients, &key_id(taken), &keys).unwrap_err();
            assert_eq!(refused.data["code"], "RECIPIENT_KEY_ID_REUSED");
        }
    }

    /// A proof counts once, for its own key id; a wrong one ends the enrolment and retires nobody.
    #[test]
    fn an_enrolment_takes_the_proof_of_its_own_challenge() {
        let (mut recipients, keys) = (Recipients::default(), KeyPair::generate());
        let code = |refused: Result<Value, Refusal>| refused.unwrap_err().data["code"].clone();
        assert_eq!(code(complete(&mut recipients, &key_id(1), [7; 32])), "RECIPIENT_ENROLLMENT_UNKNOWN");
        begin(&mut recipients, &key_id(1), &keys).unwrap();
        assert_eq!(code(complete(&mut recipients, &key_id(2), [7; 32])), "RECIPIENT_ENROLLMENT_UNKNOWN");
        assert_eq!(code(complete(&mut recipients, &key_id(1), [8; 32])), "RECIPIENT_PROOF_INVALID");
        assert_eq!(code(complete(&mut recipients, &key_id(1), [7; 32])), "RECIPIENT_ENROLLMENT_UNKNOWN");
        assert_eq!(recipients.state(&json!({"capability": CAPABILITY})).unwrap(), json!({"active": null}));
        assert_eq!(
            code(begin(&mut recipients, "relay-corestore-control:1", &keys)),
            "RECIPIENT_KEY_ID_INVALID"
        );
        let unready = recipients.material("cluster-1", &json!({"recipientKeyId": key_id(1)}));
        assert_eq!(code(unready), "RECIPIENT_NOT_ACTIVE");
    }
}
