//! How long a connection may stay for what it is, over a pipe in memory, on a clock that does not run by
//! itself.

use std::{net::IpAddr, time::Duration};

use hyper::{Request, StatusCode, client};
use rustls::{ServerConfig, crypto::ring, server::ResolvesServerCertUsingSni, version};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    task::JoinHandle,
};

use super::*;
use crate::{
    constants::UNREGISTERED,
    listener::{FromListener, places::Capacity},
};

const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: relay\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const CAPACITY: Capacity = Capacity { handshakes: 8, pulls: 1, nodes: 8 };

/// A listener without a socket; connections are put into it.
struct Bed {
    listening: Arc<Listening>,
    events: mpsc::Receiver<FromListener>,
}

impl Bed {
    fn new() -> Self {
        let (sender, events) = mpsc::channel(16);
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let (gates, sockets) = (Gates::new(CAPACITY), Arc::new(Sockets::new(sender)));
        Self {
            listening: Arc::new(Listening { tls: TlsAcceptor::from(Arc::new(tls)), gates, sockets }),
            events,
        }
    }

    /// A connection behind TLS: the peer's end, and the task that serves it.
    fn connect(&self, h2: bool) -> (DuplexStream, JoinHandle<()>) {
        let (ours, theirs) = duplex(64 << 10);
        let source = Source::from(IpAddr::from([192, 0, 2, 1]));
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

/// Pulls have places of their own: when those are taken, a pull is refused by name and its connection is
/// one that asked for nothing; a node gets in all the same.
#[tokio::test(start_paused = true)]
async fn pulls_take_no_place_of_a_node() {
    let mut bed = Bed::new();
    let pull = b"GET /v2/ HTTP/1.1\r\nhost: relay\r\n\r\n";
    let (mut first, _first) = bed.connect(false);
    let (mut second, task) = bed.connect(false);
    for (theirs, name) in [(&mut first, "pull-worker-unavailable"), (&mut second, "pull-connections-full")] {
        theirs.write_all(pull).await.unwrap();
        let mut answer = vec![0; 4096];
        let length = theirs.read(&mut answer).await.unwrap();
        assert!(String::from_utf8_lossy(&answer[..length]).contains(name), "{name}");
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
