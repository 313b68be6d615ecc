//! Processes by descriptor: a pidfd names one process for ever, where a number is used again after its end.
#![expect(unsafe_code, reason = "pidfd_open and pidfd_send_signal have no safe wrapper")]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;

/// A descriptor for the process numbered `pid`, close-on-exec; readable once that process has ended.
///
/// Names the intended process only while nobody else can have reaped it: call it for an own, unreaped child.
/// `ESRCH` when there is no such process.
pub fn pidfd_open(pid: u32) -> Result<OwnedFd, Errno> {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return Err(Errno::EINVAL) };
    // SAFETY: the call takes numbers only.
    let answer = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0 as libc::c_uint) })?;
    let descriptor = RawFd::try_from(answer).expect("the kernel answers a descriptor, which fits in an int");
    // SAFETY: the kernel has just installed this descriptor for us, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Sends `signal` to the process behind `pidfd`. `ESRCH` when it has ended and been reaped.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    let (number, flags) = (signal as libc::c_int, 0 as libc::c_uint);
    // SAFETY: the siginfo pointer may be null, and the other arguments are numbers.
    let answer =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), number, no_info, flags) };
    Errno::result(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn a_child_is_signalled_watched_and_never_confused_with_a_later_one() {
        let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pidfd = pidfd_open(child.id()).unwrap();
        let mut watched = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut watched, PollTimeout::ZERO), Ok(0), "not readable while the child lives");

        pidfd_send_signal(pidfd.as_fd(), Signal::SIGTERM).unwrap();
        assert_eq!(poll(&mut watched, PollTimeout::from(10_000_u16)), Ok(1), "readable at its end");
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
        assert_eq!(pidfd_send_signal(pidfd.as_fd(), Signal::SIGTERM), Err(Errno::ESRCH));
    }

    #[test]
    fn a_number_beyond_every_process_is_refused() {
        assert_eq!(pidfd_open(u32::MAX).unwrap_err(), Errno::EINVAL);
        assert_eq!(pidfd_open(i32::MAX.cast_unsigned()).unwrap_err(), Errno::ESRCH);
    }
}
