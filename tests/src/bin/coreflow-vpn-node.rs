//! `coreflow-vpn-node`: a node of the managed VPN with a TUN device; see [`coreflow_tests::vpn_node`].

use std::process::ExitCode;

use coreflow_tests::vpn_node::{Arguments, run};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

// One thread: what it would win by another it loses in batches.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(unusable) => {
            eprintln!("{unusable}");
            return ExitCode::from(2);
        }
    };
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime has signals enabled");
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    match LocalSet::new().run_until(run(&arguments, stop)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
