//! The control socket as an operator and as a stranger meets it: the real `coreflowctl`, and raw bytes.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::binaries::binaries;
use crate::relay::Relay;
use crate::waiting::{BOUND, Late, within};

/// The request for a status.
pub const STATUS: &[u8] = b"{\"command\":\"status\"}\n";

/// What `coreflowctl` left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit status; 0 is ready, 3 not ready, 1 no answer, 2 wrong usage.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Who runs `coreflowctl`, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker<'a> {
    /// The executable.
    pub program: &'a Path,
    /// Its user; `None` is the test's own.
    pub user: Option<u32>,
    /// `RUNTIME_DIRECTORY`, the one variable of its environment.
    pub runtime_directory: Option<&'a Path>,
}

/// Runs `coreflowctl` with an empty environment.
///
/// # Panics
/// When it cannot be executed, or does not end within [`BOUND`].
pub async fn coreflowctl(arguments: &[&str]) -> Said {
    let program = binaries().join("coreflowctl");
    coreflowctl_as(Asker { program: &program, user: None, runtime_directory: None }, arguments).await
}

/// [`coreflowctl`] as somebody else.
///
/// # Panics
/// When it cannot be executed, or does not end within [`BOUND`].
pub async fn coreflowctl_as(asker: Asker<'_>, arguments: &[&str]) -> Said {
    let mut command = Command::new(asker.program);
    command.args(arguments).env_clear();
    if let Some(directory) = asker.runtime_directory {
        command.env("RUNTIME_DIRECTORY", directory);
    }
    if let Some(user) = asker.user {
        command.uid(user).gid(user);
    }
    let ran = tokio::task::spawn_blocking(move || command.output());
    let ran = within(BOUND, "end of coreflowctl", ran).await.expect("coreflowctl bounds itself");
    let output = ran.expect("no panic").expect("executing coreflowctl");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("coreflowctl writes UTF-8");
    Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Relay {
    /// `coreflowctl` with these arguments, of this relay.
    ///
    /// # Panics
    /// As [`coreflowctl`].
    pub async fn ctl(&self, arguments: &[&str]) -> Said {
        let socket = self.control_socket().to_str().expect("the path is UTF-8");
        coreflowctl(&[arguments, &["--socket", socket]].concat()).await
    }

    /// What `coreflowctl` prints with these arguments and `--json`, and its exit status.
    ///
    /// # Panics
    /// As [`coreflowctl`], and when it prints no JSON.
    pub async fn ctl_json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let said = self.ctl(&[arguments, &["--json"]].concat()).await;
        let document = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("no JSON: {said:?}"));
        (said.code, document)
    }

    /// `coreflowctl status` of this relay.
    ///
    /// # Panics
    /// As [`coreflowctl`].
    pub async fn status(&self) -> Said {
        let socket = self.control_socket().to_str().expect("the path is UTF-8");
        coreflowctl(&["status", "--socket", socket]).await
    }

    /// `coreflowctl status --json` of this relay, read.
    ///
    /// # Panics
    /// As [`coreflowctl`], and when it prints no JSON or its exit status contradicts what it prints.
    pub async fn status_json(&self) -> Value {
        let socket = self.control_socket().to_str().expect("the path is UTF-8");
        let said = coreflowctl(&["status", "--json", "--socket", socket]).await;
        let status: Value =
            serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("no JSON: {said:?}"));
        let code = if status["readiness"]["ready"] == json!(true) { 0 } else { 3 };
        assert_eq!(said.code, Some(code), "{said:?}");
        status
    }

    /// Asks for the status, every 10 ms and without `coreflowctl`, until `seen` in it is found.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_status_json(&self, what: &str, seen: impl Fn(&Value) -> bool) -> Result<Value, Late> {
        let look = async {
            loop {
                // Nobody is reached before the relay has bound its socket.
                let answer = say(self.control_socket(), STATUS).await.unwrap_or_default();
                let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
                if answer["status"].is_object() && seen(&answer["status"]) {
                    return answer["status"].clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(BOUND, &format!("status with {what}"), look).await
    }
}

/// Sends `bytes` to the control socket at `path` and reads what comes back to its end.
///
/// # Errors
/// Nobody can be connected to.
pub async fn say(path: &Path, bytes: &[u8]) -> io::Result<String> {
    let mut stream = UnixStream::connect(path).await?;
    // A server that has heard enough takes no more, and what it answered can still be read.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
