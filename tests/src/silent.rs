//! A port of 127.0.0.1 on which the kernel answers no dial: the listener's queue is full and nobody accepts,
//! so that a further SYN is dropped, as by a host that is down or a filter on the way.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

use crate::free_port::free_port;

/// How long a dial may take that only the queue's own room decides.
const PATIENCE: Duration = Duration::from_millis(300);
/// Dials after which a queue for one is certainly full.
const DIALS: usize = 16;

/// The port. Dropping it refuses further dials.
pub struct SilentPort {
    listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl SilentPort {
    /// Fills the queue of a free port; inside a tokio runtime.
    ///
    /// # Panics
    /// When no port can be bound, or the kernel's queue does not fill.
    pub fn open() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let socket = TcpSocket::new_v4().expect("the system has sockets");
        socket.bind(address).expect("the port is free");
        let listener = socket.listen(1).expect("a bound socket listens");
        let mut queued = Vec::new();
        while let Ok(dialled) = TcpStream::connect_timeout(&address, PATIENCE) {
            queued.push(dialled);
            assert!(queued.len() < DIALS, "a queue for one holds {DIALS}");
        }
        Self { listener, _queued: queued }
    }

    /// Its number.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().expect("a bound socket has an address").port()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dial is neither accepted nor refused.
    #[tokio::test]
    async fn a_dial_gets_no_answer() {
        let port = SilentPort::open();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.port()));
        let dial = TcpStream::connect_timeout(&address, PATIENCE);
        assert_eq!(dial.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
