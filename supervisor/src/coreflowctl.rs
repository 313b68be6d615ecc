//! The command `coreflowctl`: asks a running relay, and says in its exit status what came of it (PROT-35, OPS-02).

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::ArgMatches;
use coreflow_ipc::{hello::Role, record::Level};

use crate::{configuration::runtime_directory_of_process, control::FILE};

mod command_line;
mod isolation;
mod looking;
mod nodes;
mod restart;
mod status;
mod trace;
mod workers;

pub use command_line::command;
use looking::{Outcome, RunningRelay};

/// Where the unit's relay has its control socket.
const UNIT_DIRECTORY: &str = "/run/coreflow";
/// The exit status of a relay that is not as it should be: not ready, not restarted, not confined.
const NOT_SO: u8 = 3;
/// The exit status of a command line that is none.
const USAGE: u8 = 2;

/// Runs the command of this process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let printed = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { looking::ended(printed) };
        }
    };
    let (name, arguments) = matches.subcommand().expect("a command line without a command is refused");
    if name == "completions" {
        return completions(arguments);
    }
    let relay = match RunningRelay::at(socket(arguments, runtime_directory_of_process())) {
        Ok(relay) => relay,
        Err(error) => return looking::failed(&error),
    };
    let json = arguments.try_get_one("json").ok().flatten().copied().unwrap_or(false);
    let again = arguments.try_get_one::<u64>("watch").ok().flatten();
    let again = again.copied().map(Duration::from_secs);
    match name {
        "status" => looking::show(again, json, || status::look(&relay, json)),
        "workers" => looking::show(again, json, || workers::look(&relay, json)),
        "nodes" => looking::show(again, json, || nodes::look(&relay, json)),
        "restart" => looking::show(None, json, || restart::restart(&relay, process(arguments))),
        "log" => looking::show(None, json, || workers::log(&relay, process(arguments), level(arguments))),
        "isolation" => looking::show(None, json, || isolation::look(&relay, json)),
        "metrics" => looking::show(None, json, || status::metrics(&relay)),
        "trace" => trace::follow(&relay, process(arguments), json),
        _ => unreachable!("each command of the command line is listed"),
    }
}

/// The path that was named, or the one where a unit's relay has its socket.
fn socket(matches: &ArgMatches, runtime_directory: Option<PathBuf>) -> PathBuf {
    let named = matches.get_one::<PathBuf>("socket").cloned();
    named.unwrap_or_else(|| runtime_directory.unwrap_or_else(|| UNIT_DIRECTORY.into()).join(FILE))
}

/// The process that was named.
fn process(matches: &ArgMatches) -> Role {
    let name: &String = matches.get_one("worker").expect("it is required");
    let mut all = [Role::Supervisor].into_iter().chain(Role::WORKERS);
    all.find(|role| role.name() == name).expect("the command line takes these names alone")
}

/// The level that was named.
fn level(matches: &ArgMatches) -> Level {
    let word: &String = matches.get_one("level").expect("it is required");
    Level::of_word(word).expect("the command line takes these words alone")
}

fn completions(matches: &ArgMatches) -> ExitCode {
    let shell: &String = matches.get_one("shell").expect("it is required");
    let shell: clap_complete::Shell = shell.parse().expect("the command line takes these shells alone");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "coreflowctl", &mut script);
    let mut stdout = io::stdout().lock();
    looking::ended(stdout.write_all(&script).and_then(|()| stdout.flush()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(arguments: &[&str]) -> ArgMatches {
        command().try_get_matches_from([&["coreflowctl"], arguments].concat()).unwrap()
    }

    /// The socket is the named one, else the unit's.
    #[test]
    fn the_socket_is_named_or_the_units() {
        let of = |arguments: &[&str], directory: Option<&str>| {
            let matches = parse(arguments);
            socket(matches.subcommand().unwrap().1, directory.map(PathBuf::from))
        };
        assert_eq!(of(&["status"], None), Path::new("/run/coreflow/control.sock"));
        assert_eq!(of(&["nodes"], Some("/run/other")), Path::new("/run/other/control.sock"));
        assert_eq!(of(&["status", "--socket", "/a/b"], Some("/run/other")), Path::new("/a/b"));
    }

    /// Each name and word that the command line takes is one of a process and of a level.
    #[test]
    fn each_name_of_the_command_line_is_known() {
        for name in ["supervisor", "relayd", "pulld", "vpnd"] {
            for word in ["error", "warn", "info", "debug", "trace"] {
                let matches = parse(&["log", name, word]);
                let log = matches.subcommand().unwrap().1;
                assert_eq!((process(log).name(), level(log).word()), (name, word));
            }
        }
    }
}
