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
    status::{Confined, Worker, WorkerState, json},
};

mod descriptors;
mod judgement;
mod process_status;
mod seen;
mod text;

use judgement::{Supervisor, judge};
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
    let (Answer::Workers(workers), _) = relay.ask(Command::Workers)? else {
        return Err(looking::another());
    };
    let mut isolation = look_at(&confined, supervisor);
    isolation.not_held.extend(not_judged(&confined, &workers));
    isolation.not_held.extend(match seen::children(supervisor) {
        Told::Read(children) => unnamed(&confined, &children),
        Told::Unread { unread } => vec![format!("supervisor: its children: not read: {unread}")],
    });
    let so = isolation.not_held.is_empty();
    let text = if as_json { json(&isolation) + "\n" } else { text::told(&isolation) };
    Ok(Outcome { text, so })
}

fn look_at(confined: &[Confined], supervisor: u32) -> Isolation {
    let own = seen::namespaces(supervisor);
    let processes: Vec<Seen> = confined.iter().map(|process| Seen::read(process, &own)).collect();
    let own = processes.iter().find(|seen| seen.pid == supervisor);
    let (user, filters) = (own.and_then(Seen::user), own.and_then(Seen::filters));
    let supervisor = Supervisor { pid: supervisor, user, filters };
    let not_held = processes.iter().flat_map(|seen| {
        let role = &seen.role;
        judge(seen, &supervisor).into_iter().map(move |what| format!("{role}: {what}"))
    });
    let not_held = not_held.collect();
    Isolation { processes, not_held }
}

/// The workers that this relay needs and that have no process to look at.
fn not_judged(confined: &[Confined], workers: &[Worker]) -> Vec<String> {
    let absent = Role::WORKERS.into_iter().filter(|role| {
        let state = workers.iter().find(|worker| worker.role == role.name()).map(|worker| worker.state);
        state != Some(WorkerState::Off) && !confined.iter().any(|process| process.role == role.name())
    });
    absent.map(|role| format!("{role}: it has no process, and is not judged")).collect()
}

/// The children of the supervisor that the relay did not name.
fn unnamed(confined: &[Confined], children: &[u32]) -> Vec<String> {
    let unnamed = children.iter().filter(|child| !confined.iter().any(|process| process.pid == **child));
    unnamed
        .map(|child| format!("supervisor: it has a child that it does not name: process {child}"))
        .collect()
}

/// The kinds of namespaces of a process by the kernel's names, each with what tells it from another one.
type Namespaces = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;

    fn process(role: &str, pid: u32) -> Confined {
        Confined { role: role.to_owned(), pid, layers: Vec::new() }
    }

    /// A worker that is waited for, or that the relay says nothing of, is not taken for confined; one that the relay does
    /// not need is none.
    #[test]
    fn a_worker_without_a_process_is_not_judged() {
        let confined = [process("supervisor", 1), process("relayd", 2)];
        let workers = [
            Worker::in_state(Role::Relayd.name(), WorkerState::Running),
            Worker::in_state(Role::Pulld.name(), WorkerState::Waiting),
            Worker::in_state(Role::Vpnd.name(), WorkerState::Off),
        ];
        assert_eq!(not_judged(&confined, &workers), ["pulld: it has no process, and is not judged"]);
        assert_eq!(not_judged(&confined, &workers[..1]).len(), 2);
    }

    /// A child of the supervisor that is no worker of its word is found.
    #[test]
    fn a_child_without_a_name_is_found() {
        let confined = [process("supervisor", 1), process("relayd", 2)];
        assert_eq!(
            unnamed(&confined, &[2, 3]),
            ["supervisor: it has a child that it does not name: process 3"]
        );
    }
}
