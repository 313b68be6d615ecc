//! Attempts on parts of the kernel that reach far: namespaces, mounts, programs that run in it, keys, shared memory.

use std::ffi::CStr;

use super::attempts::{Answered, Attempt, call, word};
use super::child::Attacker;
use coreflow_ipc::sys::Errno;

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("unshare", |_| unshare(libc::CLONE_NEWUSER).map(word)),
    ("mount", |_| mount(c"/proc").map(word)),
    ("open a file system", |_| call(libc::SYS_fsopen, [c"tmpfs".as_ptr().addr(), 0, 0, 0, 0]).map(word)),
    ("move a mount", |_| {
        let (here, from, to) = (AT_FDCWD, MOVED_FROM.as_ptr().addr(), MOVED_TO.as_ptr().addr());
        call(libc::SYS_move_mount, [here, from, here, to, 0]).map(word)
    }),
    ("change its root", |_| call(libc::SYS_chroot, [c"/proc".as_ptr().addr(), 0, 0, 0, 0]).map(word)),
    ("enter a namespace", |_| {
        let own = call(libc::SYS_pidfd_open, [std::process::id() as usize, 0, 0, 0, 0]);
        let kind = libc::CLONE_NEWNET.cast_unsigned() as usize;
        call(libc::SYS_setns, [own.unwrap_or(usize::MAX), kind, 0, 0, 0]).map(word)
    }),
    ("open a file by its handle", |_| {
        // Of a form that there is: eight bytes, of kind one (`struct file_handle`).
        let handle = [8_u32, 1, 0, 0];
        call(libc::SYS_open_by_handle_at, [AT_FDCWD, handle.as_ptr().addr(), 0, 0, 0]).map(word)
    }),
    ("watch the host's files", |_| {
        // The one form that needs no capability: files are told by their handles.
        call(libc::SYS_fanotify_init, [libc::FAN_REPORT_FID as usize, 0, 0, 0, 0]).map(word)
    }),
    ("call by an x32 number", |_| call(X32 | libc::SYS_ptrace, [0; 5]).map(word)),
    ("io_uring", |_| {
        let parameters = [0_u64; 15];
        call(libc::SYS_io_uring_setup, [1, parameters.as_ptr().addr(), 0, 0, 0]).map(word)
    }),
    ("bpf", bpf),
    ("keyctl", |_| {
        // The own user's keyring, which is made where there is none.
        let (get_id, users) = (0, (-4_isize).cast_unsigned());
        call(libc::SYS_keyctl, [get_id, users, 1, 0, 0]).map(word)
    }),
    ("add a key", |_| {
        let (kind, name, users) = (c"user".as_ptr(), c"attack".as_ptr(), (-4_isize).cast_unsigned());
        call(libc::SYS_add_key, [kind.addr(), name.addr(), name.addr(), 6, users]).map(word)
    }),
    ("look for a key", |_| {
        let (kind, name) = (c"user".as_ptr(), c"coreflow has no such key".as_ptr());
        match call(libc::SYS_request_key, [kind.addr(), name.addr(), 0, 0, 0]) {
            // Every keyring was searched.
            Err(Errno::ENOKEY) => Ok("looked".to_owned()),
            answer => answer.map(word),
        }
    }),
    // Of faults outside the kernel alone, which every user may handle.
    ("userfaultfd", |_| call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0]).map(word)),
    ("make shared memory", |_| {
        let own = libc::IPC_PRIVATE.cast_unsigned() as usize;
        call(libc::SYS_shmget, [own, 4096, 0o600, 0, 0]).and_then(remove_shared_memory).map(word)
    }),
    ("make a message queue", |_| {
        let own = libc::IPC_PRIVATE.cast_unsigned() as usize;
        let remove = |id| call(libc::SYS_msgctl, [id, libc::IPC_RMID.cast_unsigned() as usize, 0, 0, 0]);
        call(libc::SYS_msgget, [own, 0o600, 0, 0, 0]).and_then(remove).map(word)
    }),
    ("make a semaphore", |_| {
        let own = libc::IPC_PRIVATE.cast_unsigned() as usize;
        let remove = |id| call(libc::SYS_semctl, [id, 0, libc::IPC_RMID.cast_unsigned() as usize, 0, 0]);
        call(libc::SYS_semget, [own, 1, 0o600, 0, 0]).and_then(remove).map(word)
    }),
    ("make memory executable by personality", |_| {
        let reads_execute = libc::READ_IMPLIES_EXEC.cast_unsigned() as usize;
        call(libc::SYS_personality, [reads_execute, 0, 0, 0, 0]).map(word)
    }),
];

const AT_FDCWD: usize = libc::AT_FDCWD.cast_unsigned() as usize;
/// The bit that makes a number one of the x32 ABI, which x86_64 processes may call as well.
const X32: libc::c_long = 0x4000_0000;

/// Where the attacker mounts a file system before it is confined, in a mount namespace of its own, and where to it is
/// moved.
const MOVED_FROM: &CStr = c"/tmp";
const MOVED_TO: &CStr = c"/proc";

/// What an attacker has or becomes before it is confined, as no worker has it: root of namespaces of its own, which
/// takes nobody's leave on many hosts.
pub(crate) fn prepare(attempt: &str) -> Result<(), Errno> {
    match attempt {
        "enter a namespace" | "packet socket" | "raw socket" => as_root_of(libc::CLONE_NEWNET),
        "change its root" => as_root_of(0),
        "mount" | "open a file system" => as_root_of(libc::CLONE_NEWNS),
        "move a mount" => as_root_of(libc::CLONE_NEWNS).and_then(|()| mount(MOVED_FROM).map(drop)),
        _ => Ok(()),
    }
}

/// Mounts an empty file system.
fn mount(place: &CStr) -> Result<usize, Errno> {
    let (nothing, kind) = (c"none".as_ptr().addr(), c"tmpfs".as_ptr().addr());
    call(libc::SYS_mount, [nothing, place.as_ptr().addr(), kind, 0, 0])
}

fn unshare(what: libc::c_int) -> Result<usize, Errno> {
    call(libc::SYS_unshare, [what.cast_unsigned() as usize, 0, 0, 0, 0])
}

/// Becomes the root of a user namespace of its own, and of `more`.
fn as_root_of(more: libc::c_int) -> Result<(), Errno> {
    unshare(libc::CLONE_NEWUSER | more).map(drop)
}

/// It would outlive this process.
fn remove_shared_memory(id: usize) -> Result<usize, Errno> {
    call(libc::SYS_shmctl, [id, libc::IPC_RMID.cast_unsigned() as usize, 0, 0, 0])
}

/// Makes a map of one number, which many hosts give to root alone.
fn bpf(_: &mut Attacker) -> Answered {
    const MAP_CREATE: usize = 0;
    const ARRAY: u32 = 2;
    // Kind, bytes of a key, bytes of a value, entries.
    let map = [ARRAY, 4, 8, 1];
    call(libc::SYS_bpf, [MAP_CREATE, map.as_ptr().addr(), size_of_val(&map), 0, 0]).map(word)
}
