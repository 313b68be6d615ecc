//! Attempts on files: reading, making, changing and removing them, and looking at what there is.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;

use super::attempts::{Answered, Attempt, call, done, word};
use super::child::Attacker;

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("open a file", |a| done(fs::File::open(&a.argument))),
    ("look at a file", |a| done(fs::metadata(&a.argument))),
    ("create a file", |a| done(fs::File::create(&a.argument))),
    ("make a directory", |a| done(fs::create_dir(&a.argument))),
    ("make a link", |a| done(symlink("/etc/passwd", &a.argument))),
    // Without opening it, which takes a right of its own.
    ("make an empty file", |a| make_node(a, libc::S_IFREG)),
    ("make a named pipe", |a| make_node(a, libc::S_IFIFO)),
    // Of the number that every user may make: it hides a file from an overlay, and is opened by nobody.
    ("make a device", |a| make_node(a, libc::S_IFCHR)),
    ("make a socket", |a| done(UnixDatagram::bind(&a.argument))),
    ("remove a directory", |a| done(fs::remove_dir(&a.argument))),
    ("remove a file", |a| done(fs::remove_file(&a.argument))),
    ("cut a file", |a| {
        let path = std::ffi::CString::new(a.argument.as_str()).expect("a path has no zero byte");
        call(libc::SYS_truncate, [path.as_ptr().addr(), 0, 0, 0, 0]).map(word)
    }),
    ("change a file's mode", |a| done(fs::set_permissions(&a.argument, fs::Permissions::from_mode(0o666)))),
    ("list a directory", |a| done(fs::read_dir(&a.argument))),
    ("watch files", |_| call(libc::SYS_inotify_init1, [0; 5]).map(word)),
];

fn make_node(attacker: &mut Attacker, kind: libc::mode_t) -> Answered {
    let path = std::ffi::CString::new(attacker.argument.as_str()).expect("a path has no zero byte");
    let (here, mode) = (libc::AT_FDCWD.cast_unsigned() as usize, (kind | 0o600) as usize);
    call(libc::SYS_mknodat, [here, path.as_ptr().addr(), mode, 0, 0]).map(word)
}
