//! What a node is sent after a head. A streamed body is read as the node takes it, so that a slow node
//! slows the registry and nothing piles up (PULL-18, PULL-30), and one that was cut ends its connection, so
//! that it never looks complete (PULL-29).

use std::{
    io,
    os::unix::net::UnixStream as StdStream,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use coreflow_ipc::messages::pulls::{AnswerBody, PullAnswer};
use hyper::body::{Body, Frame, SizeHint};
use tokio::{net::UnixStream, sync::oneshot};

use super::UnderWay;
use crate::constants::PULL_CHUNK;

/// The body of an answer on the listener.
pub enum PullBody {
    /// None.
    Nothing,
    /// These bytes, until they are taken.
    Whole(WholeBody),
    /// What comes over a socket pair.
    Stream(Box<StreamBody>),
}

/// A body that is there at once.
pub struct WholeBody {
    bytes: Option<Bytes>,
    /// Whether their number is stated.
    stated: bool,
    /// Until a node takes the bytes of a pull they count.
    under_way: Option<UnderWay>,
}

impl WholeBody {
    /// A body of the relay's own, whose length is stated.
    pub fn own(bytes: Bytes) -> Self {
        Self { bytes: Some(bytes), stated: true, under_way: None }
    }

    /// What it holds; nothing once that was taken.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }

    fn take(&mut self) -> Option<Bytes> {
        self.under_way = None;
        self.bytes.take()
    }
}

/// A body that comes over a socket pair.
pub struct StreamBody {
    stream: UnixStream,
    /// Bytes that have to come yet, where the registry stated how many.
    left: Option<u64>,
    /// Pulld's word that the pair's end is the body's.
    ended: oneshot::Receiver<()>,
    chunk: BytesMut,
    /// Bytes that are read at once.
    part: usize,
    _under_way: UnderWay,
}

/// The body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body of a pull was cut")
    }
}

impl std::error::Error for Cut {}

/// The body of `answer`, whose `content` pulld states; `None` where both do not fit each other.
pub(super) fn of(
    answer: &PullAnswer,
    head: bool,
    content: AnswerBody,
    stream: Option<(StdStream, oneshot::Receiver<()>)>,
    under_way: UnderWay,
) -> Option<PullBody> {
    let never_has_one = head || matches!(answer.status, 204 | 304);
    match (content, stream) {
        (AnswerBody::Nothing, None) if never_has_one || answer.length.unwrap_or(0) == 0 => {
            Some(PullBody::Nothing)
        }
        (AnswerBody::Whole(bytes), None) if !never_has_one => {
            let fits = answer.length.is_none_or(|length| length == bytes.len() as u64);
            let (bytes, stated) = (Some(Bytes::from(bytes)), answer.length.is_some());
            fits.then(|| PullBody::Whole(WholeBody { bytes, stated, under_way: Some(under_way) }))
        }
        (AnswerBody::Stream(_), Some((stream, ended))) if !never_has_one => {
            stream.set_nonblocking(true).ok()?;
            let stream = UnixStream::from_std(stream).ok()?;
            let body = StreamBody {
                stream,
                left: answer.length,
                ended,
                chunk: BytesMut::new(),
                part: PULL_CHUNK,
                _under_way: under_way,
            };
            Some(PullBody::Stream(Box::new(body)))
        }
        (AnswerBody::Nothing | AnswerBody::Whole(_) | AnswerBody::Stream(_), _) => None,
    }
}

impl Body for PullBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut *self {
            Self::Nothing => Poll::Ready(None),
            Self::Whole(whole) => Poll::Ready(whole.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(body) => {
                body.poll(context).map(|part| part.transpose().map(|part| part.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Whole(whole) => whole.stated && whole.bytes().is_empty(),
            Self::Stream(body) => body.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Whole(whole) if whole.stated => SizeHint::with_exact(whole.bytes().len() as u64),
            Self::Whole(_) => SizeHint::default(),
            Self::Stream(body) => body.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl PullBody {
    /// Passes on in parts of at most so many bytes, for a node that takes little at once.
    pub fn in_parts_of(&mut self, bytes: usize) {
        if let Self::Stream(body) = self {
            body.part = bytes;
        }
    }
}

impl StreamBody {
    /// The next part, `None` after the last.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Cut>> {
        if self.left == Some(0) {
            return Poll::Ready(Ok(None));
        }
        let count = ready!(self.read(context)).map_err(|_| Cut)?;
        if count == 0 {
            // Pulld's word is on its way when the pair ends.
            let whole = self.left.is_none() && ready!(Pin::new(&mut self.ended).poll(context)).is_ok();
            return Poll::Ready(if whole { Ok(None) } else { Err(Cut) });
        }
        if let Some(left) = &mut self.left {
            // More than was stated would be the head of another answer to whoever reads it.
            *left = left.checked_sub(count as u64).ok_or(Cut)?;
        }
        let part = if count < self.chunk.capacity() / 4 {
            // A small part would hold all of the room for as long as the node does not take it.
            let part = Bytes::copy_from_slice(&self.chunk);
            self.chunk.clear();
            part
        } else {
            self.chunk.split().freeze()
        };
        Poll::Ready(Ok(Some(part)))
    }

    fn read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            self.chunk.reserve(self.part);
            match self.stream.try_read_buf(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}
