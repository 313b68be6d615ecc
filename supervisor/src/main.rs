//! `coreflow`: see the library.

use std::process::ExitCode;

/// Freed memory is wiped: a copy of the bearer in a library's buffer ends with the buffer (ARC-23).
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> =
    zeroizing_alloc::ZeroAlloc(std::alloc::System);

fn main() -> ExitCode {
    coreflow_supervisor::command::run(std::env::args_os().skip(1))
}
