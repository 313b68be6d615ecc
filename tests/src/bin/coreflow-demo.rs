//! `cargo demo`: the relay among its peers, one line a step; see [`coreflow_tests::demo`].

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: coreflow-demo [--binaries DIR]

  --binaries DIR  where coreflow and its workers are, as built or as a host release; they are built without it";

/// The whole story's bound, the build included.
const BOUND: Duration = Duration::from_secs(600);

/// Where the executables are, as the command line says.
fn binaries(mut arguments: impl Iterator<Item = String>) -> Result<Option<PathBuf>, String> {
    let Some(name) = arguments.next() else { return Ok(None) };
    match (name.as_str(), arguments.next(), arguments.next()) {
        ("--binaries", Some(directory), None) => {
            // The relay runs in a directory of its own.
            let found = PathBuf::from(&directory).canonicalize();
            found.map(Some).map_err(|error| format!("--binaries {directory}: {error}"))
        }
        _ => Err(format!("{name} is unknown, has no directory, or more follows")),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let binaries = match binaries(std::env::args().skip(1)) {
        Ok(binaries) => binaries,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match tokio::time::timeout(BOUND, coreflow_tests::demo::run(binaries)).await {
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
