//! The registry against a client of its own, at a loopback Cloudly's origin.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::authority::Authority;
use crate::cloudly::{Cloudly, Settings};
use crate::dial::{Target, tls};
use crate::https::{HttpFailure, https_request};

async fn bed(registry: &Registry) -> (Cloudly, Target) {
    let authority = Authority::new();
    let settings = Settings { alpn: &["h2", "http/1.1"], ..Settings::default() };
    let cloudly = Cloudly::start(&authority, settings).await;
    cloudly.pulls_from(registry);
    let target = Target {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, cloudly.port())),
        server_name: "localhost".to_owned(),
        tls: authority.client_config(&["http/1.1"]),
    };
    (cloudly, target)
}

/// Heads are kept as they came, what follows a head is the next one, the connection goes on, and Cloudly's own
/// requests do not come here.
#[tokio::test]
async fn it_keeps_heads_as_they_came() {
    let registry = Registry::default();
    registry.answer(reply("200 OK", &[("X-Own", "1")], b"ok"));
    let (_cloudly, target) = bed(&registry).await;
    let mut stream = tls(&target).await.unwrap();
    let requests = "GET /v2/a?x=%2F HTTP/1.1\r\nHost: one\r\naCCept: a, b\r\nAccept:  c \r\nAuthorization: t\r\n\
                    \r\nHEAD /admin HTTP/1.1\r\n\r\n";
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut answers = [0; 2 * "HTTP/1.1 200 OK\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nok".len()];
    stream.read_exact(&mut answers).await.unwrap();
    assert!(answers.ends_with(b"Content-Length: 2\r\n\r\nok"));
    let asked = registry.asked();
    assert_eq!(
        (asked.len(), asked[0].target.as_str(), asked[1].target.as_str()),
        (2, "/v2/a?x=%2F", "/admin")
    );
    assert_eq!(asked[0].all("accept"), ["a, b", "c"]);
    assert_eq!(asked[0].headers[1].0, "aCCept");
    assert_eq!(
        format!("{:?}", asked[0]),
        r#"GET /v2/a on connection 1 with ["host", "accept", "accept", "authorization"]"#
    );
    assert_eq!((registry.connections(), registry.open_connections()), (1, 1));
    drop(stream);
    registry.wait_open_connections(0).await.unwrap();
    let own = https_request(&target, "POST", "/typedrequest", &[], "{}").await.unwrap();
    assert_eq!((own.status, registry.count()), (400, 2));
}

/// A body that is cut reaches the client as one, and a client that leaves is seen.
#[tokio::test]
async fn it_cuts_and_sees_who_leaves() {
    let registry = Registry::default();
    registry.script(|mut exchange| async move {
        exchange.send(head("200 OK", &[("Content-Length", "10")])).await.ok()?;
        exchange.send("12345").await.ok()?;
        if exchange.asked.target == "/v2/cut" {
            return exchange.cut();
        }
        exchange.left().await;
        exchange.close().await
    });
    let (_cloudly, target) = bed(&registry).await;
    let failure = https_request(&target, "GET", "/v2/cut", &[], "").await.unwrap_err();
    assert!(matches!(failure, HttpFailure::Broken(_)), "{failure}");
    let mut stream = tls(&target).await.unwrap();
    stream.write_all(b"GET /v2/stay HTTP/1.1\r\n\r\n").await.unwrap();
    registry.wait_open_connections(1).await.unwrap();
    registry.wait_asked(2).await.unwrap();
    drop(stream);
    registry.wait_open_connections(0).await.unwrap();
}

/// Over HTTP/2 it records and answers too, and breaks a stream off.
#[tokio::test]
async fn it_speaks_h2() {
    let registry = Registry::default();
    registry.over_h2(|asked| {
        let answer = H2Answer::new(206).header("x-own", "1").body("part");
        if asked.target == "/v2/cut" { answer.broken() } else { answer }
    });
    let (cloudly, mut target) = bed(&registry).await;
    let authority = Authority::new();
    let own = authority.issue(&["localhost"]);
    cloudly.change(|settings| settings.own_certificate = Some(own));
    target.tls = authority.client_config(&["h2"]);
    let answer = https_request(&target, "GET", "/v2/a?b", &[("accept", "x")], "").await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (206, &b"part"[..]));
    let asked = registry.last();
    assert_eq!((asked.target.as_str(), asked.version.as_str()), ("/v2/a?b", "HTTP/2.0"));
    assert_eq!((asked.get(":authority"), asked.get("accept")), (Some(&cloudly.url()[8..]), Some("x")));
    assert!(https_request(&target, "GET", "/v2/cut", &[], "").await.is_err());
}

/// A connection can be passed on to a registry of another kind, with TLS and without.
#[tokio::test]
async fn a_registry_elsewhere_is_passed_to() {
    let registry = Registry::default();
    registry.answer(reply("200 OK", &[], b"far"));
    let (far, _) = bed(&registry).await;
    let (near, target) = bed(&Registry::default()).await;
    near.pass_pulls_to(SocketAddr::from((Ipv4Addr::LOCALHOST, far.port())), true);
    let answer = https_request(&target, "GET", "/v2/x", &[], "").await.unwrap();
    assert_eq!((&answer.body[..], registry.last().target.as_str()), (&b"far"[..], "/v2/x"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    near.pass_pulls_to(listener.local_addr().unwrap(), false);
    let plain = registry.clone();
    tokio::spawn(async move { plain.serve(Box::new(listener.accept().await.unwrap().0)).await });
    let answer = https_request(&target, "GET", "/v2/plain", &[], "").await.unwrap();
    assert_eq!((&answer.body[..], registry.last().target.as_str()), (&b"far"[..], "/v2/plain"));
}
