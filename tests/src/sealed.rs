//! Sealed envelopes of the contract: HPKE base mode with X25519, HKDF-SHA256 and ChaCha20-Poly1305 (RFC 9180), whose
//! `info` is the canonical JSON of the context.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable, single_shot_open, single_shot_seal};
use serde_json::{Value, json};

use crate::cloudly::exact;
use crate::corestore::answer::digest;

/// The one suite of the contract.
const SUITE: &str = "hpke-x25519-hkdfsha256-chacha20poly1305";

type PrivateKey = <X25519HkdfSha256 as Kem>::PrivateKey;
type PublicKey = <X25519HkdfSha256 as Kem>::PublicKey;
type Encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey;

/// Whoever secrets are sealed to.
pub struct KeyPair {
    private: PrivateKey,
    public: PublicKey,
}

impl KeyPair {
    /// A fresh pair.
    pub fn generate() -> Self {
        let (private, public) = X25519HkdfSha256::gen_keypair();
        Self { private, public }
    }

    /// The public key as the contract's `Key`.
    pub fn public(&self) -> String {
        STANDARD.encode(self.public.to_bytes())
    }

    /// Opens an envelope that is sealed to this pair in exactly `context`; `None` for any other.
    pub fn open(&self, envelope: &Value, context: &Value) -> Option<Vec<u8>> {
        let members = ["ciphertext", "context", "encapsulatedKey", "recipientKeyId", "suite"];
        exact(envelope, &members, &[], "envelope").ok()?;
        if envelope["suite"] != SUITE || envelope["context"] != *context {
            return None;
        }
        let decode = |member: &str| STANDARD.decode(envelope[member].as_str()?).ok();
        let encapsulated = Encapsulated::from_bytes(&decode("encapsulatedKey")?).ok()?;
        single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &self.private,
            &encapsulated,
            canonical(context).as_bytes(),
            &decode("ciphertext")?,
            &[],
        )
        .ok()
    }
}

/// Seals `secret` to the recipient `key_id`, whose public key is a `Key` of the contract; `None` where that is none.
pub fn seal(key_id: &str, public: &str, context: &Value, secret: &[u8]) -> Option<Value> {
    let public = PublicKey::from_bytes(&STANDARD.decode(public).ok()?).ok()?;
    let info = canonical(context);
    let (encapsulated, ciphertext) = single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeS::Base,
        &public,
        info.as_bytes(),
        secret,
        &[],
    )
    .ok()?;
    Some(json!({
        "suite": SUITE, "recipientKeyId": key_id, "encapsulatedKey": STANDARD.encode(encapsulated.to_bytes()),
        "ciphertext": STANDARD.encode(ciphertext), "context": context,
    }))
}

/// Canonical JSON (RFC 8785) of what the contract takes digests over: ASCII names, texts and integers.
pub fn canonical(value: &Value) -> String {
    // A map of this parser is in the order of its names.
    value.to_string()
}

/// `Digest` of the canonical JSON of a value; of an envelope, the envelope digest.
pub fn digest_of(value: &Value) -> String {
    digest(canonical(value).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opened by its recipient in its context, and by nobody else, in no other, and not changed.
    #[test]
    fn an_envelope_is_its_recipients_in_its_context() {
        let (own, other) = (KeyPair::generate(), KeyPair::generate());
        let context = json!({"z": 1, "a": "text"});
        let sealed = seal("key-1", &own.public(), &context, b"word").unwrap();
        assert_eq!(own.open(&sealed, &context).unwrap(), b"word");
        assert!(other.open(&sealed, &context).is_none());
        assert!(own.open(&sealed, &json!({"z": 2, "a": "text"})).is_none());
        for (member, value) in [("suite", "another"), ("ciphertext", "AAAA"), ("encapsulatedKey", "AA==")] {
            let mut changed = sealed.clone();
            changed[member] = json!(value);
            assert!(own.open(&changed, &context).is_none(), "{member}");
        }
        let mut moved = sealed;
        moved["context"] = json!({"z": 2, "a": "text"});
        assert!(own.open(&moved, &json!({"z": 2, "a": "text"})).is_none(), "the context is sealed with it");
        assert_eq!(canonical(&context), r#"{"a":"text","z":1}"#);
        assert!(seal("key-1", "AA==", &context, b"word").is_none());
    }
}
