//! `coreflow-systemd-peers`: whom the relay of a unit meets in `tests/systemd`; see [`coreflow_tests::systemd_peers`].

use std::path::Path;
use std::process::ExitCode;

use coreflow_tests::systemd_peers::{Arguments, ask, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(unusable) => {
            eprintln!("{unusable}");
            return ExitCode::from(2);
        }
    };
    let ended = match &arguments {
        Arguments::Serve { folder, relay_port, cloudly_port } => {
            stand(folder, *relay_port, *cloudly_port).await
        }
        Arguments::Ask { folder, command } => {
            ask(folder, command).map(|text| print!("{text}")).map_err(|failure| failure.to_string())
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn stand(folder: &Path, relay_port: u16, cloudly_port: u16) -> Result<(), String> {
    serve(folder, relay_port, cloudly_port).await.map_err(|error| format!("{}: {error}", folder.display()))
}
