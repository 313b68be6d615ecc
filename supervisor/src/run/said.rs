//! What a worker says: admitted by its gate first, and then, when every worker may say it, acted on here
//! (ARC-24).

use coreflow_ipc::{
    confine::State,
    hello::Role,
    messages::{FromWorker, pulld::FromPulld, relayd::FromRelayd, vpnd::FromVpnd},
    record::Record,
};
use tracing::{debug, info, warn};

use super::Supervisor;
use crate::{process::Said, status::LayerState, supervision};

impl Supervisor {
    pub(super) async fn said(&mut self, role: Role, said: Said) {
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        let process = worker.process.as_mut().expect("the message is of the living process");
        if let Err(unpermitted) = process.gate.admit(said.kind()) {
            return self.fail(role, &unpermitted.to_string());
        }
        match said {
            Said::Relayd(FromRelayd::Worker(message))
            | Said::Pulld(FromPulld::Worker(message))
            | Said::Vpnd(FromVpnd::Worker(message)) => self.said_by_any(role, message),
            Said::Relayd(message) => self.said_by_relayd(message).await,
            Said::Pulld(message) => self.said_by_pulld(message),
            Said::Vpnd(message) => self.said_by_vpnd(message),
        }
    }

    fn said_by_any(&mut self, role: Role, message: FromWorker) {
        match message {
            FromWorker::Hello(hello) => match hello.check(role) {
                Ok(()) => self.judge(role, supervision::Event::Greeted),
                Err(refused) => self.refuse_hello(role, &refused.to_string()),
            },
            FromWorker::Confined(report) => {
                for layer in report.degraded() {
                    warn!(
                        worker = role.name(),
                        "confinement is degraded: {} is {}", layer.layer, layer.state
                    );
                }
                let on = report.layers.iter().filter(|layer| layer.state == State::On);
                let on: Vec<String> = on.map(|layer| layer.layer.to_string()).collect();
                info!(worker = role.name(), "the worker is confined by {}", on.join(", "));
                let worker = self.workers.get_mut(&role).expect("each role has its worker");
                worker.layers = LayerState::of_report(&report);
                self.confined(role);
            }
            FromWorker::Record(record) => self.record(role, record),
            FromWorker::Pong(number) => self.judge(role, supervision::Event::Ponged(number)),
            FromWorker::Stopped => debug!(worker = role.name(), "the worker stopped"),
        }
    }

    /// A worker of another build ends a start by name; later it can only be left down (ARC-24).
    fn refuse_hello(&mut self, role: Role, refused: &str) {
        if !self.opened {
            self.fail_start(refused.to_owned());
        }
        self.fail(role, refused);
    }

    fn record(&mut self, role: Role, record: Record) {
        let mono = self.mono();
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        let Some(process) = &mut worker.process else { return };
        // What it queued before it heard of its level.
        if record.level > worker.level {
            return;
        }
        if !process.budget.admit(mono) {
            return;
        }
        let suppressed = process.budget.take_suppressed();
        if suppressed > 0 {
            self.counters.records_suppressed += suppressed;
            warn!(worker = role.name(), "suppressed {suppressed} records");
        }
        crate::log::write(role, record.bounded());
    }
}
