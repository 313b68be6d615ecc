//! Attempts on other processes, the parent above all, and on becoming or starting one.
#![expect(unsafe_code, reason = "attacks are made with raw system calls")]

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use coreflow_ipc::sys::{self, Errno};

use super::attempts::{Answered, Attempt, call, done, word};
use super::child::{self, Attacker};

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("execute", |_| {
        let path = c"/bin/true";
        let arguments = [path.as_ptr(), std::ptr::null()];
        let (path, arguments) = (path.as_ptr().addr(), arguments.as_ptr().addr());
        call(libc::SYS_execve, [path, arguments, arguments + size_of::<usize>(), 0, 0]).map(word)
    }),
    ("fork", fork),
    ("spawn", |_| done(Command::new("/bin/true").stdin(Stdio::null()).status())),
    ("trace the parent", |a| call(libc::SYS_ptrace, [PTRACE_SEIZE, parent(a), 0, 0, 0]).map(word)),
    ("read the parent's memory", read_memory),
    // A descriptor that is none: the call itself is what counts.
    ("take a descriptor", |_| call(libc::SYS_pidfd_getfd, [usize::MAX, 0, 0, 0, 0]).map(word)),
    ("signal the parent", |a| call(libc::SYS_kill, [parent(a), 0, 0, 0, 0]).map(word)),
    ("signal a thread of the parent", |a| call(libc::SYS_tgkill, [parent(a), parent(a), 0, 0, 0]).map(word)),
    ("open the parent as a pidfd", |a| sys::pidfd_open(a.parent.cast_unsigned()).map(word)),
    ("read the parent's limits", |a| limits(parent(a), false)),
    ("set its own limits", |_| limits(0, true)),
    ("unshare", |_| {
        call(libc::SYS_unshare, [libc::CLONE_NEWUSER.cast_unsigned() as usize, 0, 0, 0, 0]).map(word)
    }),
    ("io_uring", |_| call(libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]).map(word)),
    ("bpf", |_| call(libc::SYS_bpf, [usize::MAX, 0, 0, 0, 0]).map(word)),
    ("keyctl", |_| call(libc::SYS_keyctl, [usize::MAX, 0, 0, 0, 0]).map(word)),
    ("userfaultfd", |_| call(libc::SYS_userfaultfd, [0; 5]).map(word)),
    ("mount", |_| call(libc::SYS_mount, [0; 5]).map(word)),
    ("start a worker and wait", start_a_worker),
    ("echo", echo),
];

/// `PTRACE_SEIZE` of `linux/ptrace.h`: attaches without stopping, and detaches when the tracer ends.
const PTRACE_SEIZE: usize = 0x4206;

/// Lifts, for the controls, the rule of some hosts that only ancestors may trace (Yama); EINVAL where there
/// is none.
pub(crate) fn let_anybody_trace_us() {
    // SAFETY: the call takes numbers only.
    let answer =
        Errno::result(unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) });
    assert!(matches!(answer, Ok(_) | Err(Errno::EINVAL)), "{answer:?}");
}

fn parent(attacker: &Attacker) -> usize {
    usize::try_from(attacker.parent).expect("a process id is positive")
}

fn fork(_: &mut Attacker) -> Answered {
    let child = call(libc::SYS_clone, [libc::SIGCHLD.cast_unsigned() as usize, 0, 0, 0, 0])?;
    if child == 0 {
        // SAFETY: ends the forked process at once, without running anything it shares with its parent.
        unsafe { libc::_exit(0) };
    }
    Ok("forked".to_owned())
}

fn read_memory(attacker: &mut Attacker) -> Answered {
    let place = usize::from_str_radix(&attacker.argument, 16).expect("an address");
    let mut copy = [0_u8; 8];
    let ours = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(place), iov_len: copy.len() };
    let (ours, theirs) = ((&raw const ours).addr(), (&raw const theirs).addr());
    call(libc::SYS_process_vm_readv, [parent(attacker), ours, 1, theirs, 1])?;
    Ok(String::from_utf8_lossy(&copy).into_owned())
}

fn limits(process: usize, set: bool) -> Answered {
    let mut limit = [0_u64; 2];
    let place = limit.as_mut_ptr().addr();
    let (new, old) = if set { (place, 0) } else { (0, place) };
    call(libc::SYS_prlimit64, [process, libc::RLIMIT_CORE as usize, new, old, 0]).map(word)
}

/// Plays the supervisor: starts a worker on the same link, and is killed while it waits for its end.
fn start_a_worker(attacker: &mut Attacker) -> Answered {
    let role = match attacker.argument.as_str() {
        "bare" => child::BARE,
        "relayd" => child::RELAYD,
        other => panic!("no role {other}"),
    };
    let link = attacker.link.as_fd().try_clone_to_owned().expect("the link can be duplicated");
    let mut worker = child::command(role, "echo", "", link).spawn().expect("a worker starts");
    done(worker.wait())
}

/// Answers bytes until the link ends.
fn echo(attacker: &mut Attacker) -> Answered {
    attacker.link.write_all(&child::MARK).expect("the link takes the mark");
    let mut byte = [0];
    while attacker.link.read(&mut byte).is_ok_and(|count| count == 1) {
        if attacker.link.write_all(&byte).is_err() {
            break;
        }
    }
    Ok("the link ended".to_owned())
}
