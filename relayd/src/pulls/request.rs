//! Which request heads are pulls, and what of one crosses to pulld (PULL-15, PULL-16, PULL-17, PULL-23,
//! PULL-25).

use coreflow_ipc::messages::pulls::{HEAD_BYTES, HEAD_HEADERS, PullRequest, RequestHeader};
use http::{HeaderMap, Method, Uri};

/// What a request under `/v2/` is.
pub enum Asked {
    /// One for the registry.
    Pull(PullRequest),
    /// A method other than `GET` and `HEAD`.
    MethodRefused,
    /// A path that a server may read as one outside `/v2/`.
    PathRefused,
    /// More or longer headers than cross.
    HeadersRefused,
}

/// Judges a request head; `None` where its path is not under `/v2/`.
///
/// The path is judged and sent on byte for byte: nothing on the way normalises or decodes it. Names, tags
/// and digests need no dot segment, percent sign, backslash or semicolon, by which servers differ on where
/// a path leads.
pub fn judge(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Asked> {
    let path = uri.path();
    if !path.starts_with("/v2/") {
        return None;
    }
    if method != Method::GET && method != Method::HEAD {
        return Some(Asked::MethodRefused);
    }
    let odd = |byte| matches!(byte, b'%' | b'\\' | b';');
    if path.bytes().any(odd) || path.split('/').any(|segment| segment == "." || segment == "..") {
        return Some(Asked::PathRefused);
    }
    let target = uri.path_and_query().map_or(path, |whole| whole.as_str());
    let mut bytes = target.len();
    let mut crossing = Vec::new();
    for (name, value) in headers {
        let Some(header) = RequestHeader::of(name.as_str()) else { continue };
        bytes += name.as_str().len() + value.len();
        if crossing.len() == HEAD_HEADERS || bytes > HEAD_BYTES {
            return Some(Asked::HeadersRefused);
        }
        crossing.push((header, value.as_bytes().to_vec()));
    }
    if bytes > HEAD_BYTES {
        return Some(Asked::HeadersRefused);
    }
    Some(Asked::Pull(PullRequest {
        head: method == Method::HEAD,
        target: target.to_owned(),
        headers: crossing,
    }))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn judged(method: &Method, target: &str, headers: &[(&str, &str)]) -> Option<Asked> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        judge(method, &target.parse().unwrap(), &map)
    }

    /// The target that crosses; `None` where the path is refused.
    fn target(text: &str) -> Option<String> {
        match judged(&Method::GET, text, &[])? {
            Asked::Pull(request) => Some(request.target),
            Asked::PathRefused => None,
            Asked::MethodRefused | Asked::HeadersRefused => panic!("{text}"),
        }
    }

    /// PULL-15: path and query cross byte for byte.
    #[test]
    fn a_target_crosses_as_it_was_written() {
        for text in [
            "/v2/",
            "/v2/team/app/manifests/sha256:abc",
            "/v2/a/b/tags/list?n=2&last=v%2B0",
            "/v2/a/b/manifests/v1?ns=other.registry.test%3A5000",
            "/v2/token?scope=repository:a/b:pull&scope=repository:c/d:pull&service=https://x.test/../y;z",
            "/v2/a//b/...",
        ] {
            assert_eq!(target(text).as_deref(), Some(text));
        }
        assert_eq!(
            target("https://evil.test/v2/a?b").as_deref(),
            Some("/v2/a?b"),
            "the host is not the node's choice"
        );
    }

    /// PULL-17: whatever a server could read as another path does not cross.
    #[test]
    fn a_path_that_could_lead_elsewhere_is_refused() {
        for text in [
            "/v2/../admin",
            "/v2/a/../../admin",
            "/v2/..",
            "/v2/./x",
            "/v2/%2e%2e/admin",
            "/v2/%252e%252e/admin",
            "/v2/..%2fadmin",
            "/v2/a%2Fb/manifests/v1",
            "/v2/..;/admin",
            "/v2/a;b",
            "https://evil.test/v2/../x",
        ] {
            assert!(matches!(judged(&Method::GET, text, &[]), Some(Asked::PathRefused)), "{text}");
        }
        for text in ["/", "/v2", "/v2x/", "//v2/x", "/V2/", "/x/v2/", "/metrics", "https://evil.test/admin"] {
            assert!(judged(&Method::GET, text, &[]).is_none(), "{text} is not under /v2/");
        }
        // Where the parser of request heads takes it at all.
        if let Ok(uri) = "/v2/a\\..\\b".parse::<Uri>() {
            assert!(matches!(judge(&Method::GET, &uri, &HeaderMap::new()), Some(Asked::PathRefused)));
        }
    }

    /// PULL-16: a node reads, and never writes.
    #[test]
    fn a_method_of_no_pull_is_refused() {
        for method in
            [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::CONNECT]
        {
            assert!(matches!(judged(&method, "/v2/token", &[]), Some(Asked::MethodRefused)), "{method}");
        }
        for (method, head) in [(Method::GET, false), (Method::HEAD, true)] {
            let Some(Asked::Pull(request)) = judged(&method, "/v2/", &[]) else { panic!("{method}") };
            assert_eq!(request.head, head);
        }
    }

    /// PULL-25: what a pull needs crosses in its order, as often as it came; nothing else does.
    #[test]
    fn only_what_a_pull_needs_crosses() {
        let headers = [
            ("host", "evil.test"),
            ("accept", "application/a"),
            ("cookie", "a=b"),
            ("accept", "application/b, application/c"),
            ("accept-encoding", "gzip"),
            ("authorization", "Bearer t"),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("x-forwarded-host", "evil.test"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "trailers"),
            ("range", "bytes=100-"),
        ];
        let Some(Asked::Pull(request)) = judged(&Method::GET, "/v2/a", &headers) else { panic!() };
        let crossed: Vec<_> =
            request.headers.iter().map(|(header, value)| (header.name(), value.as_slice())).collect();
        let accept = [("accept", &b"application/a"[..]), ("accept", b"application/b, application/c")];
        assert_eq!(crossed[..2], accept);
        assert_eq!(crossed[2..], [("authorization", &b"Bearer t"[..]), ("range", b"bytes=100-")]);
    }

    /// PULL-23: number and bytes are bounded; what does not cross is not counted.
    #[test]
    fn the_headers_that_cross_are_bounded() {
        let many = |count: usize| vec![("accept", "a/b"); count];
        let long = |length: usize| "t".repeat(length);
        let refused = |headers: &[(&str, &str)]| {
            matches!(judged(&Method::GET, "/v2/", headers), Some(Asked::HeadersRefused))
        };
        assert!(!refused(&many(HEAD_HEADERS)) && refused(&many(HEAD_HEADERS + 1)));
        let room = HEAD_BYTES - "/v2/".len() - "authorization".len();
        assert!(!refused(&[("authorization", &long(room))]));
        assert!(refused(&[("authorization", &long(room + 1))]));
        assert!(!refused(&[("authorization", &long(12_000)), ("cookie", &long(30_000))]));
        let target = format!("/v2/?{}", long(HEAD_BYTES - 4));
        assert!(matches!(judged(&Method::GET, &target, &[]), Some(Asked::HeadersRefused)));
    }
}
