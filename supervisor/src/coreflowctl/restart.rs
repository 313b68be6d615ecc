//! `coreflowctl restart`: ends a worker, and waits until what it is for is there again. What passes, such as a
//! control socket whose places are taken, is asked again within the bound; whether the worker was restarted at all is
//! told apart from whether it is back (OPS-02).

use std::{
    fmt, thread,
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

/// How long a restarted worker is waited for, from the first ask on: longer than relayd has to end.
const RESTART_WAIT: Duration = Duration::from_secs(60);
/// How often it is looked after.
const RESTART_LOOK: Duration = Duration::from_millis(100);

/// Why no worker is restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RestartError {
    /// The relay is not reached, or refuses it.
    Asked(AskError),
    /// The relay was not got to do it within the bound; the last thing that was in the way.
    NotRestarted(Role, String),
}

impl std::error::Error for RestartError {}

impl fmt::Display for RestartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(error) => error.fmt(f),
            Self::NotRestarted(role, why) => {
                write!(f, "restart-not-made: {role} is not restarted: {why}")
            }
        }
    }
}

/// Restarts a worker, and waits until it is back.
pub(super) fn restart(relay: &RunningRelay, role: Role) -> Result<Outcome, RestartError> {
    let began = Instant::now();
    let ask = |command| relay.ask(command).map(|(answer, _)| answer);
    carry_out(role, ask, || began.elapsed(), || thread::sleep(RESTART_LOOK))
}

/// The whole of it over `ask`, with the time since it began and a pause between two asks.
fn carry_out(
    role: Role,
    mut ask: impl FnMut(Command) -> Result<Answer, AskError>,
    elapsed: impl Fn() -> Duration,
    mut pause: impl FnMut(),
) -> Result<Outcome, RestartError> {
    // What was there before tells a restart whose answer was lost from one that was not made.
    let before = loop {
        match ask(Command::Status) {
            Ok(Answer::Status(status)) => break Before::of(role, &status),
            Ok(_) => return Err(RestartError::Asked(looking::another())),
            Err(error) if !passes(&error) => return Err(RestartError::Asked(error)),
            Err(error) if elapsed() >= RESTART_WAIT => {
                return Err(RestartError::NotRestarted(role, error.to_string()));
            }
            Err(_) => pause(),
        }
    };
    let mut wait = loop {
        match ask(Command::Restart { worker: role }) {
            Ok(Answer::Restart(restart)) => {
                break Wait { pid: restart.former_pid, accepted: true, before };
            }
            Ok(_) => return Err(RestartError::Asked(looking::another())),
            // Nobody can tell whether it was taken: a second one might end the next worker.
            Err(AskError::Late(_) | AskError::Closed) => {
                break Wait { pid: before.pid, accepted: false, before };
            }
            Err(error) if !passes(&error) => return Err(RestartError::Asked(error)),
            Err(error) if elapsed() >= RESTART_WAIT => {
                return Err(RestartError::NotRestarted(role, error.to_string()));
            }
            Err(_) => pause(),
        }
    };
    loop {
        let why = match ask(Command::Status) {
            Ok(Answer::Status(status)) => match wait.judge(role, &status) {
                Stands::Back(text) => return Ok(Outcome { text: text + "\n", so: true }),
                Stands::Never(why) => return wait.not_back(role, &format!("and does not come back: {why}")),
                Stands::NotYet(why) => why,
            },
            Ok(_) => looking::another().to_string(),
            Err(error) if passes(&error) => error.to_string(),
            Err(error) => return wait.not_back(role, &format!("and then the relay was lost: {error}")),
        };
        if elapsed() >= RESTART_WAIT {
            let bound = RESTART_WAIT.as_secs();
            return wait.not_back(role, &format!("and is not back within {bound} s: {why}"));
        }
        pause();
    }
}

/// Whether the next ask may be answered: the relay is there and has no place or no time now.
fn passes(error: &AskError) -> bool {
    match error {
        AskError::Late(_) | AskError::Closed => true,
        AskError::Refused(refused) => {
            ["control-busy: ", "control-request-late: "].iter().any(|name| refused.starts_with(name))
        }
        AskError::Unreachable(..) | AskError::TooLong | AskError::Unreadable(_) => false,
    }
}

/// What was there before the restart.
#[derive(Debug, Clone, Copy)]
struct Before {
    pid: Option<u32>,
    /// How often the worker had been started again by itself.
    restarts: u64,
    /// vpnd had reported, and its hub was bound: so it has to be again.
    hub: HubStands,
}

