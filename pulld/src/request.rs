//! The request to the registry: what relayd handed over, byte for byte, and what is pulld's own to say
//! (PULL-05, PULL-20, PULL-25).

use bytes::Bytes;
use coreflow_ipc::messages::pulls::{PullRequest, RequestHeader};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version,
    header::{ACCEPT_ENCODING, HOST},
    uri::{PathAndQuery, Scheme},
};
use http_body_util::Empty;

use crate::registry::Registry;

/// A pull that can be sent, more than once. No Debug: it holds the node's token (PULL-28).
pub struct Asked {
    method: Method,
    target: PathAndQuery,
    headers: HeaderMap,
}

impl Asked {
    /// `None` if the target or a header cannot be sent as it came, or the target lies outside `/v2/`.
    pub fn new(pull: PullRequest) -> Option<Self> {
        // Nothing normalises here; what is cut off, as a fragment is, shows in the comparison.
        let target = PathAndQuery::try_from(pull.target.as_str()).ok()?;
        if target.as_str() != pull.target || !pull.target.starts_with("/v2/") {
            return None;
        }
        let mut headers = HeaderMap::with_capacity(pull.headers.len() + 2);
        for (header, value) in pull.headers {
            let mut value = HeaderValue::from_maybe_shared(Bytes::from(value)).ok()?;
            // No table of a compression keeps it.
            value.set_sensitive(header == RequestHeader::Authorization);
            headers.append(HeaderName::from_static(header.name()), value);
        }
        let method = if pull.head { Method::HEAD } else { Method::GET };
        Some(Self { method, target, headers })
    }

    /// Whether no body answers it.
    pub fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// The request over HTTP/1.1.
    pub fn http1(&self, registry: &Registry) -> Request<Empty<Bytes>> {
        let mut headers = HeaderMap::with_capacity(self.headers.len() + 2);
        headers.insert(HOST, registry.host.clone());
        self.request(Uri::from(self.target.clone()), headers)
    }

    /// The request over HTTP/2, which states the authority in place of a host.
    pub fn http2(&self, registry: &Registry) -> Request<Empty<Bytes>> {
        let scheme = if registry.origin.tls() { Scheme::HTTPS } else { Scheme::HTTP };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(scheme);
        parts.authority = Some(registry.authority.clone());
        parts.path_and_query = Some(self.target.clone());
        let uri = Uri::from_parts(parts).expect("scheme, authority and path are a whole URL");
        let mut request = self.request(uri, HeaderMap::with_capacity(self.headers.len() + 1));
        *request.version_mut() = Version::HTTP_2;
        request
    }

    fn request(&self, uri: Uri, mut headers: HeaderMap) -> Request<Empty<Bytes>> {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        let mut request = Request::new(Empty::new());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
    }
}

#[cfg(test)]
mod tests {
    use coreflow_ipc::messages::pulld::PulldStart;

    use super::*;

    fn registry(origin: &str) -> Registry {
        let start = PulldStart {
            registry_origin: origin.into(),
            relay_origin: "https://relay.test".into(),
            trust_anchors: Vec::new(),
        };
        Registry::new(start).unwrap()
    }

    fn pull(target: &str, headers: Vec<(RequestHeader, Vec<u8>)>) -> Option<Asked> {
        Asked::new(PullRequest { head: false, target: target.into(), headers })
    }

    fn shown(headers: &HeaderMap) -> Vec<(&str, &str)> {
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    /// PULL-05, PULL-20, PULL-25: the registry's own host, `identity`, the node's headers as often as they came,
    /// and nothing else.
    #[test]
    fn the_request_says_what_the_node_said_and_identity() {
        let headers = vec![
            (RequestHeader::Accept, b"a/b".to_vec()),
            (RequestHeader::Authorization, b"Bearer t".to_vec()),
            (RequestHeader::Accept, b"c/d".to_vec()),
        ];
        let asked = pull("/v2/a/b/blobs/sha256:1?ns=x%3A5", headers).unwrap();
        let expected = [
            ("host", "registry.test:5000"),
            ("accept-encoding", "identity"),
            ("accept", "a/b"),
            ("accept", "c/d"),
            ("authorization", "Bearer t"),
        ];
        let registry = registry("https://registry.test:5000");
        let sent = asked.http1(&registry);
        assert_eq!(shown(sent.headers()), expected);
        assert_eq!(sent.uri().to_string(), "/v2/a/b/blobs/sha256:1?ns=x%3A5");
        let sent = asked.http2(&registry);
        assert_eq!(shown(sent.headers()), expected[1..]);
        assert_eq!(sent.uri().to_string(), "https://registry.test:5000/v2/a/b/blobs/sha256:1?ns=x%3A5");
        assert!(sent.headers()["authorization"].is_sensitive());
    }

    /// PULL-17: what would be sent in other bytes than it came, or lies outside `/v2/`, is not sent.
    #[test]
    fn a_target_is_sent_byte_for_byte_or_not_at_all() {
        for target in ["/v2/", "/v2/a?", "/v2/a?x=%20&&y", "/v2/%2e%2e/x", "/v2/../x", "/v2//a"] {
            let sent = pull(target, Vec::new()).unwrap().http1(&registry("http://127.0.0.1:5000"));
            assert_eq!(sent.uri().to_string(), target);
        }
        for target in ["", "/", "/v2", "/x", "/v2/a#b", "/v2/a b", "/v2/a\r\nx", "https://evil.test/v2/", "*"]
        {
            assert!(pull(target, Vec::new()).is_none(), "{target}");
        }
        assert!(pull("/v2/", vec![(RequestHeader::Range, b"bytes=1-\r\nx: y".to_vec())]).is_none());
    }
}
