//! The socket and its peer over a pipe in memory, on a clock that does not run by itself.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncReadExt, DuplexStream, ReadBuf, duplex},
    time::Instant,
};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

const LIMITS: Limits = Limits {
    message: 1 << 20,
    queue: 64,
    queue_bytes: 1 << 20,
    silence: Duration::from_secs(30),
    frame: 1000,
};

struct Deaf;

impl Receiver for Deaf {
    async fn envelope(&mut self, _: Envelope, _: usize) -> bool {
        true
    }

    fn malformed(&mut self, _: Malformed) {}
}

/// START-24: what was queued before the outlet was dropped reaches the peer, every time.
#[tokio::test]
async fn a_dropped_outlet_loses_nothing_that_was_queued() {
    for round in 0..200 {
        let (ours, theirs) = duplex(64 << 10);
        let ours = WebSocketStream::from_raw_socket(ours, Role::Server, Some(LIMITS.config())).await;
        let mut theirs = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
        let (outlet, inlet) = queue(LIMITS);
        assert!(outlet.send("first".into()) && outlet.send("last".into()));
        drop(outlet);
        let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
        let mut seen = Vec::new();
        while let Some(Ok(Message::Text(text))) = theirs.next().await {
            seen.push(text.to_string());
        }
        assert_eq!(seen, ["first", "last"], "round {round}");
        drop(theirs);
        running.await.unwrap();
    }
}

/// A peer that closes gets its close answered.
#[tokio::test]
async fn a_peer_s_close_is_answered() {
    let (ours, theirs) = duplex(64 << 10);
    let ours = WebSocketStream::from_raw_socket(ours, Role::Server, Some(LIMITS.config())).await;
    let mut theirs = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
    let (_outlet, inlet) = queue(LIMITS);
    let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
    theirs.close(None).await.unwrap();
    assert!(matches!(theirs.next().await, None | Some(Ok(Message::Close(_)))));
    assert_eq!(running.await.unwrap(), Ended::Closed);
}

/// A full queue refuses, and counts only what it took.
#[tokio::test]
async fn a_full_queue_takes_nothing_more() {
    let (outlet, _inlet) = queue(Limits { queue_bytes: 10, ..LIMITS });
    assert!(outlet.send("12345678".into()));
    assert!(!outlet.send("123".into()));
    assert!(outlet.send("12".into()), "what was refused is not counted");
}

type Ends = (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>);

/// This side's socket and the peer's.
async fn pair() -> Ends {
    let (ours, theirs) = duplex(4 << 10);
    let ours = WebSocketStream::from_raw_socket(ours, Role::Server, Some(LIMITS.config())).await;
    (ours, WebSocketStream::from_raw_socket(theirs, Role::Client, None).await)
}

/// A half-open socket: its peer vanished without a word. It is pinged after the silence, and ends after
/// the second one.
#[tokio::test(start_paused = true)]
async fn a_vanished_peer_is_pinged_and_then_given_up() {
    let (ours, mut theirs) = pair().await;
    let (_outlet, inlet) = queue(LIMITS);
    let begin = Instant::now();
    let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
    assert_eq!(theirs.next().await.unwrap().unwrap(), Message::Ping(Bytes::new()));
    assert_eq!(begin.elapsed(), LIMITS.silence);
    // Read and never answered: the pong stays in the peer's buffer until it reads or writes again.
    assert_eq!(running.await.unwrap(), Ended::Silent);
    assert_eq!(begin.elapsed(), 2 * LIMITS.silence);
}

/// A peer that answers pings, and says nothing else, is kept; once it stops it is not.
#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_is_kept() {
    let (ours, mut theirs) = pair().await;
    let (_outlet, inlet) = queue(LIMITS);
    let begin = Instant::now();
    let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
    for round in 1..=20 {
        assert_eq!(theirs.next().await.unwrap().unwrap(), Message::Ping(Bytes::new()));
        assert_eq!(begin.elapsed(), round * LIMITS.silence);
        theirs.flush().await.unwrap();
        assert!(!running.is_finished());
    }
    drop(theirs);
    assert_eq!(running.await.unwrap(), Ended::Closed);
}

