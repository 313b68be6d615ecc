//! What pulld is told and what it asks for: its configuration, and connections to the registry (ARC-15).

use std::os::fd::OwnedFd;

use coreflow_ipc::{
    asks::AskId,
    hello::Role,
    messages::{
        pulld::{CONNECTION_ASKS, FromPulld, PulldStart, ToPulld},
        pulls::RegistryFailure,
    },
};
use tracing::debug;

use super::{Supervisor, answers, standing::Answered};

impl Supervisor {
    pub(super) fn said_by_pulld(&mut self, message: FromPulld) {
        match message {
            FromPulld::Worker(_) => {}
            FromPulld::AskConnection { id } => self.ask_connection(id),
            FromPulld::AnswerStanding { id, standing } => {
                self.answered_look(Role::Pulld, id, Answered::Pulld(standing));
            }
        }
    }

    /// Pulld gets its configuration, when it is confined and when the relay's origin has changed.
    pub(super) fn configure_pulld(&mut self) {
        let start = PulldStart {
            registry_origin: self.cloudly.origin(),
            relay_origin: self.relay_origin.clone(),
            trust_anchors: self.trust.certificates.clone(),
        };
        self.tell_pulld(ToPulld::Start(start), Vec::new());
    }

    fn ask_connection(&mut self, id: AskId) {
        if self.dialing >= CONNECTION_ASKS {
            return self.fail(Role::Pulld, "it asks for more connections than are being made");
        }
        self.dialing += 1;
        let now = self.mono();
        let dial = self.dials.begin(&self.cloudly, now);
        let (answers, process) = (self.answers.0.clone(), self.workers[&Role::Pulld].processes);
        tokio::spawn(async move {
            let result = dial.await;
            let _ = answers.send(answers::Answered::Connection { process, id, result }).await;
        });
    }

    pub(super) fn dialed(&mut self, process: u64, id: AskId, result: Result<OwnedFd, RegistryFailure>) {
        if process != self.workers[&Role::Pulld].processes {
            return debug!("a connection was made for a pulld that is gone");
        }
        self.dialing -= 1;
        let (answer, descriptors) = match result {
            Ok(socket) => (Ok(()), vec![socket]),
            Err(failure) => (Err(failure), Vec::new()),
        };
        self.tell_pulld(ToPulld::AnswerConnection { id, answer }, descriptors);
    }

    pub(super) fn tell_pulld(&mut self, message: ToPulld, descriptors: Vec<OwnedFd>) {
        let process = self.workers[&Role::Pulld].process.as_ref();
        if process.is_some_and(|process| process.tell_pulld(message, descriptors).is_err()) {
            self.fail(Role::Pulld, "it does not take its messages");
        }
    }
}
