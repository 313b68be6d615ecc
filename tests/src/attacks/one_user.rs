//! One unprivileged user for the supervisor, the workers and the attackers alike, whoever starts the attacks: the
//! isolation must not rest on different users. What root starts goes on without a group, a capability or a way to
//! one, as by `setpriv --reuid=N --regid=N --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all`.
#![expect(unsafe_code, reason = "the bounding set is dropped with a raw system call")]

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use coreflow_ipc::sys::{Errno, set_no_new_privs};
use nix::unistd::{Gid, Uid, chown};

use crate::binaries::{NAMES, binaries};

/// A user without a name, beside those of the workers of a supervisor that root started.
const USER: u32 = 60_810;

/// Whether another user has to be taken.
#[must_use]
pub fn is_needed() -> bool {
    Uid::effective().is_root()
}

/// Runs the attacks once more, as [`USER`], on copies of the executables that this user reaches.
///
/// # Errors
/// The system's, of a copy, a right or the start.
pub fn run() -> io::Result<ExitStatus> {
    let release = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    let built = binaries();
    for program in NAMES.iter().map(|name| built.join(name)).chain([own.clone()]) {
        let copy = release.path().join(program.file_name().expect("an executable has a name"));
        // A link where that is allowed: debug builds are large.
        std::fs::hard_link(&program, &copy).or_else(|_| std::fs::copy(&program, &copy).map(drop))?;
    }
    std::fs::set_permissions(release.path(), std::fs::Permissions::from_mode(0o755))?;
    chown(release.path(), Some(Uid::from_raw(USER)), Some(Gid::from_raw(USER)))?;
    drop_bounding_set()?;
    set_no_new_privs()?;
    let own = release.path().join(own.file_name().expect("an executable has a name"));
    // With the user the supplementary groups go, and every capability with the exec.
    Command::new(own).args([Path::new("--release"), release.path()]).uid(USER).gid(USER).status()
}

fn drop_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        // SAFETY: the call takes numbers only.
        match Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            // Beyond the last one that the kernel knows.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Who attacks, as the kernel says it.
///
/// # Errors
/// What is more than an unprivileged user has.
pub fn described() -> Result<String, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for set in ["CapPrm", "CapEff", "CapAmb"] {
        if !of(set).trim_matches('0').is_empty() {
            return Err(format!("the attacks are made without a capability, and {set} is {}", of(set)));
        }
    }
    Ok(format!(
        "user {}, groups [{}], bounding set {}, no_new_privs {}",
        of("Uid"),
        of("Groups"),
        of("CapBnd"),
        of("NoNewPrivs")
    ))
}
