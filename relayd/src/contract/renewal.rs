//! DNS lease renewals: a hold as Cloudly sends it, and what its validation promises about a run
//! (ESC-03, ESC-08 – ESC-10).
//!
//! A renewal is kept as the very text that arrived; its signature is only known to be base64 (ESC-02).
//! Nothing that holds a renewal has a Debug.

use base64::{Engine, engine::general_purpose::STANDARD};
use coreflow_ipc::typedrequest::Body;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error};
use serde_json::value::RawValue;

use super::{
    runtime::Binding,
    values::{Generation, Id, LARGEST_INTEGER, from_object},
};
use crate::constants::{ESCROW_HORIZON_MS, ESCROWED_RENEWALS, LEASE_WINDOW_MS};

pub mod binders;

/// `Digest`: `sha256:` and 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Parses a digest; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?.as_bytes();
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a digest"))
    }
}

/// `ProjectionReference`, exact-key: which projection of the runtime network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Projection {
    /// The projection.
    pub id: Id,
    /// Which of its generations.
    pub generation: Generation,
    /// Over its content.
    pub digest: Digest,
}

/// A signed renewal of a node's DNS lease.
pub struct Renewal {
    /// Whose lease.
    pub node_id: Id,
    /// The node's cluster.
    pub cluster_id: Id,
    /// Its place among the renewals of the projection.
    pub sequence: Generation,
    /// Begin of its window, in Unix milliseconds.
    pub not_before: u64,
    /// End of its window, in Unix milliseconds; not within it.
    pub expires_at: u64,
    /// The renewal as it arrived, byte for byte.
    pub text: Body,
}

/// What one hold hands over: the renewals of one projection, in the order of their windows.
pub struct Run {
    /// What each of them renews.
    pub projection: Projection,
    /// At most [`ESCROWED_RENEWALS`].
    pub renewals: Vec<Renewal>,
}

/// A valid `holdRuntimeNetworkDnsLeaseRenewals`.
pub struct Hold {
    /// The session that Cloudly knows of the node.
    pub session: Binding,
    /// What is held for it.
    pub run: Run,
}

/// A member of a hold is missing, unknown, unreadable or out of bounds; its path, never its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub String);

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// `validateHoldRuntimeNetworkDnsLeaseRenewalsRequest`: exact keys; at most 32 renewals, each of the
/// hold's projection, `sequence` and `notBefore` strictly rising, windows of at most 15 minutes, none
/// of which ends beyond the horizon. `wall` is the relay's clock in Unix milliseconds.
pub fn validate_hold(request: &Body, wall: u64) -> Result<Hold, Invalid> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Members<'a> {
        #[serde(borrow, default)]
        session: Option<&'a RawValue>,
        #[serde(borrow, default)]
        projection: Option<&'a RawValue>,
        #[serde(borrow, default)]
        renewals: Option<&'a RawValue>,
    }
    let at = |path: &str| Invalid(path.to_owned());
    let members: Members<'_> = request.read().map_err(|_| at("request"))?;
    let session = members.session.and_then(from_object).ok_or_else(|| at("session"))?;
    let projection: Projection = members.projection.and_then(from_object).ok_or_else(|| at("projection"))?;
    let renewals: Vec<&RawValue> = member(members.renewals).ok_or_else(|| at("renewals"))?;
    if renewals.len() > ESCROWED_RENEWALS {
        return Err(at("renewals"));
    }
    let mut run = Run { projection, renewals: Vec::with_capacity(renewals.len()) };
    for (index, raw) in renewals.into_iter().enumerate() {
        let renewal = read_renewal(raw, &run, wall).map_err(|member| match member {
            Some(member) => Invalid(format!("renewals[{index}].{member}")),
            None => Invalid(format!("renewals[{index}]")),
        })?;
        run.renewals.push(renewal);
    }
    Ok(Hold { session, run })
}

fn member<'de, T: Deserialize<'de>>(raw: Option<&'de RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// Reads the next renewal of a run; the name of the member that is not valid, or none if the set of its
/// members is not.
fn read_renewal(raw: &RawValue, run: &Run, wall: u64) -> Result<Renewal, Option<&'static str>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Members<'a> {
        #[serde(borrow, default)]
        projection: Option<&'a RawValue>,
        #[serde(borrow, default)]
        node_id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        cluster_id: Option<&'a RawValue>,
        #[serde(borrow, default)]
        sequence: Option<&'a RawValue>,
        #[serde(borrow, default)]
        not_before: Option<&'a RawValue>,
        #[serde(borrow, default)]
        expires_at: Option<&'a RawValue>,
        #[serde(borrow, default)]
        signature: Option<&'a RawValue>,
    }
    fn value<T: DeserializeOwned>(
        raw: Option<&RawValue>,
        name: &'static str,
    ) -> Result<T, Option<&'static str>> {
        member(raw).ok_or(Some(name))
    }
    let members: Members<'_> = from_object(raw).ok_or(None)?;
    let projection: Projection = members.projection.and_then(from_object).ok_or(Some("projection"))?;
    if projection != run.projection {
        return Err(Some("projection"));
    }
    let renewal = Renewal {
        node_id: value(members.node_id, "nodeId")?,
        cluster_id: value(members.cluster_id, "clusterId")?,
        sequence: value(members.sequence, "sequence")?,
        not_before: value(members.not_before, "notBefore")?,
        expires_at: value(members.expires_at, "expiresAt")?,
        text: Body::from_json(raw.get().to_owned()),
    };
    let signature: String = value(members.signature, "signature")?;
    if STANDARD.decode(signature).is_err() {
        return Err(Some("signature"));
    }
    let before = run.renewals.last();
    if before.is_some_and(|before| renewal.sequence <= before.sequence) {
        return Err(Some("sequence"));
    }
    if renewal.not_before > LARGEST_INTEGER
        || before.is_some_and(|before| renewal.not_before <= before.not_before)
    {
        return Err(Some("notBefore"));
    }
    let latest = (renewal.not_before + LEASE_WINDOW_MS).min(wall.saturating_add(ESCROW_HORIZON_MS));
    if renewal.expires_at <= renewal.not_before || renewal.expires_at > latest.min(LARGEST_INTEGER) {
        return Err(Some("expiresAt"));
    }
    Ok(renewal)
}

#[cfg(test)]
mod tests;
