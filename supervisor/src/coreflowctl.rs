//! The command `coreflowctl`: asks a running relay, and says in its exit status whether it is ready
//! (PROT-35, OPS-02).

use std::{
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::{
    configuration::runtime_directory_of_process,
    constants::CONTROL_ASK_BOUND,
    control::{
        FILE,
        asking::{AskError, ask},
        protocol::{Answer, Command},
    },
    status::Status,
};

/// Where the unit's relay has its control socket.
const UNIT_DIRECTORY: &str = "/run/coreflow";
/// The exit status of a relay that is not ready.
const NOT_READY: u8 = 3;
/// The exit status of a command line that is none.
const USAGE: u8 = 2;

/// Runs the command of this process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let printed = error.print().is_ok();
            return match (error.use_stderr(), printed) {
                (true, _) => ExitCode::from(USAGE),
                (false, true) => ExitCode::SUCCESS,
                (false, false) => ExitCode::FAILURE,
            };
        }
    };
    let (_, status) = matches.subcommand().expect("a command line without a command is refused");
    let socket = socket(status, runtime_directory_of_process());
    match look(&socket) {
        Ok(status_of_relay) => print(&status_of_relay, status.get_flag("json")),
        Err(error) => {
            let mut text = String::new();
            coreflow_ipc::record::escape_into(&mut text, &error.to_string());
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> clap::Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the JSON document");
    let socket =
        Arg::new("socket").long("socket").value_name("PATH").value_parser(value_parser!(PathBuf)).help(
            "The relay's control socket [default: control.sock in $RUNTIME_DIRECTORY or /run/coreflow]",
        );
    let status = clap::Command::new("status")
        .about("Print whether the relay is ready, and what is in the way")
        .after_help("Exit status: 0 ready, 3 not ready, 1 the relay does not answer, 2 wrong usage.")
        .arg(json)
        .arg(socket);
    clap::Command::new("coreflowctl")
        .about("Asks a running relay over its control socket")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(status)
}

/// The path that was named, or the one where a unit's relay has its socket.
fn socket(matches: &ArgMatches, runtime_directory: Option<PathBuf>) -> PathBuf {
    let named = matches.get_one::<PathBuf>("socket").cloned();
    named.unwrap_or_else(|| runtime_directory.unwrap_or_else(|| UNIT_DIRECTORY.into()).join(FILE))
}

fn look(socket: &Path) -> Result<Status, AskError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| AskError::Unreachable(socket.to_owned(), error.kind()))?;
    match runtime.block_on(ask(socket, Command::Status, CONTROL_ASK_BOUND))? {
        Answer::Status(status) => Ok(*status),
        Answer::Error(error) => Err(AskError::Refused(error)),
    }
}

fn print(status: &Status, json: bool) -> ExitCode {
    let text = if json { status.json() + "\n" } else { status.text() };
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match (written, status.readiness.ready) {
        (Err(_), _) => ExitCode::FAILURE,
        (Ok(()), true) => ExitCode::SUCCESS,
        (Ok(()), false) => ExitCode::from(NOT_READY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<ArgMatches, clap::Error> {
        command().try_get_matches_from([&["coreflowctl"], arguments].concat())
    }

    /// The socket is the named one, else the unit's.
    #[test]
    fn the_socket_is_named_or_the_units() {
        let of = |arguments: &[&str], directory: Option<&str>| {
            let matches = parse(arguments).unwrap();
            socket(matches.subcommand().unwrap().1, directory.map(PathBuf::from))
        };
        assert_eq!(of(&["status"], None), Path::new("/run/coreflow/control.sock"));
        assert_eq!(of(&["status"], Some("/run/other")), Path::new("/run/other/control.sock"));
        assert_eq!(of(&["status", "--socket", "/a/b"], Some("/run/other")), Path::new("/a/b"));
    }

    #[test]
    fn wrong_usage_is_refused() {
        command().debug_assert();
        for arguments in [&[][..], &["stop"], &["status", "more"], &["status", "--socket"], &["--json"]] {
            let error = parse(arguments).unwrap_err();
            assert!(error.use_stderr(), "{arguments:?}");
        }
        for arguments in [["--help"], ["--version"]] {
            assert!(!parse(&arguments).unwrap_err().use_stderr());
        }
    }
}
