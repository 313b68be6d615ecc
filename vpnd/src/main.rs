//! `coreflow-vpnd`; started by the supervisor alone.

use std::process::ExitCode;

use coreflow_ipc::{confine::Profile, hello::Role, worker};
use coreflow_vpnd::protocol::socket;

fn main() -> ExitCode {
    worker::main(
        Role::Vpnd,
        |_| {
            // It opens sockets, which a confined process cannot.
            socket::probe();
            Ok(Profile::vpnd())
        },
        || tokio::runtime::Builder::new_current_thread().enable_all().build(),
        coreflow_vpnd::life::serve,
    )
}
