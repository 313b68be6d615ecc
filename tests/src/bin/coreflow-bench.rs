//! `cargo relay-bench`: the relay beside a Node relay of the published packages; see [`coreflow_tests::bench`].

use std::process::ExitCode;

use coreflow_tests::bench::{self, arguments::Arguments};

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
    match bench::run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
