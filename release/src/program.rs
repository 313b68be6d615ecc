//! Runs the programs that a release is made with: cargo, rustc, git, the C compiler, dpkg-deb.

use std::{
    ffi::OsString,
    process::{Command, Output},
};

use crate::failure::Failure;

/// Lines of a failed program's standard error that are repeated.
const LAST_WORDS: usize = 20;

/// A command without what cargo tells a program that it runs of that program's package: build scripts would run
/// again for it.
pub(crate) fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    let told = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(told) {
        command.env_remove(name);
    }
    command
}

/// The cargo that runs this program, or the one of the path.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs it to its end and hands its standard output over.
pub(crate) fn answer(command: &mut Command) -> Result<String, Failure> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| Failure::Program(words(command), error.kind().to_string()))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&stderr);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n");
    Err(Failure::Program(words(command), format!("{status}\n{last}")))
}

/// Runs it with this program's own standard output and error.
pub(crate) fn perform(command: &mut Command) -> Result<(), Failure> {
    let status =
        command.status().map_err(|error| Failure::Program(words(command), error.kind().to_string()))?;
    if status.success() { Ok(()) } else { Err(Failure::Program(words(command), status.to_string())) }
}

/// Program and arguments in one line.
fn words(command: &Command) -> String {
    let arguments = std::iter::once(command.get_program()).chain(command.get_args());
    arguments.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
