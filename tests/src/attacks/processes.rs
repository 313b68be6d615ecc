//! Attempts on other processes, the parent where nobody else is named, and on becoming or starting one.
#![expect(unsafe_code, reason = "attacks are made with raw system calls")]

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
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
    ("execute from a descriptor", |_| {
        let path = c"/bin/true";
        let arguments = [path.as_ptr(), std::ptr::null()];
        let (here, path, arguments) =
            (libc::AT_FDCWD.cast_unsigned() as usize, path.as_ptr().addr(), arguments.as_ptr().addr());
        call(libc::SYS_execveat, [here, path, arguments, arguments + size_of::<usize>(), 0]).map(word)
    }),
    ("execute a file in memory", |_| {
        let name = c"true";
        let arguments = [name.as_ptr(), std::ptr::null()];
        let (empty, arguments) = (c"".as_ptr().addr(), arguments.as_ptr().addr());
        let flag = libc::AT_EMPTY_PATH.cast_unsigned() as usize;
        call(libc::SYS_execveat, [1, empty, arguments, arguments + size_of::<usize>(), flag]).map(word)
    }),
    ("fork", |_| fork(0)),
    ("fork into a namespace", |_| fork(libc::CLONE_NEWUSER)),
    ("fork into a namespace by clone3", |_| {
        let namespace = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
        let signal = u64::from(libc::SIGCHLD.cast_unsigned());
        let arguments = [namespace, 0, 0, 0, signal, 0, 0, 0];
        let (place, size) = (arguments.as_ptr().addr(), size_of_val(&arguments));
        forked(call(libc::SYS_clone3, [place, size, 0, 0, 0])?)
    }),
    ("spawn", |_| done(Command::new("/bin/true").stdin(Stdio::null()).status())),
    ("trace a process", |a| call(libc::SYS_ptrace, [PTRACE_SEIZE, victim(a), 0, 0, 0]).map(word)),
    ("signal a process", |a| call(libc::SYS_kill, [victim(a), 0, 0, 0, 0]).map(word)),
    ("signal a thread of a process", |a| call(libc::SYS_tgkill, [victim(a), victim(a), 0, 0, 0]).map(word)),
    ("open a process as a pidfd", |a| sys::pidfd_open(a.victim.cast_unsigned()).map(word)),
    ("read a process's limits", |a| limits(victim(a), false)),
    ("signal by a pidfd", |a| {
        let process = pidfd(a);
        call(libc::SYS_pidfd_send_signal, [process, 0, 0, 0, 0]).map(word)
    }),
    ("signal a task", |a| call(libc::SYS_tkill, [victim(a), 0, 0, 0, 0]).map(word)),
    ("queue a signal", queue_signal),
    ("change a process's priority", |a| call(libc::SYS_setpriority, [0, victim(a), 0, 0, 0]).map(word)),
    ("change a process's input priority", |a| call(libc::SYS_ioprio_set, [1, victim(a), 0, 0, 0]).map(word)),
    ("change a process's limits", change_limits),
    ("pin a process", pin),
    ("change a process's scheduling", |a| {
        let priority = 0_i32;
        let (policy, place) = (libc::SCHED_OTHER.cast_unsigned() as usize, (&raw const priority).addr());
        call(libc::SYS_sched_setscheduler, [victim(a), policy, place, 0, 0]).map(word)
    }),
    ("set its own limits", |_| limits(0, true)),
    ("start a worker and wait", start_a_worker),
    ("echo", echo),
];

/// `PTRACE_SEIZE` of `linux/ptrace.h`: attaches without stopping, and detaches when the tracer ends.
const PTRACE_SEIZE: usize = 0x4206;

/// Lifts, for the controls, the rule of some hosts that only ancestors may trace (Yama); EINVAL where there
/// is none.
///
/// # Panics
/// When the kernel says anything else.
pub fn let_anybody_trace_us() {
    // SAFETY: the call takes numbers only.
    let answer =
        Errno::result(unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) });
    assert!(matches!(answer, Ok(_) | Err(Errno::EINVAL)), "{answer:?}");
}

pub(crate) fn victim(attacker: &Attacker) -> usize {
    usize::try_from(attacker.victim).expect("a process id is positive")
}

/// A descriptor of the victim; one that is none where the kernel gives none, so that the call on it is made all the same.
pub(crate) fn pidfd(attacker: &Attacker) -> usize {
    call(libc::SYS_pidfd_open, [victim(attacker), 0, 0, 0, 0]).unwrap_or(usize::MAX)
}

fn queue_signal(attacker: &mut Attacker) -> Answered {
    // A signal of number, error and code alone; a negative code is a sender's own word.
    let mut signal = [0_i32; 32];
    signal[2] = libc::SI_QUEUE;
    call(libc::SYS_rt_sigqueueinfo, [victim(attacker), 0, signal.as_ptr().addr(), 0, 0]).map(word)
}

/// Sets the limits that the victim has.
fn change_limits(attacker: &mut Attacker) -> Answered {
    let mut limit = [u64::MAX; 2];
    let (resource, place) = (libc::RLIMIT_CORE as usize, limit.as_mut_ptr().addr());
    // Where they cannot be read, the highest that there are.
    let _ = call(libc::SYS_prlimit64, [victim(attacker), resource, 0, place, 0]);
    call(libc::SYS_prlimit64, [victim(attacker), resource, place, 0, 0]).map(word)
}

/// Pins the victim to the processors that it may run on.
fn pin(attacker: &mut Attacker) -> Answered {
    let mut processors = [0_u64; 16];
    let (place, size) = (processors.as_mut_ptr().addr(), size_of_val(&processors));
    call(libc::SYS_sched_getaffinity, [victim(attacker), size, place, 0, 0])?;
    call(libc::SYS_sched_setaffinity, [victim(attacker), size, place, 0, 0]).map(word)
}

fn fork(into: libc::c_int) -> Answered {
    forked(call(libc::SYS_clone, [(libc::SIGCHLD | into).cast_unsigned() as usize, 0, 0, 0, 0])?)
}

fn forked(child: usize) -> Answered {
    if child == 0 {
        // SAFETY: ends the forked process at once, without running anything it shares with its parent.
        unsafe { libc::_exit(0) };
    }
    Ok("forked".to_owned())
}

/// Puts a program into memory, where the attacker has its standard output: one of the descriptors that it keeps.
pub(crate) fn prepare(attempt: &str) -> std::io::Result<()> {
    if attempt == "execute a file in memory" {
        let program = nix::sys::memfd::memfd_create(c"program", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)?;
        let mut program = std::fs::File::from(program);
        std::io::copy(&mut std::fs::File::open("/bin/true")?, &mut program)?;
        // A program that is open for writing is not executed.
        let read = std::fs::File::open(format!("/proc/self/fd/{}", program.as_raw_fd()))?;
        drop(program);
        nix::unistd::dup2_stdout(&read)?;
    }
    Ok(())
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
