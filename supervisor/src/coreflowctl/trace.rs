//! `coreflowctl trace`: the messages of one worker's link as they pass, a line each, until the operator has seen
//! enough or the relay ends.

use std::{ops::ControlFlow, process::ExitCode};

use coreflow_ipc::hello::Role;
use serde_json::json;

use super::{RunningRelay, looking};
use crate::control::{protocol::Command, trace_lines::Read};

/// Follows the link of `role`.
pub(super) fn follow(relay: &RunningRelay, role: Role, as_json: bool) -> ExitCode {
    let mut unprinted = None;
    let each = |read: Read| {
        let line = if as_json { line_of_json(&read) } else { Some(told(&read)) };
        match line.map(|line| looking::print(&(line + "\n"))) {
            None | Some(Ok(())) => ControlFlow::Continue(()),
            Some(Err(error)) => {
                unprinted = looking::unprinted(&error);
                ControlFlow::Break(())
            }
        }
    };
    match relay.follow(Command::Trace { worker: role }, each) {
        Ok(()) => unprinted.unwrap_or(ExitCode::SUCCESS),
        Err(error) => looking::failed(&error),
    }
}

fn told(read: &Read) -> String {
    looking::escaped(&match read {
        Read::Tracing(worker) => format!("supervisor -> {worker}, supervisor <- {worker}; times are UTC"),
        Read::Trace(message) => message.to_string(),
        Read::LeftOut(count) => {
            format!("{count} messages were left out: they passed faster than they were read")
        }
        Read::Error(error) => error.clone(),
    })
}

/// One document a line; that a trace begins is none.
fn line_of_json(read: &Read) -> Option<String> {
    let document = match read {
        Read::Tracing(_) => return None,
        Read::Trace(message) => {
            serde_json::to_value(message).expect("its keys are text, and no part of it fails")
        }
        Read::LeftOut(count) => json!({ "leftOut": count }),
        Read::Error(error) => json!({ "error": error }),
    };
    Some(looking::escaped(&document))
}
