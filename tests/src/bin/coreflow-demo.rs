//! `cargo demo`: the relay among its peers, one line a step; see [`coreflow_tests::demo`].

use std::process::ExitCode;
use std::time::Duration;

/// The whole story's bound, the build included.
const BOUND: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> ExitCode {
    match tokio::time::timeout(BOUND, coreflow_tests::demo::run()).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("FAILED  the demo took longer than {} s", BOUND.as_secs());
            ExitCode::FAILURE
        }
    }
}
