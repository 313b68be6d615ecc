//! `coreflow-relayd`; started by the supervisor alone.

use std::process::ExitCode;

use coreflow_ipc::{
    confine::Profile,
    hello::Role,
    worker::{self, StartError},
};

fn main() -> ExitCode {
    worker::main(
        Role::Relayd,
        |launch| launch.connect_port.map(Profile::relayd).ok_or(StartError::Arguments),
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        coreflow_relayd::wiring::serve,
    )
}
