//! How long a connection may stay for what it is, over a pipe in memory, on a clock that does not run by
//! itself.

use std::{net::IpAddr, time::Duration};

use futures_util::{SinkExt, StreamExt};
use http_body_util::Full;
use hyper::{Request, StatusCode, client};
use hyper_util::rt::TokioExecutor;
use rustls::{ServerConfig, crypto::ring, server::ResolvesServerCertUsingSni, version};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{
            Role,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

use super::*;
use crate::{
    constants::{NODE_GRACE, UNPROVEN_MESSAGE_LIMIT, UNREGISTERED},
    listener::{FromListener, places::Capacity},
};

mod counted;

const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: relay\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const CAPACITY: Capacity = Capacity { handshakes: 8, pulls: 1, nodes: 8 };

/// A listener without a socket; connections are put into it.
struct Bed {
    listening: Arc<Listening>,
    sender: mpsc::Sender<FromListener>,
    events: mpsc::Receiver<FromListener>,
    dispatchable: watch::Sender<bool>,
}

impl Bed {
    fn new() -> Self {
        Self::of(CAPACITY)
    }

    fn of(capacity: Capacity) -> Self {
        let (sender, events) = mpsc::channel(16);
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let dispatchable = watch::Sender::new(true);
        let sockets = Arc::new(Sockets::new(sender.clone(), dispatchable.subscribe()));
        let (tls, gates) = (TlsAcceptor::from(Arc::new(tls)), Gates::new(capacity));
        Self {
            listening: Arc::new(Listening {
                tls,
                gates,
                sockets,
                pulls: Arc::default(),
                counts: Arc::default(),
            }),
            sender,
            events,
            dispatchable,
        }
    }

    /// A connection behind TLS: the peer's end, and the task that serves it.
    fn connect(&self, h2: bool) -> (DuplexStream, JoinHandle<()>) {
        self.connect_from(1, h2, 64 << 10)
    }

    /// One from 192.0.2.`last`, over a pipe that holds `room` bytes.
    fn connect_from(&self, last: u8, h2: bool, room: usize) -> (DuplexStream, JoinHandle<()>) {
        let (ours, theirs) = duplex(room);
        let source = Source::from(IpAddr::from([192, 0, 2, last]));
        let place = self.listening.gates.handshakes.take(source).unwrap();
        let due = Instant::now() + CONNECTION_BUDGET;
        (theirs, tokio::spawn(exchange(ours, h2, source, place, due, Arc::clone(&self.listening))))
    }
}

async fn lasted(task: JoinHandle<()>) -> Duration {
    let begin = Instant::now();
    task.await.unwrap();
    begin.elapsed()
}

/// Without a whole head, or with requests that are refused and no more, a connection ends ten seconds after
/// it was accepted, not after its last byte.
#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_for_nothing_has_ten_seconds_in_all() {
    let bed = Bed::new();
    for said in ["", "GET / HTTP/1.1\r\nhost:", UPGRADE, "GET /elsewhere HTTP/1.1\r\nhost: relay\r\n\r\n"] {
        let (mut theirs, task) = bed.connect(false);
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_secs(6)).await;
        theirs.write_all(said.as_bytes()).await.unwrap();
        lasted(task).await;
        assert_eq!(begin.elapsed(), CONNECTION_BUDGET, "{said}");
    }
    let (_theirs, task) = bed.connect(true);
    assert_eq!(lasted(task).await, CONNECTION_BUDGET);
}

/// A pull may go on for longer; once nothing moves it ends, however often its peer answers pings.
#[tokio::test(start_paused = true)]
async fn a_connection_of_pulls_ends_once_nothing_moves() {
    let bed = Bed::new();
    let (theirs, task) = bed.connect(true);
    let (mut sender, connection) =
        client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(theirs)).await.unwrap();
    let client = tokio::spawn(connection);
    let pull = || Request::get("https://relay/v2/").body(Full::<Bytes>::default()).unwrap();
    for _ in 0..3 {
        let answer = sender.send_request(pull()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::sleep(PULL_IDLE - Duration::from_secs(1)).await;
    }
    assert!(!task.is_finished());
    assert_eq!(lasted(task).await, Duration::from_secs(1));
    client.await.unwrap().ok();
}

