//! The one listener on the cluster side, as nodes, pulls and strangers meet it (LIS).

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use coreflow_tests::carrier::Carrier;
use coreflow_tests::cloudly::Step;
use coreflow_tests::dial::{DialFailure, Target, tls, websocket};
use coreflow_tests::envelope::{Ids, Message, UNKNOWN_METHOD, request};
use coreflow_tests::https::https_request;
use coreflow_tests::raw_socket::{RawSocket, Received};
use coreflow_tests::sockets::end_listener;
use coreflow_tests::waiting::{BOUND, within};
use http::Version;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::protocol::Role;

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const MIB: usize = 1 << 20;
const MATERIAL: &str = "getRuntimeSecretMaterial";
const UPGRADE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends a request head and gives the head of the answer, in lower case.
async fn answered_head(target: &Target, request: &str) -> String {
    let mut stream = tls(target).await.expect("a TLS connection");
    stream.write_all(request.as_bytes()).await.expect("the head is taken");
    let mut head = Vec::new();
    let read = async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("the head is whole"));
        }
    };
    within(BOUND, "head of an answer", read).await.expect("in time");
    String::from_utf8(head).expect("a head is text").to_lowercase()
}

fn registration(node: &str) -> String {
    json!({
        "protocol": {"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"},
        "authorization": format!("pallet-bearer-of-{node}"),
        "nodeId": node,
        "nodeInstanceNonce": "nonce",
        "credentialGeneration": 1,
    })
    .to_string()
}

/// Registers `node` on a raw socket and gives its binding.
async fn register(socket: &mut RawSocket, node: &str) -> Value {
    socket.send_text(request("registerPalletRuntimeSession", &registration(node), &Ids::fresh())).await;
    let Received::Text(answer) = socket.next(BOUND).await.expect("an answer") else { panic!("no answer") };
    let answer = Message::parse(&answer).expect("an envelope").outcome().expect("a binding");
    serde_json::from_str::<Value>(answer.get()).expect("JSON")["session"].clone()
}

/// LIS-01, LIS-03, LIS-06: a WebSocket at `/`, whether or not the client speaks of protocols in TLS; an
/// offered extension is declined and the first offered subprotocol taken.
#[tokio::test]
async fn a_node_upgrades_at_the_root_with_and_without_alpn() {
    let scene = Scene::open(|_| {}).await;
    for alpn in [&["http/1.1"][..], &[]] {
        let mut socket = RawSocket::connect(&scene.setup.target_offering(alpn)).await.unwrap();
        socket.ping(b"are you there").await;
        assert_eq!(socket.next(BOUND).await.unwrap(), Received::Pong(b"are you there".to_vec()));
    }
    let head = answered_head(
        &scene.setup.target(),
        &format!(
            "GET / HTTP/1.1\r\nhost: relay\r\n{UPGRADE}sec-websocket-protocol: one, two\r\n\
             sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
        ),
    )
    .await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    assert!(head.contains("sec-websocket-protocol: one\r\n"), "{head}");
    assert!(!head.contains("sec-websocket-extensions"), "{head}");
}

/// LIS-03, LIS-05, LIS-06: everything beside the upgrade is the pull endpoint or refused by name, over
/// HTTP/1.1 and HTTP/2.
#[tokio::test]
async fn other_requests_are_refused_by_name() {
    let scene = Scene::open(|_| {}).await;
    for (alpn, version) in [(&["http/1.1"][..], Version::HTTP_11), (&["h2"], Version::HTTP_2)] {
        let target = scene.setup.target_offering(alpn);
        for (method, path, status, name) in [
            ("GET", "/", 404, "pull-path-refused"),
            ("POST", "/", 404, "pull-path-refused"),
            ("GET", "/metrics", 404, "pull-path-refused"),
            ("POST", "/typedrequest", 404, "pull-path-refused"),
            ("GET", "/control/status", 404, "pull-path-refused"),
            ("GET", "/v2x/", 404, "pull-path-refused"),
            ("POST", "/v2/", 405, "pull-method-refused"),
            ("DELETE", "/v2/library/image/manifests/latest", 405, "pull-method-refused"),
        ] {
            let answer = https_request(&target, method, path, &[], "").await.unwrap();
            assert_eq!((answer.version, answer.status), (version, status), "{method} {path}");
            assert_eq!(answer.headers["content-type"], "application/json");
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            let error = &body["errors"][0];
            assert_eq!(error["code"], json!("UNSUPPORTED"));
            assert!(error["message"].as_str().unwrap().starts_with(&format!("{name}: ")), "{error}");
            if status == 405 {
                assert_eq!(answer.headers["allow"], "GET, HEAD");
            }
        }
    }
    for path in ["/other", "/v3/"] {
        let failure = websocket(&scene.setup.target(), path, &[]).await.err();
        assert_eq!(failure, Some(DialFailure::Status(404)), "{path}");
    }
    // An upgrade of another version, and one without a key.
    let head = answered_head(
        &scene.setup.target(),
        &format!("GET / HTTP/1.1\r\nhost: relay\r\n{}\r\n", UPGRADE.replace(": 13", ": 8")),
    )
    .await;
    assert!(head.starts_with("http/1.1 426 ") && head.contains("sec-websocket-version: 13"), "{head}");
}

