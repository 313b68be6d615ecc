//! Ports for the relay and its peers: nobody has them, as TCP or UDP, when they are given; no other caller, in whichever
//! process, is given them meanwhile; and the kernel hands none of them to an outgoing connection, which could take a port
//! between its choice and its use.

use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;

use crate::sockets::taken_ports;

/// Above what services use, and in blocks, each of which one process has for as long as it lives.
const FIRST: u16 = 10_240;
const BLOCK: u16 = 64;
const BLOCKS: u16 = (u16::MAX - FIRST) / BLOCK;

/// What this process has been given so far.
static GIVEN: Mutex<Given> = Mutex::new(Given { locks: Vec::new(), left: Vec::new() });

struct Given {
    /// The locks of its blocks: abstract sockets, which are of the same network namespace as the ports and which the
    /// kernel frees when the process ends, however that happens.
    locks: Vec<UnixDatagram>,
    /// The ports of its newest block that were not given yet.
    left: Vec<u16>,
}

/// A port of 127.0.0.1 that is free for TCP and UDP, and is given once in the life of this process.
///
/// # Panics
/// When other processes have every block.
pub fn free_port() -> u16 {
    let taken = taken_ports();
    let mut given = GIVEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        let Some(port) = given.left.pop() else {
            let (lock, ports) = lock_block();
            given.locks.push(lock);
            given.left.extend(ports);
            continue;
        };
        // Told by the kernel's tables: a bind that tries it would be inherited by whatever this process starts meanwhile,
        // and the port be taken until that has become its program.
        if !taken.contains(&port) {
            return port;
        }
    }
}

/// A block that no process has. The search begins at random: processes that start together go different ways.
fn lock_block() -> (UnixDatagram, RangeInclusive<u16>) {
    let outgoing = outgoing_ports();
    let ports = |block: u16| FIRST + block * BLOCK..=FIRST + block * BLOCK + (BLOCK - 1);
    let meets =
        |block: &u16| ports(*block).start() <= outgoing.end() && outgoing.start() <= ports(*block).end();
    let (met, apart): (Vec<u16>, Vec<u16>) = (0..BLOCKS).partition(meets);
    // A host may give all of them to outgoing connections; then those are no worse than any other.
    let mut blocks = if apart.is_empty() { met } else { apart };
    let random = getrandom::u32().expect("the system gives randomness") as usize;
    let start = random % blocks.len();
    blocks.rotate_left(start);
    let lock = |block: u16| {
        let name = format!("coreflow-tests-ports-{block}");
        let name = SocketAddr::from_abstract_name(name).expect("a short name");
        Some((UnixDatagram::bind_addr(&name).ok()?, ports(block)))
    };
    blocks.into_iter().find_map(lock).expect("a block of ports is free")
}

/// The ports the kernel chooses from for outgoing connections and unbound sockets.
fn outgoing_ports() -> RangeInclusive<u16> {
    let stated = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = stated.split_whitespace().map_while(|end| end.parse().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => first..=last,
        // The kernel's own choice where nothing is set.
        _ => 32_768..=60_999,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// The port can be bound right after it was given, and is none that an outgoing connection gets.
    #[test]
    fn a_port_can_be_bound() {
        let port = free_port();
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(bound.local_addr().unwrap().port(), port);
        assert!(outgoing_ports().contains(&FIRST) || !outgoing_ports().contains(&port), "{port}");
    }

    /// Callers at the same time, and over more than one block, are given different ports although none binds its own.
    #[test]
    fn no_port_is_given_twice() {
        let callers: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..BLOCK).map(|_| free_port()).collect::<Vec<_>>()))
            .collect();
        let given: Vec<u16> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    }

    /// What another process would be given is not what this one has: a block that is locked is passed over.
    #[test]
    fn a_block_is_locked_once() {
        let (_one, ports) = lock_block();
        for _ in 0..8 {
            let (_other, others) = lock_block();
            assert_ne!(ports, others);
        }
    }
}
