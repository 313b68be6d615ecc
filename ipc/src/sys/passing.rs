//! Bytes with descriptors beside them (`SCM_RIGHTS`): whatever arrives is owned from the first moment, and
//! closed when it is more than was asked for, so that a hostile peer cannot fill the table of descriptors
//! (ARC-05, ARC-10).
#![expect(unsafe_code, reason = "nix's recvmsg leaks what came with a truncated control message")]

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

/// The most descriptors the kernel passes with one message (`SCM_MAX_FD`).
pub const DESCRIPTORS_PER_MESSAGE: usize = 253;

/// Room for a control message of 253 descriptors, its header and padding, in units that align it.
const CONTROL_WORDS: usize = 132;

/// Why a message with descriptors was not taken; all that came with it are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassingError {
    /// The system call failed; `EAGAIN` on a non-blocking socket that has nothing.
    System(Errno),
    /// More descriptors came than the caller takes.
    Surplus {
        /// How many came.
        received: usize,
        /// How many the caller takes.
        taken: usize,
    },
    /// The kernel could not hand over all that was sent: this process is at its limit of open files.
    Truncated,
}

impl fmt::Display for PassingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(errno) => write!(f, "receiving failed: {errno}"),
            Self::Surplus { received, taken } => {
                write!(f, "{received} descriptors came with a message that may carry {taken}")
            }
            Self::Truncated => f.write_str("not all descriptors of a message could be received"),
        }
    }
}

impl std::error::Error for PassingError {}

impl From<PassingError> for io::Error {
    fn from(error: PassingError) -> Self {
        match error {
            PassingError::System(errno) => errno.into(),
            PassingError::Surplus { .. } | PassingError::Truncated => {
                Self::new(io::ErrorKind::InvalidData, error)
            }
        }
    }
}

/// Sends `bytes` and copies of `descriptors` in one message; answers how many of the bytes went.
///
/// The descriptors travel with the first byte, so `bytes` must not be empty (`EINVAL`) when there are any,
/// and after a short count only the rest of the bytes is to be sent. More than [`DESCRIPTORS_PER_MESSAGE`]
/// are `EINVAL`. A closed peer is `EPIPE`, without a signal.
pub fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    if descriptors.len() > DESCRIPTORS_PER_MESSAGE || (bytes.is_empty() && !descriptors.is_empty()) {
        return Err(Errno::EINVAL);
    }
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let control = if numbers.is_empty() { &rights[..0] } else { &rights[..] };
    loop {
        let bytes = [IoSlice::new(bytes)];
        match sendmsg::<UnixAddr>(socket.as_raw_fd(), &bytes, control, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
}

/// Receives bytes into `buffer` and up to `most` descriptors, close-on-exec, that came with them.
///
/// Zero bytes mean the end of the stream. On any error every descriptor of the message is closed.
pub fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    most: usize,
) -> Result<(usize, Vec<OwnedFd>), PassingError> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: `msghdr` is plain numbers and pointers, for which all zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let count = loop {
        // SAFETY: the message points at one buffer and one control buffer that outlive the call, with their
        // lengths.
        let answer = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match Errno::result(answer) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(PassingError::System(errno)),
            Ok(count) => break count.cast_unsigned(),
        }
    };
    let descriptors = own_received(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(PassingError::Truncated);
    }
    if descriptors.len() > most {
        return Err(PassingError::Surplus { received: descriptors.len(), taken: most });
    }
    Ok((count, descriptors))
}

