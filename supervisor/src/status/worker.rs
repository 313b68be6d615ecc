//! The processes in a status: what each does, since when, with how much memory and at which level of the log.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{text::uptime, vpn_hub::columns};

/// One process: a worker, or the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// `relayd`, `pulld` or `vpnd`; `supervisor` where all processes are listed.
    pub role: String,
    /// What it does.
    pub state: WorkerState,
    /// Its process id, while it has a process.
    pub pid: Option<u32>,
    /// How long that process runs, in milliseconds.
    pub uptime_ms: Option<u64>,
    /// How often it was started again after it had died; a restart by command is none.
    pub restarts: u64,
    /// How long until it is started again, in milliseconds, when that is what it waits for.
    pub restarts_in_ms: Option<u64>,
    /// The quietest record of it that is written.
    pub level: String,
    /// Its memory, as far as whoever shows it may read that.
    pub memory: Option<Memory>,
}

#[cfg(test)]
impl Worker {
    /// One of which nothing else is known.
    pub(crate) fn in_state(role: &str, state: WorkerState) -> Self {
        Self {
            role: role.to_owned(),
            state,
            pid: None,
            uptime_ms: None,
            restarts: 0,
            restarts_in_ms: None,
            level: "info".to_owned(),
            memory: None,
        }
    }
}

/// The memory of a process, from `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Resident bytes, shared ones in full.
    pub resident_bytes: u64,
    /// Resident bytes, shared ones in proportion; none where only root may read it.
    pub proportional_bytes: Option<u64>,
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkerState {
    /// This relay does not need it.
    Off,
    /// Its process was started and has not greeted yet.
    Starting,
    /// It greeted, and answers.
    Running,
    /// It was told to end, or killed.
    Ending,
    /// It died, and is started again after a delay.
    Waiting,
}

impl WorkerState {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Waiting => "waiting",
        }
    }
}

/// The part of a status's line.
pub(super) fn of_worker(worker: &Worker) -> String {
    let mut text = format!("{:<7} {:<8}", worker.role, worker.state.word());
    if let (Some(pid), Some(up)) = (worker.pid, worker.uptime_ms) {
        let _ = write!(text, "  pid {pid}, up {}", uptime(up));
    }
    if let Some(memory) = worker.memory {
        let _ = write!(text, ", {}", size(memory.proportional_bytes.unwrap_or(memory.resident_bytes)));
    }
    if let Some(restart) = worker.restarts_in_ms {
        let _ = write!(text, "  started again in {restart} ms");
    }
    if worker.restarts > 0 {
        let _ = write!(text, ", restarts {}", worker.restarts);
    }
    text.trim_end().to_owned()
}

/// The processes in columns.
pub fn table(workers: &[Worker]) -> String {
    let dash = || "-".to_owned();
    let mut rows = vec![
        ["worker", "state", "pid", "up", "restarts", "resident", "proportional", "log"].map(str::to_owned),
    ];
    rows.extend(workers.iter().map(|worker| {
        let state = match worker.restarts_in_ms {
            Some(restart) => format!("{}, again in {restart} ms", worker.state.word()),
            None => worker.state.word().to_owned(),
        };
        let proportional = worker.memory.and_then(|memory| memory.proportional_bytes);
        [
            worker.role.clone(),
            state,
            worker.pid.map_or_else(dash, |pid| pid.to_string()),
            worker.uptime_ms.map_or_else(dash, uptime),
            worker.restarts.to_string(),
            worker.memory.map_or_else(dash, |memory| size(memory.resident_bytes)),
            proportional.map_or_else(dash, size),
            worker.level.clone(),
        ]
    }));
    columns(&rows).join("\n") + "\n"
}

/// Bytes in MiB, to a tenth.
fn size(bytes: u64) -> String {
    let tenths = (u128::from(bytes) * 10 + (1 << 19)) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All processes in columns, with what is not known as a dash.
    #[test]
    fn the_processes_are_a_table() {
        let memory = Memory { resident_bytes: 9 << 20, proportional_bytes: Some(3_617_382) };
        let running = Worker {
            role: "relayd".to_owned(),
            state: WorkerState::Running,
            pid: Some(4712),
            uptime_ms: Some(61_000),
            restarts: 2,
            restarts_in_ms: None,
            level: "info".to_owned(),
            memory: Some(memory),
        };
        let waiting = Worker {
            role: "pulld".to_owned(),
            state: WorkerState::Waiting,
            pid: None,
            uptime_ms: None,
            restarts_in_ms: Some(500),
            level: "trace".to_owned(),
            memory: None,
            ..running.clone()
        };
        let told = "\
worker  state                     pid   up         restarts  resident  proportional  log
relayd  running                   4712  1 min 1 s  2         9.0 MiB   3.4 MiB       info
pulld   waiting, again in 500 ms  -     -          2         -         -             trace
";
        assert_eq!(table(&[running, waiting]), told);
    }
}
