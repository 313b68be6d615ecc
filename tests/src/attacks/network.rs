//! Attempts on the network: addresses that are not the profile's, families that no worker has, and the ways
//! round them.
#![expect(unsafe_code, reason = "attacks are made with raw system calls")]

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

use coreflow_ipc::sys::Errno;

use super::attempts::{AllowAll, Answered, Attempt, call, done, word};
use super::child::Attacker;

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("connect", |a| done(TcpStream::connect((Ipv4Addr::LOCALHOST, port(a))))),
    ("dial every port", dial_every_port),
    ("connect by IPv6", |a| match port(a) {
        0 => Err(Errno::EAFNOSUPPORT),
        port => done(TcpStream::connect((Ipv6Addr::LOCALHOST, port))),
    }),
    ("bind", bind),
    ("listen without bind", |_| call(libc::SYS_listen, [tcp()?, 1, 0, 0, 0]).map(word)),
    ("udp socket", |_| socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map(word)),
    ("udp6 socket", |_| socket(libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).map(word)),
    ("raw socket", |_| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).map(word)),
    ("unix socket", |_| socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).map(word)),
    ("netlink socket", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, 0).map(word)),
    ("vsock socket", |_| socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0).map(word)),
    ("packet socket", |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(word)),
    ("mptcp connect", |a| {
        let socket = socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)?;
        connect(socket, &loopback(port(a))).map(word)
    }),
    ("udp send", |a| {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        send_to(socket, b"x", 0, &loopback(port(a)))
    }),
    ("udp bind", |_| {
        let (socket, address) = (socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?, loopback(0));
        call(libc::SYS_bind, [socket, (&raw const address).addr(), size_of_val(&address), 0, 0]).map(word)
    }),
    ("connect to a path socket", |a| done(UnixStream::connect(&a.argument))),
    ("send to a path socket", |a| {
        done(UnixDatagram::unbound().and_then(|socket| socket.send_to(b"X-ATTACK=1", &a.argument)))
    }),
    ("connect to an abstract socket", |a| {
        let address = SocketAddr::from_abstract_name(&a.argument).expect("a short name");
        done(UnixStream::connect_addr(&address))
    }),
    ("mptcp socket", |_| socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP).map(word)),
    ("socket pair", |_| pair(libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)),
    ("datagram socket pair", |_| pair(libc::SOCK_DGRAM)),
    ("fast open by sendto", |a| fast_open(a, libc::SYS_sendto)),
    ("fast open by sendmsg", |a| fast_open(a, libc::SYS_sendmsg)),
    ("fast open by sendmmsg", |a| fast_open(a, libc::SYS_sendmmsg)),
    ("attach a socket filter", |a| {
        let (level, filter) = (libc::SOL_SOCKET.cast_unsigned() as usize, AllowAll::new());
        let (option, length) =
            (libc::SO_ATTACH_FILTER.cast_unsigned() as usize, size_of::<libc::sock_fprog>());
        call(libc::SYS_setsockopt, [descriptor(&a.link), level, option, filter.program(), length]).map(word)
    }),
    ("open the process behind the link", |a| {
        let (mut process, mut length) = (-1_i32, 4_u32);
        let [level, option] =
            [libc::SOL_SOCKET, libc::SO_PEERPIDFD].map(|number| number.cast_unsigned() as usize);
        let (process, length) = ((&raw mut process).addr(), (&raw mut length).addr());
        call(libc::SYS_getsockopt, [descriptor(&a.link), level, option, process, length]).map(word)
    }),
    ("own a descriptor's signals", |a| {
        let command = libc::F_SETOWN.cast_unsigned() as usize;
        call(libc::SYS_fcntl, [descriptor(&a.link), command, 1, 0, 0]).map(word)
    }),
];

pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> Result<usize, Errno> {
    let arguments = [family, kind, protocol, 0, 0].map(|number| number.cast_unsigned() as usize);
    call(libc::SYS_socket, arguments)
}

pub(crate) fn descriptor(socket: &impl AsRawFd) -> usize {
    usize::try_from(socket.as_raw_fd()).expect("open")
}

/// A TCP socket, or descriptor 0, the link, in a worker that may make none: the attempt on it goes on.
fn tcp() -> Result<usize, Errno> {
    match socket(libc::AF_INET, libc::SOCK_STREAM, 0) {
        Err(Errno::EPERM) => Ok(0),
        answer => answer,
    }
}

fn loopback(port: u16) -> libc::sockaddr_in {
    // SAFETY: an address is plain numbers, for which all zeros are valid.
    let mut address: libc::sockaddr_in = unsafe { mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
    address
}

fn port(attacker: &Attacker) -> u16 {
    attacker.argument.parse().expect("a port")
}

fn bind(_: &mut Attacker) -> Answered {
    let address = loopback(0);
    let place = (&raw const address).addr();
    call(libc::SYS_bind, [tcp()?, place, size_of_val(&address), 0, 0]).map(word)
}

/// The ports that the kernel lets it dial, whoever answers there.
fn dial_every_port(_: &mut Attacker) -> Answered {
    let mut dialled = Vec::new();
    for port in 0..=u16::MAX {
        let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
        match connect(socket, &loopback(port)) {
            Err(Errno::EACCES) => {}
            Ok(_) | Err(_) => dialled.push(port.to_string()),
        }
        call(libc::SYS_close, [socket, 0, 0, 0, 0])?;
    }
    Ok(dialled.join(" "))
}

fn connect(socket: usize, address: &libc::sockaddr_in) -> Result<usize, Errno> {
    call(libc::SYS_connect, [socket, (&raw const *address).addr(), size_of_val(address), 0, 0])
}

fn pair(kind: i32) -> Answered {
    let mut ends = [0_i32; 2];
    let (family, kind) = (libc::AF_UNIX.cast_unsigned() as usize, kind.cast_unsigned() as usize);
    call(libc::SYS_socketpair, [family, kind, 0, ends.as_mut_ptr().addr(), 0]).map(word)
}

/// Data with an address on a fresh socket: a connect that is none.
fn fast_open(attacker: &mut Attacker, number: libc::c_long) -> Answered {
    let socket = tcp()?;
    let flag = libc::MSG_FASTOPEN.cast_unsigned() as usize;
    let mut address = loopback(port(attacker));
    let mut byte = *b"x";
    if number == libc::SYS_sendto {
        // The sixth argument, the address's length, is zero by `call`; the filter judges the flag before it.
        return send_to(socket, &byte, flag, &address);
    }
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a message is plain numbers and pointers, for which all zeros are valid.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_name = (&raw mut address).cast();
    message.msg_hdr.msg_namelen = size_of_val(&address) as libc::socklen_t;
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    let place = (&raw mut message).addr();
    let arguments =
        if number == libc::SYS_sendmsg { [socket, place, flag, 0, 0] } else { [socket, place, 1, flag, 0] };
    call(number, arguments).map(word)
}

fn send_to(socket: usize, bytes: &[u8], flags: usize, address: &libc::sockaddr_in) -> Answered {
    let length = size_of_val(address) as libc::socklen_t;
    let (socket, flags) = (i32::try_from(socket).expect("open"), flags as libc::c_int);
    // SAFETY: the bytes and the address are live and of the stated lengths.
    let answer = unsafe {
        libc::sendto(socket, bytes.as_ptr().cast(), bytes.len(), flags, (&raw const *address).cast(), length)
    };
    Errno::result(answer).map(word)
}
