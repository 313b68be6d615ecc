//! `coreflow-pulld`; started by the supervisor alone.

use std::process::ExitCode;

use coreflow_ipc::{confine::Profile, hello::Role, worker};

/// Freed memory is wiped: a node's pull token ends with the buffer that held it (PULL-28).
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

fn main() -> ExitCode {
    worker::main(
        Role::Pulld,
        |_| Ok(Profile::pulld()),
        // One thread: a body crosses from the registry's socket to relayd's without waking another.
        || tokio::runtime::Builder::new_current_thread().enable_all().build(),
        coreflow_pulld::life::serve,
    )
}
