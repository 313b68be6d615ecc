//! One look at a relay, or one after the other: asked, printed, and told in the exit status.

use std::{
    fmt, io,
    io::{IsTerminal, Write},
    ops::ControlFlow,
    os::unix::fs::FileTypeExt,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Duration,
};

use tokio::runtime::Runtime;

use super::NOT_SO;
use crate::{
    constants::CONTROL_ASK_BOUND,
    control::{
        asking::{self, AskError},
        protocol::{Answer, Command},
        trace_lines::Read,
    },
};

/// Clears a terminal and begins at its top.
const REDRAW: &str = "\x1b[H\x1b[2J\x1b[3J";

/// What a look brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What is printed, with its end.
    pub(super) text: String,
    /// Whether the relay is as it should be.
    pub(super) so: bool,
}

/// The relay that is asked.
pub(super) struct RunningRelay {
    socket: PathBuf,
    runtime: Runtime,
}

impl RunningRelay {
    /// The relay whose control socket is at `socket`.
    pub(super) fn at(socket: PathBuf) -> Result<Self, AskError> {
        // The kernel answers a connect to a file of another kind as one to a socket that nobody serves any more.
        if std::fs::metadata(&socket).is_ok_and(|file| !file.file_type().is_socket()) {
            return Err(AskError::Unreachable(socket, io::ErrorKind::InvalidInput));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => Ok(Self { socket, runtime }),
            Err(error) => Err(AskError::Unreachable(socket, error.kind())),
        }
    }

    /// Asks, and says which process answered, as this one sees it.
    pub(super) fn ask(&self, command: Command) -> Result<(Answer, Option<u32>), AskError> {
        self.runtime.block_on(asking::ask_whom(&self.socket, command, CONTROL_ASK_BOUND))
    }

    /// Follows a trace.
    pub(super) fn follow(
        &self,
        command: Command,
        each: impl FnMut(Read) -> ControlFlow<()>,
    ) -> Result<(), AskError> {
        self.runtime.block_on(asking::follow(&self.socket, command, CONTROL_ASK_BOUND, each))
    }
}

/// An answer to something else than what was asked.
pub(super) fn another() -> AskError {
    AskError::Unreadable("it is the answer to another command".to_owned())
}

/// Shows one look; with `again` one after the other until this process is ended, redrawn on a terminal and as
/// blocks elsewhere, and with what goes wrong as one of them.
pub(super) fn show<E: fmt::Display>(
    again: Option<Duration>,
    as_json: bool,
    mut look: impl FnMut() -> Result<Outcome, E>,
) -> ExitCode {
    let Some(pause) = again else {
        return match look() {
            Ok(outcome) => match print(&outcome.text).err().and_then(|error| unprinted(&error)) {
                Some(failed) => failed,
                None if outcome.so => ExitCode::SUCCESS,
                None => ExitCode::from(NOT_SO),
            },
            Err(error) => failed(&error),
        };
    };
    let (redraw, mut separator) = if io::stdout().is_terminal() { (REDRAW, "") } else { ("", "") };
    loop {
        let text = look().map_or_else(|error| missed(&error, as_json), |outcome| outcome.text);
        if let Err(error) = print(&format!("{redraw}{separator}{text}")) {
            return unprinted(&error).unwrap_or(ExitCode::SUCCESS);
        }
        separator = "\n";
        thread::sleep(pause);
    }
}

/// A look of many that brought nothing, in the form of the others.
fn missed(error: &impl fmt::Display, as_json: bool) -> String {
    if as_json {
        return escaped(&serde_json::json!({ "error": error.to_string() })) + "\n";
    }
    escaped(error) + "\n"
}

/// What a print that failed comes to: nothing where the reader has read enough and gone, and else a failure by name.
pub(super) fn unprinted(error: &io::Error) -> Option<ExitCode> {
    (error.kind() != io::ErrorKind::BrokenPipe).then(|| failed(&format!("output-failed: {}", error.kind())))
}

/// The end of a command that prints and asks nothing.
pub(super) fn ended(printed: io::Result<()>) -> ExitCode {
    printed.err().and_then(|error| unprinted(&error)).unwrap_or(ExitCode::SUCCESS)
}

/// Prints `text` at once.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The relay did not answer, or did not do it, by name.
pub(super) fn failed(error: &impl fmt::Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "{}", escaped(error));
    ExitCode::FAILURE
}

/// A text that acts on no terminal.
pub(super) fn escaped(text: &impl fmt::Display) -> String {
    let mut escaped = String::new();
    coreflow_ipc::record::escape_into(&mut escaped, &text.to_string());
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROT-35: a path that is no socket's is not taken for that of a relay that is gone.
    #[test]
    fn what_is_no_socket_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        let too_long = directory.path().join("a".repeat(200));
        let socket = directory.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        for (path, said) in [
            (directory.path().to_owned(), "no control socket can be there"),
            (too_long, "no control socket can be there"),
            (socket, "the relay that made this socket is gone"),
        ] {
            let asked = RunningRelay::at(path).and_then(|relay| relay.ask(Command::Status));
            let error = asked.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
