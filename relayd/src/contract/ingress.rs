//! The cluster ingress: what the relay reads of its registration and of Cloudly's answer, and the bodies
//! of the route table's five methods.
//!
//! Whatever the relay itself reads is exact-key. A bearer and a nonce are looked at and never copied.

use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::value::RawValue;

use super::{
    members::members,
    offer::Offer,
    values::{Generation, Id, Reference, from_object, object},
};

/// A JSON text whose content is not looked at.
pub struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        raw.get().starts_with('"').then_some(Self).ok_or_else(|| D::Error::custom("not a text"))
    }
}

/// The body of `registerClusterIngress`: what reads as one is what `validateClusterIngressRegistration`
/// admits (ING-34).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct IngressRegistration {
    /// The ingress's offer, judged before.
    #[serde(deserialize_with = "object")]
    pub protocol: Offer,
    /// The ingress's own bearer, Cloudly's to judge.
    pub authorization: Text,
    /// The node that the ingress runs on.
    pub node_id: Id,
    /// One per process of the ingress.
    pub ingress_instance_nonce: Text,
}

/// Cloudly's answer that accepts an ingress, as far as it is read; the rest travels on verbatim.
pub struct IngressRegistered {
    /// What Cloudly registered.
    pub ingress: Reference,
    /// Whether the answer has the member that is the relay's to add.
    pub states_revision: bool,
}

impl<'de> Deserialize<'de> for IngressRegistered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [ingress, revision] = members(deserializer, ["ingress", "routeTableRevision"])?;
        let ingress = ingress.and_then(from_object).ok_or_else(|| D::Error::custom("no ingress"))?;
        Ok(Self { ingress, states_revision: revision.is_some() })
    }
}

/// The body of `getClusterIngressRouteTable`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GetIngressRouteTable {
    /// The revision that the ingress serves, `None` when it serves no table.
    #[serde(deserialize_with = "required")]
    pub applied_revision: Option<Generation>,
}

/// The body of `pushClusterRouteTable`, and of Cloudly's answer to `getClusterRouteTable`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CarriedRouteTable<'a> {
    /// The table as it was written, or `null`.
    #[serde(borrow)]
    pub route_table: &'a RawValue,
}

/// A statement of a revision alone: the answer to a push, and the hint (ING-18).
#[derive(Serialize)]
pub struct StatedRevision {
    /// The revision.
    pub revision: Generation,
}

/// An `Option` read by a function of its own may be `null`, not absent.
fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Generation>, D::Error> {
    Option::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: &str = r#"{"release":"33.1.0","oldestAcceptedPeerRelease":"32.0.0"}"#;

    fn admitted(body: &str) -> bool {
        serde_json::from_str::<IngressRegistration>(body).is_ok()
    }

    /// ING-34: `validateClusterIngressRegistration` is exact-key and knows each member's type.
    #[test]
    fn a_registration_with_a_missing_extra_or_wrong_member_is_refused() {
        let valid = format!(
            r#"{{"protocol":{OFFER},"authorization":"b","nodeId":"n","ingressInstanceNonce":"\ud83d"}}"#
        );
        assert!(admitted(&valid));
        for (part, other) in [
            (OFFER, "null"),
            (OFFER, r#"["33.1.0","32.0.0"]"#),
            (r#""authorization":"b","#, ""),
            (r#""authorization":"b""#, r#""authorization":null"#),
            (r#""authorization":"b""#, r#""authorization":["b"]"#),
            (r#""nodeId":"n""#, r#""nodeId":"a node""#),
            (r#""nodeId":"n""#, r#""nodeId":7"#),
            (r#""nodeId":"n""#, r#""nodeId":"n","nodeId":"n""#),
            (r#""nodeId":"n""#, r#""nodeId":"n","more":1"#),
            (r#","ingressInstanceNonce":"\ud83d""#, ""),
            (r#""\ud83d""#, "7"),
        ] {
            let body = valid.replacen(part, other, 1);
            assert!(body != valid && !admitted(&body), "{body}");
        }
    }

    #[test]
    fn an_applied_revision_may_be_null_and_not_absent() {
        let read = |body| serde_json::from_str::<GetIngressRouteTable>(body);
        assert_eq!(read(r#"{"appliedRevision":null}"#).unwrap().applied_revision, None);
        assert_eq!(read(r#"{"appliedRevision":7}"#).unwrap().applied_revision, Generation::parse(7));
        for refused in ["{}", r#"{"appliedRevision":-1}"#, r#"{"appliedRevision":"7"}"#] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }
}
