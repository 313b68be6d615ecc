//! Runtime sessions: the members that the relay reads of bodies it carries (FWD-31).
//!
//! Everything else in these bodies is skipped unread. A member that is read and stands twice is refused
//! ([`members`]).

use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::value::RawValue;

use super::{
    members::members,
    values::{Generation, Id, from_object},
};

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
pub struct Offered<'a> {
    /// Judged before anything else of the body (PROT-12).
    pub protocol: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Offered<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [protocol] = members(deserializer, ["protocol"])?;
        Ok(Self { protocol })
    }
}

/// The `session` member of a request or an answer.
pub struct Bound {
    /// The binding that the body states.
    pub session: Binding,
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [session] = members(deserializer, ["session"])?;
        let session = session.and_then(from_object).ok_or_else(|| D::Error::custom("no binding"))?;
        Ok(Self { session })
    }
}

/// The `session.nodeId` that a push is routed by (FWD-20); the rest of the binding is the node's to
/// judge.
pub struct Addressed {
    /// The addressed session.
    pub session: AddressedSession,
}

impl<'de> Deserialize<'de> for Addressed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [session] = members(deserializer, ["session"])?;
        let session = session.and_then(from_object).ok_or_else(|| D::Error::custom("no session"))?;
        Ok(Self { session })
    }
}

/// The member of `session` that a push is routed by.
pub struct AddressedSession {
    /// The node.
    pub node_id: Id,
}

impl<'de> Deserialize<'de> for AddressedSession {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [node_id] = members(deserializer, ["nodeId"])?;
        let node_id = node_id.and_then(|raw| serde_json::from_str(raw.get()).ok());
        Ok(Self { node_id: node_id.ok_or_else(|| D::Error::custom("no node id"))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDING: &str = r#"{"sessionId":"s","nodeId":"n","clusterId":"c","generation":1}"#;

    fn bound(body: &str) -> Option<Binding> {
        serde_json::from_str::<Bound>(body).ok().map(|bound| bound.session)
    }

    fn addressed(body: &str) -> Option<Id> {
        serde_json::from_str::<Addressed>(body).ok().map(|addressed| addressed.session.node_id)
    }

    /// FWD-31: the binding is read out of a body whose other members stay unread.
    #[test]
    fn a_binding_is_read_out_of_a_carried_body() {
        for body in [
            format!(r#"{{"secret":"\ud83d","session":{BINDING},"n":1e999}}"#),
            format!(r#"{{"\ud800":{{"session":null}},"sess\u0069on" : {BINDING} }}"#),
        ] {
            assert_eq!(bound(&body).unwrap().node_id.as_str(), "n", "{body}");
            assert_eq!(addressed(&body).unwrap().as_str(), "n", "{body}");
        }
        let odd = r#"{"session":{"\ud800":1,"node\u0049d":"n","generation":1.0,"generation":2}}"#;
        assert_eq!(addressed(odd).unwrap().as_str(), "n");
        assert!(bound(odd).is_none());
    }

    /// FWD-12, FWD-14: of two sessions Cloudly could act on the one that was not checked.
    #[test]
    fn a_binding_that_stands_twice_or_has_another_key_is_refused() {
        for body in [
            format!(r#"{{"session":{BINDING},"session":{BINDING}}}"#),
            format!(r#"{{"session":{BINDING},"sess\u0069on":{BINDING}}}"#),
            format!(r#"{{"session":null,"session":{BINDING}}}"#),
            format!(r#"{{"session":{}}}"#, BINDING.replace("{", r#"{"nodeId":"m","#)),
            format!(r#"{{"session":{}}}"#, BINDING.replace("{", r#"{"node\u0049d":"m","#)),
            r#"{"session":null}"#.to_owned(),
            r#"{"session":["s","n","c",1]}"#.to_owned(),
            "{}".to_owned(),
        ] {
            assert!(bound(&body).is_none() && addressed(&body).is_none(), "{body}");
        }
        let another =
            format!(r#"{{"session":{}}}"#, BINDING.replace("\"generation\":1", "\"generation\":1,\"x\":0"));
        assert!(bound(&another).is_none() && addressed(&another).is_some());
    }

    /// PROT-12, PROT-13: an offer that stands twice is no offer, so nothing of its registration travels.
    #[test]
    fn an_offer_that_stands_twice_is_none() {
        let offered =
            |body| serde_json::from_str::<Offered<'_>>(body).map(|offered| offered.protocol.is_some());
        assert!(offered(r#"{"protocol":{"release":"1.0.0"},"authorization":"\ud800"}"#).unwrap());
        assert!(!offered("{}").unwrap());
        assert!(offered(r#"{"protocol":{},"protocol":{}}"#).is_err());
        assert!(offered(r#"{"protocol":{},"proto\u0063ol":{}}"#).is_err());
    }
}
