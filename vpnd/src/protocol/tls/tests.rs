//! The whole handshake over the loopback interface, by the protocol's own functions.

use std::net::{Ipv4Addr, UdpSocket};

use bytes::Bytes;
use quinn::{Connection, Endpoint, TokioRuntime};

use super::*;
use crate::protocol::{
    control::{Grant, Wish, read_message, write_message},
    noise::{Asked, Asking, StaticKey, binding},
    socket::{Datagrams, probe},
    transport::endpoint_config,
};

fn endpoint(server: Option<quinn::ServerConfig>) -> Endpoint {
    probe();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let socket = Datagrams::over(socket).unwrap();
    Endpoint::new_with_abstract_socket(endpoint_config(), server, socket, Arc::new(TokioRuntime)).unwrap()
}

/// A hub's and a node's end of one connection; the endpoints end with them.
async fn connected() -> (Endpoint, Endpoint, Connection, Connection) {
    let (hub, node) = (endpoint(Some(hub_config().unwrap())), endpoint(None));
    let dial = node.connect_with(node_config().unwrap(), hub.local_addr().unwrap(), SERVER_NAME).unwrap();
    let (hubs, nodes) = tokio::join!(async { hub.accept().await.unwrap().await.unwrap() }, dial);
    (hub, node, hubs, nodes.unwrap())
}

async fn node_side(connection: &Connection, key: &StaticKey, hub: &[u8; 32]) -> Option<Grant> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let binding = binding(connection).unwrap();
    let (asking, first) = Asking::begin(key, hub, &binding, &Wish::of_mtu(1380).encode()).unwrap();
    write_message(&mut send, &first).await.unwrap();
    let second = read_message(&mut receive).await.unwrap();
    let payload = asking.finish(&second).ok()?;
    Some(Grant::decode(&payload).unwrap())
}

async fn hub_side(connection: &Connection, key: &StaticKey, grant: &Grant) -> [u8; 32] {
    let (mut send, mut receive) = connection.accept_bi().await.unwrap();
    let first = read_message(&mut receive).await.unwrap();
    let asked = Asked::read(key, &binding(connection).unwrap(), &first).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(Wish::decode(asked.payload()), Ok(Wish::of_mtu(1380)));
    let node_key = *asked.node_key();
    write_message(&mut send, &asked.answer(&grant.encode()).unwrap()).await.unwrap();
    node_key
}

fn grant() -> Grant {
    Grant::decode(&[
        10, 99, 0, 7, 10, 99, 0, 0, 24, 5, 100, 0, 0, 19, 136, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2,
    ])
    .unwrap()
}

/// VPN-08, VPN-44: QUIC carries the handshake of both ends, and datagrams afterwards.
#[tokio::test]
async fn a_node_and_a_hub_agree_over_quic() {
    let (_hub, _node, hubs, nodes) = connected().await;
    let (hub_key, node_key) = (StaticKey::generate().unwrap(), StaticKey::generate().unwrap());
    let hub_public = hub_key.public();
    let (granted, grant) = (grant(), grant());
    let (received, asked) =
        tokio::join!(node_side(&nodes, &node_key, &hub_public), hub_side(&hubs, &hub_key, &granted));
    assert_eq!((received, asked), (Some(grant), node_key.public()));
    let packet = Bytes::from_static(&[0x45; 1100]);
    nodes.send_datagram(packet.clone()).unwrap();
    assert_eq!(hubs.read_datagram().await.unwrap(), packet);
    hubs.send_datagram(packet.clone()).unwrap();
    assert_eq!(nodes.read_datagram().await.unwrap(), packet);
}

/// Who stands between a node and the hub, and passes their Noise messages on, opens neither session: each
/// of its two TLS sessions has an exporter of its own.
#[tokio::test]
async fn a_man_in_the_middle_opens_nothing() {
    let (_a, _b, middle_of_node, nodes) = connected().await;
    let (_c, _d, hubs, middle_of_hub) = connected().await;
    let (hub_key, node_key) = (StaticKey::generate().unwrap(), StaticKey::generate().unwrap());
    let node_binding = binding(&nodes).unwrap();
    let wish = Wish::of_mtu(1380).encode();
    let (_, first) = Asking::begin(&node_key, &hub_key.public(), &node_binding, &wish).unwrap();
    assert!(Asked::read(&hub_key, &binding(&middle_of_node).unwrap(), &first).is_ok(), "the same session");
    assert!(Asked::read(&hub_key, &binding(&hubs).unwrap(), &first).is_err());
    assert!(Asked::read(&hub_key, &binding(&middle_of_hub).unwrap(), &first).is_err());
}

/// A hub's connection has what the protocol fixes: its ALPN, its suite, and no stream beside the one.
#[tokio::test]
async fn a_connection_speaks_one_protocol_and_one_stream() {
    let (_hub, _node, hubs, nodes) = connected().await;
    let data = hubs.handshake_data().unwrap().downcast::<quinn::crypto::rustls::HandshakeData>().unwrap();
    assert_eq!(data.protocol.as_deref(), Some(PROTOCOL));
    assert_eq!(data.server_name, None, "no name is sent");
    let first = nodes.open_bi().await.unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::pin!(nodes.open_bi()).poll(&mut context).is_pending());
    assert!(std::pin::pin!(nodes.open_uni()).poll(&mut context).is_pending());
    assert!(std::pin::pin!(hubs.open_bi()).poll(&mut context).is_pending());
    drop(first);
}

/// A client of another protocol gets no connection.
#[tokio::test]
async fn another_application_protocol_is_refused() {
    let (hub, node) = (endpoint(Some(hub_config().unwrap())), endpoint(None));
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ProvenByNoise(provider())))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let other = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let dial = node.connect_with(other, hub.local_addr().unwrap(), SERVER_NAME).unwrap();
    let (hubs, nodes) = tokio::join!(async { hub.accept().await.unwrap().await }, dial);
    assert!(hubs.is_err() && nodes.is_err());
}

/// AES-128-GCM goes first, and TLS 1.3 alone.
#[test]
fn the_cheapest_suite_goes_first() {
    let suites = provider().cipher_suites.clone();
    assert_eq!(suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert!(suites.iter().any(|suite| suite.suite() == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256));
}