/// Contract, section 1: a frame that is no request gets no answer; the socket stays and is served.
#[tokio::test]
async fn frames_of_a_node_that_are_no_requests_are_passed_over() {
    let scene = Scene::open(|_| {}).await;
    let mut socket = RawSocket::connect(&scene.setup.target()).await.unwrap();
    for text in ["not json", "[]", "7", r#"{"method":"x","request":{}}"#] {
        socket.send_text(text).await;
    }
    socket.send_binary(vec![0xc3, 0x28]).await;
    for _ in 0..20 {
        socket.send_text("{").await;
    }
    // A binary frame with an envelope is a request; its answer is the first one.
    let ids = Ids { correlation: "a-test's".to_owned(), instance: None };
    socket.send_binary(request("noSuchMethod", "{}", &ids).into_bytes()).await;
    let Received::Text(answer) = socket.next(BOUND).await.unwrap() else { panic!("no answer") };
    let answer = Message::parse(&answer).unwrap();
    assert_eq!((&answer.ids, answer.outcome().unwrap_err().text.as_str()), (&ids, UNKNOWN_METHOD));
    register(&mut socket, "node-1").await;
    let line = "a node sent what is no request; it got no answer";
    scene.wait_lines(line, 1).await;
    let told = scene.count(line);
    assert!((1..=10).contains(&told), "a rate-limited line: {told}");
}

/// Contract, section 1; FWD-39: up to 16 MiB are carried; more closes the socket with 1009.
#[tokio::test]
async fn a_message_over_sixteen_mebibytes_closes_the_socket_with_1009() {
    let scene = Scene::open(|cloudly| cloudly.always(MATERIAL, Step::Answer("{}".to_owned()))).await;
    let mut socket = RawSocket::connect(&scene.setup.target()).await.unwrap();
    socket.send_text(" ".repeat(16 * MIB + 1)).await;
    assert_eq!(socket.closed(BOUND).await.unwrap(), Some(1009));

    let stream = websocket(&scene.setup.target(), "/", &[]).await.unwrap();
    let (carrier, _events) = Carrier::start(stream, Role::Client);
    let answer = carrier.call("registerPalletRuntimeSession", &registration("node-1"), BOUND).await.unwrap();
    let answer: Value = serde_json::from_str(answer.outcome().unwrap().get()).unwrap();
    let binding = &answer["session"];
    let body = format!(r#"{{"session":{binding},"large":"{}"}}"#, r"\u00e9xyz".repeat(15 * MIB / 9));
    carrier.call(MATERIAL, &body, BOUND).await.unwrap().outcome().unwrap();
    assert!(scene.cloudly.calls_of(MATERIAL)[0].body() == body, "the bodies differ");
}

/// A connection that never finishes TLS, or never asks for anything, is dropped after ten seconds; two
/// hundred of them keep no node waiting.
#[tokio::test]
async fn connections_that_stall_are_dropped_and_keep_nobody_waiting() {
    let scene = Scene::open(|_| {}).await;
    let address = scene.setup.target().address;
    let begin = Instant::now();
    let mut stalled = JoinSet::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stalled.spawn(async move {
            // An end in order and a reset are both an end.
            drop(stream.read_u8().await);
            begin.elapsed()
        });
    }
    for half in ["", "GET / HTTP/1.1\r\nhost:", &format!("GET / HTTP/1.1\r\nhost: relay\r\n{UPGRADE}")] {
        let mut stream = tls(&scene.setup.target()).await.unwrap();
        stream.write_all(half.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stalled.spawn(async move {
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest).await);
            assert!(!String::from_utf8_lossy(&rest).contains("101"), "an upgrade without its end");
            begin.elapsed()
        });
    }
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    assert!(begin.elapsed() < Duration::from_secs(8), "the node had to wait: {:?}", begin.elapsed());
    assert!(stalled.try_join_next().is_none(), "a connection was dropped early");
    while let Some(ended) = within(BOUND, "end of a stalled connection", stalled.join_next()).await.unwrap() {
        let after = ended.unwrap();
        assert!(after > Duration::from_millis(9500) && after < Duration::from_secs(13), "{after:?}");
    }
    assert_eq!(node.closes().len(), 0);
}

