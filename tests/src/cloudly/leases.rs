//! DNS leases as Cloudly makes them: a signing authority of its own, runs of windows that it signs ahead for a
//! carried node, and their hand-over to the relay (contract, section 4.3). It models ESC-03 and ESC-60.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::Cloudly;
use crate::carrier::CallFailure;
use crate::envelope::{Message, Refusal};
use crate::renewal::{Projection, Renewal};

/// The method that hands a run over.
pub const HOLD: &str = "holdRuntimeNetworkDnsLeaseRenewals";

/// Who signs renewals. A node pins it by its public key.
pub struct SigningAuthority {
    id: String,
    generation: u64,
    keys: Ed25519KeyPair,
}

impl SigningAuthority {
    /// An authority with fresh keys.
    ///
    /// # Panics
    /// When the system has no randomness.
    pub fn generate(id: &str, generation: u64) -> Self {
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("the system has randomness");
        let keys = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("keys made here are well formed");
        Self { id: id.to_owned(), generation, keys }
    }

    /// The authority as it is pushed. Its form is this double's own; the contract leaves it open.
    pub fn json(&self) -> Value {
        let key = STANDARD.encode(self.keys.public_key());
        json!({"id": self.id, "generation": self.generation, "publicKey": key})
    }

    /// The renewal's text, signed.
    pub fn sign(&self, renewal: Renewal) -> Signed {
        let text = renewal.text(self.keys.sign(renewal.statement().as_bytes()).as_ref());
        Signed { renewal, text }
    }
}

/// When the windows of a run begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Begin of the first, Unix milliseconds.
    pub first: u64,
    /// From the begin of a window to that of the next.
    pub spacing: Duration,
    /// How long a window lasts.
    pub length: Duration,
    /// How many there are.
    pub count: u64,
    /// The first one's sequence; each following one's is greater by 1.
    pub first_sequence: u64,
}

impl Windows {
    /// Cloudly's own, from `first` on: fifteen minutes each, ten minutes apart, as many as end within the
    /// four hours of the horizon (ESC-60, ESC-10).
    pub fn of_cloudly(first: u64) -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self { first, spacing: minutes(10), length: minutes(15), count: 23, first_sequence: 1 }
    }

    /// Begin and end of each, Unix milliseconds.
    pub fn each(self) -> impl Iterator<Item = (u64, u64)> {
        let milliseconds =
            |span: Duration| u64::try_from(span.as_millis()).expect("a window lasts no million years");
        let (spacing, length) = (milliseconds(self.spacing), milliseconds(self.length));
        (0..self.count).map(move |place| {
            let from = self.first + place * spacing;
            (from, from + length)
        })
    }
}

/// A renewal and the text that carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// What it says.
    pub renewal: Renewal,
    /// As it travels, byte for byte.
    pub text: String,
}

/// A run that was signed for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRun {
    /// Whose.
    pub node: String,
    /// What it renews.
    pub projection: Projection,
    /// In the order of their windows.
    pub renewals: Vec<Signed>,
}

impl SignedRun {
    /// The body of its hold in the session of `binding`.
    pub fn hold(&self, binding: &str) -> String {
        let texts: Vec<&str> = self.renewals.iter().map(|signed| signed.text.as_str()).collect();
        let (projection, renewals) = (self.projection.json(), texts.join(","));
        format!(r#"{{"session":{binding},"projection":{projection},"renewals":[{renewals}]}}"#)
    }

    /// The place of the renewal with this text in the run.
    pub fn place(&self, text: &str) -> Option<usize> {
        self.renewals.iter().position(|signed| signed.text == text)
    }
}

impl Cloudly {
    /// Its signing authority as it is pushed, JSON text.
    pub fn signing_authority(&self) -> String {
        self.shared.state().signing.json().to_string()
    }

    /// Signs a run of `windows` of `projection` for a node of the cluster.
    pub fn sign_run(&self, node: &str, projection: &Projection, windows: Windows) -> SignedRun {
        let state = self.shared.state();
        let renewal = |(sequence, (not_before, expires_at))| Renewal {
            projection: projection.clone(),
            node_id: node.to_owned(),
            cluster_id: state.settings.cluster_id.clone(),
            sequence,
            not_before,
            expires_at,
        };
        let renewals = (windows.first_sequence..).zip(windows.each()).map(renewal);
        let renewals = renewals.map(|renewal| state.signing.sign(renewal)).collect();
        SignedRun { node: node.to_owned(), projection: projection.clone(), renewals }
    }

