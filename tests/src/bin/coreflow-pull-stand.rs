//! `coreflow-pull-stand`: the relay as the target of a pull bench; see [`coreflow_tests::pull_stand`].

use std::process::ExitCode;

use coreflow_tests::pull_stand::{Arguments, run};
use tokio::signal::unix::{SignalKind, signal};

// Cloudly has next to nothing to do, so that what is measured is the relay.
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
    let ended = tokio::select! {
        ended = run(&arguments) => ended,
        // Dropping the run ends the relay too.
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
