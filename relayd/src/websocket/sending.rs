//! The sending half of a WebSocket: what is queued goes out in order, small messages together and long ones
//! in frames with pings between them. A peer has time for each frame, not for a message however long; one
//! that takes nothing is given up.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{SinkExt, stream::SplitSink};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        protocol::frame::{
            Frame,
            coding::{Data, OpCode},
        },
    },
};

use super::{Ended, FRAME_HEAD, Limits, class};

/// One socket's sending half.
pub(super) struct Outgoing<'a, S> {
    pub(super) sink: &'a mut SplitSink<WebSocketStream<S>, Message>,
    /// Asks for a ping.
    pub(super) pings: mpsc::Receiver<()>,
    /// Set when the peer took what had to wait for it: a sign of life.
    pub(super) taking: &'a AtomicBool,
    pub(super) limits: Limits,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Outgoing<'_, S> {
    /// Sends until the queue's owner has dropped its end, or the peer does not take what it is sent.
    pub(super) async fn send(mut self, mut queue: mpsc::Receiver<Utf8Bytes>, bytes: &AtomicUsize) -> Ended {
        let mut left = None;
        loop {
            let text = match left.take() {
                Some(text) => {
                    if let Err(ended) = self.ping_where_asked().await {
                        return ended;
                    }
                    Some(text)
                }
                None => tokio::select! {
                    text = queue.recv() => match text {
                        Some(text) => Some(text),
                        None => return Ended::Hangup,
                    },
                    Some(()) = self.pings.recv() => None,
                },
            };
            let sent = match text {
                None => self.ping().await.map(|()| (0, None)),
                Some(text) if text.len() > self.limits.batch() => {
                    self.long(text).await.map(|length| (length, None))
                }
                Some(text) => self.batch(text, &mut queue).await,
            };
            match sent {
                Ok((length, rest)) => {
                    bytes.fetch_sub(length, Ordering::Relaxed);
                    left = rest;
                }
                Err(ended) => return ended,
            }
        }
    }

    /// A queue that never empties holds no ping back.
    async fn ping_where_asked(&mut self) -> Result<(), Ended> {
        if self.pings.try_recv().is_ok() {
            self.ping().await?;
        }
        Ok(())
    }

    async fn ping(&mut self) -> Result<(), Ended> {
        self.frame(Message::Ping(Bytes::new())).await
    }

    /// Sends `text` and what waits behind it as one write, as many bytes as a batch has at most; gives how
    /// many bytes of the queue that took, and the message that found no room any more.
    async fn batch(
        &mut self,
        text: Utf8Bytes,
        queue: &mut mpsc::Receiver<Utf8Bytes>,
    ) -> Result<(usize, Option<Utf8Bytes>), Ended> {
        let (sink, batch) = (&mut *self.sink, self.limits.batch());
        let sending = async {
            // Answers to pings that the peer has not taken yet go first, so that each frame finds room.
            sink.flush().await?;
            let mut taken = text.len();
            let mut room = batch - text.len();
            sink.feed(Message::Text(text)).await?;
            let left = loop {
                let Ok(text) = queue.try_recv() else { break None };
                let needed = text.len() + FRAME_HEAD;
                if needed > room {
                    break Some(text);
                }
                room -= needed;
                taken += text.len();
                sink.feed(Message::Text(text)).await?;
            };
            sink.flush().await?;
            // An answer to a ping that found no room before has it now.
            sink.flush().await?;
            Ok((taken, left))
        };
        in_time(pin!(sending), self.limits.silence, self.taking).await
    }

    /// Sends a long text in frames (RFC 6455, section 5.4); gives its length.
    async fn long(&mut self, text: Utf8Bytes) -> Result<usize, Ended> {
        let length = text.len();
        let mut rest = Bytes::from(text);
        let mut kind = Data::Text;
        while !rest.is_empty() {
            self.ping_where_asked().await?;
            let part = rest.split_to(rest.len().min(self.limits.frame));
            self.frame(Message::Frame(Frame::message(part, OpCode::Data(kind), rest.is_empty()))).await?;
            kind = Data::Continue;
        }
        Ok(length)
    }

    async fn frame(&mut self, frame: Message) -> Result<(), Ended> {
        let sink = &mut *self.sink;
        let sending = async {
            sink.flush().await?;
            sink.send(frame).await?;
            sink.flush().await
        };
        in_time(pin!(sending), self.limits.silence, self.taking).await
    }
}

/// Drives `sending` to its end, which the peer may delay by `silence`. Whether it had to wait until the peer
/// took something is noted in `taking`: what only went into the system's buffer says nothing about the peer.
async fn in_time<T>(
    mut sending: Pin<&mut impl Future<Output = Result<T, Error>>>,
    silence: Duration,
    taking: &AtomicBool,
) -> Result<T, Ended> {
    let mut waited = false;
    let sending = poll_fn(|context| {
        let polled = sending.as_mut().poll(context);
        waited |= polled.is_pending();
        polled
    });
    match timeout(silence, sending).await {
        Ok(Ok(sent)) => {
            if waited {
                taking.store(true, Ordering::Relaxed);
            }
            Ok(sent)
        }
        Ok(Err(error)) => Err(class(&error)),
        Err(_) => Err(Ended::NotReading),
    }
}
