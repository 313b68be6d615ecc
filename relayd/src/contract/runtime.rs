//! Runtime sessions: the members that the relay reads of bodies it carries (FWD-31).
//!
//! Everything else in these bodies is skipped unread. A member that stands twice is refused: relay
//! and Cloudly could read different ones.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::values::{Generation, Id, object};

/// `Binding`, issued by Cloudly, exact-key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Binding {
    /// The session.
    pub session_id: Id,
    /// The node that it belongs to.
    pub node_id: Id,
    /// The cluster that Cloudly read from its own node record (PROT-16).
    pub cluster_id: Id,
    /// Counts the node's registrations.
    pub generation: Generation,
}

/// The `protocol` member of a registration, as it was written.
#[derive(Deserialize)]
pub struct Offered<'a> {
    /// Judged before anything else of the body (PROT-12).
    #[serde(borrow, default)]
    pub protocol: Option<&'a RawValue>,
}

/// The `session` member of a request or an answer.
#[derive(Deserialize)]
pub struct Bound {
    /// The binding that the body states.
    #[serde(deserialize_with = "object")]
    pub session: Binding,
}

/// The `session.nodeId` that a push is routed by (FWD-20); the rest of the binding is the node's to
/// judge.
#[derive(Deserialize)]
pub struct Addressed {
    /// The addressed session.
    #[serde(deserialize_with = "object")]
    pub session: AddressedSession,
}

/// The member of `session` that a push is routed by.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressedSession {
    /// The node.
    pub node_id: Id,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDING: &str = r#"{"sessionId":"s","nodeId":"n","clusterId":"c","generation":1}"#;

    /// FWD-31: the binding is read out of a body whose other members stay unread.
    #[test]
    fn a_binding_is_read_out_of_a_carried_body() {
        let body = format!(r#"{{"secret":"\ud83d","session":{BINDING},"n":1e999}}"#);
        assert_eq!(serde_json::from_str::<Bound>(&body).unwrap().session.node_id.as_str(), "n");
    }

    #[test]
    fn a_binding_that_stands_twice_or_has_another_key_is_refused() {
        for body in [
            format!(r#"{{"session":{BINDING},"session":{BINDING}}}"#),
            format!(r#"{{"session":{BINDING},"sess\u0069on":{BINDING}}}"#),
            format!(r#"{{"session":{}}}"#, BINDING.replace("\"generation\":1", "\"generation\":1,\"x\":0")),
            r#"{"session":null}"#.to_owned(),
            "{}".to_owned(),
        ] {
            assert!(serde_json::from_str::<Bound>(&body).is_err(), "{body}");
        }
    }
}
