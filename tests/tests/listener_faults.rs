//! What strangers and broken peers do to the listener, and that nobody else feels it: connections without
//! end that ask for nothing, descriptors that run out, frames that are no messages, ids that repeat, peers
//! that vanish.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coreflow_tests::black_hole::BlackHole;
use coreflow_tests::cloudly::{Gate, Step};
use coreflow_tests::dial::Target;
use coreflow_tests::envelope::{Ids, Message, request};
use coreflow_tests::raw_socket::{RawSocket, Received};
use coreflow_tests::registry::Registry;
use coreflow_tests::stranger::Stranger;
use coreflow_tests::waiting::{BOUND, poll, within};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

#[path = "scene/scene.rs"]
mod scene;

use scene::Scene;

const REGISTER: &str = "registerPalletRuntimeSession";
const REPORT: &str = "reportRuntimeAssignmentObservation";
const SHARE: &str = "listener-share-held";

/// A relay that may open so many files. Of those past 128 a fourth are places of connections on their way, an
/// eighth are for pulls, whose places are half as many, since each takes two, and the rest are places of nodes;
/// an address may hold a fourth of each.
async fn small(open_files: u32) -> Scene {
    let scene = Scene::start(|_, mut setup| {
        setup.open_files = Some(open_files);
        setup
    })
    .await;
    scene.relay.wait_open().await.expect("the relay opens");
    scene.cloudly.wait_accepted(1).await.expect("Cloudly accepts the relay");
    scene
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

async fn answer(socket: &mut RawSocket) -> Message {
    loop {
        match socket.next(BOUND).await.expect("an answer in time") {
            Received::Text(text) => return Message::parse(&text).expect("an envelope"),
            Received::Pong(_) | Received::Ping(_) => {}
            other => panic!("no answer but {other:?}"),
        }
    }
}

async fn register(socket: &mut RawSocket, node: &str) -> Value {
    socket.send_text(request(REGISTER, &registration(node), &Ids::fresh())).await;
    let answer = answer(socket).await.outcome().expect("a binding");
    serde_json::from_str::<Value>(answer.get()).expect("JSON")["session"].clone()
}

/// Three thousand connections of one address that say nothing, or half a TLS record, each replaced by a new
/// one as soon as it ends: a node of another address gets in and is served meanwhile, and so is the one that
/// was there. A few lines name the address.
#[tokio::test]
async fn thousands_of_silent_connections_without_end_keep_no_node_out() {
    let scene = Scene::open(|_| {}).await;
    let before = scene.node("node-1").await;
    let mut silent = JoinSet::new();
    let begin = Instant::now();
    let (tried, stop) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
    for number in 0..3000_u32 {
        let stranger = Stranger::new(scene.setup.target(), 2);
        let (tried, mut stop) = (tried.clone(), stop.subscribe());
        silent.spawn(async move {
            let again = async {
                loop {
                    if let Ok(mut stream) = stranger.tcp().await {
                        tried.fetch_add(1, Ordering::Relaxed);
                        if number % 2 == 0 {
                            drop(stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await);
                        }
                        drop(stream.read_u8().await);
                    }
                    // A stranger's own pace; nothing waits for it.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            tokio::select! { () = again => {}, _ = stop.wait_for(|stop| *stop) => {} }
        });
    }
    let opened = || (tried.load(Ordering::Relaxed) >= 4000).then_some(());
    poll(BOUND, "flood of four thousand connections", opened).await.unwrap();
    scene.wait_lines(SHARE, 1).await;
    let node = scene.node("node-2").await;
    for _ in 0..5 {
        scene.assert_carried(&node).await;
        scene.assert_carried(&before).await;
    }
    let lines = scene.count(SHARE);
    let most = 6 + usize::try_from(begin.elapsed().as_secs()).unwrap();
    assert!(lines <= most, "{lines} lines");
    let told = scene.relay.wait_line(SHARE).await.unwrap().text;
    assert!(told.contains("127.0.0.2 holds its share"), "{told}");
    stop.send_replace(true);
    while silent.join_next().await.is_some() {}
    assert_eq!((node.closes().len(), before.closes().len()), (0, 0));
}

/// A connection that has finished TLS and asks for nothing, or for half of something, counts as one on its
/// way: an address has its share of those, and what is beyond is closed at once; nodes of other addresses
/// get in.
#[tokio::test]
async fn a_connection_that_stalls_after_tls_counts_as_on_its_way() {
    // 32 places of connections on their way: eight for an address.
    let scene = small(256).await;
    let stranger = Stranger::new(scene.setup.target(), 2);
    let mut stalled = JoinSet::new();
    for number in 0..24 {
        let half = ["", "GET / HTTP/1.1\r\nhost:", "GET /v3/ HTTP/1.1\r\nhost: relay\r\n\r\n"][number % 3];
        // Beyond the share TLS may not even begin.
        let Ok(mut stream) = stranger.tls().await else { continue };
        let begin = Instant::now();
        stalled.spawn(async move {
            drop(stream.write_all(half.as_bytes()).await);
            drop(stream.flush().await);
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest).await);
            begin.elapsed()
        });
    }
    let held = || sockets_from(2, scene.setup.port) <= 8;
    poll(BOUND, "share of an address", || held().then_some(())).await.unwrap();
    scene.wait_lines(SHARE, 1).await;
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    while let Some(ended) = within(BOUND, "end of a stalled connection", stalled.join_next()).await.unwrap() {
        let lasted = ended.unwrap();
        assert!(lasted < Duration::from_secs(13), "{lasted:?}");
    }
    assert_eq!(node.closes().len(), 0);
}

/// How many connections of 127.0.0.`last` to `port` stand, as the kernel lists them.
fn sockets_from(last: u8, port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel lists its sockets");
    let (local, remote) = (format!("0100007F:{port:04X}"), format!("{last:02X}00007F:"));
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1] == local && row[2].starts_with(&remote) && row[3] == "01").count()
}

