//! `coreflow-relayd`; started by the supervisor alone.

use std::process::ExitCode;

use coreflow_ipc::{
    confine::Profile,
    hello::Role,
    worker::{self, StartError},
};

/// Freed memory is wiped: a private key, a jwt or a node's bearer ends with the buffer that held it
/// (XTR-10, OUT-13).
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

fn main() -> ExitCode {
    worker::main(
        Role::Relayd,
        |launch| launch.connect_port.map(Profile::relayd).ok_or(StartError::Arguments),
        // One thread: a message crosses from a node's socket over the core to Cloudly's without waking another.
        || tokio::runtime::Builder::new_current_thread().enable_all().build(),
        coreflow_relayd::wiring::serve,
    )
}
