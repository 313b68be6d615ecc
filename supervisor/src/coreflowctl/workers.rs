//! `coreflowctl workers` and `log`: the processes, and how much each writes.

use coreflow_ipc::{hello::Role, record::Level};

use super::{Outcome, RunningRelay, isolation, looking};
use crate::{
    control::{
        asking::AskError,
        protocol::{Answer, Command},
    },
    memory,
    status::{self, Worker},
};

/// The processes.
pub(super) fn look(relay: &RunningRelay, json: bool) -> Result<Outcome, AskError> {
    let workers = processes(relay)?;
    let text = if json { status::json(&workers) + "\n" } else { told(&workers) };
    Ok(Outcome { text, so: true })
}

fn told(workers: &[Worker]) -> String {
    let lines = status::table(workers);
    lines.lines().map(|line| looking::escaped(&line) + "\n").collect()
}

fn processes(relay: &RunningRelay) -> Result<Vec<Worker>, AskError> {
    let (Answer::Workers(mut workers), answering) = relay.ask(Command::Workers)? else {
        return Err(looking::another());
    };
    let supervisor = workers.iter().find(|worker| worker.role == Role::Supervisor.name());
    let supervisor = supervisor.and_then(|supervisor| supervisor.pid);
    if let Some(supervisor) = supervisor.filter(|pid| Some(*pid) == answering) {
        read_memory(&mut workers, supervisor);
    }
    Ok(workers)
}

/// Reads the memory of the workers that are children of `supervisor`, which is a process of this namespace: where this
/// process may read none, what the relay told stays.
pub(super) fn read_memory(workers: &mut [Worker], supervisor: u32) {
    for worker in workers {
        let Some(pid) = worker.pid else { continue };
        let its = pid == supervisor || isolation::parent_of(pid) == Some(supervisor);
        if let Some(memory) = its.then(|| memory::of_process(pid, true)).flatten() {
            worker.memory = Some(memory);
        }
    }
}

/// Changes a level.
pub(super) fn log(relay: &RunningRelay, process: Role, level: Level) -> Result<Outcome, AskError> {
    match relay.ask(Command::Log { process, level })? {
        (Answer::Log(logged), _) => {
            let text = format!("{} records at {}, before at {}", logged.worker, logged.level, logged.former);
            Ok(Outcome { text: looking::escaped(&text) + "\n", so: true })
        }
        _ => Err(looking::another()),
    }
}