/// LIS-02, LIS-22, RET-05: neither router answers a method of the other, and a hold is Cloudly's alone.
#[tokio::test]
async fn the_two_routers_do_not_answer_for_one_another() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    let body = format!(r#"{{"session":{}}}"#, node.binding().unwrap());
    for (method, text) in [
        ("holdRuntimeNetworkDnsLeaseRenewals", "escrow-cloudly-only"),
        ("applyRuntimeAssignment", UNKNOWN_METHOD),
        ("pushClusterConfig", UNKNOWN_METHOD),
        ("registerCloudlyClientSession", UNKNOWN_METHOD),
        ("registerClusterRelay", UNKNOWN_METHOD),
        ("getIdentityByToken", UNKNOWN_METHOD),
        ("triggerServerAction", UNKNOWN_METHOD),
    ] {
        let refusal = node.request(method, &body).await.unwrap().outcome().unwrap_err();
        assert_eq!((refusal.text.as_str(), refusal.data), (text, json!({})), "{method}");
    }
    for method in ["registerPalletRuntimeSession", MATERIAL, "getRuntimeRegistryCredential"] {
        let refusal = scene.cloudly.push(method, &body).await.unwrap().outcome().unwrap_err();
        assert_eq!((refusal.text.as_str(), refusal.data), (UNKNOWN_METHOD, json!({})), "{method}");
    }
    assert_eq!(node.pushes().len(), 0);
}

/// LIS-19, LIS-20: a changed or vanished relay block is reported once and not adopted.
#[tokio::test]
async fn a_changed_relay_block_is_reported_and_not_adopted() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    let published = [
        (Some(json!({"origin": "https://elsewhere.test:9443"})), "origin https://elsewhere.test:9443"),
        (None, "no relay block"),
        (Some(json!({"origin": "http://plain.test"})), "an invalid relay block (relay.origin: "),
    ];
    for (block, words) in published {
        scene.cloudly.change(|settings| settings.relay_block = block);
        for _ in 0..2 {
            let answer = scene.cloudly.push("pushClusterConfig", &scene.cloudly.config()).await.unwrap();
            assert_eq!(answer.outcome().unwrap().get(), "{}");
        }
        let line = format!("relay-block-changed: Cloudly publishes {words}");
        scene.wait_lines(&line, 1).await;
        let told = scene.relay.wait_line(&line).await.unwrap().text;
        let kept = format!("this relay started with origin {} and keeps serving it", scene.setup.origin());
        assert!(told.contains(&kept), "{told}");
        assert_eq!(scene.count(&line), 1);
        scene.assert_carried(&node).await;
    }
    scene.wait_status("open for Cloudly dispatch").await;
    RawSocket::connect(&scene.setup.target()).await.unwrap();
    assert_eq!((node.closes().len(), scene.count("relay-block-changed")), (0, 3));
}