impl Before {
    fn of(role: Role, status: &Status) -> Self {
        let worker = status.workers.iter().find(|worker| worker.role == role.name());
        Self {
            pid: worker.and_then(|worker| worker.pid),
            restarts: worker.map_or(0, |worker| worker.restarts),
            hub: HubStands::of(status),
        }
    }
}

/// How far a hub is, from less to more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HubStands {
    Unreported,
    Reported,
    Bound,
}

impl HubStands {
    fn of(status: &Status) -> Self {
        match status.vpn_hub.as_ref().and_then(|hub| hub.report.as_ref()) {
            Some(report) if report.bound.is_some() => Self::Bound,
            Some(_) => Self::Reported,
            None => Self::Unreported,
        }
    }
}

/// A worker that is waited for.
struct Wait {
    /// The process that ends; none of a worker that waited to be started.
    pid: Option<u32>,
    /// The relay took the command, or was seen to have carried it out.
    accepted: bool,
    before: Before,
}

/// How a worker that is waited for stands.
enum Stands {
    /// It is back; what is told.
    Back(String),
    /// It does not come back; why.
    Never(String),
    /// What it lacks.
    NotYet(String),
}

impl Wait {
    fn judge(&mut self, role: Role, status: &Status) -> Stands {
        let Some(worker) = status.workers.iter().find(|worker| worker.role == role.name()) else {
            return Stands::NotYet("the relay does not name it".to_owned());
        };
        let other = worker.pid != self.pid;
        // One that died by itself meanwhile is counted; a restart by command is not.
        self.accepted |=
            (other && worker.restarts == self.before.restarts) || worker.state == WorkerState::Ending;
        if status.state == State::Stopping {
            return Stands::Never("the relay stops".to_owned());
        }
        match worker.state {
            WorkerState::Off => {
                let refused = status.vpn_hub.as_ref().and_then(|hub| hub.refused.clone());
                let why = refused.unwrap_or_else(|| "this relay needs none".to_owned());
                return Stands::Never(format!("it is off: {why}"));
            }
            WorkerState::Starting | WorkerState::Ending | WorkerState::Waiting => {
                return Stands::NotYet(format!("it is {}", worker.state.word()));
            }
            WorkerState::Running => {}
        }
        let Some(pid) = worker.pid.filter(|_| other) else {
            return Stands::NotYet("its former process still runs".to_owned());
        };
        match readied(role, status, self.before.hub) {
            Ok(does) => {
                let former = self.pid.map_or_else(String::new, |former| format!(", which was {former}"));
                Stands::Back(format!("{role} runs again, pid {pid}{former}: {does}"))
            }
            Err(lacks) => Stands::NotYet(lacks),
        }
    }

    /// The end of a wait that brought no worker: only of a restart that was made there is more to tell.
    fn not_back(&self, role: Role, what: &str) -> Result<Outcome, RestartError> {
        if !self.accepted {
            let why = "its answer was lost, and its former process was not seen to end";
            return Err(RestartError::NotRestarted(role, why.to_owned()));
        }
        let former = self.pid.map_or_else(String::new, |former| format!(" (pid {former} before)"));
        let text = format!("restart-not-back: {role} was restarted{former} {what}");
        Ok(Outcome { text: looking::escaped(&text) + "\n", so: false })
    }
}

/// What a worker that runs is again, or what it still lacks.
fn readied(role: Role, status: &Status, hub_before: HubStands) -> Result<&'static str, String> {
    match role {
        Role::Relayd if status.state == State::Open => Ok("it is open for Cloudly dispatch"),
        Role::Relayd => {
            let refusal = status.readiness.refusals.first().map(ToString::to_string);
            let waits = status.waiting_for.as_ref().map(|what| format!("waiting for {what}"));
            Err(refusal.or(waits).unwrap_or_else(|| "it is not open for Cloudly yet".to_owned()))
        }
        Role::Pulld if status.pulld.is_some() => Ok("it answers"),
        Role::Pulld => Err("it does not answer yet".to_owned()),
        Role::Vpnd => match HubStands::of(status) {
            HubStands::Bound => Ok("its hub is bound"),
            HubStands::Reported | HubStands::Unreported if hub_before == HubStands::Bound => {
                let refused = status.vpn_hub.as_ref().and_then(|hub| hub.refused.clone());
                Err(refused.unwrap_or_else(|| "its hub is not bound yet".to_owned()))
            }
            HubStands::Unreported if hub_before == HubStands::Reported => {
                Err("it has not reported yet".to_owned())
            }
            HubStands::Reported | HubStands::Unreported => Ok("no network is held, as before"),
        },
        Role::Supervisor => unreachable!("the command line takes workers alone"),
    }
}

#[cfg(test)]
mod tests;
