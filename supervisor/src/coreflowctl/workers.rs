//! `coreflowctl workers`, `restart` and `log`: the processes, and what is changed of them.

use std::{
    thread,
    time::{Duration, Instant},
};

use coreflow_ipc::{hello::Role, record::Level};

use super::{Outcome, RunningRelay, isolation, looking};
use crate::{
    control::{
        asking::AskError,
        protocol::{Answer, Command},
    },
    memory,
    status::{self, Worker, WorkerState},
};

/// How long a restarted worker is waited for: longer than relayd has to end.
const RESTART_WAIT: Duration = Duration::from_secs(60);
/// How often it is looked after.
const RESTART_LOOK: Duration = Duration::from_millis(100);

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

/// Restarts a worker, and waits until it runs again.
pub(super) fn restart(relay: &RunningRelay, role: Role) -> Result<Outcome, AskError> {
    let (Answer::Restart(restart), _) = relay.ask(Command::Restart { worker: role })? else {
        return Err(looking::another());
    };
    let began = Instant::now();
    loop {
        let workers = processes(relay)?;
        let worker = workers.iter().find(|worker| worker.role == role.name());
        let running = worker.filter(|worker| worker.state == WorkerState::Running);
        let pid = running.and_then(|worker| worker.pid).filter(|pid| Some(*pid) != restart.former_pid);
        if let Some(pid) = pid {
            let former =
                restart.former_pid.map_or_else(String::new, |former| format!(", which was {former}"));
            return Ok(Outcome { text: format!("{role} runs again, pid {pid}{former}\n"), so: true });
        }
        if began.elapsed() >= RESTART_WAIT {
            let text = format!("{role} does not run within {} s\n", RESTART_WAIT.as_secs());
            return Ok(Outcome { text, so: false });
        }
        thread::sleep(RESTART_LOOK);
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