/// Owns every descriptor the kernel has installed for `message`, truncated or not.
fn own_received(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut owned = Vec::new();
    // SAFETY: the kernel has filled the control buffer and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: a header that is not null lies whole within the control buffer.
    while let Some(current) = unsafe { header.as_ref() } {
        if current.cmsg_level == libc::SOL_SOCKET && current.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: a pure computation of where the data begins.
            let (data, head) = unsafe { (libc::CMSG_DATA(current), libc::CMSG_LEN(0) as usize) };
            let length = current.cmsg_len.saturating_sub(head);
            for index in 0..length / size_of::<RawFd>() {
                // SAFETY: `cmsg_len` says that this many numbers follow the header, inside the buffer.
                let number = unsafe { data.cast::<RawFd>().add(index).read_unaligned() };
                // SAFETY: the kernel has just installed this descriptor for us, and nobody else owns it.
                owned.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        // SAFETY: `current` is a header of this message, as the walk began at the first.
        header = unsafe { libc::CMSG_NXTHDR(message, current) };
    }
    owned
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A pair to pass over, and one end whose copies are passed: its peer sees the end of file when all are
    /// closed.
    fn pairs() -> (UnixStream, UnixStream, UnixStream, UnixStream) {
        let (left, right) = UnixStream::pair().unwrap();
        let (passed, witness) = UnixStream::pair().unwrap();
        witness.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        (left, right, passed, witness)
    }

    fn all_closed(mut witness: &UnixStream) -> bool {
        matches!(witness.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_control_buffer_has_room_for_a_full_message() {
        // SAFETY: a pure computation.
        let space = unsafe { libc::CMSG_SPACE((DESCRIPTORS_PER_MESSAGE * size_of::<RawFd>()) as u32) };
        assert!(CONTROL_WORDS * size_of::<u64>() >= space as usize);
    }

    /// ARC-10: a descriptor that was passed works, is close-on-exec, and bytes alone bring none.
    #[test]
    fn descriptors_arrive_beside_the_bytes() {
        let (left, right, passed, witness) = pairs();
        assert_eq!(send_with_descriptors(left.as_fd(), b"listener", &[passed.as_fd()]), Ok(8));
        let mut buffer = [0; 64];
        let (count, descriptors) = receive_with_descriptors(right.as_fd(), &mut buffer, 1).unwrap();
        assert_eq!(&buffer[..count], b"listener");
        let [arrived] = <[OwnedFd; 1]>::try_from(descriptors).unwrap();
        let flags = nix::fcntl::fcntl(&arrived, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, libc::FD_CLOEXEC);
        io::Write::write_all(&mut UnixStream::from(arrived), b"!").unwrap();
        let mut byte = [0];
        (&witness).read_exact(&mut byte).unwrap();
        drop(passed);
        assert!(all_closed(&witness));

        assert_eq!(send_with_descriptors(left.as_fd(), b"none", &[]), Ok(4));
        let (count, descriptors) = receive_with_descriptors(right.as_fd(), &mut buffer, 1).unwrap();
        assert_eq!((&buffer[..count], descriptors.len()), (&b"none"[..], 0));
        drop(left);
        let (count, descriptors) = receive_with_descriptors(right.as_fd(), &mut buffer, 1).unwrap();
        assert_eq!((count, descriptors.len()), (0, 0), "the end of the stream");
    }

    #[test]
    fn a_surplus_is_closed_and_named() {
        let (left, right, passed, witness) = pairs();
        let three = [passed.as_fd(), passed.as_fd(), passed.as_fd()];
        send_with_descriptors(left.as_fd(), b"x", &three).unwrap();
        let answer = receive_with_descriptors(right.as_fd(), &mut [0; 8], 2);
        assert_eq!(answer.unwrap_err(), PassingError::Surplus { received: 3, taken: 2 });
        drop(passed);
        assert!(all_closed(&witness));
    }

    #[test]
    fn a_full_message_of_253_is_taken_whole_and_one_more_is_not_sent() {
        let (left, right, passed, witness) = pairs();
        let full = [passed.as_fd(); DESCRIPTORS_PER_MESSAGE];
        send_with_descriptors(left.as_fd(), b"x", &full).unwrap();
        let (count, descriptors) =
            receive_with_descriptors(right.as_fd(), &mut [0; 8], DESCRIPTORS_PER_MESSAGE).unwrap();
        assert_eq!((count, descriptors.len()), (1, DESCRIPTORS_PER_MESSAGE));
        send_with_descriptors(left.as_fd(), b"x", &full).unwrap();
        let refused = receive_with_descriptors(right.as_fd(), &mut [0; 8], 0);
        assert_eq!(refused.unwrap_err(), PassingError::Surplus { received: 253, taken: 0 });
        let beyond = [passed.as_fd(); DESCRIPTORS_PER_MESSAGE + 1];
        assert_eq!(send_with_descriptors(left.as_fd(), b"x", &beyond), Err(Errno::EINVAL));
        drop((descriptors, passed));
        assert!(all_closed(&witness));
    }

    #[test]
    fn descriptors_without_a_byte_are_not_sent() {
        let (left, _right, passed, _witness) = pairs();
        assert_eq!(send_with_descriptors(left.as_fd(), b"", &[passed.as_fd()]), Err(Errno::EINVAL));
    }

    #[test]
    fn an_empty_non_blocking_socket_says_so_and_a_closed_peer_is_no_signal() {
        let (left, right, passed, _witness) = pairs();
        right.set_nonblocking(true).unwrap();
        let error = receive_with_descriptors(right.as_fd(), &mut [0; 8], 1).unwrap_err();
        assert_eq!(error, PassingError::System(Errno::EAGAIN));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::WouldBlock);
        drop(right);
        assert_eq!(send_with_descriptors(left.as_fd(), b"x", &[passed.as_fd()]), Err(Errno::EPIPE));
    }
}
