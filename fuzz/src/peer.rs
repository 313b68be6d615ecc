//! A peer that says some bytes in two pieces and ends, at once or once it was asked, and takes whatever it is sent.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::{Builder, Runtime},
};

thread_local! {
    static RUNTIME: Runtime =
        Builder::new_current_thread().build().expect("a runtime without a driver is made of memory");
}

/// A connection to such a peer.
pub struct Peer {
    pieces: VecDeque<Vec<u8>>,
    /// It has nothing to wait for.
    speaks: bool,
    waiting: Option<Waker>,
}

/// A peer that says `said` unasked, the bytes from `cut` on in a second piece.
pub fn peer(said: &[u8], cut: usize) -> Peer {
    let (first, second) = said.split_at(cut.min(said.len()));
    let pieces = [first, second].into_iter().filter(|piece| !piece.is_empty());
    Peer { pieces: pieces.map(<[u8]>::to_vec).collect(), speaks: true, waiting: None }
}

/// A peer that says the same once it was sent something, as an HTTP server does.
pub fn answering(said: &[u8], cut: usize) -> Peer {
    Peer { speaks: false, ..peer(said, cut) }
}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.speaks {
            self.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        if let Some(piece) = self.pieces.front_mut() {
            let most = piece.len().min(into.remaining());
            into.put_slice(&piece[..most]);
            piece.drain(..most);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.speaks = true;
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What `work` gives; it waits for nothing but bytes that are there.
pub fn run<F: Future>(work: F) -> F::Output {
    RUNTIME.with(|runtime| runtime.block_on(work))
}
