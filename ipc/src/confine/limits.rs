//! Resource limits: no core file, and a bounded table of descriptors (ARC-23).
//!
//! No limit on processes, which would count the threads of every process of the user, and none on address
//! space, which an allocator reserves generously.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{Profile, State};

/// Lowers the limits for good: soft and hard alike.
pub(super) fn lower(profile: &Profile) -> State {
    let mut missing = Vec::new();
    if let Err(errno) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        missing.push(format!("core files: {errno}"));
    }
    if let Err(errno) = open_files(profile.open_files) {
        missing.push(format!("open files: {errno}"));
    }
    match missing.len() {
        0 => State::On,
        1 => State::Partly(missing.concat()),
        _ => State::Absent(missing.join(", ")),
    }
}

/// The hard limit cannot be raised without a capability, so a lower one stays.
fn open_files(most: u64) -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let most = most.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}
