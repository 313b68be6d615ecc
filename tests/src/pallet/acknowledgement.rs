//! What a node acknowledges, bound to what it was asked (contract, sections 4.2 and 4.3).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use crate::envelope::{Message, Refusal, UNKNOWN_METHOD};

/// A member of a JSON object, as it came.
pub(super) fn part(object: &str, key: &str) -> Option<String> {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(object).ok()?;
    members.get(key).map(|member| member.get().to_owned())
}

/// An answer that names its push: binding and request as they came.
pub(super) fn returned(push: &Message) -> String {
    let session = part(push.request(), "session").unwrap_or_else(|| "null".to_owned());
    format!(r#"{{"session":{session},"received":{}}}"#, push.request())
}

/// The answer to an assignment that is admitted, by reference or as a new one.
pub(super) fn assigned(push: &Message, by_reference: bool) -> Result<String, Refusal> {
    let session = part(push.request(), "session").ok_or_else(|| Refusal::new("push-invalid: session"))?;
    let admitted = if by_reference { "by-reference" } else { "new" };
    Ok(format!(r#"{{"session":{session},"admitted":"{admitted}"}}"#))
}

/// The node's own answer to a push. `seen` holds the assignments it has admitted: one that comes
/// again is admitted by reference (OUT-18).
pub(super) fn bound(push: &Message, seen: &mut BTreeSet<String>) -> Result<String, Refusal> {
    let member =
        |key: &str| part(push.request(), key).ok_or_else(|| Refusal::new(format!("push-invalid: {key}")));
    let session = member("session")?;
    match push.method.as_str() {
        "applyRuntimeAssignment" => assigned(push, !seen.insert(member("assignment")?)),
        "applyRuntimeNetworkSigningAuthority" => Ok(format!(r#"{{"session":{session}}}"#)),
        "applyRuntimeNetworkProjection" => {
            Ok(format!(r#"{{"session":{session},"projection":{}}}"#, member("projection")?))
        }
        "applyRuntimeNetworkDnsLeaseRenewal" => {
            let renewal = member("renewal")?;
            let of_renewal = |key: &str| {
                part(&renewal, key).ok_or_else(|| Refusal::new(format!("push-invalid: renewal.{key}")))
            };
            let (projection, sequence) = (of_renewal("projection")?, of_renewal("sequence")?);
            Ok(format!(
                r#"{{"session":{session},"renewal":{{"projection":{projection},"sequence":{sequence}}}}}"#
            ))
        }
        _ => Err(Refusal::new(UNKNOWN_METHOD)),
    }
}
