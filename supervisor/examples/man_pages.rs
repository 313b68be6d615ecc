//! Writes the manual pages of both commands into the directory that is named:
//! `cargo run -p coreflow-supervisor --example man_pages docs/man`. `supervisor/tests/man_pages.rs` fails while those
//! of the tree are others.

use std::{collections::BTreeMap, env, fs, io, path::Path};

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use coreflow_supervisor::{coreflowctl, options::HELP};

/// Commands of an administrator.
const SECTION: &str = "8";

fn main() -> io::Result<()> {
    let directory =
        env::args_os().nth(1).ok_or_else(|| io::Error::other("name the directory for the pages"))?;
    for (name, page) in pages()? {
        fs::write(Path::new(&directory).join(name), page)?;
    }
    Ok(())
}

/// The pages by the names of their files.
pub(crate) fn pages() -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut pages = BTreeMap::new();
    for mut command in [coreflow(), coreflowctl::command()] {
        command.build();
        let parts: Vec<Command> = command.get_subcommands().cloned().collect();
        for command in [command].into_iter().chain(parts) {
            // A part of a command has no version of its own to be told by.
            let source = concat!("coreflow ", env!("CARGO_PKG_VERSION"));
            let page = Man::new(command).section(SECTION).manual("Coreflow").source(source);
            let mut text = Vec::new();
            page.render(&mut text)?;
            pages.insert(page.get_filename(), text);
        }
    }
    Ok(pages)
}

/// The command line of `coreflow`, of its own help: the relay has a reader of its own for its few options.
fn coreflow() -> Command {
    let mut lines = HELP.lines();
    let about = lines.next().and_then(|line| line.split_once(" - ")).expect("the help begins with a name").1;
    let options = HELP.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let options = options.map(|line| {
        let (option, help) = line.split_once("  ").expect("each option has its help");
        let (name, value) = match option.split_once(' ') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let arg = Arg::new(name).long(name).help(help.trim_start());
        match value {
            Some(value) => arg.value_name(value),
            None => arg.action(ArgAction::SetTrue),
        }
    });
    Command::new("coreflow")
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .after_help(lines.next_back().expect("the help ends with a rule"))
        .args(options)
}
