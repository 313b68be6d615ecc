//! Attempts on the memory and the descriptors of another process, and on what the kernel shows of it.
#![expect(unsafe_code, reason = "a traced process is waited for with a raw system call")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;

use coreflow_ipc::sys::Errno;

use super::attempts::{Answered, Attempt, call, done, errno, word};
use super::child::Attacker;
use super::processes::{pidfd, victim};

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("stop a process and peek", stop_and_peek),
    ("read a process's memory", read_memory),
    ("write a process's memory", write_memory),
    ("read a process's memory file", |a| {
        let mut bytes = [0; 8];
        let (start, _) = place(a);
        let memory = fs::File::open(of_victim(a, "mem")).map_err(|error| errno(&error))?;
        done(memory.read_exact_at(&mut bytes, start as u64))
    }),
    ("write a process's memory file", |a| {
        let (_, zero) = place(a);
        let memory = OpenOptions::new().write(true).open(of_victim(a, "mem"));
        done(memory.map_err(|error| errno(&error))?.write_all_at(&[0], zero as u64))
    }),
    ("read a process's mappings", |a| done(fs::read(of_victim(a, "maps")))),
    ("read a process's environment", |a| done(fs::read(of_victim(a, "environ")))),
    ("read a process's command line", |a| done(fs::read(of_victim(a, "cmdline")))),
    ("read a process's status", |a| done(fs::read(of_victim(a, "status")))),
    ("look at a process's descriptor", |a| done(fs::read_link(of_victim(a, "fd/0")))),
    ("enter a process's root", |a| done(fs::read_dir(of_victim(a, "root")))),
    ("change a process's badness", |a| {
        let path = of_victim(a, "oom_score_adj");
        // The own value, as nobody here has changed it: what counts is that the kernel takes it.
        let badness = fs::read("/proc/self/oom_score_adj").unwrap_or_else(|_| b"0".to_vec());
        done(OpenOptions::new().write(true).open(path).and_then(|file| file.write_all_at(&badness, 0)))
    }),
    ("take a descriptor", |a| call(libc::SYS_pidfd_getfd, [pidfd(a), 0, 0, 0, 0]).map(word)),
    ("advise on a process's memory", |a| {
        let (start, _) = place(a);
        // The page that holds its arguments, which it needs not now.
        let page = libc::iovec { iov_base: std::ptr::without_provenance_mut(start & !0xfff), iov_len: 4096 };
        let cold = libc::MADV_COLD.cast_unsigned() as usize;
        call(libc::SYS_process_madvise, [pidfd(a), (&raw const page).addr(), 1, cold, 0]).map(word)
    }),
    ("compare descriptors", |a| {
        call(libc::SYS_kcmp, [std::process::id() as usize, victim(a), 0, 0, 0]).map(word)
    }),
    ("count a process's work", count_work),
];

fn of_victim(attacker: &Attacker, name: &str) -> String {
    format!("/proc/{}/{name}", attacker.victim)
}

/// Where the victim's arguments begin, and where a zero byte ends them that nothing ever changes.
fn place(attacker: &Attacker) -> (usize, usize) {
    let number = |text: &str| usize::from_str_radix(text, 16).expect("an address");
    let (start, zero) = attacker.argument.split_once('-').unwrap_or((&attacker.argument, "0"));
    (number(start), number(zero))
}

/// Attaches, which stops the victim, reads a word of its memory, and lets it go on.
fn stop_and_peek(attacker: &mut Attacker) -> Answered {
    let (victim, (start, _)) = (victim(attacker), place(attacker));
    call(libc::SYS_ptrace, [libc::PTRACE_ATTACH as usize, victim, 0, 0, 0])?;
    // SAFETY: waits for a process by its number; no status is asked for.
    let waited = unsafe { libc::waitpid(attacker.victim, std::ptr::null_mut(), libc::__WALL) };
    Errno::result(waited)?;
    let mut word = 0_usize;
    let place = (&raw mut word).addr();
    let peeked = call(libc::SYS_ptrace, [libc::PTRACE_PEEKDATA as usize, victim, start, place, 0]);
    call(libc::SYS_ptrace, [libc::PTRACE_DETACH as usize, victim, 0, 0, 0])?;
    peeked.map(|_| format!("{word:x}"))
}

fn read_memory(attacker: &mut Attacker) -> Answered {
    let (start, _) = place(attacker);
    let mut copy = [0_u8; 8];
    let ours = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: copy.len() };
    let (ours, theirs) = ((&raw const ours).addr(), (&raw const theirs).addr());
    call(libc::SYS_process_vm_readv, [victim(attacker), ours, 1, theirs, 1])?;
    Ok(String::from_utf8_lossy(&copy).into_owned())
}

fn write_memory(attacker: &mut Attacker) -> Answered {
    let (_, zero) = place(attacker);
    let mut byte = [0_u8];
    let ours = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(zero), iov_len: 1 };
    let (ours, theirs) = ((&raw const ours).addr(), (&raw const theirs).addr());
    call(libc::SYS_process_vm_writev, [victim(attacker), ours, 1, theirs, 1]).map(word)
}

/// Opens a counter of the victim's processor time, of what it does outside the kernel alone.
fn count_work(attacker: &mut Attacker) -> Answered {
    const SOFTWARE: u64 = 1;
    const TASK_CLOCK: u64 = 1;
    const OUTSIDE_THE_KERNEL: u64 = 1 << 5 | 1 << 6;
    let mut event = [0_u64; 16];
    event[0] = SOFTWARE | (size_of_val(&event) as u64) << 32;
    event[1] = TASK_CLOCK;
    event[5] = OUTSIDE_THE_KERNEL;
    let arguments = [event.as_ptr().addr(), victim(attacker), usize::MAX, usize::MAX, 0];
    call(libc::SYS_perf_event_open, arguments).map(word)
}
