//! The confinement of a worker: one ordered function, called once, single-threaded and before any runtime,
//! after which the process can do what its [`Profile`] says and nothing else. It needs neither root nor a
//! capability.
//!
//! Holds ARC-05 (inherited descriptors), ARC-11 and ARC-12 (no port, no named socket, no file), ARC-20 (the
//! worker ends with its supervisor), ARC-21 (unprivileged mechanisms) and the worker's half of ARC-23 (not
//! dumpable).
//!
//! What the kernel lacks is reported, not fatal: see [`Report`]. What every supported kernel has is demanded, the system
//! call filter with it: it alone holds the network and signals on an old kernel, and who refuses it is no kernel.

mod error;
mod landlock;
mod limits;
mod profile;
mod report;
mod seccomp;

pub use error::ConfineError;
pub use profile::Profile;
pub use report::{Layer, LayerReport, Report, State};
pub use seccomp::FILTERS;
#[cfg(test)]
pub(crate) use seccomp::refuse_on_this_thread;

use crate::sys::{self, Errno, Signal};

/// The first descriptor that does not belong to a worker: 0 is its supervisor link, 1 and 2 its last words.
const FIRST_FOREIGN_DESCRIPTOR: i32 = 3;

/// What the worker knows about its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// The process id of the supervisor that started this worker.
    pub supervisor: u32,
}

/// Confines this process to `profile`, for ever.
///
/// The order matters: the parent check before anything that takes time, `no_new_privs` before the filters
/// that need it, Landlock and the limits before the system call filter that refuses their calls.
pub fn confine(profile: &Profile, started: &Started) -> Result<Report, ConfineError> {
    demand_single_thread()?;
    end_with_supervisor(started)?;
    sys::set_no_new_privs().map_err(ConfineError::NoNewPrivileges)?;
    sys::close_from(FIRST_FOREIGN_DESCRIPTOR).map_err(ConfineError::Descriptors)?;
    let privileges = drop_capabilities();
    let limits = limits::lower(profile);
    sys::set_dumpable_off().map_err(ConfineError::Dumpable)?;
    let write_execute = write_execute();
    let landlock = landlock::restrict(profile);
    seccomp::filter(profile)?;
    Ok(Report {
        layers: vec![
            LayerReport { layer: Layer::ParentDeath, state: State::On },
            LayerReport { layer: Layer::NoNewPrivileges, state: privileges },
            LayerReport { layer: Layer::Descriptors, state: State::On },
            LayerReport { layer: Layer::Limits, state: limits },
            LayerReport { layer: Layer::NotDumpable, state: State::On },
            LayerReport { layer: Layer::WriteExecute, state: write_execute },
            LayerReport { layer: Layer::Landlock, state: landlock },
            LayerReport { layer: Layer::Seccomp, state: State::On },
        ],
    })
}

/// Landlock and seccomp bind the calling thread and what it starts; a thread that already ran would stay
/// free.
fn demand_single_thread() -> Result<(), ConfineError> {
    match sys::thread_count() {
        Ok(1) => Ok(()),
        Ok(count) => Err(ConfineError::Threads(count)),
        Err(error) => Err(ConfineError::ThreadsUnknown(error.kind())),
    }
}

fn end_with_supervisor(started: &Started) -> Result<(), ConfineError> {
    sys::set_parent_death_signal(Signal::SIGKILL).map_err(ConfineError::ParentDeath)?;
    // A supervisor that ended before the call sends no signal any more, and this process has another parent.
    let parent = std::os::unix::process::parent_id();
    if parent != started.supervisor {
        return Err(ConfineError::Orphaned { supervisor: started.supervisor, parent });
    }
    Ok(())
}

/// A worker needs none, and a unit for a port below 1024 gives the supervisor's to all that it starts.
fn drop_capabilities() -> State {
    match sys::drop_capabilities() {
        Ok(()) => State::On,
        Err(errno) => State::Partly(format!("capabilities are kept, capset was refused: {errno}")),
    }
}

fn write_execute() -> State {
    match sys::deny_write_execute() {
        Ok(()) => State::On,
        Err(Errno::EINVAL) => State::Absent("the kernel has no PR_SET_MDWE (Linux 6.3)".to_owned()),
        Err(errno) => State::Absent(format!("PR_SET_MDWE was refused: {errno}")),
    }
}
