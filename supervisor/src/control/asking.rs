//! The asking end of the control socket: one command, one answer, bounded in time and size.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use interprocess::{
    local_socket::{GenericFilePath, ToFsName, traits::tokio::Stream as _},
    os::unix::uds_local_socket::tokio::Stream,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::protocol::{Answer, Command};
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
    let line = timeout(bound, exchange(path, command)).await.map_err(|_| AskError::Late(bound))??;
    match serde_json::from_slice(&line) {
        Ok(Answer::Error(error)) => Err(AskError::Refused(error)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(AskError::Unreadable(error.to_string())),
    }
}

/// The line of the answer.
async fn exchange(path: &Path, command: Command) -> Result<Vec<u8>, AskError> {
    let unreachable = |error: io::Error| AskError::Unreachable(path.to_owned(), error.kind());
    let name = path.to_fs_name::<GenericFilePath>().map_err(unreachable)?;
    let mut stream = Stream::connect(name).await.map_err(unreachable)?;
    // A relay that answers before it reads, such as one that refuses, has its answer in the socket.
    let _ = stream.write_all(command.line().as_bytes()).await;
    let mut line = Vec::new();
    loop {
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            return Ok(line);
        }
        if line.len() > CONTROL_ANSWER_BYTES {
            return Err(AskError::TooLong);
        }
        match stream.read_buf(&mut line).await {
            Ok(0) | Err(_) => return Err(AskError::Closed),
            Ok(_) => {}
        }
    }
}
