//! The attempts by name, and those on files, memory and the confinement itself.
#![expect(unsafe_code, reason = "attacks are made with raw system calls")]
#![expect(clippy::unwrap_used, reason = "what surprises an attacker fails the attack by name")]

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{FromRawFd as _, OwnedFd};

use coreflow_ipc::sys::{self, Errno};
use nix::sys::resource::{Resource, getrlimit};

use super::child::{Attacker, SECRET};
use super::{files, filter, kernel, memory, network, processes, work};

/// What the kernel answered, with a word on success.
pub(crate) type Answered = Result<String, Errno>;
pub(crate) type Attempt = fn(&mut Attacker) -> Answered;

/// The attempt called `name`.
pub(crate) fn named(name: &str) -> Attempt {
    let lists = [
        OWN,
        files::ATTEMPTS,
        filter::ATTEMPTS,
        kernel::ATTEMPTS,
        memory::ATTEMPTS,
        network::ATTEMPTS,
        processes::ATTEMPTS,
        work::ATTEMPTS,
    ];
    let found = lists.into_iter().flatten().find(|(entry, _)| *entry == name);
    found.unwrap_or_else(|| panic!("no attempt {name}")).1
}

/// What an attacker does before it is confined, so that the attempt is stopped by what is named for it and not by what
/// leads up to it.
pub(crate) fn prepare(attempt: &str) -> Result<(), Errno> {
    leave_open(attempt)?;
    stay_beside(attempt);
    kernel::prepare(attempt)?;
    filter::prepare(attempt)?;
    processes::prepare(attempt).map_err(|error| errno(&error))
}

/// Up to which number descriptors are left open for an attacker that lists its own.
pub const LEFT_OPEN: i32 = 64;

const OWN: &[(&str, Attempt)] = &[
    ("make a file in memory", |_| call(libc::SYS_memfd_create, [c"m".as_ptr().addr(), 0, 0, 0, 0]).map(word)),
    ("map executable memory", |_| map(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).map(word)),
    ("make memory executable", make_executable),
    ("read a descriptor", read_descriptor),
    ("list its descriptors", |a| Ok(open_descriptors(a.argument.parse().unwrap()))),
    ("work beside a thread", |_| Ok("works".to_owned())),
    ("limits", limits),
    ("say whether dumpable", |_| Ok(prctl(libc::PR_GET_DUMPABLE, 0)?.to_string())),
    ("become dumpable", |_| prctl(libc::PR_SET_DUMPABLE, 1).map(word)),
    ("load a filter", |_| {
        let (mode, filter) = (libc::SECCOMP_MODE_FILTER as usize, AllowAll::new());
        call(libc::SYS_prctl, [libc::PR_SET_SECCOMP as usize, mode, filter.program(), 0, 0]).map(word)
    }),
    // Which needs nothing, changes nothing, and is no filter that is loaded.
    ("ask seccomp", |_| {
        let (asked, action) = (libc::SECCOMP_GET_ACTION_AVAIL as usize, libc::SECCOMP_RET_ERRNO);
        call(libc::SYS_seccomp, [asked, 0, (&raw const action).addr(), 0, 0]).map(word)
    }),
    ("outlive its supervisor", |_| prctl(libc::PR_SET_PDEATHSIG, 0).map(word)),
    #[cfg(target_arch = "x86_64")]
    ("call by the 32-bit gate", |_| {
        // `getpid` of that ABI.
        let mut answer: isize = 20;
        // SAFETY: the gate keeps every register but the one of the answer, and this call has no argument.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        Errno::result(answer).map(word)
    }),
    ("abort", |_| std::process::abort()),
    ("look for the variable", look_for_the_variable),
];

/// A socket filter that passes everything, as a filter of system calls that allows everything: one return.
pub(crate) struct AllowAll {
    _instruction: Box<libc::sock_filter>,
    program: Box<libc::sock_fprog>,
}

impl AllowAll {
    pub(crate) fn new() -> Self {
        let all = 0x7fff_0000;
        let mut instruction = Box::new(libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: all });
        let program = Box::new(libc::sock_fprog { len: 1, filter: &raw mut *instruction });
        Self { _instruction: instruction, program }
    }

    /// Where the kernel reads it.
    pub(crate) fn program(&self) -> usize {
        (&raw const *self.program).addr()
    }
}

