//! The TCP connection below a node's or a puller's TLS, which can leave one runtime for another: handshakes
//! and pulls are served by the listener's thread, and a node's socket lives beside the core.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// Bytes that a connection may hold which were not sent yet.
const UNSENT: u32 = 128 << 10;

/// What the listener speaks HTTP and WebSocket over.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Leaves this runtime; nothing may be read or written until [`Transport::resume`].
    fn park(&mut self) -> io::Result<()>;

    /// Joins the runtime that this is called in.
    fn resume(&mut self) -> io::Result<()>;

    /// Counts what the peer's side has taken of what was written: it goes on while the peer does.
    fn written(&self) -> Arc<AtomicU64>;
}

/// A TCP connection.
pub(super) struct Wire {
    stream: Stream,
    written: Arc<AtomicU64>,
}

enum Stream {
    /// One of a runtime.
    Joined(TcpStream),
    /// One of none.
    Parked(Option<std::net::TcpStream>),
}

impl Wire {
    /// A connection of this runtime. What is written is taken only as the peer reads, but for
    /// [`UNSENT`] bytes: no connection fills the kernel's memory, and a slow peer is seen to go on.
    pub(super) fn new(stream: TcpStream) -> Self {
        // Without it more is kept in the kernel, and nothing else is wrong.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        Self { stream: Stream::Joined(stream), written: Arc::default() }
    }

    fn joined(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        match &mut self.stream {
            Stream::Joined(stream) => Ok(Pin::new(stream)),
            Stream::Parked(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn counted(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &wrote {
            self.written.fetch_add(*count as u64, Ordering::Relaxed);
        }
        wrote
    }
}

impl Transport for TlsStream<Wire> {
    fn park(&mut self) -> io::Result<()> {
        let held = &mut self.get_mut().0.stream;
        if let Stream::Joined(stream) = std::mem::replace(held, Stream::Parked(None)) {
            *held = Stream::Parked(Some(stream.into_std()?));
        }
        Ok(())
    }

    fn resume(&mut self) -> io::Result<()> {
        let held = &mut self.get_mut().0.stream;
        if let Stream::Parked(parked) = held {
            let stream = parked.take().ok_or(io::ErrorKind::NotConnected)?;
            *held = Stream::Joined(TcpStream::from_std(stream)?);
        }
        Ok(())
    }

    fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.get_ref().0.written)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.joined()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.joined()?.poll_write(context, bytes);
        self.counted(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.joined()?.poll_write_vectored(context, parts);
        self.counted(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.joined()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.joined()?.poll_shutdown(context)
    }
}

#[cfg(test)]
impl Transport for tokio::io::DuplexStream {
    fn park(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn resume(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn written(&self) -> Arc<AtomicU64> {
        Arc::default()
    }
}

impl<T: Transport> Transport for Box<T> {
    fn park(&mut self) -> io::Result<()> {
        (**self).park()
    }

    fn resume(&mut self) -> io::Result<()> {
        (**self).resume()
    }

    fn written(&self) -> Arc<AtomicU64> {
        (**self).written()
    }
}
