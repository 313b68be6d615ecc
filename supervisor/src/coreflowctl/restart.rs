//! `coreflowctl restart`: a worker is told to end and started again, and is waited for until it serves.

use std::{
    thread,
    time::{Duration, Instant},
};

use coreflow_ipc::hello::Role;

use super::{Outcome, RunningRelay, looking};
use crate::{
    control::{
        asking::AskError,
        protocol::{Answer, Command},
    },
    status::{State, Status, WorkerState},
};

/// How long a restarted worker is waited for: longer than relayd has to end.
const WAIT: Duration = Duration::from_secs(60);
/// How often it is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// Has a worker restarted, and waits until it serves again, a minute at most.
///
/// # Errors
/// Why the relay did not take the command. What goes wrong afterwards is an outcome: by then the worker is restarted.
pub(super) fn restart(relay: &RunningRelay, role: Role) -> Result<Outcome, AskError> {
    let (Answer::Restart(restart), _) = relay.ask(Command::Restart { worker: role })? else {
        return Err(looking::another());
    };
    let mut waiting =
        Waiting { role, former: restart.former_pid, latest: "it has not answered yet".to_owned() };
    let began = Instant::now();
    loop {
        let look = relay.ask(Command::Status).and_then(|answered| match answered {
            (Answer::Status(status), _) => Ok(status),
            _ => Err(looking::another()),
        });
        if let Some(outcome) = waiting.take(look.as_deref()) {
            return Ok(outcome);
        }
        if began.elapsed() >= WAIT {
            return Ok(waiting.given_up());
        }
        thread::sleep(LOOK);
    }
}

/// A worker that was told to end.
struct Waiting {
    role: Role,
    former: Option<u32>,
    /// What was seen last.
    latest: String,
}

impl Waiting {
    /// Whether the wait is over with this look.
    fn take(&mut self, look: Result<&Status, &AskError>) -> Option<Outcome> {
        let status = match look {
            Ok(status) => status,
            Err(AskError::Unreachable(..)) => return Some(self.failed("the relay is gone")),
            // Busy or late: the next look may be answered.
            Err(error) => {
                self.latest = error.to_string();
                return None;
            }
        };
        if status.state == State::Stopping {
            return Some(self.failed("the relay stops"));
        }
        let name = self.role.name();
        let Some(worker) = status.workers.iter().find(|worker| worker.role == name) else {
            self.latest = "the relay does not list it".to_owned();
            return None;
        };
        let new = worker.pid.filter(|pid| Some(*pid) != self.former);
        match (worker.state, new) {
            (WorkerState::Off, _) => Some(self.failed("this relay needs it no longer")),
            (WorkerState::Running, Some(pid)) if self.serves(status) => {
                let former = self.former.map_or_else(String::new, |former| format!(", which was {former}"));
                Some(Outcome { text: format!("{name} runs again, pid {pid}{former}\n"), so: true })
            }
            (WorkerState::Running, Some(pid)) => {
                let what = status.waiting_for.as_deref().unwrap_or("its start");
                self.latest = format!("pid {pid} waits for {what}");
                None
            }
            (
                WorkerState::Starting | WorkerState::Running | WorkerState::Ending | WorkerState::Waiting,
                _,
            ) => {
                self.latest = format!("it is {}", worker.state.word());
                None
            }
        }
    }

    /// Whether a worker that greeted does its work: relayd once the relay is open.
    fn serves(&self, status: &Status) -> bool {
        self.role != Role::Relayd || status.state == State::Open
    }

    fn failed(&self, why: &str) -> Outcome {
        let text = format!("{} was told to restart, and does not run again: {why}", self.role.name());
        Outcome { text: looking::escaped(&text) + "\n", so: false }
    }

    fn given_up(&self) -> Outcome {
        let (name, seconds, latest) = (self.role.name(), WAIT.as_secs(), &self.latest);
        let text = format!("{name} was told to restart, and does not serve within {seconds} s: {latest}");
        Outcome { text: looking::escaped(&text) + "\n", so: false }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::PathBuf};

    use super::*;
    use crate::status::{Worker, tests::ready};

    fn waiting(role: Role) -> Waiting {
        Waiting { role, former: Some(17), latest: String::new() }
    }

    fn seen(role: Role, state: WorkerState, pid: Option<u32>) -> Status {
        let worker = Worker { pid, ..Worker::in_state(role.name(), state) };
        Status { workers: vec![worker], ..ready() }
    }

    fn told(outcome: Option<Outcome>) -> (String, bool) {
        outcome.map_or_else(|| ("it waits".to_owned(), false), |outcome| (outcome.text, outcome.so))
    }

    /// The former process is none that runs again, and neither is one that has not greeted.
    #[test]
    fn a_worker_that_greeted_runs_again() {
        let mut waiting = waiting(Role::Pulld);
        for (state, pid) in [
            (WorkerState::Running, Some(17)),
            (WorkerState::Ending, Some(17)),
            (WorkerState::Waiting, None),
            (WorkerState::Starting, Some(18)),
        ] {
            assert_eq!(waiting.take(Ok(&seen(Role::Pulld, state, pid))), None, "{state:?}");
        }
        assert_eq!(waiting.latest, "it is starting");
        let back = waiting.take(Ok(&seen(Role::Pulld, WorkerState::Running, Some(18))));
        assert_eq!(told(back), ("pulld runs again, pid 18, which was 17\n".to_owned(), true));
    }

    /// relayd serves once the relay is open; until then the wait says what it is for.
    #[test]
    fn relayd_is_waited_for_until_the_relay_is_open() {
        let mut waiting = waiting(Role::Relayd);
        let mut status = seen(Role::Relayd, WorkerState::Running, Some(18));
        status.state = State::Restarting;
        status.waiting_for = Some("the Cloudly session".to_owned());
        assert_eq!(waiting.take(Ok(&status)), None);
        let given_up = waiting.given_up();
        assert_eq!(
            given_up.text,
            "relayd was told to restart, and does not serve within 60 s: pid 18 waits for the Cloudly session\n"
        );
        assert!(!given_up.so);
        status.state = State::Open;
        assert!(told(waiting.take(Ok(&status))).1);
    }

    /// A relay that is busy or late is asked again; one that is gone, that stops, or that needs the worker no longer is
    /// not waited for.
    #[test]
    fn a_look_that_fails_ends_no_wait() {
        let mut waiting = waiting(Role::Vpnd);
        let busy = AskError::Refused("control-busy: ask again".to_owned());
        for error in [busy, AskError::Late(Duration::from_secs(1)), AskError::Closed] {
            assert_eq!(waiting.take(Err(&error)), None);
            assert_eq!(waiting.latest, error.to_string());
        }
        let gone = AskError::Unreachable(PathBuf::from("/run"), io::ErrorKind::ConnectionRefused);
        let (text, so) = told(waiting.take(Err(&gone)));
        assert_eq!(
            (text.as_str(), so),
            ("vpnd was told to restart, and does not run again: the relay is gone\n", false)
        );
        let off = told(waiting.take(Ok(&seen(Role::Vpnd, WorkerState::Off, None))));
        assert!(off.0.ends_with("this relay needs it no longer\n") && !off.1, "{off:?}");
        let stopping = Status { state: State::Stopping, ..seen(Role::Vpnd, WorkerState::Running, Some(18)) };
        assert!(told(waiting.take(Ok(&stopping))).0.ends_with("the relay stops\n"));
    }
}
