//! The system call filter: what the profile needs is allowed, all else is `EPERM`, and what no honest worker
//! calls kills it (ARC-11, ARC-12, ARC-21).
//!
//! Three programs, as each knows one verdict besides its default; the strictest verdict of all wins.

mod allowed;
mod lethal;
mod rule;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

use super::{ConfineError, Profile};
use crate::sys::Errno;

/// The rules of one program: a call's number, and the conditions of which one must hold; none means always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// How many programs a worker loads, each of which the kernel counts as a filter.
pub const FILTERS: u32 = 3;

/// Loads the programs, the one that refuses further loading last.
///
/// # Errors
/// The kernel's refusal. Every kernel that this confinement runs on has these filters: one that is refused is the work of
/// a service manager or a container runtime, and without it neither the network nor signals are held.
pub(super) fn filter(profile: &Profile) -> Result<(), ConfineError> {
    let programs = programs(profile).expect("the lists of every profile compile");
    for program in programs {
        apply_filter(&program).map_err(|error| ConfineError::SystemCallFilter(cause(&error)))?;
    }
    Ok(())
}

/// What the kernel said.
fn cause(error: &seccompiler::Error) -> Errno {
    let (seccompiler::Error::Prctl(cause) | seccompiler::Error::Seccomp(cause)) = error else {
        // Without instructions, which none of ours is, or not for every thread, which is not asked for.
        return Errno::EINVAL;
    };
    Errno::from_raw(cause.raw_os_error().unwrap_or_default())
}

fn programs(profile: &Profile) -> Result<[BpfProgram; FILTERS as usize], BackendError> {
    // The C library falls back to `clone`, whose flags can be read, when `clone3` is not implemented; with
    // any other error no thread starts.
    let clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let not_implemented = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let not_permitted = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    Ok([
        program(clone3, SeccompAction::Allow, not_implemented)?,
        program(lethal::rules(), SeccompAction::Allow, SeccompAction::KillProcess)?,
        program(allowed::rules(profile)?, not_permitted, SeccompAction::Allow)?,
    ])
}

fn program(rules: Rules, otherwise: SeccompAction, then: SeccompAction) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, otherwise, then, ARCHITECTURE)?.try_into()
}

/// Plays a kernel or a service manager that answers `call` with `errno`, for the calling thread and for good.
#[cfg(test)]
pub(crate) fn refuse_on_this_thread(call: i64, errno: i32) {
    let rules = Rules::from([(call, Vec::new())]);
    let refused = SeccompAction::Errno(errno.cast_unsigned());
    apply_filter(&program(rules, SeccompAction::Allow, refused).unwrap()).unwrap();
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    use super::*;
    use crate::sys;

    /// ARC-21: a service manager that refuses filters, whatever it answers, leaves no worker that runs without.
    #[test]
    fn a_refused_filter_is_an_error() {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let filtered = std::thread::spawn(move || {
                refuse_on_this_thread(libc::SYS_seccomp, errno);
                filter(&Profile::vpnd())
            });
            let refused = ConfineError::SystemCallFilter(Errno::from_raw(errno));
            assert_eq!(filtered.join().unwrap(), Err(refused));
        }
    }

    #[test]
    fn every_profile_compiles_well_below_the_kernels_limit() {
        for profile in [Profile::relayd(443), Profile::pulld(), Profile::vpnd()] {
            let programs = programs(&profile).unwrap();
            // The kernel takes 4096 instructions per program.
            assert!(programs.iter().all(|program| (1..2048).contains(&program.len())), "{}", profile.worker);
        }
    }

    #[test]
    fn nothing_is_both_allowed_and_lethal() {
        let lethal = lethal::rules();
        for profile in [Profile::relayd(443), Profile::pulld(), Profile::vpnd()] {
            let allowed = allowed::rules(&profile).unwrap();
            assert!(lethal.keys().all(|call| !allowed.contains_key(call)), "{}", profile.worker);
        }
    }

    /// ARC-11, ARC-12, ARC-21: files, other processes and sockets are refused by this layer by itself, on a
    /// kernel without Landlock too. A filter binds a thread, so the test's own thread is the control.
    #[test]
    fn files_signals_and_sockets_are_refused_by_this_layer_alone() {
        let mut other = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = other.id();
        assert_eq!(attempts(process), [Ok(()); 6]);
        for profile in [Profile::relayd(443), Profile::pulld(), Profile::vpnd()] {
            let answers = std::thread::spawn(move || {
                assert_eq!(filter(&profile), Ok(()));
                let thread = nix::unistd::gettid().as_raw().cast_unsigned();
                (attempts(process), signal_thread(std::process::id(), thread))
            });
            // Its own threads a worker may signal, which is how it aborts.
            assert_eq!(answers.join().unwrap(), ([Err(Errno::EPERM); 6], Ok(())));
        }
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
    }

    fn attempts(process: u32) -> [Result<(), Errno>; 6] {
        let raw = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap());
        [
            std::fs::File::open("/proc/self/status").map(drop).map_err(raw),
            kill(Pid::from_raw(process.cast_signed()), None),
            signal_thread(process, process),
            sys::pidfd_open(process).map(drop),
            std::net::UdpSocket::bind(("127.0.0.1", 0)).map(drop).map_err(raw),
            peer_process(),
        ]
    }

    /// A descriptor of the process that made a socket pair, which is what a worker has of the supervisor.
    #[expect(unsafe_code, reason = "the option has no safe wrapper")]
    fn peer_process() -> Result<(), Errno> {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut process, mut length): (i32, libc::socklen_t) = (-1, 4);
        // SAFETY: both pointers are of locals that outlive the call, and the length is the first one's.
        let answer = unsafe {
            libc::getsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&one),
                libc::SOL_SOCKET,
                libc::SO_PEERPIDFD,
                (&raw mut process).cast(),
                &raw mut length,
            )
        };
        Errno::result(answer)?;
        let _ = nix::unistd::close(process);
        Ok(())
    }

    #[expect(unsafe_code, reason = "tgkill has no safe wrapper")]
    fn signal_thread(process: u32, thread: u32) -> Result<(), Errno> {
        // SAFETY: the call takes numbers only, and signal 0 is none.
        Errno::result(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) }).map(drop)
    }
}