async fn pull(theirs: &mut DuplexStream) -> String {
    theirs.write_all(b"GET /v2/ HTTP/1.1\r\nhost: relay\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    let length = theirs.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// Pulls of many addresses: one more takes a place of an address that holds two, and the connection that had
/// it ends, so that no more are open than there are places. Where each holds one, a further one is refused.
#[tokio::test(start_paused = true)]
async fn no_more_connections_pull_than_there_are_places() {
    let bed = Bed::of(Capacity { handshakes: 8, pulls: 8, nodes: 8 });
    let mut open = Vec::new();
    let still_open = |open: &Vec<(DuplexStream, JoinHandle<()>)>| {
        open.iter().filter(|(_, task)| !task.is_finished()).count()
    };
    for (last, of_all) in
        [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5), (3, 6), (4, 7), (4, 8), (5, 8), (6, 8), (7, 8), (8, 8)]
    {
        let (mut theirs, task) = bed.connect_from(last, false, 64 << 10);
        assert!(pull(&mut theirs).await.contains("pull-worker-unavailable"), "{last}");
        open.push((theirs, task));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(still_open(&open), of_all, "{last}");
    }
    let (mut theirs, _task) = bed.connect_from(9, false, 64 << 10);
    assert!(pull(&mut theirs).await.contains("pull-connections-full"));
    assert_eq!(still_open(&open), 8);
}

/// Pulls have places of their own: when those are taken, a pull is refused by name and its connection is
/// one that asked for nothing; a node gets in all the same.
#[tokio::test(start_paused = true)]
async fn pulls_take_no_place_of_a_node() {
    let mut bed = Bed::new();
    let (mut first, _first) = bed.connect(false);
    let (mut second, task) = bed.connect(false);
    for (theirs, name) in [(&mut first, "pull-worker-unavailable"), (&mut second, "pull-connections-full")] {
        assert!(pull(theirs).await.contains(name), "{name}");
    }
    let (mut node, _node) = bed.connect(false);
    node.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
    assert!(matches!(bed.events.recv().await, Some(FromListener::Opened { .. })));
    assert!(lasted(task).await <= CONNECTION_BUDGET);
}

/// The connection's task ends with the upgrade. A socket that no node is carried on is closed after thirty
/// seconds; one that is proven stays.
#[tokio::test(start_paused = true)]
async fn a_socket_has_to_be_carried_within_thirty_seconds() {
    let mut bed = Bed::new();
    for proven in [false, true] {
        let (mut theirs, task) = bed.connect(false);
        theirs.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
        let Some(FromListener::Opened { outlet, .. }) = bed.events.recv().await else { panic!("it opens") };
        assert_eq!(lasted(task).await, Duration::ZERO);
        if proven {
            outlet.prove();
        }
        let opened = Instant::now();
        let closed = tokio::time::timeout(2 * UNREGISTERED, bed.events.recv()).await;
        if proven {
            assert!(closed.is_err(), "a carried node was closed");
            drop(theirs);
            assert!(matches!(bed.events.recv().await, Some(FromListener::Closed { .. })));
        } else {
            assert!(matches!(closed, Ok(Some(FromListener::Closed { .. }))));
            assert_eq!(opened.elapsed(), UNREGISTERED);
        }
    }
}

/// A connection whose place is given away ends at once.
#[tokio::test(start_paused = true)]
async fn a_connection_that_lost_its_place_ends() {
    let bed = Bed::new();
    let (_theirs, task) = bed.connect(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Two are the share of a source: the third takes the place of the first, which had its time.
    let _others = [bed.connect(false), bed.connect(false)];
    assert_eq!(lasted(task).await, Duration::ZERO);
}

/// An upgrade whose answer its peer does not read has a node's place; once that is given to another, it ends.
#[tokio::test(start_paused = true)]
async fn an_upgrade_that_lost_its_place_ends() {
    let bed = Bed::new();
    let (mut theirs, task) = bed.connect_from(1, false, 16);
    theirs.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
    tokio::time::sleep(NODE_GRACE).await;
    assert!(!task.is_finished());
    // Two are the share of a source.
    let mut others = Vec::new();
    for _ in 0..2 {
        let (mut other, task) = bed.connect(false);
        other.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
        task.await.unwrap();
        others.push(other);
    }
    assert_eq!(lasted(task).await, Duration::ZERO);
}

/// A socket whose place is given to another ends also while the core is too busy to hear of it.
#[tokio::test(start_paused = true)]
async fn a_socket_that_the_core_has_not_heard_of_can_lose_its_place() {
    let bed = Bed::new();
    let mut open = Vec::new();
    // Sixteen events wait for the core, and nobody takes them.
    for socket in 0..16 {
        bed.sender.send(FromListener::Closed { socket }).await.unwrap();
    }
    for _ in 0..3 {
        let (mut theirs, task) = bed.connect(false);
        theirs.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
        task.await.unwrap();
        open.push(theirs);
        tokio::time::sleep(NODE_GRACE).await;
    }
    let mut rest = Vec::new();
    let ended = open[0].read_to_end(&mut rest);
    tokio::time::timeout(Duration::from_secs(1), ended).await.expect("the first one ends").unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 101"));
}

/// OUT-09, OUT-11: while nodes cannot register, a socket on which none is carried stays; once they can, it
/// has its thirty seconds, and again after each loss.
#[tokio::test(start_paused = true)]
async fn a_socket_waits_for_the_session_however_long_it_is_away() {
    let mut bed = Bed::new();
    bed.dispatchable.send_replace(false);
    let (mut theirs, _task) = bed.connect(false);
    theirs.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
    let Some(FromListener::Opened { outlet: _outlet, .. }) = bed.events.recv().await else {
        panic!("it opens")
    };
    // It answers the pings that come meanwhile.
    let answering = tokio::spawn(async move {
        let mut socket = WebSocketStream::from_raw_socket(past_head(theirs).await, Role::Client, None).await;
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    });
    let closed = tokio::time::timeout(Duration::from_secs(600), bed.events.recv()).await;
    assert!(closed.is_err(), "it was closed while nobody could register");
    for _ in 0..3 {
        bed.dispatchable.send_replace(true);
        let closed = tokio::time::timeout(UNREGISTERED - Duration::from_secs(1), bed.events.recv()).await;
        assert!(closed.is_err(), "it was closed before its time");
        bed.dispatchable.send_replace(false);
        tokio::task::yield_now().await;
    }
    bed.dispatchable.send_replace(true);
    let back = Instant::now();
    assert!(matches!(bed.events.recv().await, Some(FromListener::Closed { .. })));
    assert_eq!(back.elapsed(), UNREGISTERED);
    answering.await.unwrap();
}

/// Past the head of the answer to the upgrade.
async fn past_head(mut theirs: DuplexStream) -> DuplexStream {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(theirs.read_u8().await.unwrap());
    }
    theirs
}

/// Anybody may hold a socket on which no node is carried: what is unfinished on it is bounded. One that is
/// carried may send up to what the contract says.
#[tokio::test(start_paused = true)]
async fn an_unfinished_message_is_bounded_until_a_node_is_carried() {
    let mut bed = Bed::new();
    let half = || Frame::message(vec![b' '; UNPROVEN_MESSAGE_LIMIT / 2], OpCode::Data(Data::Text), false);
    let more =
        |last| Frame::message(vec![b' '; UNPROVEN_MESSAGE_LIMIT / 2 + 1], OpCode::Data(Data::Continue), last);
    for proven in [false, true] {
        let (mut theirs, _task) = bed.connect(false);
        theirs.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
        let Some(FromListener::Opened { outlet, .. }) = bed.events.recv().await else { panic!("it opens") };
        let mut theirs = WebSocketStream::from_raw_socket(past_head(theirs).await, Role::Client, None).await;
        theirs.send(Message::Frame(half())).await.unwrap();
        if proven {
            outlet.prove();
        }
        let _ = theirs.send(Message::Frame(more(false))).await;
        if proven {
            theirs.send(Message::Frame(more(true))).await.unwrap();
            theirs.send(Message::Ping("still".into())).await.unwrap();
            assert_eq!(theirs.next().await.unwrap().unwrap(), Message::Pong("still".into()));
            continue;
        }
        let Some(Ok(Message::Close(Some(close)))) = theirs.next().await else { panic!("it is closed") };
        assert_eq!(close.code, CloseCode::Size);
        assert!(matches!(bed.events.recv().await, Some(FromListener::Closed { .. })));
    }
}