    /// Hands a run over in the binding that is in force for its node: what `held` was answered, or the
    /// relay's refusal.
    ///
    /// # Errors
    /// [`CallFailure`].
    ///
    /// # Panics
    /// When no binding of the node is in force.
    pub async fn hold_run(&self, run: &SignedRun) -> Result<Result<u64, Refusal>, CallFailure> {
        let binding = self.binding_of(&run.node).expect("the node is registered");
        self.hold_run_in(&binding, run).await
    }

    /// [`Cloudly::hold_run`] in a binding of the caller's, JSON text.
    ///
    /// # Errors
    /// [`CallFailure`].
    ///
    /// # Panics
    /// When the answer is neither `{held}` nor a refusal.
    pub async fn hold_run_in(
        &self,
        binding: &str,
        run: &SignedRun,
    ) -> Result<Result<u64, Refusal>, CallFailure> {
        let answer = self.push(HOLD, &run.hold(binding)).await?;
        Ok(answer.outcome().map(|response| {
            let answer: Value = serde_json::from_str(response.get()).expect("an answer is JSON");
            let held = answer["held"].as_u64().expect("an accepted hold says how many are held");
            assert_eq!(answer, json!({ "held": held }), "exact keys");
            held
        }))
    }

    /// Pushes its signing authority to a node, in the binding in force: the node's answer.
    ///
    /// # Errors
    /// [`CallFailure`]; a refusal is an answer.
    ///
    /// # Panics
    /// When no binding of the node is in force.
    pub async fn push_signing_authority(&self, node: &str) -> Result<Message, CallFailure> {
        let session = self.binding_of(node).expect("the node is registered");
        let body = format!(r#"{{"session":{session},"authority":{}}}"#, self.signing_authority());
        self.push("applyRuntimeNetworkSigningAuthority", &body).await
    }

    /// Pushes a projection, JSON text such as [`Projection::with_lease`]'s, to a node, in the binding in force:
    /// the node's answer.
    ///
    /// # Errors
    /// [`CallFailure`]; a refusal is an answer.
    ///
    /// # Panics
    /// When no binding of the node is in force.
    pub async fn push_projection(&self, node: &str, projection: &str) -> Result<Message, CallFailure> {
        let session = self.binding_of(node).expect("the node is registered");
        let body = format!(r#"{{"session":{session},"projection":{projection}}}"#);
        self.push("applyRuntimeNetworkProjection", &body).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ESC-10, ESC-60: Cloudly's grid, and a run of it that a relay may hold.
    #[test]
    fn cloudlys_windows_overlap_by_five_minutes_within_the_horizon() {
        let windows: Vec<(u64, u64)> = Windows::of_cloudly(1_000).each().collect();
        assert_eq!(windows[..2], [(1_000, 901_000), (601_000, 1_501_000)]);
        let (_, end) = windows[22];
        assert_eq!((windows.len(), end), (23, 1_000 + 235 * 60_000));
        assert!(end + 600_000 > 1_000 + 4 * 3_600_000, "one more would pass the horizon");
    }

    /// A run's sequences rise with its windows, and its hold carries each renewal as it was signed.
    #[test]
    fn a_hold_carries_each_renewal_as_it_was_signed() {
        let authority = SigningAuthority::generate("authority-1", 1);
        let projection = Projection::new("network-1", 2);
        let renewal = Renewal {
            projection: projection.clone(),
            node_id: "node-1".to_owned(),
            cluster_id: "cluster-1".to_owned(),
            sequence: 4,
            not_before: 1,
            expires_at: 2,
        };
        let signed = authority.sign(renewal);
        let run = SignedRun { node: "node-1".to_owned(), projection, renewals: vec![signed.clone()] };
        let hold = run.hold(r#"{"b":1.0}"#);
        assert!(hold.starts_with(r#"{"session":{"b":1.0},"projection":{"#), "{hold}");
        assert!(hold.ends_with(&format!(r#""renewals":[{}]}}"#, signed.text)), "{hold}");
        assert_eq!((run.place(&signed.text), run.place("{}")), (Some(0), None));
    }
}
