//! The ingress against a socket that answers it as a relay would.

use std::net::Ipv4Addr;

use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;

use super::*;
use crate::authority::{Authority, server_config};
use crate::carrier::socket_config;
use crate::cloudly::{Route, route_table};
use crate::https::https_request;
use crate::waiting::within;

/// The relay's end of the ingress's connection.
struct Relay {
    carrier: Carrier,
    events: mpsc::Receiver<Event>,
}

impl Relay {
    async fn next(&mut self) -> Message {
        match within(BOUND, "request of the ingress", self.events.recv()).await.unwrap() {
            Some(Event::Request(message, _)) => message,
            other => panic!("no request but {other:?}"),
        }
    }

    async fn answer(&self, message: &Message, body: &str) {
        self.carrier.send_text(answer(&message.method, body, &message.ids)).await;
    }
}

/// ING-01, ING-19: it registers with its own bearer and offer, pulls with the revision that it applied, after
/// its registration and after each hint, and serves a page by the table that it pulled.
#[tokio::test]
async fn it_registers_pulls_and_serves_by_the_table() {
    let authority = Authority::new();
    let name = "relay.localhost.test";
    let acceptor = TlsAcceptor::from(server_config(&authority.issue(&[name]), &["http/1.1"]));
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let tls = authority.client_config(&["http/1.1"]);
    let address = listener.local_addr().unwrap();
    let target = Target { address, server_name: name.to_owned(), tls: tls.clone() };
    let ingress = ClusterIngress::start(Setup::new(target, "edge-1")).await;
    let (stream, _) = listener.accept().await.unwrap();
    let socket = tokio_tungstenite::accept_async_with_config(
        acceptor.accept(stream).await.unwrap(),
        Some(socket_config()),
    );
    let socket: WebSocketStream<_> = socket.await.unwrap();
    let (carrier, events) = Carrier::start(socket, Role::Server);
    let mut relay = Relay { carrier, events };

    let registration = relay.next().await;
    let body: Value = serde_json::from_str(registration.request()).unwrap();
    assert_eq!(registration.method, "registerClusterIngress");
    assert_eq!(body["authorization"], "ingress-bearer-of-edge-1");
    assert_eq!(body["protocol"], Offer::new("33.1.0", "32.0.0").json());
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(4));
    relay.answer(&registration, "{}").await;
    let pull = relay.next().await;
    assert_eq!(pull.request(), r#"{"appliedRevision":null}"#);
    relay.answer(&pull, r#"{"routeTable":null}"#).await;
    ingress.wait_pulled(1).await.unwrap();

    let service = Destination::start("a page").await;
    let certificate = authority.issue(&["shop.example.test"]);
    let route =
        Route { host: "shop.example.test", destination: service.address(), certificate: &certificate };
    for (revision, former) in [(1_u64, "null"), (2, "1")] {
        let hint = format!(r#"{{"revision":{revision}}}"#);
        let carrier = relay.carrier.clone();
        let hinted = tokio::spawn(async move { carrier.call(HINT, &hint, PATIENCE).await });
        let pull = relay.next().await;
        assert_eq!(hinted.await.unwrap().unwrap().response(), "{}");
        assert_eq!(pull.request(), format!(r#"{{"appliedRevision":{former}}}"#));
        relay.answer(&pull, &format!(r#"{{"routeTable":{}}}"#, route_table(revision, &[route]))).await;
        ingress.wait_applied(revision).await.unwrap();
    }
    let host = |server_name: &str| Target {
        address: ingress.address(),
        server_name: server_name.to_owned(),
        tls: tls.clone(),
    };
    let page = https_request(&host("shop.example.test"), "GET", "/", &[], "").await.unwrap();
    assert_eq!((page.status, &page.body[..]), (200, &b"a page"[..]));
    assert!(https_request(&host("other.example.test"), "GET", "/", &[], "").await.is_err());
}
