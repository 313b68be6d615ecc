//! What is said over the control socket: one line with a JSON object, and one line with a JSON document in
//! return, `{"status": …}` or `{"error": "<name>: <reason>"}`.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    constants::{CONTROL_ANSWER_BYTES, CONTROL_CONNECTIONS, CONTROL_EXCHANGE_BOUND, CONTROL_REQUEST_BYTES},
    status::Status,
};

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// One look at the relay.
    Status,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// To [`Command::Status`].
    Status(Box<Status>),
    /// Why there is none: `<name>: <reason>`.
    Error(String),
}

/// Why a connection gets no answer to what it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The peer is neither root nor the relay's own user; its user id, where the kernel states one.
    Peer(Option<u32>),
    /// As many connections as fit are served.
    Busy,
    /// No whole request came in time.
    Late,
    /// The request is longer than one may be.
    TooLong,
    /// The request is none.
    Malformed(&'static str),
    /// There is no such command.
    Unknown(String),
    /// The relay ends, and answers nothing any more.
    Ended,
    /// The answer has no room.
    AnswerTooLong,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(Some(user)) => {
                write!(f, "control-peer-refused: user {user} is neither root nor the relay's own")
            }
            Self::Peer(None) => f.write_str("control-peer-refused: the kernel does not say who asks"),
            Self::Busy => {
                write!(f, "control-busy: {CONTROL_CONNECTIONS} connections are being served; ask again")
            }
            Self::Late => {
                write!(f, "control-request-late: no request within {} ms", CONTROL_EXCHANGE_BOUND.as_millis())
            }
            Self::TooLong => {
                write!(f, "control-request-too-long: a request has at most {CONTROL_REQUEST_BYTES} bytes")
            }
            Self::Malformed(reason) => write!(f, "control-request-malformed: {reason}"),
            Self::Unknown(command) => write!(f, "control-command-unknown: {command}"),
            Self::Ended => f.write_str("control-ended: the relay ends"),
            Self::AnswerTooLong => {
                write!(f, "control-answer-too-long: the answer has more than {CONTROL_ANSWER_BYTES} bytes")
            }
        }
    }
}

impl Command {
    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
        }
    }

    /// Reads the line of a request, without its end.
    ///
    /// # Errors
    /// It is no request, or names a command that there is not.
    pub fn read(line: &[u8]) -> Result<Self, Refused> {
        let mut members: Map<String, Value> =
            serde_json::from_slice(line).map_err(|_| Refused::Malformed("the line is no JSON object"))?;
        let Some(Value::String(name)) = members.remove("command") else {
            return Err(Refused::Malformed("command is not a text"));
        };
        let command = match name.as_str() {
            "status" => Self::Status,
            // JSON escapes what of a foreign text would act on a log or a terminal; 64 characters name it.
            _ => return Err(Refused::Unknown(name.chars().take(64).flat_map(char::escape_debug).collect())),
        };
        // `status` takes no argument, and what is not understood is not passed over.
        match members.is_empty() {
            true => Ok(command),
            false => Err(Refused::Malformed("status takes no other member")),
        }
    }

    /// The line of the request, with its end.
    pub fn line(self) -> String {
        format!("{}\n", serde_json::json!({ "command": self.name() }))
    }
}

impl Answer {
    /// The line of the answer, with its end: never longer than an answer may be.
    pub fn line(&self) -> String {
        let line = |answer: &Self| {
            let json = serde_json::to_string(answer).expect("its keys are text, and no part of it fails");
            json + "\n"
        };
        let whole = line(self);
        if whole.len() <= CONTROL_ANSWER_BYTES {
            return whole;
        }
        line(&Self::from(Refused::AnswerTooLong))
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        Self::Error(refused.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request of the contract is read, with any whitespace that JSON allows.
    #[test]
    fn a_request_is_one_object_with_a_command() {
        assert_eq!(Command::Status.line(), "{\"command\":\"status\"}\n");
        for line in ["{\"command\":\"status\"}", " { \"command\" : \"status\" }\r"] {
            assert_eq!(Command::read(line.as_bytes()), Ok(Command::Status));
        }
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
            assert_eq!(
                Command::read(line.as_bytes()),
                Err(Refused::Malformed("command is not a text")),
                "{line}"
            );
        }
        let more = r#"{"command":"status","worker":"relayd"}"#;
        assert_eq!(Command::read(more.as_bytes()), Err(Refused::Malformed("status takes no other member")));
        let unknown = Command::read(r#"{"command":"stop\u001b[2J"}"#.as_bytes()).unwrap_err();
        assert_eq!(unknown.to_string(), "control-command-unknown: stop\\u{1b}[2J");
        let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(900));
        assert!(Command::read(long.as_bytes()).unwrap_err().to_string().len() < 100);
    }

    /// An answer is one line, and an error is its name and reason.
    #[test]
    fn an_answer_is_one_line_within_its_bound() {
        let answer = Answer::from(Refused::Peer(Some(1000)));
        let line = r#"{"error":"control-peer-refused: user 1000 is neither root nor the relay's own"}"#;
        assert_eq!(answer.line(), format!("{line}\n"));
        assert_eq!(serde_json::from_str::<Answer>(line).unwrap(), answer);
        let long = Answer::Error("x".repeat(CONTROL_ANSWER_BYTES)).line();
        assert!(
            long.starts_with(r#"{"error":"control-answer-too-long: "#) && long.ends_with("}\n"),
            "{long}"
        );
    }
}
