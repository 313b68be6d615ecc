//! The bodies of Cloudly's HTTP answers: whole, broken off half-way, or so slow that nobody waits for
//! their end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Interval, interval};

/// Between two bytes of a trickled answer.
const PACE: Duration = Duration::from_millis(250);

/// A dropped connection instead of an answer, or of the rest of one.
#[derive(Debug)]
pub(super) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut by the script")
    }
}

impl std::error::Error for Cut {}

/// The body of an answer.
pub(super) enum HttpAnswer {
    /// All of it at once.
    Whole(Bytes),
    /// Its length is stated, and half of it sent.
    Broken { length: u64, half: Bytes, flushed: bool },
    /// A byte at a time.
    Trickled { rest: Bytes, pace: Interval },
}

impl HttpAnswer {
    pub(super) fn whole(text: &str) -> Self {
        Self::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    pub(super) fn broken(text: &str) -> Self {
        let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
        Self::Broken { length: text.len() as u64, half, flushed: false }
    }

    pub(super) fn trickled(text: &str) -> Self {
        Self::Trickled { rest: Bytes::copy_from_slice(text.as_bytes()), pace: interval(PACE) }
    }
}

impl Body for HttpAnswer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(text) if text.is_empty() => Poll::Ready(None),
            Self::Whole(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Self::Broken { half, .. } if !half.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(half)))))
            }
            Self::Broken { flushed, .. } if !*flushed => {
                // The server sends what it has before it asks again.
                *flushed = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Self::Broken { .. } => Poll::Ready(Some(Err(Cut))),
            Self::Trickled { rest, .. } if rest.is_empty() => Poll::Ready(None),
            Self::Trickled { rest, pace } => {
                std::task::ready!(pace.poll_tick(context));
                Poll::Ready(Some(Ok(Frame::data(rest.split_to(1)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(text) => text.is_empty(),
            Self::Broken { .. } => false,
            Self::Trickled { rest, .. } => rest.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(text) => SizeHint::with_exact(text.len() as u64),
            Self::Broken { length, .. } => SizeHint::with_exact(*length),
            Self::Trickled { .. } => SizeHint::default(),
        }
    }
}
