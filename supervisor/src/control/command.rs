//! What can be asked over the control socket: the line of a request, read member by member. What is not
//! understood is refused, never passed over.

use coreflow_ipc::{hello::Role, record::Level};
use serde_json::{Map, Value, json};

use super::protocol::Refused;
use crate::constants::STATUS_NAME;

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// One look at the relay.
    Status,
    /// The processes alone.
    Workers,
    /// End a worker in order and start it again.
    Restart {
        /// Which.
        worker: Role,
    },
    /// Change what a process records from here on.
    Log {
        /// Which; the supervisor is one of them.
        process: Role,
        /// The quietest record that is written.
        level: Level,
    },
    /// A page of the local roster (XTR-19).
    Nodes {
        /// The last id of the page before.
        after: Option<String>,
    },
    /// The processes, and what each said of its confinement.
    Isolation,
    /// The relay's figures as OpenMetrics text.
    Metrics,
    /// The messages of one worker's link as they pass; the answer goes on until the client leaves.
    Trace {
        /// Whose link.
        worker: Role,
    },
}

impl Command {
    /// The command's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Workers => "workers",
            Self::Restart { .. } => "restart",
            Self::Log { .. } => "log",
            Self::Nodes { .. } => "nodes",
            Self::Isolation => "isolation",
            Self::Metrics => "metrics",
            Self::Trace { .. } => "trace",
        }
    }

    /// Reads the line of a request, without its end.
    ///
    /// # Errors
    /// It is no request, or names a command that there is not.
    pub fn read(line: &[u8]) -> Result<Self, Refused> {
        let members: Map<String, Value> =
            serde_json::from_slice(line).map_err(|_| Refused::Malformed("the line is no JSON object"))?;
        let mut members = Members(members);
        let Some(name) = members.text("command")? else {
            return Err(Refused::Malformed("command is not a text"));
        };
        let command = match name.as_str() {
            "status" => Self::Status,
            "workers" => Self::Workers,
            "restart" => Self::Restart { worker: members.worker()? },
            "log" => Self::Log { process: members.process()?, level: members.level()? },
            "nodes" => Self::Nodes { after: members.after()? },
            "isolation" => Self::Isolation,
            "metrics" => Self::Metrics,
            "trace" => Self::Trace { worker: members.worker()? },
            // JSON escapes what of a foreign text would act on a log or a terminal; 64 characters name it.
            _ => return Err(Refused::Unknown(name.chars().take(64).flat_map(char::escape_debug).collect())),
        };
        match members.0.is_empty() {
            true => Ok(command),
            false => Err(Refused::Malformed("the command takes no such member")),
        }
    }

    /// The line of the request, with its end.
    pub fn line(&self) -> String {
        let request = match self {
            Self::Status | Self::Workers | Self::Isolation | Self::Metrics => {
                json!({ "command": self.name() })
            }
            Self::Restart { worker } | Self::Trace { worker } => {
                json!({ "command": self.name(), "worker": worker.name() })
            }
            Self::Log { process, level } => {
                json!({ "command": self.name(), "worker": process.name(), "level": level.word() })
            }
            Self::Nodes { after: None } => json!({ "command": self.name() }),
            Self::Nodes { after: Some(after) } => json!({ "command": self.name(), "after": after }),
        };
        format!("{request}\n")
    }
}

/// The members of a request that are not read yet.
struct Members(Map<String, Value>);

