//! The hub's UDP socket: bound for vpnd, which can make none, and handed over without a copy (VPN-33, VPN-37).

use std::{
    fmt, io,
    net::{SocketAddr, SocketAddrV4},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockopt, setsockopt, socket, sockopt,
    },
};

use crate::constants::HUB_SOCKET_BUFFER;

/// A bound socket that does not block.
pub struct HubSocket {
    /// The socket.
    pub socket: OwnedFd,
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// How much of what arrives it keeps for vpnd, in bytes.
    pub receive_buffer: usize,
    /// How much of what vpnd sends it keeps for the network, in bytes.
    pub send_buffer: usize,
}

/// Why the hub's address cannot be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubBindError {
    /// No interface of this host has the address.
    ForeignAddress,
    /// Another socket holds the port at this address.
    PortInUse,
    /// The port, or the socket, is not permitted to this process.
    NotPermitted,
    /// Another failure of the system.
    System(Errno),
}

impl std::error::Error for HubBindError {}

impl fmt::Display for HubBindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignAddress => f.write_str("the address is none of this host"),
            Self::PortInUse => f.write_str("the port is in use"),
            Self::NotPermitted => f.write_str("the port is not permitted to the relay"),
            Self::System(errno) => f.write_str(&io::Error::from(*errno).kind().to_string()),
        }
    }
}

impl From<Errno> for HubBindError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EADDRNOTAVAIL => Self::ForeignAddress,
            Errno::EADDRINUSE => Self::PortInUse,
            Errno::EACCES | Errno::EPERM => Self::NotPermitted,
            other => Self::System(other),
        }
    }
}

impl HubSocket {
    /// Binds `address`. The socket shares its port with no other: neither address nor port is reused.
    ///
    /// # Errors
    /// The class of what the host refused.
    pub fn bind(address: SocketAddrV4) -> Result<Self, HubBindError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        // Past the host's limit where that is permitted, else up to it; what became of it is read below.
        if setsockopt(&socket, sockopt::RcvBufForce, &HUB_SOCKET_BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &HUB_SOCKET_BUFFER)?;
        }
        if setsockopt(&socket, sockopt::SndBufForce, &HUB_SOCKET_BUFFER).is_err() {
            setsockopt(&socket, sockopt::SndBuf, &HUB_SOCKET_BUFFER)?;
        }
        // Linux counts its own bookkeeping in and doubles the figure.
        let receive_buffer = getsockopt(&socket, sockopt::RcvBuf)? / 2;
        let send_buffer = getsockopt(&socket, sockopt::SndBuf)? / 2;
        bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
        Ok(Self { socket, address: address.into(), receive_buffer, send_buffer })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

    use super::*;

    fn free() -> SocketAddrV4 {
        let probe = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, probe.local_addr().unwrap().port())
    }

    /// VPN-40: beside a TCP listener of the same address; the socket does not block, is closed on exec, and has
    /// the buffers that it says.
    #[test]
    fn the_address_is_bound_beside_a_tcp_listener() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let bound = HubSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(bound.address, listener.local_addr().unwrap());
        let flags = OFlag::from_bits_retain(fcntl(&bound.socket, FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK));
        let flags = FdFlag::from_bits_retain(fcntl(&bound.socket, FcntlArg::F_GETFD).unwrap());
        assert!(flags.contains(FdFlag::FD_CLOEXEC));
        let limit = |name: &str| -> usize {
            let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap();
            text.trim().parse::<usize>().unwrap().min(HUB_SOCKET_BUFFER)
        };
        assert!((limit("rmem_max")..=HUB_SOCKET_BUFFER).contains(&bound.receive_buffer));
        assert!((limit("wmem_max")..=HUB_SOCKET_BUFFER).contains(&bound.send_buffer));
    }

    /// What the host refuses is named by its class, and once it is no longer in the way the same
    /// address is bound.
    #[test]
    fn what_the_host_refuses_is_named_by_its_class() {
        let address = free();
        let holder = UdpSocket::bind(address).unwrap();
        assert_eq!(HubSocket::bind(address).err(), Some(HubBindError::PortInUse));
        drop(holder);
        let bound = HubSocket::bind(address).unwrap();
        // No second one shares its port.
        assert_eq!(HubSocket::bind(address).err(), Some(HubBindError::PortInUse));
        drop(bound);
        // An address of documentation, which no host has (RFC 5737).
        let foreign = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 16), address.port());
        assert_eq!(HubSocket::bind(foreign).err(), Some(HubBindError::ForeignAddress));
    }

    #[test]
    fn each_class_has_its_words() {
        for (errno, words) in [
            (Errno::EADDRNOTAVAIL, "the address is none of this host"),
            (Errno::EADDRINUSE, "the port is in use"),
            (Errno::EACCES, "the port is not permitted to the relay"),
            (Errno::ENOMEM, "out of memory"),
        ] {
            assert_eq!(HubBindError::from(errno).to_string(), words);
        }
    }
}
