//! `cargo relay-bench`: the relay beside a Node relay of the published packages; see [`coreflow_tests::bench`].

use std::process::ExitCode;

use coreflow_tests::bench::{self, arguments::Arguments};
use tokio::signal::unix::{SignalKind, signal};

// The nodes live on one thread, Cloudly on another: what they take from the relays is the same for both.
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
        ended = bench::run(&arguments) => ended.map_err(|failure| failure.to_string()),
        // Dropping the run ends the relays too.
        _ = tokio::signal::ctrl_c() => Err("interrupted".to_owned()),
        _ = terminate.recv() => Err("terminated".to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
