//! `coreflowctl status` and `coreflowctl metrics`: one look at the whole relay.

use super::{Outcome, RunningRelay, looking, workers};
use crate::control::{
    asking::AskError,
    protocol::{Answer, Command},
};

/// The status, with the workers' memory where this process may read more of it than the relay.
pub(super) fn look(relay: &RunningRelay, json: bool) -> Result<Outcome, AskError> {
    let (Answer::Status(mut status), answering) = relay.ask(Command::Status)? else {
        return Err(looking::another());
    };
    if answering == Some(status.pid) {
        workers::read_memory(&mut status.workers, status.pid);
    }
    let text = if json { status.json() + "\n" } else { status.text() };
    Ok(Outcome { text, so: status.readiness.ready })
}

/// The figures, as the relay writes them.
pub(super) fn metrics(relay: &RunningRelay) -> Result<Outcome, AskError> {
    match relay.ask(Command::Metrics)? {
        (Answer::Metrics(text), _) => Ok(Outcome { text, so: true }),
        _ => Err(looking::another()),
    }
}