impl Members {
    /// The text of a member, and none where there is no such member.
    fn text(&mut self, name: &str) -> Result<Option<String>, Refused> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) if name == "command" => Err(Refused::Malformed("command is not a text")),
            Some(_) => Err(Refused::Malformed("a member is not a text")),
        }
    }

    fn worker(&mut self) -> Result<Role, Refused> {
        let name = self.text("worker")?;
        let role = name.and_then(|name| Role::WORKERS.into_iter().find(|role| role.name() == name));
        role.ok_or(Refused::Malformed("worker is none of relayd, pulld and vpnd"))
    }

    fn process(&mut self) -> Result<Role, Refused> {
        match self.0.get("worker").and_then(Value::as_str) {
            Some("supervisor") => {
                self.0.remove("worker");
                Ok(Role::Supervisor)
            }
            Some(_) | None => {
                let refused = Refused::Malformed("worker is none of supervisor, relayd, pulld and vpnd");
                self.worker().map_err(|_| refused)
            }
        }
    }

    fn level(&mut self) -> Result<Level, Refused> {
        let level = self.text("level")?.and_then(|word| Level::of_word(&word));
        level.ok_or(Refused::Malformed("level is none of error, warn, info, debug and trace"))
    }

    fn after(&mut self) -> Result<Option<String>, Refused> {
        let after = self.text("after")?;
        match after.as_ref().is_some_and(|after| after.chars().count() > STATUS_NAME) {
            true => Err(Refused::Malformed("after is longer than the id of a node")),
            false => Ok(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request of the contract is read, in the form in which it is written.
    #[test]
    fn each_request_is_read_as_it_is_written() {
        let relayd = Role::Relayd;
        for (command, line) in [
            (Command::Status, r#"{"command":"status"}"#),
            (Command::Workers, r#"{"command":"workers"}"#),
            (Command::Restart { worker: relayd }, r#"{"command":"restart","worker":"relayd"}"#),
            (
                Command::Log { process: Role::Supervisor, level: Level::Debug },
                r#"{"command":"log","level":"debug","worker":"supervisor"}"#,
            ),
            (
                Command::Log { process: relayd, level: Level::Warn },
                r#"{"command":"log","level":"warn","worker":"relayd"}"#,
            ),
            (Command::Nodes { after: None }, r#"{"command":"nodes"}"#),
            (Command::Nodes { after: Some("n".to_owned()) }, r#"{"after":"n","command":"nodes"}"#),
            (Command::Isolation, r#"{"command":"isolation"}"#),
            (Command::Metrics, r#"{"command":"metrics"}"#),
            (Command::Trace { worker: Role::Vpnd }, r#"{"command":"trace","worker":"vpnd"}"#),
        ] {
            let told: Value = serde_json::from_str(&command.line()).unwrap();
            assert_eq!(told, serde_json::from_str::<Value>(line).unwrap());
            assert!(command.line().ends_with("}\n"));
            assert_eq!(Command::read(line.as_bytes()), Ok(command));
        }
        assert_eq!(Command::read(b" { \"command\" : \"status\" }\r"), Ok(Command::Status));
    }

    /// What is no request, or one for something else, is refused by name.
    #[test]
    fn anything_else_is_refused_by_name() {
        let depth = "[".repeat(1000);
        for line in ["", "status", "[]", "null", "{", "{}{}", "\u{fffd}", "\"status\"", &depth] {
            let refused = Command::read(line.as_bytes()).unwrap_err();
            assert_eq!(refused, Refused::Malformed("the line is no JSON object"), "{line}");
        }
        assert!(matches!(Command::read(&[0xff, 0xfe]), Err(Refused::Malformed(_))));
        for line in ["{}", r#"{"command":7}"#, r#"{"Command":"status"}"#] {
            let refused = Command::read(line.as_bytes());
            assert_eq!(refused, Err(Refused::Malformed("command is not a text")), "{line}");
        }
        let unknown = Command::read(r#"{"command":"stop\u001b[2J"}"#.as_bytes()).unwrap_err();
        assert_eq!(unknown.to_string(), "control-command-unknown: stop\\u{1b}[2J");
        let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(900));
        assert!(Command::read(long.as_bytes()).unwrap_err().to_string().len() < 100);
    }

    /// A member that is missing, of another kind, out of its range or too much is refused by what is wrong.
    #[test]
    fn a_wrong_member_is_refused_by_what_is_wrong_with_it() {
        let worker = "worker is none of relayd, pulld and vpnd";
        let process = "worker is none of supervisor, relayd, pulld and vpnd";
        let level = "level is none of error, warn, info, debug and trace";
        let foreign = "the command takes no such member";
        let long = format!(r#"{{"command":"nodes","after":"{}"}}"#, "n".repeat(STATUS_NAME + 1));
        for (line, reason) in [
            (r#"{"command":"status","worker":"relayd"}"#, foreign),
            (r#"{"command":"restart"}"#, worker),
            (r#"{"command":"restart","worker":"supervisor"}"#, worker),
            (r#"{"command":"restart","worker":"relayd","level":"info"}"#, foreign),
            (r#"{"command":"trace","worker":["relayd"]}"#, "a member is not a text"),
            (r#"{"command":"log","level":"info"}"#, process),
            (r#"{"command":"log","worker":"init","level":"info"}"#, process),
            (r#"{"command":"log","worker":"relayd"}"#, level),
            (r#"{"command":"log","worker":"relayd","level":"INFO"}"#, level),
            (r#"{"command":"nodes","after":7}"#, "a member is not a text"),
            (long.as_str(), "after is longer than the id of a node"),
        ] {
            assert_eq!(Command::read(line.as_bytes()), Err(Refused::Malformed(reason)), "{line}");
        }
        let longest = format!(r#"{{"command":"nodes","after":"{}"}}"#, "ü".repeat(STATUS_NAME));
        assert!(Command::read(longest.as_bytes()).is_ok());
    }
}
