//! A way to the relay that can turn into a black hole: from then on it forwards nothing in either direction
//! and closes nothing, as a network does whose other end has lost power.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The way. Dropping it closes its listener and every connection.
pub struct BlackHole {
    address: SocketAddr,
    swallows: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl BlackHole {
    /// A way to `to` that forwards.
    ///
    /// # Errors
    /// The system has no port.
    pub async fn before(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let swallows = watch::Sender::new(false);
        let seen = swallows.clone();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if let Ok(far) = TcpStream::connect(to).await {
                    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
                    tokio::spawn(forward(from_near, to_far, seen.subscribe()));
                    tokio::spawn(forward(from_far, to_near, seen.subscribe()));
                }
            }
        });
        Ok(Self { address, swallows, task })
    }

    /// What is dialled in the place of the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards nothing any more.
    pub fn swallow(&self) {
        self.swallows.send_replace(true);
    }
}

impl Drop for BlackHole {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards until an end, or until it swallows; then both halves stay open until the way is dropped.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut swallows: watch::Receiver<bool>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            biased;
            over = async { swallows.wait_for(|swallows| *swallows).await.is_err() } => {
                while !over && swallows.changed().await.is_ok() {}
                return;
            }
            read = from.read(&mut bytes) => read,
        };
        let Ok(length @ 1..) = read else { return };
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// It forwards, then swallows and closes nothing.
    #[tokio::test]
    async fn it_forwards_until_it_swallows() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let way = BlackHole::before(listener.local_addr().unwrap()).await.unwrap();
        let mut near = TcpStream::connect(way.address()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"there").await.unwrap();
        let mut bytes = [0; 5];
        far.read_exact(&mut bytes).await.unwrap();
        far.write_all(b"again").await.unwrap();
        near.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"again");
        way.swallow();
        near.write_all(b"lost").await.unwrap();
        let read = tokio::time::timeout(Duration::from_millis(50), far.read(&mut bytes)).await;
        assert!(read.is_err(), "neither bytes nor an end come through");
        drop(way);
        assert_eq!(far.read(&mut bytes).await.unwrap_or(0), 0);
    }
}
