//! What a node holds of its network: the signing authority that it pinned, the projection that it serves, and
//! the DNS lease that renewals extend.
//!
//! It models ESC-45 (a window is admitted only when it is current by the node's own qualified clock), ESC-62
//! (without a qualified clock none is), ESC-66 (the same renewal once more is a replay) and OUT-20 (a
//! projection's lease may have expired).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value;

use super::acknowledgement::part;
use super::{PalletNode, Workload};
use crate::cloudly::in_milliseconds;
use crate::envelope::{Message, Refusal};
use crate::renewal::{Projection, Renewal};
use crate::waiting::{BOUND, Late};

/// What a node thinks of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeClock {
    /// Its clock is proved; so many milliseconds ahead of this host's, negative for one that is behind.
    Qualified(i64),
    /// No source of time proves its clock.
    NotQualified,
}

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It extends the lease.
    Admitted,
    /// It was admitted before, and changes nothing.
    Replayed,
    /// The refusal's name.
    Refused(String),
}

/// A renewal that the node judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// As it came, byte for byte.
    pub text: String,
    /// What became of it.
    pub verdict: Verdict,
    /// When, by the host's clock in Unix milliseconds.
    pub at: u64,
    /// When the lease that the node had then was to end, by its own clock in Unix milliseconds.
    pub lease_end: Option<u64>,
}

struct Pinned {
    id: String,
    generation: u64,
    key: Vec<u8>,
}

/// The network's part of a node.
pub(super) struct Network {
    node: String,
    pub(super) clock: NodeClock,
    pub(super) projection: Option<Projection>,
    /// When the lease ends, by the node's clock in Unix milliseconds.
    pub(super) lease_end: Option<u64>,
    pub(super) judged: Vec<Judged>,
    authority: Option<Pinned>,
    /// Sequence and text of the last renewal of the projection that was admitted.
    last: Option<(u64, String)>,
}

