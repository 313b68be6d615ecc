//! `coreflow-pulld`; started by the supervisor alone.

use std::process::ExitCode;

use coreflow_ipc::{confine::Profile, hello::Role, worker};

fn main() -> ExitCode {
    worker::main(
        Role::Pulld,
        |_| Ok(Profile::pulld()),
        || tokio::runtime::Builder::new_current_thread().enable_all().build(),
        coreflow_pulld::life::serve,
    )
}
