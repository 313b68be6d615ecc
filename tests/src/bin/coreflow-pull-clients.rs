//! `cargo pull-clients`: real container clients pull through the relay; see [`coreflow_tests::pull_clients`].

use std::path::PathBuf;
use std::process::ExitCode;

use coreflow_tests::pull_clients::{Options, run};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
usage: coreflow-pull-clients [--direct] [--binaries DIR]

  --direct        pull from the registry itself, with no relay between: tells a fault of a client or of the
                  registry from one of the relay
  --binaries DIR  where coreflow and its workers are; they are built without it";

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--direct" => options.direct = true,
            "--binaries" => {
                let value = arguments.next().ok_or("--binaries has no value")?;
                // The relay runs in a directory of its own.
                let directory = PathBuf::from(&value).canonicalize();
                options.binaries = Some(directory.map_err(|error| format!("--binaries {value}: {error}"))?);
            }
            _ => return Err(format!("{name} is unknown")),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime has signals enabled");
    let ended = tokio::select! {
        ended = run(&options) => ended.map_err(|failure| failure.to_string()),
        // Dropping the run ends every process of it.
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
