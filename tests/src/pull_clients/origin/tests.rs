//! The origin in front of a registry that answers everything with the same blob.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::BodyExt;
use serde_json::Value;

use super::*;

/// The registry's one blob.
const BLOB: &[u8] = &[7; 300_000];

async fn registry() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service =
                service_fn(|_| async { Response::builder().body(Full::new(Bytes::from_static(BLOB))) });
            let serving = hyper::server::conn::http1::Builder::new();
            tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn origin() -> Origin {
    Origin::start(registry().await, Arc::new(Signer::new()), "a/withheld").await.unwrap()
}

/// The status, and the body or that it broke off.
async fn ask(origin: &Origin, method: &str, target: &str, authorization: &str) -> (u16, Option<Bytes>) {
    let request = Request::builder().method(method).uri(target);
    let request = request.header(header::AUTHORIZATION, authorization).body(Full::new(Bytes::new())).unwrap();
    let answer = docker_registry::request(origin.address(), request).await.ok().unwrap();
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.ok().map(|body| body.to_bytes()))
}

fn basic(node: &str, secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{node}:{secret}")))
}

/// A node's own credential buys a token for pulling, of what the node may have; nothing else does.
#[tokio::test]
async fn a_credential_buys_a_token_for_what_may_be_pulled() {
    let origin = origin().await;
    let secret = origin.issue("node-1");
    let scopes = "scope=repository%3Aa%2Fb%3Apull%2Cpush&scope=repository:a/withheld:pull";
    let target = &format!("{TOKEN_PATH}?service={SERVICE}&{scopes}");
    let (status, body) = ask(&origin, "GET", target, &basic("node-1", &secret)).await;
    assert_eq!(status, 200);
    let answer: Value = serde_json::from_slice(&body.unwrap()).unwrap();
    let token = answer["token"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["access"], json!([{"type": "repository", "name": "a/b", "actions": ["pull"]}]));
    assert_eq!(origin.secrets(), [secret.as_str(), token]);

    assert_eq!(ask(&origin, "GET", target, &basic("node-1", "other")).await.0, 401);
    assert_eq!(ask(&origin, "GET", target, &basic("node-2", &secret)).await.0, 401);
    assert_eq!(ask(&origin, "POST", TOKEN_PATH, "").await.0, 404);
    let other = format!("{TOKEN_PATH}?service=https://other.test&{scopes}");
    assert_eq!(ask(&origin, "GET", &other, &basic("node-1", &secret)).await.0, 400);
    let mut seen = origin.take_seen();
    assert_eq!(seen.pop().unwrap().query, other.split_once('?').unwrap().1);
    let askers: Vec<&Asker> = seen.iter().map(|seen| &seen.asker).collect();
    assert_eq!(askers, [&Asker::Node("node-1".to_owned()), &Asker::Other, &Asker::Other, &Asker::Other]);
    assert!(seen.iter().all(|seen| !format!("{seen:?}").contains(&secret)));
}

/// The next answer with a blob breaks off where it was told to, and the one after that is whole.
#[tokio::test]
async fn an_answer_is_cut_once() {
    let origin = origin().await;
    origin.cut_next("sha256:a", 100_000);
    let (status, body) = ask(&origin, "GET", "/v2/a/b/blobs/sha256:b", "Bearer t").await;
    assert_eq!((status, body.as_deref()), (200, Some(BLOB)));
    let (status, body) = ask(&origin, "GET", "/v2/a/b/blobs/sha256:a", "Bearer t").await;
    assert_eq!((status, body), (200, None));
    let (status, body) = ask(&origin, "GET", "/v2/a/b/blobs/sha256:a", "Bearer t").await;
    assert_eq!((status, body.as_deref()), (200, Some(BLOB)));
    let seen = origin.take_seen();
    assert!((100_000..300_000).contains(&seen[1].sent()), "{}", seen[1].sent());
    assert_eq!([seen[0].sent(), seen[2].sent()], [300_000; 2]);
    assert!(seen.iter().all(|seen| seen.asker == Asker::Bearer));
}
