//! The listener's socket: bound by the supervisor, lent to relayd, kept through a restart of relayd so
//! that a dial waits instead of failing, and closed when that takes too long (LIS-23, LIS-25).

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    time::Duration,
};

use nix::sys::socket::{Backlog, getsockopt, listen, sockopt::AcceptConn};
use tracing::warn;

use crate::constants::{LISTENER_BACKLOG, LISTENER_HOLD};

/// The socket and how long it is kept without somebody who serves it.
#[derive(Debug, Default)]
pub struct ListenerSocket {
    held: Option<TcpListener>,
    unserved_since: Option<Duration>,
}

impl ListenerSocket {
    /// A copy of the held socket, or of one that is bound to the first of `addresses` that can be.
    ///
    /// # Errors
    /// The system's. A held socket stays held: dials wait in its backlog (LIS-23).
    pub fn lend(&mut self, addresses: &[SocketAddr]) -> io::Result<(SocketAddr, OwnedFd)> {
        self.lend_copied(addresses, TcpListener::try_clone)
    }

    fn lend_copied(
        &mut self,
        addresses: &[SocketAddr],
        copy: fn(&TcpListener) -> io::Result<TcpListener>,
    ) -> io::Result<(SocketAddr, OwnedFd)> {
        let copied = |listener: &TcpListener| -> io::Result<(SocketAddr, OwnedFd)> {
            Ok((listener.local_addr()?, copy(listener)?.into()))
        };
        // Whoever it was lent to can end it for everybody, with one call on its copy.
        if self.held.as_ref().is_some_and(|listener| !listens(listener)) {
            warn!("the listener was ended by whom it was lent to: it is bound anew");
            self.held = None;
        }
        let lent = match &self.held {
            Some(listener) => copied(listener)?,
            None => {
                let listener = TcpListener::bind(addresses)?;
                listener.set_nonblocking(true)?;
                // Dials of a whole cluster come at once after a restart.
                listen(&listener, Backlog::new(LISTENER_BACKLOG)?)?;
                // One that nobody could be lent is not kept, so that no probe finds it.
                let lent = copied(&listener)?;
                self.held = Some(listener);
                lent
            }
        };
        self.unserved_since = None;
        Ok(lent)
    }

    /// The address that is bound and listens, while one does.
    pub fn address(&self) -> Option<SocketAddr> {
        let listening = self.held.as_ref().filter(|listener| listens(listener));
        listening.and_then(|listener| listener.local_addr().ok())
    }

    /// The relayd that served it has ended, or is to end and accepts nothing any more.
    pub fn unserved(&mut self, mono: Duration) {
        if self.held.is_some() && self.unserved_since.is_none() {
            self.unserved_since = Some(mono);
        }
    }

    /// When [`ListenerSocket::close_if_due`] closes it.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.unserved_since.map(|since| since + LISTENER_HOLD)
    }

    /// Closes a socket that nobody served for too long, so that a probe tells the truth; says whether
    /// it did.
    pub fn close_if_due(&mut self, mono: Duration) -> bool {
        let due = self.next_deadline().is_some_and(|due| due <= mono);
        if due {
            self.close();
        }
        due
    }

    /// Closes it.
    pub fn close(&mut self) {
        *self = Self::default();
    }
}

fn listens(listener: &TcpListener) -> bool {
    getsockopt(listener, AcceptConn).is_ok_and(|listens| listens)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Shutdown, TcpStream},
        os::fd::AsRawFd,
    };

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn loopback() -> [SocketAddr; 1] {
        [SocketAddr::from(([127, 0, 0, 1], 0))]
    }

    /// LIS-23: dials succeed while relayd restarts, and are refused after ten seconds.
    #[test]
    fn the_socket_outlives_a_short_restart_and_not_a_long_one() {
        let mut socket = ListenerSocket::default();
        let (address, lent) = socket.lend(&loopback()).unwrap();
        drop(lent);
        socket.unserved(5 * S);
        assert!(!socket.close_if_due(15 * S - Duration::from_nanos(1)));
        TcpStream::connect(address).unwrap();
        let (again, lent) = socket.lend(&[]).unwrap();
        assert_eq!(again, address, "the same socket, bound once");
        assert_eq!(socket.next_deadline(), None);
        drop(lent);
        socket.unserved(20 * S);
        socket.unserved(25 * S);
        assert!(socket.close_if_due(30 * S));
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    /// LIS-23: while no descriptor is free, the kept socket stays with the dials in its backlog, and its time
    /// runs on.
    #[test]
    fn the_kept_socket_outlives_a_copy_that_fails() {
        let no_descriptor: fn(&TcpListener) -> io::Result<TcpListener> =
            |_| Err(io::Error::from_raw_os_error(nix::libc::EMFILE));
        let mut socket = ListenerSocket::default();
        socket.lend_copied(&loopback(), no_descriptor).unwrap_err();
        assert_eq!(socket.address(), None, "what was never lent is not kept");
        let (address, lent) = socket.lend(&loopback()).unwrap();
        drop(lent);
        socket.unserved(5 * S);
        let waiting = TcpStream::connect(address).unwrap();
        let error = socket.lend_copied(&[], no_descriptor).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EMFILE));
        assert_eq!((socket.address(), socket.next_deadline()), (Some(address), Some(15 * S)));
        let (_, lent) = socket.lend(&[]).unwrap();
        let (_, from) = TcpListener::from(lent).accept().unwrap();
        assert_eq!(from, waiting.local_addr().unwrap());
    }

    /// ARC-17: a relayd that ends the listener takes the port from no relayd after it.
    #[test]
    fn a_listener_that_was_ended_is_bound_anew() {
        let mut socket = ListenerSocket::default();
        let (address, lent) = socket.lend(&loopback()).unwrap();
        nix::sys::socket::shutdown(lent.as_raw_fd(), nix::sys::socket::Shutdown::Both).unwrap();
        TcpStream::connect(address).unwrap_err();
        assert_eq!(socket.address(), None, "it is no listener any more");
        drop(lent);
        let (again, lent) = socket.lend(&[address]).unwrap();
        assert_eq!((again, socket.address()), (address, Some(address)));
        TcpStream::connect(address).unwrap().shutdown(Shutdown::Both).unwrap();
        drop(lent);
    }

    /// START-19: an address that cannot be bound is an error.
    #[test]
    fn a_taken_port_is_an_error() {
        let taken = TcpListener::bind(loopback().as_slice()).unwrap();
        let mut socket = ListenerSocket::default();
        let error = socket.lend(&[taken.local_addr().unwrap()]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
