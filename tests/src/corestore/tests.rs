//! What stands still at a Corestore, and is moved on, over its own API.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::waiting::{BOUND, within};

const VOLUMES: &str = "POST /control/volumes";
const EXPORT: &str = "POST /control/database-closures/export";
/// How long something is looked at that should stand still. What does not might be missed, so nothing but a fault of the
/// double fails by it.
const STILL: Duration = Duration::from_millis(300);

async fn node() -> Corestore {
    Corestore::start("cluster-1", "node-1", "the-token", 1_700_000_000_000).await.unwrap()
}

/// A connection on which a call was begun, with all but its body.
async fn begun(corestore: &Corestore, call: &str, headers: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(corestore.address()).await.unwrap();
    let head = format!(
        "{call} HTTP/1.1\r\nhost: corestore\r\nauthorization: Bearer the-token\r\n{headers}\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn asked(corestore: &Corestore, call: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut stream = begun(corestore, call, "", body.len()).await;
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

/// What comes until the connection ends: nothing where it is reset.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    drop(within(BOUND, "end of the answer", stream.read_to_end(&mut bytes)).await.unwrap());
    bytes
}

/// The next `length` bytes.
async fn next(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    within(BOUND, "bytes of the answer", stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    bytes
}

/// The head of an answer.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(next(stream, 1).await);
    }
    String::from_utf8(head).unwrap()
}

async fn until_arrived(corestore: &Corestore, count: usize) {
    let arrived = || (corestore.arrived().len() == count).then_some(());
    corestore.change().until(BOUND, "call", arrived).await.unwrap();
}

async fn until_read(corestore: &Corestore, call: &str, least: usize) -> usize {
    let read = || corestore.read(call).filter(|read| *read >= least);
    corestore.change().until(BOUND, "piece of the body", read).await.unwrap()
}

/// A held answer is of a call that was carried out; it comes once it is let go, or meets what took the place of the hold.
#[tokio::test]
async fn a_held_answer_waits_to_be_let_go() {
    let corestore = node().await;
    let volume = |name: &str| json!({"serviceId": "service-1", "name": name});
    corestore.fault(VOLUMES, Some(Fault::Held));
    let mut lost = asked(&corestore, VOLUMES, &volume("a")).await;
    until_arrived(&corestore, 1).await;
    assert!(corestore.store(|store| store.volume_of("service-1", "a").is_some()), "it was carried out");
    corestore.fault(VOLUMES, Some(Fault::Reset));
    assert_eq!(rest(&mut lost).await, b"", "the answer is lost");

    corestore.fault(VOLUMES, Some(Fault::Held));
    let mut held =
        [asked(&corestore, VOLUMES, &volume("a")).await, asked(&corestore, VOLUMES, &volume("b")).await];
    until_arrived(&corestore, 3).await;
    let mut first = [0];
    let early = tokio::time::timeout(STILL, held[0].read(&mut first)).await;
    assert!(early.is_err(), "the answer is held");
    corestore.fault(VOLUMES, None);
    for (held, created) in held.iter_mut().zip(["false", "true"]) {
        let answer = String::from_utf8(rest(held).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(created), "{answer}");
    }
}

/// A Corestore that reads slowly slows its caller down: it has what it was let read and a piece, and most of the closure is
/// still the caller's; moved on, it takes all of it.
#[tokio::test]
async fn a_slow_reader_holds_its_caller_back() {
    let corestore = node().await;
    let closure: Vec<u8> =
        (0..32 << 20).map(|place: u32| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let headers = format!(
        "x-backup-id: b-1\r\nx-service-id: service-1\r\nx-binding-id: binding-1\r\nx-closure-digest: {}\r\n\
         x-closure-receipt: receipt-1\r\n",
        digest(&closure)
    );
    corestore.fault(IMPORT, Some(Fault::ReadUpTo(0)));
    let stream = begun(&corestore, IMPORT, &headers, closure.len()).await;
    let (mut answer, mut feed) = stream.into_split();
    let bytes = closure.clone();
    let mut feeding = tokio::spawn(async move {
        feed.write_all(&bytes).await.unwrap();
        feed
    });
    assert_eq!(until_read(&corestore, IMPORT, 0).await, 0);
    for step in [1, PIECE, 3 * PIECE, 1 << 20] {
        corestore.fault(IMPORT, Some(Fault::ReadUpTo(step)));
        let read = until_read(&corestore, IMPORT, step).await;
        assert!(read < step + PIECE, "{read} bytes where {step} were to be read");
    }
    assert!(tokio::time::timeout(STILL, &mut feeding).await.is_err(), "the caller waits");
    assert!(corestore.read(IMPORT).is_some_and(|read| read < (1 << 20) + PIECE), "and the reader as well");
    assert!(corestore.arrived().is_empty(), "the call is not whole");

    corestore.fault(IMPORT, None);
    let mut bytes = Vec::new();
    within(BOUND, "the answer", answer.read_to_end(&mut bytes)).await.unwrap().unwrap();
    assert!(bytes.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&bytes));
    drop(feeding.await.unwrap());
    assert!(corestore.store(|store| store.database_of("service-1") == Some(&closure[..])), "byte for byte");
}

/// An export that stands still is moved on as far as the test says, and then to its end, or is cut where it stands.
#[tokio::test]
async fn a_stalled_answer_is_moved_on() {
    let corestore = node().await;
    let closure: Vec<u8> = (0..5000_u32).map(|place| (place % 251) as u8).collect();
    let binding = json!({
        "operation": {"id": "operation-1", "generation": 1}, "bindingId": "binding-1", "serviceId": "service-1",
        "clusterId": "cluster-1", "nodeId": "node-1", "capability": "database",
        "endpoint": {"host": "10.0.0.4", "port": 27017},
    });
    corestore.store(|store| {
        store.call("POST /control/credential-bindings/reconcile", binding.to_string().as_bytes(), 0);
        store.database("service-1", &closure);
    });
    let export = json!({"backupId": "b-1", "serviceId": "service-1", "bindingId": "binding-1"});
    for (end, whole) in [(None, true), (Some(Fault::CutAfter(2000)), false)] {
        corestore.fault(EXPORT, Some(Fault::StallAfter(1000)));
        let mut stream = asked(&corestore, EXPORT, &export).await;
        assert!(head(&mut stream).await.contains("content-length: 5000\r\n"));
        assert_eq!(next(&mut stream, 1000).await, closure[..1000]);
        let mut more = [0];
        assert!(tokio::time::timeout(STILL, stream.read(&mut more)).await.is_err(), "it stands still");
        corestore.fault(EXPORT, Some(Fault::StallAfter(2000)));
        assert_eq!(next(&mut stream, 1000).await, closure[1000..2000]);
        corestore.fault(EXPORT, end);
        assert_eq!(rest(&mut stream).await, if whole { &closure[2000..] } else { &[] });
    }
}
