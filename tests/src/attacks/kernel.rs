//! Attempts on parts of the kernel that reach far: namespaces, mounts, programs that run in it, keys, shared memory.

use super::attempts::{Answered, Attempt, call, word};
use super::child::Attacker;
use coreflow_ipc::sys::Errno;

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("unshare", |_| unshare(libc::CLONE_NEWUSER).map(word)),
    ("mount", |_| {
        as_root_where_needed(libc::CLONE_NEWNS, || {
            let (nothing, place) = (c"none".as_ptr().addr(), c"/proc".as_ptr().addr());
            call(libc::SYS_mount, [nothing, place, c"tmpfs".as_ptr().addr(), 0, 0])
        })
    }),
    ("change its root", |_| {
        as_root_where_needed(0, || call(libc::SYS_chroot, [c"/proc".as_ptr().addr(), 0, 0, 0, 0]))
    }),
    ("enter a namespace", |_| {
        as_root_where_needed(libc::CLONE_NEWNET, || {
            let own = call(libc::SYS_pidfd_open, [std::process::id() as usize, 0, 0, 0, 0]);
            let kind = libc::CLONE_NEWNET.cast_unsigned() as usize;
            call(libc::SYS_setns, [own.unwrap_or(usize::MAX), kind, 0, 0, 0])
        })
    }),
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
    // Of faults outside the kernel alone, which every user may handle.
    ("userfaultfd", |_| call(libc::SYS_userfaultfd, [1, 0, 0, 0, 0]).map(word)),
    ("make shared memory", |_| {
        let own = libc::IPC_PRIVATE.cast_unsigned() as usize;
        call(libc::SYS_shmget, [own, 4096, 0o600, 0, 0]).and_then(remove_shared_memory).map(word)
    }),
    ("make memory executable by personality", |_| {
        let reads_execute = libc::READ_IMPLIES_EXEC.cast_unsigned() as usize;
        call(libc::SYS_personality, [reads_execute, 0, 0, 0, 0]).map(word)
    }),
];

fn unshare(what: libc::c_int) -> Result<usize, Errno> {
    call(libc::SYS_unshare, [what.cast_unsigned() as usize, 0, 0, 0, 0])
}

/// Becomes the root of a user namespace of its own, and of `more`.
pub(crate) fn as_root_of_namespaces(more: libc::c_int) -> Result<(), Errno> {
    unshare(libc::CLONE_NEWUSER | more).map(drop)
}

/// Makes the call as it is, and where that takes a capability, once more as the root of namespaces of its own.
fn as_root_where_needed(more: libc::c_int, make: impl Fn() -> Result<usize, Errno>) -> Answered {
    make().or_else(|_| as_root_of_namespaces(more).and_then(|()| make())).map(word)
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
