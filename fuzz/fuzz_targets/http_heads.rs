//! What a stranger sends the listener before anything else, as bytes: an upgrade is one by RFC 6455, no pull leads out
//! of `/v2/`, and what relayd lets cross pulld sends on as it is (LIS-03, LIS-05, PULL-15, PULL-17, PULL-23).
#![no_main]

use std::convert::Infallible;

use bytes::Bytes;
use coreflow_fuzz::peer::{peer, run};
use coreflow_ipc::{
    frame::HEADER,
    messages::{
        Message,
        pulld::PulldStart,
        pulls::{HEAD_BYTES, HEAD_HEADERS, PullRequest, RelaydToPulld},
    },
};
use coreflow_pulld::{registry::Registry, request};
use coreflow_relayd::{listener::refuse_head, pulls};
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::Empty;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;
use url::Url;

fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect()
}

/// Whether a comma-separated list of a header has `token`, in any letter case.
fn lists(headers: &HeaderMap, name: &str, token: &str) -> bool {
    let parts = lines(headers, name).into_iter().flat_map(|line| line.split(|byte| *byte == b','));
    parts.into_iter().any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// A path without the percent signs that a URL writes where a request line has the byte.
fn decoded(path: &str) -> Vec<u8> {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("a URL writes two digits"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}

fn judged_as_upgrade(request: &Request<Incoming>) {
    let (path, headers) = (request.uri().path(), request.headers());
    let Some(refusal) = refuse_head(request.version(), request.method(), path, headers) else {
        assert!(request.version() == Version::HTTP_11 && request.method() == Method::GET && path == "/");
        assert!(lists(headers, "connection", "upgrade") && lists(headers, "upgrade", "websocket"));
        assert!(lists(headers, "sec-websocket-version", "13"));
        let key = lines(headers, "sec-websocket-key")[0];
        assert!(key.len() == 24 && key.ends_with(b"=="), "16 bytes in base64");
        assert!(lines(headers, "transfer-encoding").is_empty());
        assert!(lines(headers, "content-length").iter().all(|length| *length == b"0"));
        return;
    };
    assert!(matches!(refusal.status().as_u16(), 400 | 404 | 426));
}

fn crosses(pull: PullRequest, asked: &Request<Incoming>) {
    let path = asked.uri().path();
    let target = pull.target.clone();
    assert!(target.len() <= HEAD_BYTES && pull.headers.len() <= HEAD_HEADERS);
    assert_eq!(Some(target.as_str()), asked.uri().path_and_query().map(|whole| whole.as_str()));
    // Whoever normalises the path comes to the same one, below /v2/.
    let there = Url::parse(&format!("https://registry.invalid{target}")).expect("a target is one of a URL");
    assert!(path.starts_with("/v2/") && !path.contains(['%', '\\', ';']), "{target:?}");
    assert_eq!(decoded(there.path()), path.as_bytes(), "{target:?}");
    for (header, value) in &pull.headers {
        assert!(lines(asked.headers(), header.name()).contains(&value.as_slice()));
    }
    let mut frame = Vec::new();
    let message = RelaydToPulld::Pull { id: u64::MAX, request: pull };
    message.append(&mut frame).expect("a head within its bounds is a message");
    let Ok(RelaydToPulld::Pull { request: pull, .. }) =
        RelaydToPulld::of_bytes(&Bytes::from(frame).slice(HEADER..))
    else {
        panic!("a pull is read as one")
    };
    let sent = request::Asked::new(pull).expect("pulld sends what relayd lets cross");
    let start = PulldStart {
        registry_origin: "http://registry.invalid".into(),
        relay_origin: "https://relay.invalid".into(),
        trust_anchors: Vec::new(),
    };
    let registry = Registry::new(start).expect("both are origins");
    for sent in [sent.http1(&registry), sent.http2(&registry)] {
        assert_eq!(sent.uri().path_and_query().map(|whole| whole.as_str()), Some(target.as_str()));
        assert_eq!(lines(sent.headers(), "accept-encoding"), [b"identity"]);
    }
}

async fn serve(asked: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    judged_as_upgrade(&asked);
    let (path, method) = (asked.uri().path(), asked.method());
    match pulls::judge(method, asked.uri(), asked.headers()) {
        None => assert!(!path.starts_with("/v2/")),
        Some(pulls::Asked::Pull(pull)) => {
            assert!(method == Method::GET && !pull.head || method == Method::HEAD && pull.head);
            crosses(pull, &asked);
        }
        Some(pulls::Asked::MethodRefused) => assert!(method != Method::GET && method != Method::HEAD),
        Some(pulls::Asked::PathRefused | pulls::Asked::HeadersRefused) => assert!(path.starts_with("/v2/")),
    }
    Ok(Response::new(Empty::new()))
}

fuzz_target!(|said: &[u8]| {
    let served = http1::Builder::new()
        .max_buf_size(48 << 10)
        .max_headers(128)
        // The peer's end comes with its last byte; without this hyper drops what it asked before it is looked at.
        .half_close(true)
        .serve_connection(TokioIo::new(peer(said, said.len() / 2)), service_fn(serve));
    // A request that is none ends its connection.
    let _ = run(served);
});