/// Pulls of many addresses that stay open: as many connections stand as there are places, the one that made
/// room is closed, and a node gets in.
#[tokio::test]
async fn pulls_of_many_addresses_keep_within_their_places() {
    // Eight places of pulls, two for an address.
    let scene = small(256).await;
    scene.cloudly.pulls_from(&Registry::default());
    let (mut held, mut served) = (JoinSet::new(), 0);
    for last in (2..6).flat_map(|last| [last, last]).chain(6..14) {
        let mut stream = Stranger::new(scene.setup.target(), last).tls().await.expect("TLS");
        stream.write_all(b"GET /v2/ HTTP/1.1\r\nhost: relay\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 4096];
        let length = within(BOUND, "answer to a pull", stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        // A place is one whether or not pulld has started by now.
        if answer.starts_with("HTTP/1.1 200 ") || answer.contains("pull-worker-unavailable") {
            served += 1;
            held.spawn(async move { drop(stream.read_u8().await) });
        } else {
            assert!(answer.contains("pull-connections-full"), "{answer}");
        }
    }
    assert_eq!(served, 12, "four of eight newcomers found an address that held two");
    let within_places = || {
        let standing: usize = (2..14).map(|last| sockets_from(last, scene.setup.port)).sum();
        (standing <= 8).then_some(())
    };
    poll(BOUND, "connections within the places", within_places).await.unwrap();
    for _ in 8..served {
        within(BOUND, "end of a connection that made room", held.join_next()).await.unwrap();
    }
    assert_eq!(held.len(), 8, "only what made room was closed");
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
}

/// Contract, section 1: on a socket that no node is carried on a message is 256 KiB at most, and what is
/// beyond closes it with 1009 before the message is whole; a registration of that size is carried, and then
/// what is larger.
#[tokio::test]
async fn a_socket_that_registers_nobody_cannot_make_the_relay_hold_large_messages() {
    const LIMIT: usize = 256 << 10;
    let scene = Scene::open(|_| {}).await;
    let mut whole = RawSocket::connect(&scene.setup.target()).await.unwrap();
    whole.send_text(" ".repeat(LIMIT + 1)).await;
    assert_eq!(whole.closed(BOUND).await.unwrap(), Some(1009));
    let mut parts = RawSocket::connect(&scene.setup.target()).await.unwrap();
    for kind in [Data::Text, Data::Continue] {
        parts.send_frame(Frame::message(vec![b' '; LIMIT / 2 + 1], OpCode::Data(kind), false)).await;
    }
    assert_eq!(parts.closed(BOUND).await.unwrap(), Some(1009));

    let mut socket = RawSocket::connect(&scene.setup.target()).await.unwrap();
    let padding = |body: &str, length: usize| {
        body.replacen('{', &format!(r#"{{"padding":"{}","#, "x".repeat(length)), 1)
    };
    socket.send_text(request(REGISTER, &padding(&registration("node-1"), LIMIT - 1024), &Ids::fresh())).await;
    let bound = answer(&mut socket).await.outcome().expect("a binding");
    let bound: Value = serde_json::from_str(bound.get()).unwrap();
    let body = padding(&format!(r#"{{"session":{}}}"#, bound["session"]), 2 * LIMIT);
    socket.send_text(request(REPORT, &body, &Ids::fresh())).await;
    answer(&mut socket).await.outcome().expect("Cloudly's answer");
    assert_eq!(scene.cloudly.calls_of(REPORT)[0].body(), body);
}

/// Sockets that register nobody: an address has its share of them, and an upgrade beyond it is answered with
/// 503 or takes the place of one that had its time. One that registers counts no more. Nodes of other
/// addresses get in.
#[tokio::test]
async fn sockets_that_register_nobody_take_no_place_of_a_node() {
    // 80 places of nodes: twenty for an address.
    let scene = small(256).await;
    let stranger = Stranger::new(scene.setup.target(), 2);
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..30 {
        match stranger.socket().await.expect("TLS and an answer") {
            Ok(socket) => open.push(RawSocket::over(socket)),
            Err(status) => {
                assert_eq!(status, 503);
                refused += 1;
            }
        }
    }
    assert!(open.len() >= 20, "{} were opened", open.len());
    let share = || (sockets_from(2, scene.setup.port) <= 20).then_some(());
    poll(BOUND, "share of an address", share).await.unwrap();
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    if refused > 0 {
        scene.wait_lines(SHARE, 1).await;
    }
    // The youngest has its place still; carried, it makes room for another of its address.
    let mut youngest = open.pop().unwrap();
    register(&mut youngest, "node-2").await;
    RawSocket::over(stranger.socket().await.unwrap().expect("a place"));
    for _ in 0..12 {
        open.extend(stranger.socket().await.unwrap().map(RawSocket::over));
    }
    youngest.ping(b"still").await;
    assert_eq!(youngest.next(BOUND).await.unwrap(), Received::Pong(b"still".to_vec()));
}

/// Few descriptors, and strangers of many addresses who take every place there is: the session with Cloudly
/// comes back, the carried node is served, a node gets in, and again once the strangers are gone (SES-09).
#[tokio::test]
async fn a_full_listener_takes_nothing_from_the_session() {
    // 64 places in all, 40 of nodes.
    let scene = small(128).await;
    let line =
        scene.relay.wait_line("the listener has places under a limit of 128 open files").await.unwrap();
    assert!(line.text.contains("nodes=40"), "{}", line.text);
    let node = scene.node("node-1").await;
    let mut taken = Vec::new();
    let mut silent = Vec::new();
    for last in 2..20 {
        let stranger = Stranger::new(scene.setup.target(), last);
        for _ in 0..4 {
            if let Ok(Ok(socket)) = stranger.socket().await {
                taken.push(socket);
            }
        }
        for _ in 0..4 {
            silent.extend(stranger.tcp().await);
        }
    }
    scene.wait_lines("listener-", 1).await;
    scene.assert_carried(&node).await;
    for round in 2..4 {
        scene.cloudly.drop_connections();
        scene.cloudly.wait_accepted(round).await.expect("the session comes back");
        let round = usize::try_from(round).unwrap();
        node.wait_registered(round).await.expect("the node is asked to register again, and gets in");
    }
    scene.wait_status("open for Cloudly dispatch").await;
    scene.assert_carried(&node).await;
    drop((taken, silent));
    let other = scene.node("node-2").await;
    scene.assert_carried(&other).await;
    scene.assert_carried(&node).await;
    assert_eq!(scene.count("listener-accept-failed"), 0, "the places keep within the limit");
}

/// Contract, section 1: what is no message gets no answer, and the socket stays: no correlation, an unknown
/// phase, bytes that are no text in a binary frame. A message in many frames is one message.
#[tokio::test]
async fn frames_that_are_no_messages_cost_their_sender_nothing_else() {
    let scene = Scene::open(|_| {}).await;
    let mut socket = RawSocket::connect(&scene.setup.target()).await.unwrap();
    let binding = register(&mut socket, "node-1").await;
    let body = format!(r#"{{"session":{binding},"é":"ü"}}"#);
    let whole = request(REPORT, &body, &Ids::fresh());
    for broken in [
        r#"{"method":"x","request":{},"response":null}"#.to_owned(),
        whole.replace(r#""phase":"request""#, r#""phase":"question""#),
        whole.replace(r#""phase":"request""#, r#""phase":7"#),
        whole[..whole.len() - 1].to_owned(),
        format!("[{whole}]"),
        String::new(),
    ] {
        assert_ne!(broken, whole);
        socket.send_text(broken).await;
    }
    for garbage in [vec![], vec![0; 1000], vec![0xff; 70_000]] {
        socket.send_binary(garbage).await;
    }
    assert_eq!(scene.cloudly.calls_of(REPORT).len(), 0);
    // Each byte a frame of its own: also within a character.
    let parts: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
    socket.send_parts(&parts).await;
    answer(&mut socket).await.outcome().expect("Cloudly's answer");
    assert_eq!(scene.cloudly.calls_of(REPORT)[0].body(), body);
    scene.wait_lines("a node sent what is no request; it got no answer", 1).await;

    // Text that is no text breaks the protocol: that socket ends, with 1007 or 1002, and no other does.
    let mut broken = RawSocket::connect(&scene.setup.target()).await.unwrap();
    broken.send_parts(&[b"{\"", &[0xc3, 0x28]]).await;
    let code = broken.closed(BOUND).await.unwrap();
    assert!(matches!(code, Some(1002 | 1007)), "{code:?}");
    socket.send_text(whole).await;
    answer(&mut socket).await.outcome().expect("Cloudly's answer");
}

/// Two requests in flight with the same ids, on one socket or on two: each is forwarded, each is answered
/// once with those ids, and none with another's answer (FWD-03, FWD-06).
#[tokio::test]
async fn requests_with_the_same_ids_are_each_answered_once() {
    let scene = Scene::open(|_| {}).await;
    let gate = Gate::default();
    scene.cloudly.always(REPORT, Step::When(gate.clone(), Box::new(Step::Ordinary)));
    let mut first = RawSocket::connect(&scene.setup.target()).await.unwrap();
    let mut second = RawSocket::connect(&scene.setup.target()).await.unwrap();
    let one = register(&mut first, "node-1").await;
    let two = register(&mut second, "node-2").await;
    let ids = Ids::fresh();
    let body = |binding: &Value, mark: &str| format!(r#"{{"session":{binding},"mark":"{mark}"}}"#);
    first.send_text(request(REPORT, &body(&one, "a"), &ids)).await;
    first.send_text(request(REPORT, &body(&one, "b"), &ids)).await;
    second.send_text(request(REPORT, &body(&two, "c"), &ids)).await;
    scene.cloudly.wait_for(REPORT, 3).await.unwrap();
    gate.open();
    let mut marks = Vec::new();
    for socket in [&mut first, &mut second] {
        let expected = if marks.is_empty() { 2 } else { 1 };
        for _ in 0..expected {
            let answer = answer(socket).await;
            assert_eq!(answer.ids, ids);
            let answer: Value = serde_json::from_str(answer.response()).unwrap();
            marks.push(answer["received"]["mark"].as_str().unwrap().to_owned());
        }
        // The pong is the next thing that comes: no answer was sent twice.
        socket.ping(b"over").await;
        assert_eq!(socket.next(BOUND).await.unwrap(), Received::Pong(b"over".to_vec()));
    }
    marks[..2].sort();
    assert_eq!(marks, ["a", "b", "c"]);
    let distinct: BTreeSet<String> =
        scene.cloudly.calls_of(REPORT).iter().map(|call| call.message.ids.correlation.clone()).collect();
    assert_eq!(distinct.len(), 3, "the relay's own ids are distinct");
}

/// A node that registers twice on one socket, one after the other and both at once, is carried once.
#[tokio::test]
async fn a_node_that_registers_twice_on_one_socket_is_carried_once() {
    let scene = Scene::open(|_| {}).await;
    let mut socket = RawSocket::connect(&scene.setup.target()).await.unwrap();
    register(&mut socket, "node-1").await;
    for _ in 0..2 {
        socket.send_text(request(REGISTER, &registration("node-1"), &Ids::fresh())).await;
    }
    answer(&mut socket).await.outcome().expect("a binding");
    let last = answer(&mut socket).await;
    let last: Value = serde_json::from_str(last.outcome().expect("a binding").get()).unwrap();
    let body = format!(r#"{{"session":{}}}"#, last["session"]);
    socket.send_text(request(REPORT, &body, &Ids::fresh())).await;
    answer(&mut socket).await.outcome().expect("it is carried under its last binding");
    let push = scene.cloudly.push("applyRuntimeAssignment", &body);
    let (pushed, ()) = tokio::join!(push, async {
        let asked = answer(&mut socket).await;
        socket.send_text(coreflow_tests::envelope::answer(&asked.method, "7", &asked.ids)).await;
    });
    assert_eq!(pushed.unwrap().response(), "7");
    assert_eq!(scene.count("node node-1 is gone"), 0);
}

/// A flood of pings from a peer that does not read is answered as far as it reads, and delays nobody.
#[tokio::test]
async fn a_flood_of_pings_delays_nobody() {
    let scene = Scene::open(|_| {}).await;
    let other = scene.node("node-2").await;
    let mut socket = RawSocket::connect(&scene.setup.target()).await.unwrap();
    let binding = register(&mut socket, "node-1").await;
    for number in 0..20_000_u32 {
        socket.ping(&number.to_be_bytes()).await;
        if number % 5000 == 0 {
            scene.assert_carried(&other).await;
        }
    }
    socket.send_text(request(REPORT, &format!(r#"{{"session":{binding}}}"#), &Ids::fresh())).await;
    answer(&mut socket).await.outcome().expect("Cloudly's answer");
    scene.assert_carried(&other).await;
}

/// A half-open socket: a node that vanished without a word and dials again is carried on its new socket at
/// once, and served there; the former one is nobody's.
#[tokio::test]
async fn a_node_whose_former_socket_is_half_open_is_carried_on_its_new_one() {
    let scene = Scene::open(|_| {}).await;
    let direct = scene.setup.target();
    let way = BlackHole::before(direct.address).await.expect("a way to the relay");
    let mut lost =
        RawSocket::connect(&Target { address: way.address(), ..direct.clone() }).await.expect("it forwards");
    register(&mut lost, "node-1").await;
    way.swallow();
    let node = scene.node("node-1").await;
    scene.assert_carried(&node).await;
    // The socket's end, when it comes, is not the node's.
    drop((lost, way));
    scene.assert_carried(&node).await;
    assert_eq!((scene.count("node node-1 is gone"), node.closes().len()), (0, 0));
}
