//! What the descriptors of a process are: their links in `/proc/PID/fd`, of sockets what the kernel's tables of the
//! network namespace say, and of those that are in none their protocol.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use coreflow_ipc::sys;
use serde::{Serialize, Serializer};

/// What a descriptor is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A TCP socket that listens.
    TcpListener(SocketAddr),
    /// A TCP connection: its own end and the other one.
    Tcp(SocketAddr, SocketAddr),
    /// A UDP socket.
    Udp(SocketAddr),
    /// A Unix stream socket without a name: a link, or one end of a pair.
    UnixStream,
    /// A Unix socket that listens, has a name or is no stream; its name.
    UnixOther(String),
    /// A TCP socket in no table: not connected, or closed by now.
    TcpIdle,
    /// A socket of none of these tables; its protocol by the kernel's name.
    OtherSocket(String),
    /// A pipe.
    Pipe,
    /// Something of the kernel without a file, such as `eventpoll`.
    Anonymous(String),
    /// Memory as a file.
    Memory(String),
    /// A file, a directory or a device.
    File(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TcpListener(address) => write!(f, "tcp listening on {address}"),
            Self::Tcp(own, other) => write!(f, "tcp {own} to {other}"),
            Self::Udp(address) => write!(f, "udp {address}"),
            Self::UnixStream => f.write_str("unix stream"),
            Self::UnixOther(name) => write!(f, "unix socket {name}"),
            Self::TcpIdle => f.write_str("tcp, not connected"),
            Self::OtherSocket(protocol) => write!(f, "socket of {protocol}"),
            Self::Pipe => f.write_str("pipe"),
            Self::Anonymous(name) => f.write_str(name),
            Self::Memory(name) => write!(f, "memory {name}"),
            Self::File(path) => write!(f, "file {path}"),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The descriptors of a process, by number.
///
/// The tables are read after the links, so that a socket that is still held has its line in them.
pub(super) fn of_process(pid: u32) -> io::Result<BTreeMap<u32, Kind>> {
    let links = links(pid)?;
    let sockets = Sockets::of_process(pid)?;
    let mut kinds = BTreeMap::new();
    for (number, target) in links {
        let kind = match kind(&target, &sockets) {
            Some(kind) => kind,
            None => {
                let Some(kind) = unlisted(&PathBuf::from(format!("/proc/{pid}/fd/{number}")), &target)?
                else {
                    continue;
                };
                kind
            }
        };
        kinds.insert(number, kind);
    }
    Ok(kinds)
}

/// A socket that is in no table, unless it was closed meanwhile.
fn unlisted(descriptor: &Path, target: &Path) -> io::Result<Option<Kind>> {
    let protocol = sys::socket_protocol(descriptor);
    match fs::read_link(descriptor) {
        Ok(still) if still == target => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(match protocol.map_err(io::Error::from)?.as_str() {
        "TCP" | "TCPv6" => Kind::TcpIdle,
        other => Kind::OtherSocket(other.to_owned()),
    }))
}

fn links(pid: u32) -> io::Result<BTreeMap<u32, PathBuf>> {
    let mut links = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match fs::read_link(entry.path()) {
            Ok(target) => {
                links.insert(number, target);
            }
            // It was closed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}

/// What a link tells; none of a socket that is in no table.
fn kind(target: &Path, sockets: &Sockets) -> Option<Kind> {
    let target = target.to_string_lossy();
    let within = |prefix: &str| target.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(']'));
    if let Some(inode) = within("socket:[") {
        let inode: Option<u64> = inode.parse().ok();
        return inode.and_then(|inode| sockets.0.get(&inode).cloned());
    }
    if target.starts_with("pipe:[") {
        return Some(Kind::Pipe);
    }
    if let Some(name) = target.strip_prefix("anon_inode:") {
        return Some(Kind::Anonymous(name.trim_matches(['[', ']']).to_owned()));
    }
    if target.starts_with("/memfd:") || target.starts_with("/secretmem") {
        return Some(Kind::Memory(target.into_owned()));
    }
    Some(Kind::File(target.into_owned()))
}

/// The sockets of a network namespace, by inode.
#[derive(Debug, Default)]
struct Sockets(BTreeMap<u64, Kind>);

impl Sockets {
    /// Those of the namespace that a process is in.
    fn of_process(pid: u32) -> io::Result<Self> {
        let mut sockets = Self::default();
        let table = |name: &str| match fs::read_to_string(format!("/proc/{pid}/net/{name}")) {
            // A kernel that was booted without IPv6 has no such sockets.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.ends_with('6') => Ok(String::new()),
            read => read,
        };
        for name in ["tcp", "tcp6"] {
            sockets.add(&table(name)?, tcp);
        }
        for name in ["udp", "udp6"] {
            sockets.add(&table(name)?, udp);
        }
        sockets.add(&table("unix")?, unix);
        Ok(sockets)
    }

    fn add(&mut self, table: &str, socket: fn(&[&str]) -> Option<(u64, Kind)>) {
        let lines = table.lines().skip(1);
        self.0.extend(lines.filter_map(|line| socket(&line.split_whitespace().collect::<Vec<_>>())));
    }
}

/// The state of a socket that listens.
const LISTENS: &str = "0A";
/// `__SO_ACCEPTCON`, of a Unix socket that listens.
const ACCEPTS: u32 = 1 << 16;

fn tcp(fields: &[&str]) -> Option<(u64, Kind)> {
    let [_, own, other, state, _, _, _, _, _, inode, ..] = fields else { return None };
    let own = address(own)?;
    let kind = if *state == LISTENS { Kind::TcpListener(own) } else { Kind::Tcp(own, address(other)?) };
    Some((inode.parse().ok()?, kind))
}

fn udp(fields: &[&str]) -> Option<(u64, Kind)> {
    let [_, own, _, _, _, _, _, _, _, inode, ..] = fields else { return None };
    Some((inode.parse().ok()?, Kind::Udp(address(own)?)))
}

fn unix(fields: &[&str]) -> Option<(u64, Kind)> {
    let [_, _, _, flags, kind, _, inode, name @ ..] = fields else { return None };
    let listens = u32::from_str_radix(flags, 16).ok()? & ACCEPTS != 0;
    let stream = *kind == "0001";
    let kind = if stream && !listens && name.is_empty() {
        Kind::UnixStream
    } else {
        let kind = if stream { "stream" } else { "datagram" };
        let listens = if listens { ", listening" } else { "" };
        Kind::UnixOther(format!("({kind}{listens}) {}", name.join(" ")).trim_end().to_owned())
    };
    Some((inode.parse().ok()?, kind))
}

/// An address of the tables: words of 32 bits as the host has them, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<u32>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::V4(Ipv4Addr::from(four)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)),
    };
    Some(SocketAddr::new(address.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, net::TcpStream, net::UdpSocket, os::fd::AsRawFd, os::unix::net::UnixStream};

    use super::*;

    /// The tables of this very process say what its own descriptors are.
    #[test]
    fn own_descriptors_are_told_by_what_they_are() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).unwrap();
        let datagrams = UdpSocket::bind("[::1]:0").unwrap();
        let (end, _other) = UnixStream::pair().unwrap();
        let (pipe, _write) = io::pipe().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("named");
        let named = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let pid = std::process::id();
        let idle = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        );
        let netlink = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Netlink,
            nix::sys::socket::SockType::Raw,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        );
        let (idle, netlink) = (idle.unwrap(), netlink.unwrap());
        let kinds = of_process(pid).unwrap();
        let of = |descriptor: &dyn AsRawFd| &kinds[&u32::try_from(descriptor.as_raw_fd()).unwrap()];
        assert_eq!(of(&listener), &Kind::TcpListener(at));
        assert_eq!(of(&stream), &Kind::Tcp(stream.local_addr().unwrap(), at));
        assert_eq!(of(&datagrams), &Kind::Udp(datagrams.local_addr().unwrap()));
        assert_eq!((of(&idle), of(&netlink)), (&Kind::TcpIdle, &Kind::OtherSocket("NETLINK".to_owned())));
        assert_eq!((of(&end), of(&pipe)), (&Kind::UnixStream, &Kind::Pipe));
        assert_eq!(of(&named), &Kind::UnixOther(format!("(stream, listening) {}", path.display())));
    }

    /// What is no socket is told by its link.
    #[test]
    fn what_is_no_socket_is_told_by_its_link() {
        let kind = |target: &str| kind(Path::new(target), &Sockets::default());
        assert_eq!(kind("anon_inode:[eventpoll]"), Some(Kind::Anonymous("eventpoll".to_owned())));
        assert_eq!(kind("/etc/passwd"), Some(Kind::File("/etc/passwd".to_owned())));
        assert_eq!(kind("/memfd:x (deleted)"), Some(Kind::Memory("/memfd:x (deleted)".to_owned())));
        assert_eq!(kind("socket:[7]"), None);
        assert_eq!(kind("socket:[7"), Some(Kind::File("socket:[7".to_owned())));
    }
}
