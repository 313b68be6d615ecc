//! `cargo attacks`: the attacks on the isolation and what stops each; see [`coreflow_tests::attacks`].

use std::path::PathBuf;
use std::process::ExitCode;

use coreflow_tests::attacks::{child, one_user, run};

const USAGE: &str = "\
usage: coreflow-attacks [--release DIR]

  --release DIR  where coreflow and its workers are; they are built without it

Started as root it goes on as one user without a privilege; otherwise as the user that started it.";

fn main() -> ExitCode {
    // An attacker is this executable as well, and has one thread.
    if child::is_attacker() {
        return ExitCode::SUCCESS;
    }
    let release = match release(std::env::args().skip(1)) {
        Ok(release) => release,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if one_user::is_needed() {
        return match one_user::run() {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("the attacks cannot be made as another user: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime for the relay's peers");
    match runtime.block_on(run(release.as_deref())) {
        Ok(without_control) => {
            println!("every attack failed by what it is said to fail by");
            if without_control.is_empty() {
                println!("and each succeeded without");
            } else {
                println!(
                    "and each succeeded without, but for what this host itself refuses or does not have:"
                );
                without_control.iter().for_each(|name| println!("  {name}"));
            }
            ExitCode::SUCCESS
        }
        Err(faults) => {
            faults.iter().for_each(|fault| eprintln!("NOT AS PROMISED: {fault}"));
            ExitCode::FAILURE
        }
    }
}

fn release(mut arguments: impl Iterator<Item = String>) -> Result<Option<PathBuf>, String> {
    let Some(name) = arguments.next() else { return Ok(None) };
    if name != "--release" {
        return Err(format!("{name} is unknown"));
    }
    let directory = arguments.next().ok_or("--release has no value")?;
    if let Some(more) = arguments.next() {
        return Err(format!("{more} is unknown"));
    }
    // The relay runs in a directory of its own.
    let directory = PathBuf::from(directory).canonicalize();
    directory.map(Some).map_err(|error| format!("--release: {error}"))
}
