//! The whole exchange against a scripted HTTP server on loopback.

use std::sync::Mutex;

use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use zeroize::Zeroizing;

use super::envelope::tests::{BEARER, IDENTITY, NOW, answer, success};
use super::*;
use crate::trust::TrustAnchors;

fn bearer() -> Bearer {
    Bearer::new(Zeroizing::new(BEARER.into())).ok().unwrap()
}

#[test]
fn ids_have_the_library_s_form_and_differ() {
    let (one, other) = (fresh_id(), fresh_id());
    assert!(one != other && one.len() == 28 && one.starts_with("uni_"), "{one} {other}");
    assert!(one[4..].bytes().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()), "{one}");
}

/// One connection of the scripted server: what it answers. `{c}` and `{i}` stand for the request's ids.
enum Script {
    /// A status line and a body.
    Http(&'static str, String),
    /// These bytes, then the end of the connection.
    Raw(&'static str),
    /// Nothing, until the client leaves.
    Silence,
}

/// A Cloudly that answers one connection with each script, in order.
struct Server {
    url: CloudlyUrl,
    requests: Arc<Mutex<Vec<String>>>,
    listening: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Server {
    async fn start(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://127.0.0.1:{}/ignored", listener.local_addr().unwrap().port());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let listening = tokio::spawn(async move {
            for script in scripts {
                let (stream, _) = listener.accept().await.unwrap();
                let request = answer_one(stream, script).await;
                seen.lock().unwrap().push(request);
            }
        });
        Self { url: CloudlyUrl::parse(&url).unwrap(), requests, listening }
    }

    async fn exchange(&self, bounds: ExchangeBounds) -> Result<ExchangedIdentity, ExchangeError> {
        exchange(&self.url, &anchors().client_config(), &bearer(), bounds, || NOW).await
    }

    async fn error(&self, bounds: ExchangeBounds) -> ExchangeError {
        let error = self.exchange(bounds).await.err().unwrap();
        assert!(!format!("{error} {error:?}").contains("marked"), "{error:?}");
        error
    }
}

fn anchors() -> TrustAnchors {
    TrustAnchors { certificates: Vec::new(), bundled: false }
}

/// Reads one request, answers it by the script, and gives the request's text.
async fn answer_one(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: Script) -> String {
    let mut request = Vec::new();
    let body_at = loop {
        if let Some(at) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    };
    let head = String::from_utf8(request[..body_at].to_vec()).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
    while request.len() < body_at + length.parse::<usize>().unwrap() {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    }
    let body: serde_json::Value = serde_json::from_slice(&request[body_at..]).unwrap();
    match script {
        Script::Http(status, text) => {
            let text = text
                .replace("uni_c", body["correlation"]["id"].as_str().unwrap())
                .replace("uni_i", body["requestInstanceId"].as_str().unwrap());
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", text.len());
            // A client that refuses the answer may leave before it has read all of it.
            let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
        }
        Script::Raw(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
        Script::Silence => drop(stream.read_buf(&mut Vec::new()).await),
    }
    let _ = stream.shutdown().await;
    String::from_utf8(request).unwrap()
}

fn transport(class: TransportClass, code: Option<&'static str>) -> ExchangeError {
    ExchangeError::Transport { class, code: code.map(Cow::Borrowed) }
}

const PATIENT: ExchangeBounds =
    ExchangeBounds { connect: Duration::from_secs(60), whole: Duration::from_secs(60) };

/// SES-03, ARC-07: one POST of the envelope to `/typedrequest` at the origin.
#[tokio::test]
async fn a_bearer_is_exchanged_for_an_identity() {
    let server = Server::start(vec![Script::Http("200 OK", answer(&success(IDENTITY)))]).await;
    let identity = server.exchange(PATIENT).await.ok().unwrap();
    assert_eq!(identity.raw.expose(), IDENTITY);
    while server.requests.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let request = server.requests.lock().unwrap()[0].clone();
    let head = request.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    assert!(head.starts_with("post /typedrequest http/1.1\r\n"), "{head}");
    for header in [
        format!("host: {}", server.url.authority()),
        "content-type: application/json".into(),
        "accept: application/json".into(),
        "connection: close".into(),
    ] {
        assert!(head.lines().any(|line| line == header), "{header} in {head}");
    }
    assert!(!head.contains("accept-encoding"), "{head}");
}

/// START-18, SES-20: a refusal in the envelope, a foreign role and an expired identity.
#[tokio::test]
async fn cloudly_s_refusals_are_told_apart() {
    let refused = r#""error":{"data":{},"text":"identity-token-refused: marked"},"response":null"#;
    for (rest, expected) in [
        (refused.to_owned(), ExchangeError::Refused(Refusal::IdentityTokenRefused)),
        (
            success(&IDENTITY.replace("\"cluster\"", "\"admin\"")),
            ExchangeError::Unusable { path: "response.identity.role", fault: AnswerFault::Unfit },
        ),
        (
            success(&IDENTITY.replace("1800000000001", "1800000000000")),
            ExchangeError::Unusable { path: "response.identity.expiresAt", fault: AnswerFault::Expired },
        ),
    ] {
        let server = Server::start(vec![Script::Http("200 OK", answer(&rest))]).await;
        assert_eq!(server.error(PATIENT).await, expected);
    }
}

/// SES-16: each failure of the transport by class and code.
#[tokio::test]
async fn failures_of_the_transport_have_class_and_code() {
    let not_json = ExchangeError::Unusable { path: "answer", fault: AnswerFault::NotJson };
    let too_long = ExchangeError::Unusable { path: "answer", fault: AnswerFault::TooLong };
    let encoded = ExchangeError::Unusable { path: "answer", fault: AnswerFault::Encoded };
    let html = || "<html>marked 502</html>".to_owned();
    for (script, expected) in [
        (Script::Http("502 Bad Gateway", html()), transport(TransportClass::Http, Some("502"))),
        (
            Script::Http("302 Found\r\nLocation: /marked", html()),
            transport(TransportClass::Http, Some("302")),
        ),
        (
            Script::Http("400 Bad Request", r#"{"error":"marked"}"#.into()),
            transport(TransportClass::Http, Some("400")),
        ),
        (Script::Http("200 OK", html()), not_json),
        (Script::Http("200 OK", " ".repeat(256 * 1024 + 1)), too_long),
        (Script::Http("200 OK\r\nContent-Encoding: gzip", html()), encoded),
        (Script::Raw(""), transport(TransportClass::Closed, None)),
        (
            Script::Raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"marked"),
            transport(TransportClass::Closed, None),
        ),
        (Script::Raw("marked is not HTTP at all\r\n\r\n"), transport(TransportClass::Protocol, None)),
    ] {
        let server = Server::start(vec![script]).await;
        assert_eq!(server.error(PATIENT).await, expected);
    }
}

/// The whole is bounded: a server that never answers ends as a timeout.
#[tokio::test]
async fn a_silent_server_is_given_up() {
    let server = Server::start(vec![Script::Silence]).await;
    let bounds = ExchangeBounds { connect: Duration::from_secs(60), whole: Duration::from_millis(50) };
    assert_eq!(server.error(bounds).await, transport(TransportClass::Timeout, None));
}

/// SES-16: nobody listens.
#[tokio::test]
async fn a_refused_connection_names_the_system_s_code() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = CloudlyUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let error = exchange(&url, &anchors().client_config(), &bearer(), PATIENT, || NOW).await.err().unwrap();
    assert_eq!(error, transport(TransportClass::Connect, Some("ECONNREFUSED")));
    assert_eq!(error.to_string(), "the identity exchange failed: connect (ECONNREFUSED)");
}

/// The contract's `retry`: the same correlation id, another instance id, three times at most.
#[tokio::test]
async fn a_retry_is_followed_three_times_within_the_budget() {
    let again =
        || Script::Http("200 OK", answer(r#""response":null,"retry":{"reason":"marked","waitForMs":0}"#));
    let server =
        Server::start(vec![again(), again(), again(), Script::Http("200 OK", answer(&success(IDENTITY)))])
            .await;
    assert!(server.exchange(PATIENT).await.is_ok());
    while server.requests.lock().unwrap().len() < 4 {
        tokio::task::yield_now().await;
    }
    let bodies: Vec<serde_json::Value> = server
        .requests
        .lock()
        .unwrap()
        .iter()
        .map(|request| serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap())
        .collect();
    let mut instances: Vec<_> = bodies.iter().map(|body| body["requestInstanceId"].to_string()).collect();
    instances.sort();
    instances.dedup();
    assert_eq!(instances.len(), 4);
    assert!(bodies.iter().all(|body| body["correlation"]["id"] == bodies[0]["correlation"]["id"]));

    let server = Server::start(vec![again(), again(), again(), again()]).await;
    assert_eq!(server.error(PATIENT).await, ExchangeError::Postponed);

    let later = answer(r#""response":null,"retry":{"reason":"marked","waitForMs":60000}"#);
    let server = Server::start(vec![Script::Http("200 OK", later)]).await;
    assert_eq!(server.error(PATIENT).await, ExchangeError::Postponed);
}

/// SES-03: over TLS with a trusted chain; an untrusted one is refused before the bearer is sent.
#[tokio::test]
async fn tls_needs_a_trusted_chain() {
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let der = issued.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![der.clone()], key)
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let accept = async || acceptor.accept(listener.accept().await.unwrap().0).await;
        assert!(accept().await.is_err(), "the client leaves an untrusted server");
        let stream = accept().await.unwrap();
        answer_one(stream, Script::Http("200 OK", answer(&success(IDENTITY)))).await
    });

    let url = CloudlyUrl::parse(&format!("https://localhost:{port}")).unwrap();
    let error = exchange(&url, &anchors().client_config(), &bearer(), PATIENT, || NOW).await.err().unwrap();
    assert_eq!(error, transport(TransportClass::Tls, Some("unknown-issuer")));

    let trusting = TrustAnchors { certificates: vec![der.to_vec()], bundled: false };
    let identity = exchange(&url, &trusting.client_config(), &bearer(), PATIENT, || NOW).await;
    assert_eq!(identity.map_err(|error| error.to_string()).ok().unwrap().raw.expose(), IDENTITY);
    assert!(serving.await.unwrap().contains("getIdentityByToken"));
}

/// LOG-01: a bearer without TLS goes to this host only.
#[test]
fn plain_http_leaves_no_host() {
    let addresses =
        ["127.0.0.1:80", "192.0.2.15:80", "[::1]:80", "[2001:db8::1]:80"].map(|a| a.parse().unwrap());
    assert_eq!(connection::permitted(addresses.to_vec(), true), addresses);
    assert_eq!(connection::permitted(addresses.to_vec(), false), [addresses[0], addresses[2]]);
}

/// A dead address does not keep the exchange from the next one.
#[tokio::test]
async fn the_next_address_is_tried() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = closed.local_addr().unwrap();
    drop(closed);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let live = listener.local_addr().unwrap();
    let stream = connection::connect(&[dead, live], Duration::from_secs(60)).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), live);
    let none = connection::connect(&[], Duration::from_secs(60)).await.err();
    assert_eq!(none, Some(transport(TransportClass::Connect, None)));
}

#[tokio::test]
async fn names_and_literals_are_resolved() {
    assert_eq!(resolve("192.0.2.15", 8443).await, Ok(vec!["192.0.2.15:8443".parse().unwrap()]));
    assert_eq!(resolve("2001:db8::1", 1).await, Ok(vec!["[2001:db8::1]:1".parse().unwrap()]));
    let local = resolve("localhost", 80).await.unwrap();
    assert!(local.iter().all(|address| address.ip().is_loopback() && address.port() == 80), "{local:?}");
    assert!(matches!(resolve("no..name", 80).await, Err(ResolveError::NotFound(_))));
}
