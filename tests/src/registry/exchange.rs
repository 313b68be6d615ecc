//! One request at the registry, and the connection it came on for its answer.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Asked, Duplex};

/// Longest head that is read.
const LONGEST_HEAD: usize = 1 << 20;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// The exchange. Dropped without [`Exchange::close`] the connection breaks off: no end in TLS, as from a
/// registry that died.
pub struct Exchange {
    /// The request.
    pub asked: Asked,
    stream: Box<dyn Duplex>,
    read: Vec<u8>,
}

impl Exchange {
    pub(super) fn before(connection: u64, stream: Box<dyn Duplex>) -> Self {
        Self { asked: Asked::read(connection, b""), stream, read: Vec::new() }
    }

    /// Reads the next head; `None` when the connection ends before.
    pub(super) async fn next(&mut self) -> Option<Asked> {
        loop {
            if let Some(end) = self.read.windows(END_OF_HEAD.len()).position(|some| some == END_OF_HEAD) {
                let head: Vec<u8> = self.read.drain(..end + END_OF_HEAD.len()).take(end).collect();
                self.asked = Asked::read(self.asked.connection, &head);
                return Some(self.asked.clone());
            }
            let ended = self.stream.read_buf(&mut self.read).await.ok()? == 0;
            if ended || self.read.len() > LONGEST_HEAD {
                return None;
            }
        }
    }

    pub(super) fn into_parts(self) -> (Box<dyn Duplex>, Vec<u8>) {
        (self.stream, self.read)
    }

    /// Sends raw bytes.
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn send(&mut self, raw: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(raw.as_ref()).await?;
        self.stream.flush().await
    }

    /// Sends raw bytes, after which the connection goes on.
    pub async fn answer(mut self, raw: impl AsRef<[u8]>) -> Option<Self> {
        self.send(raw).await.ok()?;
        Some(self)
    }

    /// Closes the connection in order.
    pub async fn close(mut self) -> Option<Self> {
        // One that is gone is closed.
        drop(self.stream.shutdown().await);
        None
    }

    /// Breaks the connection off.
    pub fn cut(self) -> Option<Self> {
        None
    }

    /// Waits until the other side has ended the connection. What it sends meanwhile is kept for the next head.
    pub async fn left(&mut self) {
        while self.read.len() < LONGEST_HEAD {
            if !matches!(self.stream.read_buf(&mut self.read).await, Ok(1..)) {
                return;
            }
        }
    }
}