/// A peer that does not read: the send is given up, and what is queued behind it is dropped with it.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_given_up() {
    let (ours, mut theirs) = pair().await;
    let (outlet, inlet) = queue(LIMITS);
    let begin = Instant::now();
    let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
    assert!(outlet.send("x".repeat(100_000)));
    // It goes on sending, so it is not silent.
    let chatter = async {
        loop {
            let _ = theirs.feed(Message::Pong(Bytes::new())).await;
            let _ = theirs.flush().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let ended = tokio::select! { ended = running => ended.unwrap(), () = chatter => unreachable!() };
    assert_eq!((ended, begin.elapsed()), (Ended::NotReading, LIMITS.silence));
    assert!(outlet.ended());
}

/// A long message arrives whole, also where a frame ends within a character.
#[tokio::test]
async fn a_long_message_is_sent_in_frames_and_arrives_whole() {
    for length in [1, 999, 1000, 1001, 2000, 50_001] {
        let (ours, mut theirs) = pair().await;
        let (outlet, inlet) = queue(LIMITS);
        let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
        let text: String = "xé".chars().cycle().take(length).collect();
        assert!(outlet.send(text.clone()) && outlet.send("next".to_owned()));
        drop(outlet);
        assert_eq!(theirs.next().await.unwrap().unwrap(), Message::text(text), "{length}");
        assert_eq!(theirs.next().await.unwrap().unwrap(), Message::text("next"));
        drop(theirs);
        running.await.unwrap();
    }
}

/// Pings without end are answered as far as the peer reads, and wait nowhere.
#[tokio::test]
async fn a_flood_of_pings_is_bounded_by_what_the_peer_reads() {
    let (ours, mut theirs) = pair().await;
    let (outlet, inlet) = queue(LIMITS);
    let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
    for number in 0..20_000_u32 {
        theirs.feed(Message::Ping(Bytes::copy_from_slice(&number.to_be_bytes()))).await.unwrap();
    }
    theirs.flush().await.unwrap();
    assert!(outlet.send("still here".to_owned()));
    let mut pongs = 0;
    loop {
        match theirs.next().await.unwrap().unwrap() {
            Message::Pong(_) => pongs += 1,
            Message::Text(text) => break assert_eq!(text, "still here"),
            other => panic!("{other:?}"),
        }
    }
    assert!(pongs < 2000, "{pongs} answers were kept for a peer that did not read");
    drop(theirs);
    running.await.unwrap();
}

/// The owner's word that the peer is proven is heard once, and a hangup after it too.
#[tokio::test]
async fn a_proven_peer_can_still_be_hung_up() {
    let (ours, _theirs) = pair().await;
    let (outlet, inlet) = queue(LIMITS);
    let proven = inlet.proven();
    let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
    outlet.prove();
    proven.await;
    outlet.hangup();
    outlet.prove();
    assert_eq!(running.await.unwrap(), Ended::Hangup);
}

/// A pipe that counts the writes into it.
struct Counted {
    pipe: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, into)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

/// Messages that wait go out together, one TLS record's worth a write, in order and each a frame of its own;
/// the queue's bytes are given back.
#[tokio::test]
async fn what_waits_goes_out_together() {
    let limits = Limits { frame: 1 << 20, ..LIMITS };
    let (pipe, theirs) = duplex(1 << 20);
    let writes = Arc::new(AtomicUsize::new(0));
    let ours = Counted { pipe, writes: Arc::clone(&writes) };
    let ours = WebSocketStream::from_raw_socket(ours, Role::Server, Some(limits.config())).await;
    let mut theirs = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
    let (outlet, inlet) = queue(limits);
    let messages: Vec<String> = (0..40).map(|number| format!("{number}:{}", "x".repeat(700))).collect();
    for message in &messages {
        assert!(outlet.send(message.clone()));
    }
    let bytes = Arc::clone(&outlet.bytes);
    let running = tokio::spawn(run(ours, inlet, limits, Deaf));
    for message in messages {
        assert_eq!(theirs.next().await.unwrap().unwrap(), Message::Text(message.into()));
    }
    assert_eq!(writes.load(Ordering::Relaxed), 2, "28 KiB in writes of at most 16 KiB");
    drop(outlet);
    while theirs.next().await.is_some_and(|message| message.is_ok()) {}
    assert_eq!(running.await.unwrap(), Ended::Hangup);
    assert_eq!(bytes.load(Ordering::Relaxed), 0);
}

/// A long message to Cloudly on a slow uplink: each frame has its time, and a peer that takes one is not
/// silent, though nothing is heard of it. Pings go between the frames. One that takes nothing any more is
/// given up.
#[tokio::test(start_paused = true)]
async fn a_long_message_has_as_long_as_its_frames_are_taken() {
    use crate::session::dial::LIMITS;
    let frame = 64 << 10;
    let text = "x".repeat(24 * frame);
    for stalls in [false, true] {
        let (ours, mut theirs) = duplex(4 << 10);
        let ours = WebSocketStream::from_raw_socket(ours, Role::Client, Some(LIMITS.config())).await;
        let (outlet, inlet) = queue(LIMITS);
        let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
        // The silence ends while the first frame waits.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(outlet.send(text.clone()));
        drop(outlet);
        let (begin, mut taken) = (Instant::now(), Vec::new());
        loop {
            tokio::time::sleep(LIMITS.silence - Duration::from_secs(1)).await;
            let mut part = vec![0; frame];
            let Ok(length) = theirs.read(&mut part).await else { break };
            if length == 0 {
                break;
            }
            taken.extend_from_slice(&part[..length]);
            while taken.len() % frame != 0 {
                let length = theirs.read(&mut part[..frame - taken.len() % frame]).await.unwrap();
                if length == 0 {
                    break;
                }
                taken.extend_from_slice(&part[..length]);
            }
            if stalls && taken.len() == 3 * frame {
                break;
            }
        }
        if stalls {
            let stalled = Instant::now();
            assert_eq!(running.await.unwrap(), Ended::NotReading);
            assert_eq!(stalled.elapsed(), LIMITS.silence);
            continue;
        }
        assert_eq!(running.await.unwrap(), Ended::Hangup);
        assert!(begin.elapsed() > 20 * LIMITS.silence, "{:?}", begin.elapsed());
        let (pipe, _kept) = duplex(1);
        let mut read = WebSocketStream::from_partially_read(pipe, taken, Role::Server, None).await;
        assert_eq!(read.next().await.unwrap().unwrap(), Message::Ping(Bytes::new()));
        assert_eq!(read.next().await.unwrap().unwrap(), Message::text(text.clone()));
    }
}

/// A queue that does not empty holds no ping back: it goes out between two batches.
#[tokio::test(start_paused = true)]
async fn what_is_queued_holds_no_ping_back() {
    let (ours, mut theirs) = pair().await;
    let (outlet, inlet) = queue(LIMITS);
    let running = tokio::spawn(run(ours, inlet, LIMITS, Deaf));
    tokio::time::sleep(Duration::from_secs(10)).await;
    while outlet.send("x".repeat(600)) {}
    // The silence ends while a batch waits for the peer.
    tokio::time::sleep(LIMITS.silence - Duration::from_secs(5)).await;
    let mut before = 0;
    while let Message::Text(_) = theirs.next().await.unwrap().unwrap() {
        before += 1;
    }
    assert!(before < 10, "{before} of {} messages went first", LIMITS.queue);
    drop(theirs);
    running.await.unwrap();
}

/// Whoever hangs up is told whether that was news, so that a line about it is written once.
#[tokio::test]
async fn a_hangup_is_news_once() {
    let (outlet, _inlet) = queue(LIMITS);
    outlet.prove();
    assert!(outlet.hangup());
    assert!(!outlet.hangup());
}