/// The inodes of the sockets that a process holds.
fn sockets_of(pid: u32) -> BTreeSet<String> {
    let directory = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("the descriptors of a process that hides itself can be read by root alone");
    let inode = |entry: std::io::Result<std::fs::DirEntry>| {
        let link = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    directory.filter_map(inode).collect()
}

/// The local ports of the host's sockets in `table`, of those with one of `inodes` and in `state`.
fn ports(table: &str, state: &str, inodes: &BTreeSet<String>) -> Vec<u16> {
    let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    let rows = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row[3] == state && inodes.contains(row[9]));
    let port = |row: Vec<&str>| {
        let (_, port) = row[1].rsplit_once(':').expect("an address has a port");
        u16::from_str_radix(port, 16).expect("a port is hexadecimal")
    };
    own.map(port).collect()
}

/// LIS-01, LIS-27, ARC-11: of all the relay's processes' sockets one listens, on the listener's port.
#[tokio::test]
async fn the_listeners_port_is_the_only_one() {
    let scene = Scene::open(|_| {}).await;
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    let mut processes: Vec<u32> = scene.relay.workers().into_values().collect();
    processes.push(scene.relay.pid());
    let inodes: BTreeSet<String> = processes.into_iter().flat_map(sockets_of).collect();
    assert!(!ports("tcp", "01", &inodes).is_empty(), "the session's connection is seen");
    let listening: BTreeSet<u16> =
        ["tcp", "tcp6"].into_iter().flat_map(|table| ports(table, "0A", &inodes)).collect();
    assert_eq!(listening, BTreeSet::from([scene.setup.port]));
    let datagrams: Vec<u16> =
        ["udp", "udp6"].into_iter().flat_map(|table| ports(table, "07", &inodes)).collect();
    assert!(datagrams.is_empty(), "{datagrams:?}");
    assert!(TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, scene.setup.port)).is_err());
}

/// ARC-18, LIS-23: a listener that was ended, as any relayd that is taken over can do, is not served on: that relayd ends by
/// name, and the next one serves nodes at the same address.
#[tokio::test]
async fn a_listener_that_was_ended_is_bound_anew_and_served() {
    let scene = Scene::open(|_| {}).await;
    let relayd = scene.relay.workers()["relayd"];
    end_listener(relayd, scene.setup.port).expect("this test reaches into relayd: run it as root");
    scene.relay.wait_line("listener-ended: its socket does not listen any more").await.unwrap();
    scene.relay.wait_worker("relayd", Some(relayd)).await.unwrap();
    scene.relay.wait_line("the listener was ended by whom it was lent to: it is bound anew").await.unwrap();
    scene.relay.wait_line("relayd serves again").await.unwrap();
    let mut socket = RawSocket::connect(&scene.setup.target()).await.unwrap();
    register(&mut socket, "node-1").await;
}

/// A node that does not read while Cloudly pushes is closed once its queue is full, with a line; what was
/// pushed to it is refused by name, and others are served meanwhile.
#[tokio::test]
async fn a_node_that_does_not_read_is_closed_and_delays_nobody() {
    let scene = Scene::open(|_| {}).await;
    let other = scene.node("node-2").await;
    let mut mute = RawSocket::connect(&scene.setup.target()).await.unwrap();
    let binding = register(&mut mute, "node-1").await;
    let body = format!(r#"{{"session":{binding},"large":"{}"}}"#, "x".repeat(MIB / 8));
    let line = "a node does not take what it is sent; its socket is closed";
    let carrier = scene.cloudly.carrier().unwrap();
    let mut pushes = JoinSet::new();
    while scene.count(line) == 0 {
        assert!(pushes.len() < 2000, "a quarter of a gigabyte was taken");
        for _ in 0..50 {
            let (carrier, body) = (carrier.clone(), body.clone());
            pushes.spawn(async move { carrier.call("applyRuntimeAssignment", &body, BOUND).await });
        }
        let begin = Instant::now();
        scene.assert_carried(&other).await;
        assert!(begin.elapsed() < Duration::from_secs(5), "another node had to wait");
    }
    while let Some(push) = pushes.join_next().await {
        let refusal = push.unwrap().unwrap().outcome().unwrap_err();
        assert_eq!(refusal.text, "relay-node-not-connected: node node-1 is not connected to this relay");
    }
    scene.assert_carried(&other).await;
    assert_eq!((other.closes().len(), scene.cloudly.connections_seen()), (0, 1));
    // It may come back at once.
    let mut again = RawSocket::connect(&scene.setup.target()).await.unwrap();
    register(&mut again, "node-1").await;
}
