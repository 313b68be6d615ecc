//! Bearer tokens as a docker-registry verifies them: a JWT signed with ES256, whose header carries the
//! signer's certificate, which is the registry's root bundle.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{CertificateParams, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::json;

use crate::envelope::random_hex;

/// What tokens are issued for: the `service` of the registry's challenge.
pub(super) const SERVICE: &str = "registry.coreflow.test";
/// Who issues them.
pub(super) const ISSUER: &str = "coreflow-test-issuer";
/// How long a token lives, in seconds.
pub(super) const LIFETIME: u64 = 300;

/// What a token allows on one repository.
pub(super) struct Access {
    /// The repository.
    pub(super) repository: String,
    /// `pull`, `push`.
    pub(super) actions: Vec<String>,
}

/// The holder of the signing key.
pub(super) struct Signer {
    key: EcdsaKeyPair,
    certificate_der: Vec<u8>,
    /// The certificate that the registry trusts, PEM.
    pub(super) certificate_pem: String,
}

impl Signer {
    /// A signer with a key of its own.
    pub(super) fn new() -> Self {
        let pair = KeyPair::generate().expect("the system has randomness");
        let params = CertificateParams::new(Vec::new()).expect("no names is a valid list of names");
        let certificate = params.self_signed(&pair).expect("the parameters are complete");
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &pair.serialize_der(),
            &SystemRandom::new(),
        );
        Self {
            key: key.expect("a generated key is one of P-256"),
            certificate_der: certificate.der().to_vec(),
            certificate_pem: certificate.pem(),
        }
    }

    /// A token for `subject` that allows `access`.
    pub(super) fn token(&self, subject: &str, access: &[Access]) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs();
        let access: Vec<_> = access
            .iter()
            .map(|one| json!({"type": "repository", "name": one.repository, "actions": one.actions}))
            .collect();
        let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(&self.certificate_der)]});
        let claims = json!({
            "iss": ISSUER,
            "sub": subject,
            "aud": SERVICE,
            "exp": now + LIFETIME,
            "nbf": now - 30,
            "iat": now,
            "jti": random_hex::<16>(),
            "access": access,
        });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.expect("the system has randomness");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    /// The signature is over header and claims, and the claims say what was asked for.
    #[test]
    fn a_token_is_signed_and_says_what_it_allows() {
        let signer = Signer::new();
        let access = Access { repository: "a/b".to_owned(), actions: vec!["pull".to_owned()] };
        let token = signer.token("node-1", &[access]);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, signer.key.public_key());
        key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let (_, claims) = signed.split_once('.').unwrap();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        assert_eq!(claims["sub"], "node-1");
        assert_eq!(claims["access"], json!([{"type": "repository", "name": "a/b", "actions": ["pull"]}]));
    }
}
