//! One WebSocket and its two halves: what arrives becomes an envelope, what is queued goes out, a
//! silent peer is pinged and then closed, a peer that does not read is closed.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use coreflow_ipc::typedrequest::{self, Envelope, Malformed};
use futures_util::{SinkExt, StreamExt, stream::SplitStream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        error::{CapacityError, ProtocolError},
        protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
    },
};

use crate::constants::CLOSE_BUDGET;
use sending::Outgoing;

mod sending;
mod unproven;

pub use unproven::Unproven;

/// What a frame costs beside its payload, and an answer to a ping beside it, in bytes.
const WRITE_OVERHEAD: usize = 256;
/// Longest head of a frame, in bytes (RFC 6455, section 5.2).
const FRAME_HEAD: usize = 14;
/// Most bytes of messages that go out in one write: one TLS record.
const BATCH: usize = 16 << 10;

/// How a kind of socket is held.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest message that is taken, in bytes; beyond it the socket is closed with 1009.
    pub message: usize,
    /// Messages that may wait to be sent.
    pub queue: usize,
    /// Bytes that may wait to be sent.
    pub queue_bytes: usize,
    /// Silence after which the peer is pinged, and again after which the socket is closed. It also
    /// bounds how long the peer may take for one frame.
    pub silence: Duration,
    /// Longest frame that is sent, in bytes: a longer message goes out in several. The library keeps what
    /// its longest frame needed for as long as the socket lives.
    pub frame: usize,
}

impl Limits {
    /// Bytes of messages that go out in one write.
    fn batch(&self) -> usize {
        self.frame.min(BATCH)
    }

    /// The WebSocket's own settings for these limits.
    pub fn config(&self) -> WebSocketConfig {
        WebSocketConfig::default()
            .read_buffer_size(4 << 10)
            // What is sent is flushed; until then the library gathers it into one write.
            .write_buffer_size(self.batch())
            // One batch or frame is written at a time; without a bound the library would keep an answer to
            // each ping of a peer that does not read.
            .max_write_buffer_size(self.frame.saturating_add(WRITE_OVERHEAD))
            .max_message_size(Some(self.message))
            .max_frame_size(Some(self.message))
    }
}

/// Why a socket ended; a class, never a peer's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer closed it.
    Closed,
    /// This side closed it.
    Hangup,
    /// A message over the limit (1009).
    TooLarge,
    /// The peer broke the WebSocket protocol.
    Protocol,
    /// The peer did not answer a ping.
    Silent,
    /// The peer did not take what it was sent.
    NotReading,
    /// The transport failed.
    Transport,
}

impl Ended {
    /// The class for a log line.
    pub fn class(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Hangup => "hangup",
            Self::TooLarge => "message-too-large",
            Self::Protocol => "protocol",
            Self::Silent => "silent",
            Self::NotReading => "not-reading",
            Self::Transport => "transport",
        }
    }
}

/// The sending end of a socket, for its owner. Dropping it closes the socket in order.
pub struct Outlet {
    queue: mpsc::Sender<Utf8Bytes>,
    bytes: Arc<AtomicUsize>,
    limit: usize,
    standing: watch::Sender<Standing>,
}

/// What a socket's owner makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Open,
    Proven,
    HungUp,
}

