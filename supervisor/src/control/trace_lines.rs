//! The lines of a trace over the control socket: that it begins, then a line for each message that passed, and one
//! with a number where some were left out, until the client leaves.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::trace::Traced;

/// A line as the relay writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Written {
    /// The trace of this worker's link begins.
    Tracing(&'static str),
    /// A message passed.
    Trace(Traced),
    /// So many messages passed that the client was too slow for.
    LeftOut(u64),
}

impl Written {
    /// The line, with its end.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("its keys are text, and no part of it fails") + "\n"
    }
}

/// A line as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Read {
    /// The trace of this worker's link begins.
    Tracing(String),
    /// A message passed.
    Trace(Message),
    /// So many messages were left out.
    LeftOut(u64),
    /// There is no trace: `<name>: <reason>`.
    Error(String),
}

/// A message that passed; see [`Traced`]. Told with its time of day in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Unix milliseconds.
    pub at: u64,
    /// The worker's process.
    pub pid: u32,
    /// `toWorker` or `fromWorker`.
    pub direction: String,
    /// The message's name.
    pub kind: String,
    /// Its number.
    pub id: Option<u64>,
    /// What else is public of it.
    pub note: Option<String>,
    /// Bytes of its frame.
    pub bytes: u64,
    /// Descriptors beside it.
    pub descriptors: u64,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, milliseconds) = (self.at / 1000, self.at % 1000);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let arrow = if self.direction == "toWorker" { "->" } else { "<-" };
        write!(f, "{hour:02}:{minute:02}:{second:02}.{milliseconds:03} {arrow} ")?;
        write!(f, "{:<20} {:>6} bytes", self.kind, self.bytes)?;
        if let Some(id) = self.id {
            write!(f, "  #{id}")?;
        }
        if let Some(note) = &self.note {
            write!(f, "  {note}")?;
        }
        if self.descriptors > 0 {
            write!(f, "  {} descriptor(s)", self.descriptors)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Direction, Shown};

    fn traced(id: Option<u64>, note: Option<&'static str>, descriptors: usize) -> Traced {
        let shown = Shown { kind: "AnswerListener", id, note };
        Traced {
            at: 1_769_817_600_123,
            pid: 7,
            direction: Direction::ToWorker,
            shown,
            bytes: 21,
            descriptors,
        }
    }

    /// Each line that is written is read, and told in columns.
    #[test]
    fn a_line_that_is_written_is_read() {
        let read = |written: Written| serde_json::from_str::<Read>(&written.line()).unwrap();
        assert_eq!(read(Written::Tracing("relayd")), Read::Tracing("relayd".to_owned()));
        assert_eq!(read(Written::LeftOut(9)), Read::LeftOut(9));
        let Read::Trace(message) = read(Written::Trace(traced(Some(4), Some("granted"), 1))) else {
            panic!("no message")
        };
        let told = "00:00:00.123 -> AnswerListener           21 bytes  #4  granted  1 descriptor(s)";
        assert_eq!(message.to_string(), told);
        let Read::Trace(message) = read(Written::Trace(traced(None, None, 0))) else { panic!("no message") };
        assert_eq!(message.to_string(), "00:00:00.123 -> AnswerListener           21 bytes");
    }
}
