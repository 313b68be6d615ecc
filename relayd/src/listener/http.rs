//! The HTTP surface of the listener: the upgrade at `/`, the pulls under `/v2/`, and a refusal by
//! name for everything else.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{
        ALLOW, CONNECTION, CONTENT_LENGTH, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
    },
};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::connection::Connection;
use crate::{
    constants::{REFUSED_BODY, REFUSED_BODY_BUDGET},
    pulls::{self, Asked, PullBody},
    refusals::{
        LISTENER_FULL, PULL_CONNECTIONS_FULL, PULL_HEADERS_REFUSED, PULL_METHOD_REFUSED, PULL_PATH_REFUSED,
        UPGRADE_REFUSED,
    },
};

/// Answers a request, and says to its connection what that becomes. Dropped when the node leaves.
pub(super) async fn answer(request: Request<Incoming>, connection: &Connection) -> Response<PullBody> {
    let head = request.method() == Method::HEAD;
    match pulls::judge(request.method(), request.uri(), request.headers()) {
        Some(Asked::Pull(pull)) => {
            drop(request);
            if connection.pulls().is_err() {
                connection.counts().refuse_pull();
                let refusal = pulls::unavailable(PULL_CONNECTIONS_FULL, "as many connections pull as may");
                return without_content(refusal, head);
            }
            let exchanged = connection.exchange(pull).await;
            match exchanged.and_then(|(answer, body)| pulls::passed(answer, body)) {
                Ok(answer) => {
                    connection.counts().pull();
                    answer
                }
                Err(failure) => {
                    connection.counts().refuse_pull();
                    without_content(pulls::failed(failure), head)
                }
            }
        }
        Some(refused) => {
            // Over h2 an answer before the request's end is followed by a reset, by which some clients see no
            // answer at all.
            discard(request.into_body()).await;
            connection.counts().refuse_pull();
            without_content(refuse_pull(&refused), head)
        }
        None => without_content(upgrade(request, connection), head),
    }
}

/// Reads the body of a request that is refused, as far as that is short and quick.
async fn discard(mut body: Incoming) {
    let discarding = async {
        let mut left = REFUSED_BODY;
        while let Some(Ok(part)) = body.frame().await {
            let length = part.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else { return };
            left = rest;
        }
    };
    // Whoever sends more, or slowly, is answered all the same.
    let _ = timeout(REFUSED_BODY_BUDGET, discarding).await;
}

/// The refusal of a request under `/v2/` that is no pull.
fn refuse_pull(refused: &Asked) -> Response<PullBody> {
    match refused {
        Asked::MethodRefused => {
            let reason = "only GET and HEAD are served under /v2/";
            let mut refusal = pulls::refusal(StatusCode::METHOD_NOT_ALLOWED, PULL_METHOD_REFUSED, reason);
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            refusal
        }
        Asked::HeadersRefused => pulls::refusal(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            PULL_HEADERS_REFUSED,
            "a pull has at most 64 headers that cross, of 32 KiB in all with its target",
        ),
        Asked::PathRefused | Asked::Pull(_) => pulls::refusal(
            StatusCode::NOT_FOUND,
            PULL_PATH_REFUSED,
            "a path under /v2/ has no dot segment, percent sign, backslash or semicolon",
        ),
    }
}

fn upgrade(mut request: Request<Incoming>, connection: &Connection) -> Response<PullBody> {
    let (method, path) = (request.method(), request.uri().path());
    if let Some(refusal) = refuse_head(request.version(), method, path, request.headers()) {
        return refusal;
    }
    let accept = accept_key(request.headers()).expect("a head that is not refused is an upgrade with a key");
    let protocol = first_protocol(request.headers());
    let upgrade = hyper::upgrade::on(&mut request);
    if connection.upgrades(upgrade).is_err() {
        return pulls::unavailable(LISTENER_FULL, "as many nodes are connected as may");
    }
    let mut response = Response::new(PullBody::Nothing);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

/// The answer to a request head that is no WebSocket upgrade at `/`; `None` for one that is.
pub fn refuse_head(
    version: Version,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Option<Response<PullBody>> {
    let has = |name: &HeaderName, token: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|stated| stated.trim().eq_ignore_ascii_case(token)))
    };
    let upgrades = path == "/" && has(&CONNECTION, "upgrade") && has(&UPGRADE, "websocket");
    if !upgrades || version != Version::HTTP_11 || method != Method::GET {
        let reason = "this listener serves a WebSocket upgrade at / and image pulls under /v2/";
        return Some(pulls::refusal(StatusCode::NOT_FOUND, PULL_PATH_REFUSED, reason));
    }
    if !has(&SEC_WEBSOCKET_VERSION, "13") {
        let mut refusal = pulls::refusal(
            StatusCode::UPGRADE_REQUIRED,
            UPGRADE_REFUSED,
            "only version 13 of the WebSocket protocol is served",
        );
        refusal.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Some(refusal);
    }
    if accept_key(headers).is_none() {
        let reason = "sec-websocket-key is missing or is no key";
        return Some(pulls::refusal(StatusCode::BAD_REQUEST, UPGRADE_REFUSED, reason));
    }
    let length = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
    if headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != b"0") {
        return Some(pulls::refusal(StatusCode::BAD_REQUEST, UPGRADE_REFUSED, "an upgrade has no body"));
    }
    None
}

fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let key = headers.get(SEC_WEBSOCKET_KEY)?;
    let decoded = STANDARD.decode(key.as_bytes()).ok()?;
    (decoded.len() == 16).then_some(())?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

/// Of offered subprotocols the first is selected, as the public server does. An offered extension is
/// declined by saying nothing.
fn first_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let offered = headers.get(SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    let first = offered.split(',').next()?.trim();
    (!first.is_empty()).then(|| HeaderValue::from_str(first).ok()).flatten()
}

/// A refusal as the answer to HEAD, if `head` says so: what GET is answered with, without the content, which
/// over h2 would be a reset.
fn without_content(response: Response<PullBody>, head: bool) -> Response<PullBody> {
    if head { response.map(|_| PullBody::Nothing) } else { response }
}

#[cfg(test)]
mod tests {
    use hyper::body::Body;

    use super::*;

    fn head(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    const UPGRADE_HEAD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    fn refused(method: &Method, path: &str, headers: &HeaderMap) -> Option<u16> {
        refuse_head(Version::HTTP_11, method, path, headers).map(|refusal| refusal.status().as_u16())
    }

    /// LIS-03: one kind of upgrade, at `/`; an offered extension does not disturb it.
    #[test]
    fn an_upgrade_at_the_root_is_taken() {
        let mut headers = head(&UPGRADE_HEAD);
        headers.insert("sec-websocket-extensions", HeaderValue::from_static("permessage-deflate"));
        assert_eq!(refused(&Method::GET, "/", &headers), None);
        assert_eq!(accept_key(&headers).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for (method, path) in [(Method::GET, "/other"), (Method::GET, "//"), (Method::POST, "/")] {
            assert_eq!(refused(&method, path, &headers), Some(404), "{method} {path}");
        }
        assert!(refuse_head(Version::HTTP_2, &Method::GET, "/", &headers).is_some());
        assert!(refuse_head(Version::HTTP_10, &Method::GET, "/", &headers).is_some());
    }

    #[test]
    fn an_upgrade_without_its_version_or_key_is_refused() {
        for (left_out, status) in
            [("sec-websocket-version", 426), ("sec-websocket-key", 400), ("upgrade", 404)]
        {
            let mut headers = head(&UPGRADE_HEAD);
            headers.remove(left_out);
            assert_eq!(refused(&Method::GET, "/", &headers), Some(status), "{left_out}");
        }
        let mut headers = head(&UPGRADE_HEAD);
        headers.insert("sec-websocket-key", HeaderValue::from_static("short"));
        assert_eq!(refused(&Method::GET, "/", &headers), Some(400));
        // A body would have to be read before the socket opens.
        for (name, value, status) in [
            ("content-length", "0", None),
            ("content-length", "5", Some(400)),
            ("transfer-encoding", "chunked", Some(400)),
        ] {
            let mut headers = head(&UPGRADE_HEAD);
            headers.append(name, HeaderValue::from_static(value));
            assert_eq!(refused(&Method::GET, "/", &headers), status, "{name}: {value}");
        }
    }

    /// LIS-05: beside the upgrade the whole surface is the pulls; a refusal has its name.
    #[test]
    fn everything_else_is_refused_by_name() {
        let none = HeaderMap::new();
        for (method, path, status) in [
            (Method::GET, "/", 404),
            (Method::GET, "/metrics", 404),
            (Method::GET, "/v2x", 404),
            (Method::GET, "/v2", 404),
            (Method::POST, "/token", 404),
        ] {
            assert_eq!(refused(&method, path, &none), Some(status), "{method} {path}");
        }
    }

    /// PULL-16, PULL-23: a request under `/v2/` that is no pull is refused by name; one by HEAD states the
    /// length of what GET is answered with, and has no content itself.
    #[test]
    fn a_refused_pull_has_its_name() {
        for (refused, status, name) in [
            (Asked::MethodRefused, 405, "pull-method-refused: "),
            (Asked::PathRefused, 404, "pull-path-refused: "),
            (Asked::HeadersRefused, 431, "pull-headers-refused: "),
        ] {
            let refusal = refuse_pull(&refused);
            let allow = (status == 405).then(|| HeaderValue::from_static("GET, HEAD"));
            assert_eq!((refusal.status().as_u16(), refusal.headers().get(ALLOW)), (status, allow.as_ref()));
            let length = refusal.headers()[CONTENT_LENGTH].clone();
            let PullBody::Whole(body) = refusal.body() else { panic!("{name}") };
            assert_eq!(length, body.bytes().len().to_string());
            assert!(std::str::from_utf8(body.bytes()).unwrap().contains(name), "{name}");
            let answer = without_content(refusal, true);
            assert!(answer.body().is_end_stream());
            assert_eq!(answer.headers()[CONTENT_LENGTH], length);
        }
    }

    #[test]
    fn the_first_offered_subprotocol_is_selected() {
        let headers = head(&[("sec-websocket-protocol", "foo, bar")]);
        assert_eq!(first_protocol(&headers).unwrap(), "foo");
        assert_eq!(first_protocol(&HeaderMap::new()), None);
    }
}
