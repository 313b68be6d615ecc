//! Attempts on files: reading, making, changing and removing them, and looking at what there is.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::attempts::{Answered, Attempt, call, done, word};
use super::child::Attacker;

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("open a file", |a| done(fs::File::open(&a.argument))),
    ("look at a file", |a| done(fs::metadata(&a.argument))),
    ("create a file", |a| done(fs::File::create(&a.argument))),
    ("make a directory", |a| done(fs::create_dir(&a.argument))),
    ("make a link", |a| done(symlink("/etc/passwd", &a.argument))),
    ("make a named pipe", make_named_pipe),
    ("remove a file", |a| done(fs::remove_file(&a.argument))),
    ("cut a file", |a| {
        let path = std::ffi::CString::new(a.argument.as_str()).expect("a path has no zero byte");
        call(libc::SYS_truncate, [path.as_ptr().addr(), 0, 0, 0, 0]).map(word)
    }),
    ("change a file's mode", |a| done(fs::set_permissions(&a.argument, fs::Permissions::from_mode(0o666)))),
    ("list a directory", |a| done(fs::read_dir(&a.argument))),
    ("watch files", |_| call(libc::SYS_inotify_init1, [0; 5]).map(word)),
];

fn make_named_pipe(attacker: &mut Attacker) -> Answered {
    let path = std::ffi::CString::new(attacker.argument.as_str()).expect("a path has no zero byte");
    let (here, mode) = (libc::AT_FDCWD.cast_unsigned() as usize, (libc::S_IFIFO | 0o600) as usize);
    call(libc::SYS_mknodat, [here, path.as_ptr().addr(), mode, 0, 0]).map(word)
}
