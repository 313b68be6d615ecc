//! What is not taken, and who answers a pull, as it is counted.

use std::{net::Ipv4Addr, os::unix::net::UnixStream};

use coreflow_ipc::{
    hello::Role as Worker,
    link::Descriptors,
    messages::pulls::{AnswerBody, PulldToRelayd, RelaydToPulld},
    peer::greet,
};
use tokio::net::TcpListener;

use super::*;

/// Connections not taken, pulls that the registry answered, and those that the relay did.
fn counts(bed: &Bed) -> (u64, u64, u64) {
    let counts = &bed.listening.counts;
    (counts.refused(), counts.pulls(), counts.pulls_refused())
}

/// Without a place or a handshake a connection is not taken; one that has both and leaves is.
#[tokio::test]
async fn a_connection_without_a_place_or_a_handshake_is_counted() {
    let bed = Bed::of(Capacity { handshakes: 1, pulls: 1, nodes: 1 });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut ends = Vec::new();
    for _ in 0..2 {
        ends.push(TcpStream::connect(address).await.unwrap());
        let (stream, peer) = listener.accept().await.unwrap();
        take(stream, Source::from(peer.ip()), &bed.listening);
    }
    assert_eq!(counts(&bed), (1, 0, 0), "there is one place");
    let mut first = ends.swap_remove(0);
    first.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    // The relay's alert, and its end.
    let _ = first.read_to_end(&mut said).await;
    assert_eq!(counts(&bed), (2, 0, 0), "that was no handshake");
    let (theirs, task) = bed.connect(false);
    drop(theirs);
    task.await.unwrap();
    assert_eq!(counts(&bed), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_without_a_place_is_counted() {
    let bed = Bed::of(Capacity { handshakes: 8, pulls: 1, nodes: 1 });
    for (status, refused) in [("101", 0), ("503", 1)] {
        let (mut theirs, task) = bed.connect(false);
        theirs.write_all(format!("{UPGRADE}\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        theirs.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, format!("HTTP/1.1 {status}").as_bytes());
        assert_eq!(counts(&bed), (refused, 0, 0), "{status}");
        // The first one's socket stays open.
        std::mem::forget(theirs);
        task.abort();
    }
}

/// Each pull is counted once, by who answered it.
#[tokio::test]
async fn a_pull_is_counted_by_who_answered_it() {
    let bed = Bed::new();
    let (mut theirs, _task) = bed.connect(false);
    assert!(pull(&mut theirs).await.contains("pull-worker-unavailable"));
    assert_eq!(counts(&bed), (0, 0, 1));
    let (mut other, _other) = bed.connect(false);
    assert!(pull(&mut other).await.contains("pull-connections-full"));
    assert_eq!(counts(&bed), (0, 0, 2));
    other.write_all(b"DELETE /v2/a HTTP/1.1\r\nhost: relay\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    assert!(other.read(&mut answer).await.unwrap() > 0);
    assert_eq!(counts(&bed), (0, 0, 3));

    let (ours, pulld) = UnixStream::pair().unwrap();
    let pulls = Arc::clone(&bed.listening.pulls);
    let serving = tokio::spawn(async move { pulls.serve(1, ours.into()).await });
    let greeted = greet(pulld.into(), Descriptors::Accepted, Worker::Pulld, Worker::Relayd).await;
    let (mut sender, mut receiver) = greeted.unwrap();
    for (status, expected) in [(200, (0, 1, 3)), (404, (0, 2, 3)), (101, (0, 2, 4))] {
        let answering = async {
            loop {
                if let RelaydToPulld::Pull { id, .. } = receiver.receive().await.unwrap().message {
                    assert_eq!(bed.listening.pulls.under_way(), 1);
                    let answer = PullAnswer {
                        status,
                        headers: Vec::new(),
                        length: Some(0),
                        body: AnswerBody::Nothing,
                    };
                    return sender.send(&PulldToRelayd::Answer { id, answer }, &[]).await.unwrap();
                }
            }
        };
        let (answer, ()) = tokio::join!(pull(&mut theirs), answering);
        assert!(answer.starts_with(if status == 101 { "HTTP/1.1 502" } else { "HTTP/1.1 " }), "{answer}");
        assert_eq!((counts(&bed), bed.listening.pulls.under_way()), (expected, 0), "{status}");
    }
    serving.abort();
}
