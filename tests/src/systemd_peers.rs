//! `coreflow-systemd-peers`: whom the relay of a unit meets while a real systemd runs it. A Cloudly, its registry and a
//! node stand on loopback and do what they are asked over a socket, a line each, so that a shell script can lead the play.
//!
//! What is asked for is a [`Command`]. An answer is `ok` or `failed` on a line, and then text.

mod command;
mod stand;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

pub use command::{Command, Unusable};
use stand::Stand;

/// The socket in the peers' folder.
const SOCKET: &str = "peers.sock";
/// Longest line that is read, in bytes.
const LINE: u64 = 1024;

/// What the program is told to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arguments {
    /// The peers.
    Serve {
        /// Where the socket is made, and what the relay and its unit need to know of the peers.
        folder: PathBuf,
        /// The port of 127.0.0.1 that the relay serves on.
        relay_port: u16,
        /// The port of 127.0.0.1 that Cloudly listens on.
        cloudly_port: u16,
    },
    /// Who asks them.
    Ask {
        /// The peers' folder.
        folder: PathBuf,
        /// What is asked for.
        command: Command,
    },
}

impl Arguments {
    /// Reads the command line without the program's name.
    ///
    /// # Errors
    /// [`Unusable`] when it is none.
    pub fn read(words: impl IntoIterator<Item = String>) -> Result<Self, Unusable> {
        let words: Vec<String> = words.into_iter().collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let port = |word: &str| word.parse().ok().filter(|port| *port > 0).ok_or(Unusable);
        match words[..] {
            ["serve", folder, relay_port, cloudly_port] => Ok(Self::Serve {
                folder: folder.into(),
                relay_port: port(relay_port)?,
                cloudly_port: port(cloudly_port)?,
            }),
            ["ask", folder, ref command @ ..] => {
                Ok(Self::Ask { folder: folder.into(), command: Command::read(&command.join(" "))? })
            }
            _ => Err(Unusable),
        }
    }
}

/// Why the peers did not do what they were asked for.
#[derive(Debug)]
pub enum AskFailure {
    /// They were not reached, or broke off.
    Unreachable(io::Error),
    /// They tried; their words.
    Failed(String),
}

impl fmt::Display for AskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "the peers are not reached: {error}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for AskFailure {}

/// Stands in `folder` until the future is dropped.
///
/// # Errors
/// The system's, when the folder cannot be used.
pub async fn serve(folder: &Path, relay_port: u16, cloudly_port: u16) -> io::Result<()> {
    let mut stand = Stand::start(relay_port, cloudly_port).await;
    stand.write_facts(folder)?;
    let listener = UnixListener::bind(folder.join(SOCKET))?;
    loop {
        let (socket, _) = listener.accept().await?;
        let (reading, mut writing) = socket.into_split();
        let mut line = String::new();
        let mut reading = BufReader::new(tokio::io::AsyncReadExt::take(reading, LINE));
        if reading.read_line(&mut line).await.is_err() {
            continue;
        }
        let answer = match Command::read(line.trim_end()) {
            Ok(command) => stand.perform(command).await,
            Err(unusable) => Err(unusable.to_string()),
        };
        let answer = match answer {
            Ok(text) => format!("ok\n{text}"),
            Err(why) => format!("failed\n{why}"),
        };
        // Whoever asked and went is not waited for.
        let _ = writing.write_all(answer.as_bytes()).await;
    }
}

/// Asks the peers of `folder`, and gives their text.
///
/// # Errors
/// [`AskFailure`].
pub fn ask(folder: &Path, command: &Command) -> Result<String, AskFailure> {
    let exchange = || {
        let mut socket = UnixStream::connect(folder.join(SOCKET))?;
        socket.write_all(format!("{command}\n").as_bytes())?;
        socket.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(AskFailure::Unreachable)?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some((_, why)) => Err(AskFailure::Failed(why.to_owned())),
        None => Err(AskFailure::Unreachable(io::ErrorKind::UnexpectedEof.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two command lines are read, and nothing beside them.
    #[test]
    fn a_command_line_is_one_of_two() {
        let read = |line: &str| Arguments::read(line.split(' ').map(str::to_owned));
        let folder = PathBuf::from("/run/peers");
        assert_eq!(
            read("serve /run/peers 443 9443"),
            Ok(Arguments::Serve { folder: folder.clone(), relay_port: 443, cloudly_port: 9443 })
        );
        assert_eq!(
            read("ask /run/peers rotate new-bearer"),
            Ok(Arguments::Ask { folder, command: Command::Rotate("new-bearer".to_owned()) })
        );
        for line in
            ["", "serve /run/peers 443", "serve /run/peers 443 0", "ask /run/peers", "ask /run/peers x"]
        {
            assert_eq!(read(line), Err(Unusable), "{line}");
        }
    }

    /// What is asked for is done by the peers, and a refusal has its words.
    #[tokio::test]
    async fn the_peers_do_what_they_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_owned();
        let [relay_port, cloudly_port] = [(); 2].map(|()| crate::free_port::free_port());
        let serving = tokio::spawn(async move { serve(&place, relay_port, cloudly_port).await });
        let socket = folder.path().join(SOCKET);
        let there = || socket.exists().then_some(());
        crate::waiting::poll(crate::waiting::BOUND, "socket of the peers", there).await.unwrap();
        let place = folder.path().to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            [Command::Exchanges, Command::Rotate("new".into()), Command::Secrets]
                .map(|command| ask(&place, &command))
        });
        let [exchanges, rotated, secrets] = asked.await.unwrap();
        assert_eq!(exchanges.unwrap(), "0");
        assert_eq!(rotated.unwrap(), "");
        assert!(secrets.unwrap().lines().any(|line| line == "new"));
        assert_eq!(std::fs::read_to_string(folder.path().join("bearer")).unwrap().len(), 41);
        serving.abort();
    }
}
