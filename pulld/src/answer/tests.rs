use coreflow_ipc::messages::pulld::PulldStart;
use http::{HeaderName, HeaderValue};

use super::*;

fn registry() -> Registry {
    let start = PulldStart {
        registry_origin: "https://registry.test".into(),
        relay_origin: "https://relay.test".into(),
        trust_anchors: Vec::new(),
    };
    Registry::new(start).unwrap()
}

fn select(status: u16, to_head: bool, headers: &[(&str, &str)]) -> Result<AnswerHead, RegistryFailure> {
    let mut parts = http::Response::new(()).into_parts().0;
    parts.status = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).unwrap();
        parts.headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    selected(&parts, to_head, &registry(), &Notices::default())
}

/// PULL-25: each header of the list crosses and no other.
#[test]
fn what_is_on_the_list_crosses_and_nothing_else() {
    let mut headers: Vec<(&str, &str)> =
        AnswerHeader::ALL.iter().map(|header| (header.name(), "v")).collect();
    headers.extend([("set-cookie", "a=b"), ("server", "x"), ("connection", "close"), ("x-own", "y")]);
    let head = select(200, false, &headers).unwrap();
    let crossed: Vec<AnswerHeader> = head.headers.iter().map(|(header, _)| *header).collect();
    assert_eq!(crossed, AnswerHeader::ALL);
}

/// PULL-24: a head beyond either bound is refused, the bytes counted after a realm has moved.
#[test]
fn a_head_beyond_the_bounds_is_refused() {
    let headers = vec![("link", "x"); HEAD_HEADERS];
    assert!(select(200, false, &headers).is_ok());
    let headers = vec![("link", "x"); HEAD_HEADERS + 1];
    assert!(select(200, false, &headers).is_err());
    let value = "x".repeat(HEAD_BYTES - "etag".len());
    assert!(select(200, false, &[("etag", &value)]).is_ok());
    assert!(select(200, false, &[("etag", &value), ("vary", "")]).is_err());
}

/// PULL-21, PULL-22: the stated length, unless there are chunks or an encoding; contradictions are refused.
#[test]
fn the_length_is_the_one_that_is_stated() {
    for (headers, length) in [
        (&[("content-length", "7")][..], Ok(Some(7))),
        (&[("content-length", "7, 7"), ("content-length", "7")], Ok(Some(7))),
        (&[], Ok(None)),
        (&[("content-length", "7"), ("transfer-encoding", "chunked")], Ok(None)),
        (&[("content-length", "7"), ("content-encoding", "gzip")], Ok(None)),
        (&[("content-length", "7"), ("content-encoding", "")], Ok(Some(7))),
        (&[("content-length", "7"), ("content-encoding", "Identity")], Ok(Some(7))),
        (&[("content-length", "7"), ("content-length", "8")], Err(RegistryFailure::Protocol)),
        (&[("content-length", "7,")], Err(RegistryFailure::Protocol)),
        (&[("content-length", "-7")], Err(RegistryFailure::Protocol)),
        (&[("content-length", "99999999999999999999")], Err(RegistryFailure::Protocol)),
    ] {
        assert_eq!(select(200, true, headers).map(|head| head.length), length, "{headers:?}");
    }
}

/// PULL-11: a location and a link at the registry's origin are found, and what only looks like it is not.
#[test]
fn what_names_the_registry_is_found() {
    let own = registry().origin;
    assert!(is_at(b"https://registry.test/v2/x", &own) && is_at(b"HTTPS://REGISTRY.test:443", &own));
    assert!(!is_at(b"/v2/x", &own) && !is_at(b"https://registry.test.evil.test/", &own));
    assert!(links_to(b"</a>; rel=x, <https://registry.test/v2/?n=1>; rel=\"next\"", &own));
    assert!(!links_to(b"</v2/?x=https://registry.test/>; rel=\"next\"", &own));
    assert!(
        !links_to(b"<https://registry.test@evil.test/>", &own) && !links_to(b"https://registry.test", &own)
    );
    for header in ["location", "link"] {
        let value = "<https://registry.test/v2/x>";
        let head = select(200, false, &[(header, value)]).unwrap();
        assert_eq!(head.headers[0].1, value.as_bytes());
    }
}
