//! Attributes of this process: whether others may read it, what ends it, what it may never become (ARC-20,
//! ARC-21, ARC-23).
#![expect(unsafe_code, reason = "PR_SET_MDWE has no safe wrapper")]

use std::ffi::CStr;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;

/// Makes this process undumpable: no core file, no ptrace and no read of its memory by another process of
/// the same user. An exec resets it, so every program does this for itself.
pub fn set_dumpable_off() -> Result<(), Errno> {
    prctl::set_dumpable(false)
}

/// Whether another process of the same user may read this one.
pub fn dumpable() -> Result<bool, Errno> {
    prctl::get_dumpable()
}

/// Gives up, for ever and for all descendants, every gain of privilege by exec.
pub fn set_no_new_privs() -> Result<(), Errno> {
    prctl::set_no_new_privs()
}

/// Whether [`set_no_new_privs`] holds.
pub fn no_new_privs() -> Result<bool, Errno> {
    prctl::get_no_new_privs()
}

/// The signal this process gets when the *thread* that started it ends. Cleared by a change of user, kept
/// over exec.
///
/// The parent may have ended before the call: compare `getppid` afterwards.
pub fn set_parent_death_signal(signal: Signal) -> Result<(), Errno> {
    prctl::set_pdeathsig(signal)
}

/// Refuses, for ever, memory that is writable and executable and memory that becomes executable later
/// (`PR_SET_MDWE`, Linux 6.3). `EINVAL` means that this kernel does not have it.
pub fn deny_write_execute() -> Result<(), Errno> {
    let (mode, unused) = (libc::c_ulong::from(libc::PR_MDWE_REFUSE_EXEC_GAIN), 0 as libc::c_ulong);
    // SAFETY: the call takes numbers only and touches no memory of ours.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_MDWE, mode, unused, unused, unused) }).map(drop)
}

/// Names the calling thread, and with it the process when it is the main one, in `ps`: at most 15 bytes, the
/// rest is cut.
pub fn set_process_name(name: &CStr) -> Result<(), Errno> {
    prctl::set_name(name)
}

/// How many threads this process has, as `/proc/self/task` lists them.
pub fn thread_count() -> std::io::Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/task")? {
        entry?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_are_counted() {
        let (end, ended) = mpsc::channel::<()>();
        let before_and_more = thread_count().unwrap();
        assert!(before_and_more >= 1);
        let thread = std::thread::spawn(move || {
            // Two at least while this one runs: the test's own and this.
            let count = thread_count().unwrap();
            let _ = ended.recv();
            count
        });
        drop(end);
        assert!(thread.join().unwrap() >= 2);
    }

    #[test]
    fn a_thread_can_be_named() {
        let name = std::thread::spawn(|| {
            set_process_name(c"coreflow-relayd-and-more").unwrap();
            prctl::get_name().unwrap()
        });
        assert_eq!(name.join().unwrap().as_c_str(), c"coreflow-relayd");
    }
}
