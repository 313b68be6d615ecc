//! The TCP and UDP sockets of a process, as the kernel's tables show them. Looking into a process of another user
//! takes root.

use std::collections::BTreeSet;
use std::io;
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use coreflow_ipc::sys::{Errno, pidfd_open};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::AcceptConn;

/// One TCP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its own port.
    pub local_port: u16,
    /// Its peer's port; 0 for one that listens.
    pub remote_port: u16,
    /// Whether it listens.
    pub listening: bool,
}

/// The TCP sockets of both address families that process `pid` holds.
///
/// # Errors
/// The process is gone or may not be looked into.
pub fn tcp_sockets_of(pid: u32) -> io::Result<Vec<TcpSocket>> {
    let held = socket_inodes_of(pid)?;
    let mut sockets = Vec::new();
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        sockets.extend(table.lines().skip(1).filter_map(|row| row_of(row, &held)));
    }
    Ok(sockets)
}

/// Whether a UDP socket of this network namespace is bound to `address`, whoever has it. Looking disturbs nobody
/// who is about to bind it.
pub fn is_udp_bound(address: SocketAddrV4) -> bool {
    // The kernel writes the address as a number of its own byte order.
    let written = u32::from_ne_bytes(address.ip().octets());
    let own = format!("{written:08X}:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    table.lines().skip(1).any(|row| row.split_whitespace().nth(1) == Some(&own))
}

/// The ports of this network namespace that a socket of either protocol and family has, whoever's it is.
pub fn taken_ports() -> BTreeSet<u16> {
    let mut taken = BTreeSet::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        // A host without a family has no such table.
        let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        taken.extend(table.lines().skip(1).filter_map(|row| port(row.split_whitespace().nth(1)?)));
    }
    taken
}

/// The port of an address as the kernel's tables write it.
fn port(address: &str) -> Option<u16> {
    u16::from_str_radix(address.rsplit(':').next()?, 16).ok()
}

/// Ends the socket of process `pid` that listens on `port`, for all who hold it: what a process that was taken over can do
/// to a listener that it was lent. Takes root.
///
/// # Errors
/// The system's; that it has no such socket is one as well.
pub fn end_listener(pid: u32, port: u16) -> io::Result<()> {
    let process = pidfd_open(pid)?;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(copy) = copied(&process, number) else { continue };
        let listens = getsockopt(&copy, AcceptConn).unwrap_or(false);
        let socket = TcpStream::from(copy);
        if listens && socket.local_addr()?.port() == port {
            return socket.shutdown(Shutdown::Both);
        }
    }
    Err(io::Error::other(format!("process {pid} has no listener on port {port}")))
}

/// A copy of descriptor `number` of a process.
#[expect(unsafe_code, reason = "pidfd_getfd has no safe wrapper")]
fn copied(process: &OwnedFd, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    let copy = i32::try_from(Errno::result(copy)?).expect("a descriptor is small");
    // SAFETY: the kernel just made it for this call, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// The inodes of the sockets that `pid` holds, of whatever kind.
fn socket_inodes_of(pid: u32) -> io::Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    let inode = |entry: io::Result<std::fs::DirEntry>| {
        let lead = std::fs::read_link(entry.ok()?.path()).ok()?;
        Some(lead.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    Ok(entries.filter_map(inode).collect())
}

fn row_of(row: &str, held: &BTreeSet<String>) -> Option<TcpSocket> {
    let columns: Vec<&str> = row.split_whitespace().collect();
    let [local, remote, state] = [1, 2, 3].map(|column| columns.get(column).copied());
    if !held.contains(*columns.get(9)?) {
        return None;
    }
    Some(TcpSocket { local_port: port(local?)?, remote_port: port(remote?)?, listening: state? == "0A" })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    use super::*;
    use crate::free_port::free_port;
    use crate::waiting::{BOUND, poll};

    /// A listener, a dialled and an accepted socket of this very process are seen with their ports.
    #[test]
    fn sockets_are_seen_with_their_ports() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialled = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (_accepted, from) = listener.accept().unwrap();
        assert_eq!(dialled.local_addr().unwrap(), from);
        let seen = tcp_sockets_of(std::process::id()).unwrap();
        assert!(taken_ports().contains(&port));
        for (local_port, remote_port, listening) in
            [(port, 0, true), (from.port(), port, false), (port, from.port(), false)]
        {
            assert!(seen.contains(&TcpSocket { local_port, remote_port, listening }), "{seen:?}");
        }
    }

    /// A UDP socket is seen as long as it is there: a program that another test starts has a copy of it until it runs.
    #[tokio::test]
    async fn a_udp_socket_is_seen_while_it_is_bound() {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port());
        assert!(!is_udp_bound(address) && !taken_ports().contains(&address.port()));
        let socket = UdpSocket::bind(address).unwrap();
        assert!(is_udp_bound(address) && taken_ports().contains(&address.port()));
        drop(socket);
        let gone = || (!is_udp_bound(address)).then_some(());
        poll(BOUND, "end of a UDP socket", gone).await.unwrap();
    }
}
