//! The end of the relay: an ordered stop, the rollback of a start that failed, and the end of whatever is left
//! (START-06, START-10, START-13, ARC-20).

use std::{collections::BTreeSet, time::Duration};

use coreflow_ipc::{hello::Role, messages::ToWorker};
use tracing::{info, warn};

use super::{Ended, Supervisor};
use crate::{
    stopping::{self, Stopping},
    supervision,
};

impl Supervisor {
    pub(super) fn stop(&mut self) {
        info!("the relay stops");
        self.end_in_order(Stopping::begin);
    }

    /// A start that cannot succeed is undone, and then ends the process (START-06, START-15).
    pub(super) fn fail_start(&mut self, cause: String) {
        if self.stopping.is_none() {
            self.start_failed_by = Some(cause);
            self.end_in_order(Stopping::rollback);
        }
    }

    fn end_in_order(&mut self, order: fn(BTreeSet<Role>, Duration) -> (Stopping, Vec<stopping::Action>)) {
        self.notify.stopping(self.mono());
        self.waiting.forget();
        let mut alive = BTreeSet::new();
        for (role, worker) in &mut self.workers {
            worker.supervision.handle(supervision::Event::Last, self.clock.now().mono);
            if worker.process.is_some() {
                alive.insert(*role);
            }
        }
        let (stopping, actions) = order(alive, self.mono());
        self.stopping = Some(stopping);
        self.stop_actions(actions);
    }

    pub(super) fn stop_actions(&mut self, actions: Vec<stopping::Action>) {
        for action in actions {
            match action {
                stopping::Action::Tell(role) => {
                    // A new dial is refused from here on; relayd's copy of the socket goes with it.
                    self.listener.close();
                    if let Some(process) = &self.workers[&role].process
                        && process.tell(ToWorker::Stop, Vec::new()).is_err()
                    {
                        warn!(worker = role.name(), "the worker takes no message and is killed");
                        process.kill();
                    }
                }
                stopping::Action::Kill(role) => {
                    warn!(worker = role.name(), "the worker does not end in time and is killed");
                    if let Some(process) = &self.workers[&role].process {
                        process.kill();
                    }
                }
                stopping::Action::Done { completed } => {
                    self.listener.close();
                    info!("the relay stopped");
                    self.ended = Some(match self.start_failed_by.take() {
                        Some(cause) => Ended::StartFailed(cause),
                        None if completed => Ended::Stopped,
                        None => Ended::StopFailed,
                    });
                }
            }
        }
    }

    /// Nothing outlives the loop (ARC-20).
    pub(super) fn end_workers(&self) {
        for process in self.workers.values().filter_map(|worker| worker.process.as_ref()) {
            process.kill();
        }
    }
}
