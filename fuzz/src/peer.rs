//! A peer that says some bytes in two pieces and ends, and takes whatever it is sent.

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, Sink, join, sink},
    runtime::{Builder, Runtime},
};

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().build().expect("a runtime without a driver is made of memory");
}

/// A connection to a peer that says `said`, the bytes from `cut` on in a second piece.
pub fn peer(said: &[u8], cut: usize) -> impl AsyncRead + AsyncWrite + Unpin + Send {
    let (first, second) = said.split_at(cut.min(said.len()));
    let pieces = std::io::Cursor::new(first.to_vec()).chain(std::io::Cursor::new(second.to_vec()));
    let taken: Sink = sink();
    join(pieces, taken)
}

/// What `work` gives; it waits for nothing but bytes that are there.
pub fn run<F: Future>(work: F) -> F::Output {
    RUNTIME.with(|runtime| runtime.block_on(work))
}