/// A system call with live arguments of its own kind.
pub(crate) fn call(number: libc::c_long, arguments: [usize; 5]) -> Result<usize, Errno> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: each attempt passes numbers, or addresses of memory that is live during the call and as large
    // as the call takes it for; what a successful attack changes is this process, which ends after it.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, 0_usize) };
    Errno::result(answer).map(|answer| usize::try_from(answer).expect("not an error"))
}

pub(crate) fn word<T>(_: T) -> String {
    "succeeded".to_owned()
}

pub(crate) fn done<T>(answer: io::Result<T>) -> Answered {
    answer.map(word).map_err(|error| errno(&error))
}

pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_else(|| panic!("not the kernel's answer: {error}")))
}

fn prctl(option: libc::c_int, value: usize) -> Result<usize, Errno> {
    call(libc::SYS_prctl, [usize::try_from(option).expect("small"), value, 0, 0, 0])
}

fn map(protection: libc::c_int) -> Result<*mut libc::c_void, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no other memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(start) }
}

fn make_executable(_: &mut Attacker) -> Answered {
    let start = map(libc::PROT_READ | libc::PROT_WRITE).expect("ordinary memory is allowed");
    let protection = usize::try_from(libc::PROT_READ | libc::PROT_EXEC).expect("small");
    call(libc::SYS_mprotect, [start.addr(), 4096, protection, 0, 0]).map(word)
}

fn read_descriptor(attacker: &mut Attacker) -> Answered {
    let number = attacker.argument.parse().unwrap();
    // SAFETY: nobody else in this process knows of the number; a closed one answers EBADF before it is owned.
    nix::fcntl::fcntl(unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }, nix::fcntl::FcntlArg::F_GETFD)?;
    // SAFETY: the descriptor is open, as just seen, and nobody else in this process knows of it.
    let mut left = std::os::unix::net::UnixStream::from(unsafe { OwnedFd::from_raw_fd(number) });
    let mut bytes = [0; 6];
    left.read_exact(&mut bytes).map_err(|error| errno(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Starts a thread that goes on until the process ends.
fn stay_beside(attempt: &str) {
    if attempt == "work beside a thread" {
        std::thread::spawn(|| std::thread::park_timeout(super::child::PATIENCE));
    }
}

/// The numbers below `end` that are open.
fn open_descriptors(end: i32) -> String {
    // SAFETY: a flag is asked for, and nothing is done with what has the number.
    let is_open = |number: &i32| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
    (0..end).filter(is_open).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

/// Leaves a descriptor open at each number from 3 on, for as many as a worker might have been given.
fn leave_open(attempt: &str) -> Result<(), Errno> {
    if attempt == "list its descriptors" {
        for number in 3..LEFT_OPEN {
            // SAFETY: nothing in this process owns one of these numbers yet, and nothing closes them but the confinement.
            Errno::result(unsafe { libc::dup2(0, number) })?;
        }
    }
    Ok(())
}

fn limits(_: &mut Attacker) -> Answered {
    let (core, core_hard) = getrlimit(Resource::RLIMIT_CORE)?;
    let (files, files_hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(format!("core {core} of {core_hard}, files {files} of {files_hard}"))
}

fn look_for_the_variable(attacker: &mut Attacker) -> Answered {
    let (name, value) = SECRET;
    match attacker.argument.as_str() {
        "leave" => assert_eq!(std::env::var(name).as_deref(), Ok(value)),
        "take" => {
            let taken = sys::take_environment_variable(name, |bytes| bytes == value.as_bytes());
            assert_eq!(taken, Ok(Some(true)), "the value is handed over whole");
            assert_eq!(sys::take_environment_variable(name, |_| ()), Ok(None));
        }
        "wipe" => {
            assert_eq!(sys::take_environment_variable(name, |_| ()), Ok(Some(())));
            assert_eq!(sys::take_environment_variable(name, |_| ()), Ok(None));
        }
        other => panic!("no way {other}"),
    }
    if attacker.argument != "leave" {
        assert_eq!(std::env::var_os(name), None);
        assert!(std::env::var_os("CONFINEMENT_ROLE").is_some(), "its neighbours stay");
    }
    let block = fs::read("/proc/self/environ").map_err(|error| errno(&error))?;
    let shown = block.windows(value.len()).any(|window| window == value.as_bytes());
    Ok(if shown { "shown" } else { "gone" }.to_owned())
}
