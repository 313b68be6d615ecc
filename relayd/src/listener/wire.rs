//! The TCP connection below a node's or a puller's TLS, which can leave one runtime for another: handshakes
//! and pulls are served by the listener's thread, and a node's socket lives beside the core.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// What the listener speaks HTTP and WebSocket over.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Leaves this runtime; nothing may be read or written until [`Transport::resume`].
    fn park(&mut self) -> io::Result<()>;

    /// Joins the runtime that this is called in.
    fn resume(&mut self) -> io::Result<()>;
}

/// A TCP connection.
pub(super) enum Wire {
    /// One of a runtime.
    Joined(TcpStream),
    /// One of none.
    Parked(Option<std::net::TcpStream>),
}

impl Wire {
    fn joined(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        match self {
            Self::Joined(stream) => Ok(Pin::new(stream)),
            Self::Parked(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Transport for TlsStream<Wire> {
    fn park(&mut self) -> io::Result<()> {
        let wire = self.get_mut().0;
        if let Wire::Joined(stream) = std::mem::replace(wire, Wire::Parked(None)) {
            *wire = Wire::Parked(Some(stream.into_std()?));
        }
        Ok(())
    }

    fn resume(&mut self) -> io::Result<()> {
        let wire = self.get_mut().0;
        if let Wire::Parked(parked) = wire {
            let stream = parked.take().ok_or(io::ErrorKind::NotConnected)?;
            *wire = Wire::Joined(TcpStream::from_std(stream)?);
        }
        Ok(())
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
        self.joined()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.joined()?.poll_write_vectored(context, parts)
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
}

impl<T: Transport> Transport for Box<T> {
    fn park(&mut self) -> io::Result<()> {
        (**self).park()
    }

    fn resume(&mut self) -> io::Result<()> {
        (**self).resume()
    }
}
