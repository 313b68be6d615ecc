//! Ports for the relay and its peers: nobody has them, as TCP or UDP, when they are given, and the kernel hands
//! none of them to an outgoing connection, which could take a port between its choice and its use.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// Below what the kernel gives outgoing connections by default, above what services use.
const FIRST: u16 = 10_240;
const COUNT: u16 = 32_768 - FIRST;

/// A port of 127.0.0.1 that was free for TCP and UDP when asked for, drawn at random: callers in other processes
/// draw from the same range.
///
/// # Panics
/// When no port of the range is free.
pub fn free_port() -> u16 {
    let free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    };
    let mut draws = (0..1000).map(|_| {
        let random = getrandom::u32().expect("the system gives randomness");
        FIRST + u16::try_from(random % u32::from(COUNT)).expect("a remainder is below its divisor")
    });
    draws.find(free).expect("a port of the range is free")
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
