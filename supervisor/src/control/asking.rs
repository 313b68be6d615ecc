//! The asking end of the control socket: one command, one answer, bounded in time and size; of a trace one line
//! after the other.

use std::{
    fmt, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use interprocess::{
    local_socket::{
        GenericFilePath, ToFsName,
        traits::{StreamCommon, tokio::Stream as _},
    },
    os::unix::uds_local_socket::tokio::Stream,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    protocol::{Answer, Command},
    trace_lines::Read,
};
use crate::constants::CONTROL_ANSWER_BYTES;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskError {
    /// Nobody is reached at the path; the failure's class.
    Unreachable(PathBuf, io::ErrorKind),
    /// No whole answer came within this time.
    Late(Duration),
    /// The connection ended without a whole answer.
    Closed,
    /// The answer is longer than one may be.
    TooLong,
    /// The answer is none; what of it cannot be read.
    Unreadable(String),
    /// The relay refuses to answer: `<name>: <reason>`.
    Refused(String),
}

impl std::error::Error for AskError {}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(path, kind) => {
                let remedy = match kind {
                    io::ErrorKind::NotFound => {
                        "no relay has a control socket there; name its path with --socket"
                    }
                    io::ErrorKind::ConnectionRefused => "the relay that made this socket is gone",
                    io::ErrorKind::PermissionDenied => "ask as root, or as the user that the relay runs as",
                    io::ErrorKind::InvalidInput => {
                        "no control socket can be there; name its path with --socket"
                    }
                    _ => "see whether the relay runs",
                };
                write!(f, "control-unreachable: {}: {kind}; {remedy}", path.display())
            }
            Self::Late(bound) => {
                write!(f, "control-answer-late: the relay did not answer within {} ms", bound.as_millis())
            }
            Self::Closed => f.write_str("control-closed: the relay ended the connection before its answer"),
            Self::TooLong => {
                write!(f, "control-answer-too-long: an answer has at most {CONTROL_ANSWER_BYTES} bytes")
            }
            Self::Unreadable(what) => write!(f, "control-answer-unreadable: {what}"),
            Self::Refused(error) => f.write_str(error),
        }
    }
}

/// Asks the relay whose control socket is at `path`, within `bound`.
///
/// # Errors
/// See [`AskError`].
pub async fn ask(path: &Path, command: Command, bound: Duration) -> Result<Answer, AskError> {
    ask_whom(path, command, bound).await.map(|(answer, _)| answer)
}

/// As [`ask`]; says which process answers, as this process sees it: none of another process id namespace.
///
/// # Errors
/// See [`AskError`].
pub async fn ask_whom(
    path: &Path,
    command: Command,
    bound: Duration,
) -> Result<(Answer, Option<u32>), AskError> {
    let (line, pid) = timeout(bound, exchange(path, command)).await.map_err(|_| AskError::Late(bound))??;
    match serde_json::from_slice(&line) {
        Ok(Answer::Error(error)) => Err(AskError::Refused(error)),
        Ok(answer) => Ok((answer, pid)),
        Err(error) => Err(AskError::Unreadable(error.to_string())),
    }
}

/// The line of the answer, and who made the socket.
async fn exchange(path: &Path, command: Command) -> Result<(Vec<u8>, Option<u32>), AskError> {
    let mut lines = Lines::open(path, &command).await?;
    let pid = lines.stream.peer_creds().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
    Ok((lines.next().await?, pid.filter(|pid| *pid != 0)))
}

/// Follows the trace that `command` asks for, and gives each line of it to `each` for as long as that goes on with
/// it. `bound` is for its first line; a link may be silent for long.
///
/// # Errors
/// See [`AskError`]; [`AskError::Closed`] when the relay ends.
pub async fn follow(
    path: &Path,
    command: Command,
    bound: Duration,
    mut each: impl FnMut(Read) -> ControlFlow<()>,
) -> Result<(), AskError> {
    let first = async {
        let mut lines = Lines::open(path, &command).await?;
        Ok((lines.next().await?, lines))
    };
    let (mut line, mut lines) = timeout(bound, first).await.map_err(|_| AskError::Late(bound))??;
    loop {
        match serde_json::from_slice(&line) {
            Ok(Read::Error(error)) => return Err(AskError::Refused(error)),
            Ok(read) => {
                if each(read).is_break() {
                    return Ok(());
                }
            }
            Err(error) => return Err(AskError::Unreadable(error.to_string())),
        }
        line = lines.next().await?;
    }
}

/// The lines of an answer.
struct Lines {
    stream: Stream,
    read: Vec<u8>,
}

impl Lines {
    async fn open(path: &Path, command: &Command) -> Result<Self, AskError> {
        let unreachable = |error: io::Error| AskError::Unreachable(path.to_owned(), error.kind());
        let name = path.to_fs_name::<GenericFilePath>().map_err(unreachable)?;
        let mut stream = Stream::connect(name).await.map_err(unreachable)?;
        // A relay that answers before it reads, such as one that refuses, has its answer in the socket.
        let _ = stream.write_all(command.line().as_bytes()).await;
        Ok(Self { stream, read: Vec::new() })
    }

    /// The next line, without its end.
    async fn next(&mut self) -> Result<Vec<u8>, AskError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                self.read.truncate(end);
                return Ok(std::mem::replace(&mut self.read, rest));
            }
            if self.read.len() > CONTROL_ANSWER_BYTES {
                return Err(AskError::TooLong);
            }
            match self.stream.read_buf(&mut self.read).await {
                Ok(0) | Err(_) => return Err(AskError::Closed),
                Ok(_) => {}
            }
        }
    }
}
