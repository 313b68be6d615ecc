//! `coreflowctl`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    coreflow_supervisor::coreflowctl::run(std::env::args_os())
}