impl Network {
    /// That of a node that was pushed nothing yet and has a qualified clock, the host's.
    pub(super) fn of(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            clock: NodeClock::Qualified(0),
            projection: None,
            lease_end: None,
            judged: Vec::new(),
            authority: None,
            last: None,
        }
    }

    /// The node's answer to a push of its network; `None` for one of something else. `wall` is the host's clock
    /// in Unix milliseconds.
    pub(super) fn answer(&mut self, push: &Message, wall: u64) -> Option<Result<String, Refusal>> {
        match push.method.as_str() {
            "applyRuntimeNetworkSigningAuthority" => Some(self.answer_authority(push)),
            "applyRuntimeNetworkProjection" => Some(self.answer_projection(push)),
            "applyRuntimeNetworkDnsLeaseRenewal" => Some(self.answer_renewal(push, wall)),
            _ => None,
        }
    }

    fn answer_authority(&mut self, push: &Message) -> Result<String, Refusal> {
        let (session, authority) = (member(push, "session")?, member(push, "authority")?);
        self.pin(&authority)?;
        Ok(format!(r#"{{"session":{session}}}"#))
    }

    fn answer_projection(&mut self, push: &Message) -> Result<String, Refusal> {
        let (session, projection) = (member(push, "session")?, member(push, "projection")?);
        let admitted = self.admit_projection(&projection)?.json();
        Ok(format!(r#"{{"session":{session},"projection":{admitted}}}"#))
    }

    fn answer_renewal(&mut self, push: &Message, wall: u64) -> Result<String, Refusal> {
        let (session, text) = (member(push, "session")?, member(push, "renewal")?);
        let lease_end = self.lease_end;
        let judged = self.judge(&text, &session, wall);
        let verdict = match &judged {
            Ok((verdict, renewal)) => {
                if *verdict == Verdict::Admitted {
                    self.lease_end = self.lease_end.max(Some(renewal.expires_at));
                    self.last = Some((renewal.sequence, text.clone()));
                }
                verdict.clone()
            }
            Err(name) => Verdict::Refused((*name).to_owned()),
        };
        self.judged.push(Judged { text, verdict, at: wall, lease_end });
        let (_, renewal) = judged.map_err(Refusal::new)?;
        let (projection, sequence) = (renewal.projection.json(), renewal.sequence);
        Ok(format!(
            r#"{{"session":{session},"renewal":{{"projection":{projection},"sequence":{sequence}}}}}"#
        ))
    }

    /// What is pinned once stays, unless the same authority's next generation replaces it.
    fn pin(&mut self, text: &str) -> Result<(), Refusal> {
        let invalid = || Refusal::new("push-invalid: authority");
        let value: Value = serde_json::from_str(text).map_err(|_| invalid())?;
        let key =
            value["publicKey"].as_str().and_then(|key| STANDARD.decode(key).ok()).ok_or_else(invalid)?;
        let id = value["id"].as_str().ok_or_else(invalid)?.to_owned();
        let generation = value["generation"].as_u64().ok_or_else(invalid)?;
        if let Some(pinned) = &self.authority {
            let same = pinned.generation == generation && pinned.key == key;
            if pinned.id != id || !(same || pinned.generation < generation) {
                return Err(Refusal::new("signing-authority-foreign"));
            }
        }
        self.authority = Some(Pinned { id, generation, key });
        Ok(())
    }

    /// Projections are admitted only forward; the present one once more changes nothing but a lease that would
    /// end later.
    fn admit_projection(&mut self, text: &str) -> Result<Projection, Refusal> {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let Some((projection, lease_end)) = Projection::read(&value) else {
            return Err(Refusal::new("push-invalid: projection"));
        };
        let replayed = self.projection.as_ref() == Some(&projection);
        let goes_forward =
            |present: &Projection| present.id == projection.id && present.generation < projection.generation;
        if !replayed && !self.projection.as_ref().is_none_or(goes_forward) {
            return Err(Refusal::new("projection-not-forward"));
        }
        if replayed {
            self.lease_end = self.lease_end.max(lease_end);
        } else {
            (self.lease_end, self.last) = (lease_end, None);
            self.projection = Some(projection.clone());
        }
        Ok(projection)
    }

    /// Nothing but what the pinned authority signed for this node, its cluster and its projection, after what
    /// was admitted before, and current by the node's own clock.
    fn judge(&self, text: &str, session: &str, wall: u64) -> Result<(Verdict, Renewal), &'static str> {
        let NodeClock::Qualified(ahead) = self.clock else { return Err("clock-not-qualified") };
        let pinned = self.authority.as_ref().ok_or("signing-authority-absent")?;
        let (renewal, signature) = Renewal::read(text).ok_or("renewal-invalid")?;
        let key = UnparsedPublicKey::new(&ED25519, &pinned.key);
        if key.verify(renewal.statement().as_bytes(), &signature).is_err() {
            return Err("renewal-signature-invalid");
        }
        if self.projection.as_ref() != Some(&renewal.projection) {
            return Err("renewal-projection-foreign");
        }
        let session: Value = serde_json::from_str(session).unwrap_or_default();
        if renewal.node_id != self.node || session["clusterId"] != *renewal.cluster_id {
            return Err("renewal-scope-foreign");
        }
        if let Some((sequence, admitted)) = &self.last {
            if admitted == text {
                return Ok((Verdict::Replayed, renewal));
            }
            if renewal.sequence <= *sequence {
                return Err("renewal-sequence-not-advancing");
            }
        }
        if !renewal.is_current(wall.saturating_add_signed(ahead)) {
            return Err("renewal-window-not-current");
        }
        Ok((Verdict::Admitted, renewal))
    }

    /// Whether the lease is in force at `wall`, the host's clock, as the node sees it.
    pub(super) fn is_leased(&self, wall: u64) -> bool {
        let ahead = match self.clock {
            NodeClock::Qualified(ahead) => ahead,
            NodeClock::NotQualified => 0,
        };
        self.lease_end.is_some_and(|end| wall.saturating_add_signed(ahead) < end)
    }
}

impl PalletNode {
    /// What the node thinks of the time from now on.
    pub fn set_clock(&self, clock: NodeClock) {
        self.of_network(|network| network.clock = clock);
    }

    /// Every renewal that it judged, oldest first.
    pub fn judged(&self) -> Vec<Judged> {
        self.of_network(|network| network.judged.clone())
    }

    /// Waits for the `count`th renewal that it judged (from 1).
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_judged(&self, count: usize) -> Result<Judged, Late> {
        let what = format!("renewal {count} at node {}", self.id);
        let look = || self.of_network(|network| network.judged.get(count - 1).cloned());
        self.shared.change.until(BOUND, &what, look).await
    }

    /// The projection that it serves.
    pub fn projection(&self) -> Option<Projection> {
        self.of_network(|network| network.projection.clone())
    }

    /// When its lease ends, by its own clock in Unix milliseconds; `None` before a projection.
    pub fn lease_end(&self) -> Option<u64> {
        self.of_network(|network| network.lease_end)
    }

    /// Whether its lease is in force by its own clock.
    pub fn is_leased(&self) -> bool {
        self.of_network(|network| network.is_leased(in_milliseconds(Duration::ZERO)))
    }

    /// What runs on it, by the assignments' ids.
    pub fn workloads(&self) -> BTreeMap<String, Workload> {
        self.shared.state().workloads.0.clone()
    }

    fn of_network<T>(&self, look: impl FnOnce(&mut Network) -> T) -> T {
        look(self.shared.state().network.as_mut().expect("the node was set up to keep a network"))
    }
}

fn member(push: &Message, key: &str) -> Result<String, Refusal> {
    part(push.request(), key).ok_or_else(|| Refusal::new(format!("push-invalid: {key}")))
}

#[cfg(test)]
mod tests;
