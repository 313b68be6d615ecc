//! What binds a delivery to a session and an acknowledgement to what was sent: the contract's three
//! binders of the network's authority (ESC-15, ESC-31, ESC-33, FWD-32).

use coreflow_ipc::typedrequest::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Digest, Projection, Renewal};
use crate::contract::{
    runtime::Binding,
    values::{Generation, Id, from_object, object},
};

/// Whether a renewal is in the scope of a session: of its node and its cluster (ESC-15).
pub fn in_scope(session: &Binding, renewal: &Renewal) -> bool {
    renewal.node_id == session.node_id && renewal.cluster_id == session.cluster_id
}

/// `bindApplyRuntimeNetworkDnsLeaseRenewalRequest`: the delivery of a renewal in a session, with the
/// renewal's own text; `None` outside the session's scope.
pub fn bind_apply_renewal_request(session: &Binding, renewal: &Renewal) -> Option<Body> {
    in_scope(session, renewal).then(|| {
        let session = Body::of(session);
        Body::from_json(format!(r#"{{"session":{},"renewal":{}}}"#, session.text(), renewal.text.text()))
    })
}

/// `bindApplyRuntimeNetworkDnsLeaseRenewalResponse`: whether an answer acknowledges the delivery of the
/// renewal with this `sequence` of `projection` in `session`.
pub fn binds_apply_renewal_response(
    answer: &Body,
    session: &Binding,
    projection: &Projection,
    sequence: Generation,
) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Acknowledgement {
        #[serde(deserialize_with = "object")]
        session: Binding,
        #[serde(deserialize_with = "object")]
        renewal: Acknowledged,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Acknowledged {
        #[serde(deserialize_with = "object")]
        projection: Projection,
        sequence: Generation,
    }
    answer.read().is_ok_and(|answer: Acknowledgement| {
        answer.session == *session
            && answer.renewal.projection == *projection
            && answer.renewal.sequence == sequence
    })
}

/// `bindApplyRuntimeNetworkAuthorityResponse`: the projection that a node acknowledged and the session of the
/// request, read out of the answer to `applyRuntimeNetworkProjection` only where the projection is the request's
/// own and the answer states no other session (FWD-32). Nothing else of either body is read (FWD-31).
pub fn bind_projection_acknowledgement(request: &Body, answer: &Body) -> Option<(Binding, Projection)> {
    #[derive(Deserialize)]
    struct Pushed {
        #[serde(deserialize_with = "object")]
        session: Binding,
        #[serde(deserialize_with = "object")]
        projection: Named,
    }
    /// The pushed projection has members beside its reference.
    #[derive(Deserialize)]
    struct Named {
        id: Id,
        generation: Generation,
        digest: Digest,
    }
    #[derive(Deserialize)]
    struct Acknowledged<'a> {
        #[serde(borrow, default)]
        session: Option<&'a RawValue>,
        #[serde(deserialize_with = "object")]
        projection: Projection,
    }
    let Pushed { session, projection: Named { id, generation, digest } } = request.read().ok()?;
    let acknowledged: Acknowledged<'_> = answer.read().ok()?;
    let stated = match acknowledged.session {
        Some(raw) => from_object(raw)?,
        None => session.clone(),
    };
    let pushed = Projection { id, generation, digest };
    (stated == session && acknowledged.projection == pushed).then_some((session, pushed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = r#"{"sessionId":"s","nodeId":"n","clusterId":"c","generation":1}"#;

    fn projection(generation: u64) -> String {
        format!(r#"{{"id":"p","generation":{generation},"digest":"sha256:{}"}}"#, "5a".repeat(32))
    }

    fn acknowledged(request: &str, answer: &str) -> Option<u64> {
        let body = |text: &str| Body::from_json(text.to_owned());
        bind_projection_acknowledgement(&body(request), &body(answer))
            .map(|(_, bound)| bound.generation.get())
    }

    /// FWD-31, FWD-32: the reference is read out of an answer that is bound to its request, and out of
    /// no other.
    #[test]
    fn an_acknowledged_projection_is_read_only_where_it_is_the_pushed_one() {
        let pushed = projection(3).replace('}', r#","records":[{"name":"a","ttl":1e999}]}"#);
        let request = format!(r#"{{"session":{SESSION},"projection":{pushed},"more":1}}"#);
        let answer = |session: &str, projection: &str| {
            format!(r#"{{"session":{session},"projection":{projection},"more":1}}"#)
        };
        assert_eq!(acknowledged(&request, &answer(SESSION, &projection(3))), Some(3));
        assert_eq!(acknowledged(&request, &format!(r#"{{"projection":{}}}"#, projection(3))), Some(3));
        for foreign in [
            answer(&SESSION.replace("\"s\"", "\"t\""), &projection(3)),
            answer(&SESSION.replace("\"c\"", "\"d\""), &projection(3)),
            answer("1", &projection(3)),
            answer(SESSION, &projection(2)),
            answer(SESSION, &projection(3).replace("5a5a", "5b5a")),
            answer(SESSION, &projection(3).replace('}', r#","x":1}"#)),
            answer(SESSION, "null"),
            "{}".to_owned(),
            "null".to_owned(),
        ] {
            assert_eq!(acknowledged(&request, &foreign), None, "{foreign}");
        }
        let unbound = format!(r#"{{"session":{SESSION}}}"#);
        assert_eq!(acknowledged(&unbound, &answer(SESSION, &projection(3))), None);
    }
}
