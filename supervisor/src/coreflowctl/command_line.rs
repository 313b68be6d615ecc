//! The command line of `coreflowctl`, which its help, its completions and its manual pages are made of.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, value_parser};

/// The shells that completions are made for.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
/// Seconds between two looks, where `--watch` names none.
const WATCH: &str = "2";

/// What a restart costs, what is waited for, and how it ends.
const RESTART: &str = "\
The other workers go on. What it costs:

relayd: every connection of a node and of a pull ends, and with them the
session with Cloudly, the route table and a certificate renewal that is held.
Nodes dial and register again. Dials wait in the backlog for 10 s at most, then
the listener is closed until relayd is open again.

pulld: pulls that do not end within 2.5 s are cut and are asked for again;
until it is back pulls are refused with 503.

vpnd: the sessions of the hub end, and its key is made anew. Nodes have no data
plane among each other until they have fetched their credential again.

The command waits for 60 s: for relayd until it is open for Cloudly dispatch,
for pulld until it answers, for vpnd until its hub is bound where it was before.

Exit status: 0 it is back, 3 it was restarted and is not back (restart-not-back),
1 it is not restarted (restart-not-made, or what the relay refuses it by),
2 wrong usage.";

/// Who may look, and how it ends.
const ISOLATION: &str = "\
Run it as root: the kernel tells descriptors and namespaces to root alone.

Exit status: 0 what is promised holds, 3 something does not or cannot be read,
1 the relay does not answer, 2 wrong usage.";

/// The whole command line.
#[must_use]
pub fn command() -> Command {
    Command::new("coreflowctl")
        .about("Asks a running relay over its control socket")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(
            looking("status", "Print whether the relay is ready, what is in the way, and how it stands")
                .after_help("Exit status: 0 ready, 3 not ready, 1 the relay does not answer, 2 wrong usage.")
                .arg(watch()),
        )
        .subcommand(
            looking("workers", "Print the processes with their state, memory and log level").arg(watch()),
        )
        .subcommand(
            asking("restart", "End a worker in order and start it again, and wait until it is back")
                .after_help(RESTART)
                .arg(worker(&["relayd", "pulld", "vpnd"])),
        )
        .subcommand(
            asking("log", "Change what a process records from here on")
                .after_help("It lasts until the relay ends, through restarts of the worker.")
                .arg(worker(&["supervisor", "relayd", "pulld", "vpnd"]))
                .arg(
                    Arg::new("level")
                        .value_name("LEVEL")
                        .required(true)
                        .value_parser(["error", "warn", "info", "debug", "trace"])
                        .help("The quietest record that is written"),
                ),
        )
        .subcommand(
            looking("nodes", "Print the nodes that are connected, and how each is registered").arg(watch()),
        )
        .subcommand(
            looking("isolation", "Print what confines each process, as the kernel tells it")
                .after_help(ISOLATION),
        )
        .subcommand(asking("metrics", "Print the relay's figures as OpenMetrics text"))
        .subcommand(
            looking("trace", "Print the messages between the supervisor and a worker as they pass")
                .after_help("Bodies, identities, keys and names are never among it. It ends by Ctrl-C.")
                .arg(worker(&["relayd", "pulld", "vpnd"])),
        )
        .subcommand(
            Command::new("completions").about("Print the completions of a shell").arg(
                Arg::new("shell")
                    .value_name("SHELL")
                    .required(true)
                    .value_parser(SHELLS)
                    .help("The shell that they are for"),
            ),
        )
}

/// A command that asks the relay.
fn asking(name: &'static str, about: &'static str) -> Command {
    let socket = Arg::new("socket")
        .long("socket")
        .value_name("PATH")
        .value_parser(value_parser!(PathBuf))
        .help("The control socket [default: in $RUNTIME_DIRECTORY or /run/coreflow]");
    Command::new(name).about(about).arg(socket)
}

/// One whose answer has two forms.
fn looking(name: &'static str, about: &'static str) -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    asking(name, about).arg(json)
}

fn watch() -> Arg {
    Arg::new("watch")
        .long("watch")
        .value_name("SECONDS")
        .num_args(0..=1)
        .default_missing_value(WATCH)
        .value_parser(value_parser!(u64).range(1..=3600))
        .help("Look again every so many seconds, or every 2, until Ctrl-C")
}

fn worker(names: &'static [&'static str]) -> Arg {
    Arg::new("worker").value_name("WORKER").required(true).value_parser(names.to_vec()).help("The process")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<clap::ArgMatches, clap::Error> {
        command().try_get_matches_from([&["coreflowctl"], arguments].concat())
    }

    #[test]
    fn wrong_usage_is_refused() {
        command().debug_assert();
        for arguments in [
            &[][..],
            &["stop"],
            &["status", "more"],
            &["status", "--socket"],
            &["status", "--watch", "0"],
            &["status", "--watch", "soon"],
            &["--json"],
            &["metrics", "--json"],
            &["restart"],
            &["restart", "supervisor"],
            &["log", "relayd"],
            &["log", "relayd", "loud"],
            &["trace"],
            &["isolation", "--watch"],
            &["completions", "powershell"],
        ] {
            let error = parse(arguments).unwrap_err();
            assert!(error.use_stderr(), "{arguments:?}");
        }
        for arguments in [["--help"], ["--version"]] {
            assert!(!parse(&arguments).unwrap_err().use_stderr());
        }
    }

    /// `--watch` has its seconds, or two.
    #[test]
    fn watching_has_a_default() {
        let seconds = |arguments: &[&str]| {
            let matches = parse(arguments).unwrap();
            matches.subcommand().unwrap().1.get_one::<u64>("watch").copied()
        };
        assert_eq!(seconds(&["status"]), None);
        assert_eq!(seconds(&["status", "--watch"]), Some(2));
        assert_eq!(seconds(&["nodes", "--watch", "7", "--json"]), Some(7));
    }
}
