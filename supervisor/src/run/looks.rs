//! What the loop tells who looks at the relay from outside: `coreflowctl` over the control socket, and systemd
//! by one line. Both read the same kept readiness (PROT-21, PROT-33, PROT-35).

use std::time::Duration;

use coreflow_ipc::{VERSION, hello::Role, messages::relayd::Reference};
use tracing::info;

use super::{Supervisor, Worker, standing::Stood};
use crate::{
    constants::STATUS_ID,
    memory,
    permitted::Phase,
    status::{self, Registration, State, Status, WorkerState},
};

impl Supervisor {
    /// Tells systemd the one line of the readiness.
    pub(super) fn note_readiness(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let (open, parked) = (self.is_open(), self.custody.kept().parked.as_deref());
        let readiness = self.readiness.check(open, parked);
        let line = match (readiness.refusals.first(), self.readiness.waiting_for(open, parked)) {
            (Some(refusal), _) => {
                format!("not ready: {}", refusal.to_string().chars().take(300).collect::<String>())
            }
            (None, Some(what)) if self.opened => format!("not ready: waiting for {what}"),
            (None, Some(what)) => format!("starting: waiting for {what}"),
            (None, None) => "open for Cloudly dispatch".to_owned(),
        };
        self.notify.status(&line, self.clock.now().mono);
    }

    /// States what the start waits for, when that is news and there is budget for it.
    pub(super) fn tell_waiting(&mut self) {
        if let Some(what) = self.waiting.take_due(self.mono()) {
            info!("not ready: waiting for {what}");
        }
    }

    /// One look, with what the workers answered to it.
    pub(super) fn status(&self, stood: Stood) -> Status {
        let (open, kept) = (self.is_open(), self.custody.kept());
        let parked = kept.parked.as_deref();
        let state = match (self.stopping.is_some(), open, self.opened) {
            (true, ..) => State::Stopping,
            (false, true, _) => State::Open,
            (false, false, true) => State::Restarting,
            (false, false, false) => State::Starting,
        };
        let waiting_for = self.readiness.waiting_for(open, parked).filter(|_| self.stopping.is_none());
        Status {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            uptime_ms: milliseconds(self.mono()),
            state,
            waiting_for: waiting_for.map(str::to_owned),
            readiness: self.readiness.check(open, parked),
            listener: self.listener.address(),
            registration: Registration {
                credential: kept.credential.as_ref().map(bounded),
                record: kept.record.as_ref().map(bounded),
                parked: kept.parked.clone(),
            },
            relayd: stood.relayd,
            pulld: stood.pulld,
            unanswered: stood.unanswered.iter().map(|role| role.name().to_owned()).collect(),
            vpn_hub: self.facts.as_ref().and_then(|facts| facts.vpn.as_ref()).map(|vpn| self.hub.status(vpn)),
            workers: self.workers.iter().map(|(role, worker)| self.worker(*role, worker)).collect(),
        }
    }

    /// Whether the relayd that runs is open and serves.
    fn is_open(&self) -> bool {
        let relayd = &self.workers[&Role::Relayd];
        let open = relayd.process.as_ref().is_some_and(|process| process.gate.phase() == Phase::Open);
        let ends = relayd.supervision.is_dying() || relayd.supervision.is_restarting();
        open && !ends && self.stopping.is_none()
    }

    /// The supervisor, and the workers.
    pub(super) fn processes(&self) -> Vec<status::Worker> {
        let own = status::Worker {
            role: Role::Supervisor.name().to_owned(),
            state: WorkerState::Running,
            pid: Some(std::process::id()),
            uptime_ms: Some(milliseconds(self.mono())),
            restarts: 0,
            restarts_in_ms: None,
            level: self.verbosity.level().word().to_owned(),
            memory: memory::of_process(std::process::id(), false),
        };
        let workers = self.workers.iter().map(|(role, worker)| self.worker(*role, worker));
        std::iter::once(own).chain(workers).collect()
    }

    fn worker(&self, role: Role, worker: &Worker) -> status::Worker {
        let process = worker.process.as_ref();
        let mono = self.mono();
        status::Worker {
            role: role.name().to_owned(),
            state: worker.supervision.state(),
            pid: process.map(|process| process.pid),
            uptime_ms: process.map(|_| milliseconds(mono.saturating_sub(worker.since))),
            restarts: worker.supervision.restarts(),
            restarts_in_ms: worker.supervision.restarts_in(mono).map(milliseconds),
            level: worker.level.word().to_owned(),
            memory: process.and_then(|process| memory::of_process(process.pid, false)),
        }
    }
}

fn bounded(reference: &Reference) -> Reference {
    Reference { id: reference.id.chars().take(STATUS_ID).collect(), generation: reference.generation }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
