//! `coreflowctl isolation`: what confines each process, read from the running system and judged by what is promised
//! of it. Which processes there are is the relay's word, each checked to be the supervisor's child; of Landlock the
//! kernel shows nothing, so that is each worker's own word and said to be.

use std::collections::BTreeMap;

use coreflow_ipc::hello::Role;
use serde::Serialize;

use super::{Outcome, RunningRelay, looking};
use crate::{
    control::{
        asking::AskError,
        protocol::{Answer, Command},
    },
    status::{Confined, json},
};

mod descriptors;
mod judgement;
mod process_status;
mod seen;
mod text;

use judgement::judge;
pub(super) use process_status::parent_of;
use seen::Seen;

/// A value, or why there is none: what cannot be read is never guessed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Told<T> {
    /// What was read.
    Read(T),
    /// Why nothing was.
    Unread {
        /// The reason.
        unread: String,
    },
}

impl<T> Told<T> {
    fn unread(why: impl ToString) -> Self {
        Self::Unread { unread: why.to_string() }
    }

    fn read(&self) -> Option<&T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Unread { .. } => None,
        }
    }
}

impl<T> From<std::io::Result<T>> for Told<T> {
    fn from(read: std::io::Result<T>) -> Self {
        read.map_or_else(|error| Self::unread(error.kind()), Self::Read)
    }
}

/// All that is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Isolation {
    processes: Vec<Seen>,
    /// What is promised and does not hold, or cannot be read.
    not_held: Vec<String>,
}

/// The processes of the relay and what confines them.
pub(super) fn look(relay: &RunningRelay, as_json: bool) -> Result<Outcome, AskError> {
    let (Answer::Isolation(confined), answering) = relay.ask(Command::Isolation)? else {
        return Err(looking::another());
    };
    let named = |role: &str| confined.iter().find(|process| process.role == role);
    let supervisor = named(Role::Supervisor.name()).map(|supervisor| supervisor.pid);
    let Some(supervisor) = supervisor.filter(|pid| Some(*pid) == answering) else {
        return Err(AskError::Unreadable(
            "the relay is of another process id namespace: ask within it".to_owned(),
        ));
    };
    let isolation = look_at(&confined, supervisor);
    let so = isolation.not_held.is_empty();
    let text = if as_json { json(&isolation) + "\n" } else { text::told(&isolation) };
    Ok(Outcome { text, so })
}

fn look_at(confined: &[Confined], supervisor: u32) -> Isolation {
    let own = seen::namespaces(supervisor);
    let sockets = descriptors::Sockets::of_process(supervisor);
    let processes: Vec<Seen> = confined.iter().map(|process| Seen::read(process, &own, &sockets)).collect();
    let user = processes.iter().find(|seen| seen.pid == supervisor).and_then(Seen::user);
    let not_held = processes.iter().flat_map(|seen| {
        let role = &seen.role;
        judge(seen, supervisor, user).into_iter().map(move |what| format!("{role}: {what}"))
    });
    let not_held = not_held.collect();
    Isolation { processes, not_held }
}

/// The kinds of namespaces of a process by the kernel's names, each with what tells it from another one.
type Namespaces = BTreeMap<String, String>;
