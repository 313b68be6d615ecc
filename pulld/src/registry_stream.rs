//! A connection to the registry as bytes, with TLS or without (PULL-01).
//!
//! Of a socket under TLS as much is received at once as there is, up to [`RECEIVE`]: rustls reads 4 KiB by
//! itself, which would be four system calls for each record of a blob. What is read of the stream is in turn
//! as many records as were received.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    constants::{RECEIVE, RECEIVE_FIRST},
    counts::Open,
};

/// An open connection to the registry.
pub(crate) struct RegistryStream {
    transport: Transport,
    heard: Heard,
    _open: Option<Open>,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<Received>>),
}

/// Whether the registry said anything since this was last reset; shared with the stream's holder.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<AtomicBool>);

impl Heard {
    /// From here on nothing was heard.
    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether a byte came.
    pub(crate) fn anything(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl RegistryStream {
    /// The connection of an origin that is reached without TLS.
    pub(crate) fn plain(socket: TcpStream) -> Self {
        Self { transport: Transport::Plain(socket), heard: Heard::default(), _open: None }
    }

    /// Greets `name` with TLS.
    ///
    /// # Errors
    /// The handshake's; one of TLS itself is a [`rustls::Error`] within.
    pub(crate) async fn tls(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let stream = TlsConnector::from(config).connect(name, Received::of(socket)).await?;
        Ok(Self { transport: Transport::Tls(Box::new(stream)), heard: Heard::default(), _open: None })
    }

    /// The stream counts as open for as long as it lasts.
    pub(crate) fn counted(self, open: Open) -> Self {
        Self { _open: Some(open), ..self }
    }

    /// The protocol that was agreed on in the handshake.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => stream.get_ref().1.alpn_protocol(),
        }
    }

    /// What tells whether the registry said anything on this connection.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }

    fn poll_records(
        stream: &mut TlsStream<Received>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            let start = buf.filled().len();
            let read = Pin::new(&mut *stream).poll_read(cx, buf);
            let (more, some) = (buf.filled().len() > start, buf.filled().len() > before);
            match read {
                Poll::Ready(Ok(())) if more && buf.remaining() > 0 && stream.get_ref().0.holds_some() => {}
                // What failed after some bytes fails again when they are taken.
                Poll::Pending | Poll::Ready(Err(_)) if some => return Poll::Ready(Ok(())),
                read => return read,
            }
        }
    }
}

impl AsyncRead for RegistryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(match &mut this.transport {
            Transport::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Transport::Tls(stream) => Self::poll_records(stream, cx, buf),
        })?;
        if buf.filled().len() > before {
            this.heard.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RegistryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().transport {
            Transport::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A socket with what was received of it and not taken yet.
struct Received {
    socket: TcpStream,
    bytes: Box<[u8]>,
    taken: usize,
    filled: usize,
}

impl Received {
    fn of(socket: TcpStream) -> Self {
        Self { socket, bytes: vec![0; RECEIVE_FIRST].into_boxed_slice(), taken: 0, filled: 0 }
    }

    fn holds_some(&self) -> bool {
        self.taken < self.filled
    }
}

impl AsyncRead for Received {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.holds_some() {
            // A socket that fills all there is has more to give.
            if this.filled == this.bytes.len() && this.filled < RECEIVE {
                this.bytes = vec![0; RECEIVE].into_boxed_slice();
            }
            let mut received = ReadBuf::new(&mut this.bytes);
            (this.taken, this.filled) = (0, 0);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut received))?;
            this.filled = received.filled().len();
        }
        let count = buf.remaining().min(this.filled - this.taken);
        buf.put_slice(&this.bytes[this.taken..this.taken + count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Received {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