impl Outlet {
    /// Queues a message; `false` when the socket's queue is full or it has ended.
    pub fn send(&self, frame: String) -> bool {
        let length = frame.len();
        if self.bytes.fetch_add(length, Ordering::Relaxed).saturating_add(length) > self.limit
            || self.queue.try_send(frame.into()).is_err()
        {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Bytes that wait to be sent.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the socket has ended; then a refused message says nothing about its peer.
    pub fn ended(&self) -> bool {
        self.queue.is_closed()
    }

    /// Ends the socket at once, whatever it still had to send; `false` when it was told so before.
    pub fn hangup(&self) -> bool {
        self.standing.send_if_modified(|standing| {
            let stood = *standing != Standing::HungUp;
            *standing = Standing::HungUp;
            stood
        })
    }

    /// The peer showed who it is; once is enough.
    pub fn prove(&self) {
        self.standing.send_if_modified(|standing| {
            let open = *standing == Standing::Open;
            if open {
                *standing = Standing::Proven;
            }
            open
        });
    }
}

/// The other end of an [`Outlet`], for the socket's task.
pub struct Inlet {
    queue: mpsc::Receiver<Utf8Bytes>,
    bytes: Arc<AtomicUsize>,
    standing: watch::Receiver<Standing>,
}

impl Inlet {
    /// Ends when the socket's owner has found its peer proven; never when it does not.
    pub fn proven(&self) -> impl Future<Output = ()> + Send + use<> {
        let standing = self.standing.clone();
        reached(standing, Standing::Proven)
    }

    /// `stream` with `read`, which was read of it already, before what follows, and no message over `limit` bytes
    /// until the peer is proven.
    pub fn bounded<S>(&self, stream: S, read: Bytes, limit: usize) -> Unproven<S> {
        Unproven::new(stream, read, limit, self.standing.clone())
    }
}

/// Makes the queue of one socket.
pub fn queue(limits: Limits) -> (Outlet, Inlet) {
    let (sender, receiver) = mpsc::channel(limits.queue);
    let (stands, standing) = watch::channel(Standing::Open);
    let bytes = Arc::new(AtomicUsize::new(0));
    (
        Outlet { queue: sender, bytes: Arc::clone(&bytes), limit: limits.queue_bytes, standing: stands },
        Inlet { queue: receiver, bytes, standing },
    )
}

/// Where a socket's envelopes go.
pub trait Receiver: Send {
    /// Takes an envelope that was `bytes` long, waiting while the core is busy; `false` ends the socket.
    fn envelope(&mut self, envelope: Envelope, bytes: usize) -> impl Future<Output = bool> + Send;

    /// Counts a message that is no envelope.
    fn malformed(&mut self, malformed: Malformed);
}

/// Runs a socket to its end.
pub async fn run<S, R>(socket: WebSocketStream<S>, inlet: Inlet, limits: Limits, mut receiver: R) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    R: Receiver,
{
    let (mut sink, stream) = socket.split();
    let Inlet { queue, bytes, standing } = inlet;
    let (pings, pinged) = mpsc::channel(1);
    let taking = AtomicBool::new(false);
    let outgoing = Outgoing { sink: &mut sink, pings: pinged, taking: &taking, limits };
    let ended = tokio::select! {
        ended = receive(stream, limits, &mut receiver, pings, &taking) => ended,
        ended = outgoing.send(queue, &bytes) => ended,
        () = reached(standing, Standing::HungUp) => Ended::Hangup,
    };
    // A close is an offer: it is bounded, and a socket that failed takes none.
    let code = match ended {
        Ended::TooLarge => CloseCode::Size,
        Ended::Protocol => CloseCode::Protocol,
        Ended::Hangup => CloseCode::Away,
        Ended::Closed => {
            // The peer's close is answered, so that its end sees an orderly one.
            let _ = timeout(CLOSE_BUDGET, sink.close()).await;
            return ended;
        }
        Ended::Silent | Ended::NotReading | Ended::Transport => return ended,
    };
    let close = Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::default() }));
    let _ = timeout(CLOSE_BUDGET, sink.send(close)).await;
    ended
}

/// An owner that drops its outlet does not hang up: what it queued still goes out.
async fn reached(mut standing: watch::Receiver<Standing>, awaited: Standing) {
    if standing.wait_for(|standing| *standing == awaited).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: SplitStream<WebSocketStream<S>>,
    limits: Limits,
    receiver: &mut impl Receiver,
    pings: mpsc::Sender<()>,
    taking: &AtomicBool,
) -> Ended {
    let mut heard = Instant::now();
    // Moved when it fires, not with each message.
    let mut silence = pin!(sleep_until(heard + limits.silence));
    let mut pinged = false;
    loop {
        let next = tokio::select! {
            biased;
            next = stream.next() => next,
            () = &mut silence => {
                // Its answer to a ping has to wait behind what it is taking.
                if taking.swap(false, Ordering::Relaxed) {
                    heard = Instant::now();
                    pinged = false;
                }
                if heard + limits.silence > Instant::now() {
                    silence.as_mut().reset(heard + limits.silence);
                    continue;
                }
                if pinged {
                    return Ended::Silent;
                }
                pinged = true;
                let _ = pings.try_send(());
                silence.as_mut().reset(Instant::now() + limits.silence);
                continue;
            }
        };
        heard = Instant::now();
        pinged = false;
        let frame = match next {
            None => return Ended::Closed,
            Some(Ok(Message::Text(text))) => Bytes::from(text),
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Close(_))) => return Ended::Closed,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Err(error)) => return class(&error),
        };
        match typedrequest::read(&frame) {
            Ok(envelope) => {
                if !receiver.envelope(envelope, frame.len()).await {
                    return Ended::Hangup;
                }
            }
            Err(malformed) => receiver.malformed(malformed),
        }
    }
}

fn class(error: &Error) -> Ended {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => Ended::Closed,
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Ended::Closed,
        Error::Capacity(CapacityError::MessageTooLong { .. }) => Ended::TooLarge,
        Error::Io(error) if unproven::refused(error) => Ended::TooLarge,
        Error::Io(_) => Ended::Transport,
        _ => Ended::Protocol,
    }
}

#[cfg(test)]
mod tests;
