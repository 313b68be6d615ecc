//! A stream whose first bytes were read to see what they are, and are read once more by whom they are for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Longest first line that is looked for.
const FIRST_LINE: usize = 16 << 10;

/// The stream, from its beginning.
pub(super) struct Rewound<S> {
    seen: Vec<u8>,
    stream: S,
}

impl<S: AsyncRead + Unpin> Rewound<S> {
    /// A stream of which nothing was read.
    pub(super) fn untouched(stream: S) -> Self {
        Self { seen: Vec::new(), stream }
    }

    /// Reads until the first line is whole and gives it; `None` where the stream ends before.
    pub(super) async fn first_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.seen.windows(2).position(|two| two == b"\r\n") {
                return Some(String::from_utf8_lossy(&self.seen[..end]).into_owned());
            }
            if self.seen.len() > FIRST_LINE || self.stream.read_buf(&mut self.seen).await.ok()? == 0 {
                return None;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.seen.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let length = self.seen.len().min(into.remaining());
        into.put_slice(&self.seen[..length]);
        self.seen.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
