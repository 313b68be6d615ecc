//! What is answered over the control socket: one line with a JSON document, `{"status": …}` and its like or
//! `{"error": "<name>: <reason>"}`. A trace alone has more lines than one ([`super::trace_lines`]).

use std::fmt;

use coreflow_ipc::{hello::Role, messages::standing::NodePage};
use serde::{Deserialize, Serialize};

pub use super::command::Command;
use crate::{
    constants::{
        CONTROL_ANSWER_BYTES, CONTROL_CONNECTIONS, CONTROL_EXCHANGE_BOUND, CONTROL_REQUEST_BYTES,
        CONTROL_TRACES, WORKER_ANSWER_BOUND,
    },
    status::{Confined, Status, Worker},
};

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// To [`Command::Status`].
    Status(Box<Status>),
    /// To [`Command::Workers`]: the supervisor, then the workers, always all three.
    Workers(Vec<Worker>),
    /// To [`Command::Restart`]: the worker is being ended.
    Restart(Restart),
    /// To [`Command::Log`].
    Log(Logged),
    /// To [`Command::Nodes`].
    Nodes(NodePage),
    /// To [`Command::Isolation`]: the supervisor, then the workers that have a process.
    Isolation(Vec<Confined>),
    /// To [`Command::Metrics`]: OpenMetrics text.
    Metrics(String),
    /// Why there is none: `<name>: <reason>`.
    Error(String),
}

/// A worker that is being ended, to be started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// Which.
    pub worker: String,
    /// The process that ends; none of a worker that waited to be started.
    pub former_pid: Option<u32>,
}

/// A level that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Of which process.
    pub worker: String,
    /// The level from here on.
    pub level: String,
    /// The level before.
    pub former: String,
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
    /// The worker that it is about has no process, or none yet that can be asked.
    Absent(Role),
    /// The worker that was asked did not answer.
    Unanswered(Role),
    /// The relay stops: no worker is started again.
    Stopping,
    /// As many traces as fit are written.
    Traces,
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
            Self::Absent(role) => write!(f, "control-worker-absent: {role} does not run"),
            Self::Unanswered(role) => {
                let bound = WORKER_ANSWER_BOUND.as_millis();
                write!(f, "control-worker-unanswered: {role} does not answer within {bound} ms")
            }
            Self::Stopping => f.write_str("control-restart-refused: the relay stops"),
            Self::Traces => {
                write!(f, "control-trace-busy: {CONTROL_TRACES} traces are being written; end one")
            }
        }
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
    use coreflow_ipc::messages::standing::{NODES_OF_PAGE, NodeStanding, NodeState};

    use super::*;
    use crate::constants::STATUS_NAME;

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

    /// XTR-20: a page has an entry for each node, with its state by the contract's word; the longest one has room.
    #[test]
    fn a_page_of_the_roster_is_an_answer() {
        let node = |id: &str, state| NodeStanding { id: id.to_owned(), state };
        let nodes = vec![node("a", NodeState::AwaitingRegistration), node("b", NodeState::Registered)];
        let line = Answer::Nodes(NodePage { nodes, more: true }).line();
        let nodes = r#"[{"id":"a","state":"awaitingRegistration"},{"id":"b","state":"registered"}]"#;
        assert_eq!(line, format!("{{\"nodes\":{{\"nodes\":{nodes},\"more\":true}}}}\n"));
        let longest = vec![node(&"\u{1}".repeat(STATUS_NAME), NodeState::Carried); NODES_OF_PAGE];
        assert!(Answer::Nodes(NodePage { nodes: longest, more: true }).line().starts_with(r#"{"nodes":"#));
    }
}
