//! What happens to file descriptors as a whole: everything from a number on is closed, now or at the next
//! exec, and a socket is told to take none (ARC-05); of another process's socket the protocol is told.
#![expect(unsafe_code, reason = "close_range, SO_PASSRIGHTS and getxattr have no safe wrapper")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

/// `SO_PASSRIGHTS` of `asm-generic/socket.h` (Linux 6.16), the same number on x86_64 and aarch64.
pub(crate) const SO_PASSRIGHTS: libc::c_int = 83;

/// Closes every descriptor numbered `first` or above.
///
/// For the start of a process, before anything in it owns such a descriptor. A negative `first` is `EINVAL`.
pub fn close_from(first: RawFd) -> Result<(), Errno> {
    close_range(first, 0)
}

/// Marks every descriptor numbered `first` or above close-on-exec; they stay open in this process.
pub fn close_from_on_exec(first: RawFd) -> Result<(), Errno> {
    close_range(first, libc::CLOSE_RANGE_CLOEXEC)
}

/// How many descriptors this process may hold: its soft limit now.
pub fn most_descriptors() -> u64 {
    // Of an own process and a known resource the call cannot fail; a filter that refused it would leave
    // the number that every process may hold.
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
}

/// The protocol of the socket that `descriptor` (`/proc/PID/fd/N`) leads to, by the kernel's own name, such as `TCP`,
/// `UNIX-STREAM` or `NETLINK`.
pub fn socket_protocol(descriptor: &Path) -> Result<String, Errno> {
    let path = CString::new(descriptor.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    // The kernel's names have at most 32 bytes, the last of them zero.
    let mut name = [0_u8; 64];
    let attribute = c"system.sockprotoname".as_ptr();
    // SAFETY: both texts end with a zero byte, and the call writes at most as many bytes as the buffer has.
    let length = unsafe { libc::getxattr(path.as_ptr(), attribute, name.as_mut_ptr().cast(), name.len()) };
    let length = usize::try_from(Errno::result(length)?).unwrap_or_default();
    let name = name.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
}

/// Tells the kernel that this Unix socket takes no descriptors: a peer that sends one gets `EPERM`.
///
/// `Ok(false)` when the kernel does not know the option (before Linux 6.16); such a link must then be read
/// with plain `read`, which installs none.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    let off: libc::c_int = 0;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option value is a live c_int of the stated length, which the kernel only reads.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const off).cast(), length)
    };
    match Errno::result(answer) {
        Ok(_) => Ok(true),
        Err(Errno::ENOPROTOOPT | Errno::EOPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn close_range(first: RawFd, flags: libc::c_uint) -> Result<(), Errno> {
    let Ok(first) = libc::c_uint::try_from(first) else { return Err(Errno::EINVAL) };
    // SAFETY: the call takes numbers only; that nothing owns the closed descriptors is the documented duty of
    // `close_from`, and a broken one shows as EBADF, not as a memory error.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) };
    Errno::result(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::sys::{receive_with_descriptors, send_with_descriptors};

    #[test]
    fn a_negative_first_descriptor_is_refused() {
        assert_eq!(close_from(-1), Err(Errno::EINVAL));
        assert_eq!(close_from_on_exec(-3), Err(Errno::EINVAL));
    }

    #[test]
    fn a_socket_that_refuses_descriptors_takes_none() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let refuses = refuse_descriptors(ours.as_fd()).unwrap();
        let sent = send_with_descriptors(theirs.as_fd(), b"x", &[theirs.as_fd()]);
        if refuses {
            assert_eq!(sent, Err(Errno::EPERM));
            return;
        }
        // Before Linux 6.16 the message goes out, and it is the receiver who has to own what came.
        assert_eq!(sent, Ok(1));
        let (_, descriptors) = receive_with_descriptors(ours.as_fd(), &mut [0; 8], 1).unwrap();
        assert_eq!(descriptors.len(), 1);
    }

    /// A socket says its protocol, and what is no socket has none.
    #[test]
    fn a_socket_tells_its_protocol() {
        let of = |descriptor: &dyn AsRawFd| {
            socket_protocol(Path::new(&format!("/proc/self/fd/{}", descriptor.as_raw_fd())))
        };
        let (unix, _other) = UnixStream::pair().unwrap();
        // `UNIX` before Linux 5.15.
        assert!(of(&unix).unwrap().starts_with("UNIX"));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(of(&tcp).as_deref(), Ok("TCP"));
        assert!(of(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn a_file_has_no_such_option() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(refuse_descriptors(file.as_fd()), Err(Errno::ENOTSOCK));
    }
}
