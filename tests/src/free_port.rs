//! Ports from the system: a port nobody listens on at the moment of asking.

use std::net::{Ipv4Addr, TcpListener};

/// A TCP port of 127.0.0.1 that was free when asked for. The kernel hands such ports out in
/// turn, so two callers in a row do not get the same one.
///
/// # Panics
/// When the system has no free port left.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the system has a free TCP port");
    listener.local_addr().expect("a bound socket has an address").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The port can be bound right after it was given.
    #[test]
    fn a_port_can_be_bound() {
        let port = free_port();
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(bound.local_addr().unwrap().port(), port);
    }
}
