//! The messages of a node's socket before it is proven: none over the bound is taken, nothing makes room for one that
//! is announced, and within the bound the socket is what it is without one.
#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use coreflow_fuzz::{
    memory::peak_of,
    peer::{peer, run},
};
use coreflow_relayd::websocket::{Limits, queue};
use futures_util::StreamExt;
use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error, Message, protocol::Role},
};

/// Bytes of a message, until the peer is proven.
const BOUND: usize = 200;
/// Bytes that the reading of such messages costs, beside those that were said: the buffers of the library.
const MOST_MEMORY: usize = 64 << 10;

const LIMITS: Limits = Limits {
    message: 16 << 20,
    queue: 8,
    queue_bytes: 64 << 10,
    silence: Duration::from_secs(30),
    frame: 16 << 10,
};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    proven: bool,
    /// Bytes that came with the head of the upgrade: at most as many as a message may have, as at the listener.
    with_head: u8,
    cut: u16,
    said: &'a [u8],
}

/// The messages that a socket takes until it ends, and whether it ended for the bound.
async fn taken<S: AsyncRead + AsyncWrite + Unpin>(stream: S, read: Vec<u8>) -> (Vec<Message>, bool) {
    let config = Some(LIMITS.config());
    let mut socket = WebSocketStream::from_partially_read(stream, read, Role::Server, config).await;
    let mut messages = Vec::new();
    loop {
        match socket.next().await {
            Some(Ok(message)) => messages.push(message),
            Some(Err(Error::Io(error))) => return (messages, error.to_string().contains("too large")),
            Some(Err(_)) | None => return (messages, false),
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let Input { proven, with_head, cut, said } = input;
    let (head, rest) = said.split_at(usize::from(with_head).min(BOUND).min(said.len()));
    let cut = usize::from(cut);
    let (free, _) = run(taken(peer(rest, cut), head.to_vec()));
    let (outlet, inlet) = queue(LIMITS);
    if proven {
        outlet.prove();
    }
    let ((bounded, refused), peak) = peak_of(|| {
        run(taken(inlet.bounded(peer(rest, cut), Bytes::copy_from_slice(head), BOUND), Vec::new()))
    });
    assert!(proven || peak <= MOST_MEMORY + 4 * said.len(), "{peak} bytes for {}", said.len());
    if proven {
        assert!(!refused && bounded == free, "of a proven peer nothing is bounded");
    } else {
        assert!(bounded.iter().all(|message| message.len() <= BOUND));
        assert!(if refused { free.starts_with(&bounded) } else { bounded == free });
    }
    drop(outlet);
});
