//! What a confined worker is given: its configuration, and its links to other workers, made anew
//! whenever either end is.

use std::os::{fd::OwnedFd, unix::net::UnixStream};

use coreflow_ipc::{
    hello::Role,
    messages::{ToWorker, relayd::*},
    record::Level,
};
use tracing::{debug, error};

use super::{Supervisor, Worker};
use crate::{peer_links::PeerLinks, permitted::Phase};

impl Supervisor {
    /// The worker is greeted and confined: it gets what it needs.
    pub(super) fn confined(&mut self, role: Role) {
        let Worker { process, level, .. } = &self.workers[&role];
        // What a worker begins with it is not told.
        if let Some(process) = process.as_ref().filter(|_| *level != Level::Info) {
            let _ = process.tell(ToWorker::LogLevel(*level), Vec::new());
        }
        match role {
            Role::Relayd | Role::Supervisor => {
                self.readiness.relayd_begins();
                self.waiting.forget();
                self.note_readiness();
                let start = RelaydStart {
                    cloudly: CloudlyEndpoint {
                        host: self.cloudly.host(),
                        port: self.cloudly.port(),
                        tls: self.cloudly.is_tls(),
                    },
                    trust_anchors: self.trust.certificates.clone(),
                    kept: self.custody.kept().clone(),
                };
                self.tell_relayd(ToRelayd::Start(start), Vec::new());
                self.links = PeerLinks::default();
                self.link(Role::Pulld);
                self.link(Role::Vpnd);
            }
            Role::Pulld => {
                // Connections that were being made for the former process are nobody's.
                self.dialing = 0;
                self.configure_pulld();
                self.link(role);
            }
            Role::Vpnd => self.link(role),
        }
    }

    /// Tells relayd something; a relayd that takes nothing any more has failed.
    pub(super) fn tell_relayd(&mut self, message: ToRelayd, descriptors: Vec<OwnedFd>) {
        let process = self.workers[&Role::Relayd].process.as_ref();
        if process.is_some_and(|process| process.tell_relayd(message, descriptors).is_err()) {
            self.fail(Role::Relayd, "it does not take its messages");
        }
    }

    /// A link that either end gave up is made anew, unless it was already: `number` tells which one it was.
    pub(super) fn link_lost(&mut self, role: Role, number: u64) {
        if self.stopping.is_none() && self.links.lost(role, number) {
            debug!(worker = role.name(), "the link between the workers ended and is made anew");
            self.make_links();
        }
    }

    /// Either end of the link is new.
    fn link(&mut self, role: Role) {
        self.links.begin(role, self.mono());
        self.make_links();
    }

    /// Makes the links that are due.
    pub(super) fn make_links(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        for role in self.links.due(self.mono()) {
            self.make_link(role);
        }
    }

    /// Makes the link between relayd and `role`, once both are confined.
    fn make_link(&mut self, role: Role) {
        let confined = |role: Role| {
            let process = self.workers[&role].process.as_ref();
            process.filter(|process| (Phase::Confined..Phase::Stopped).contains(&process.gate.phase()))
        };
        let (Some(relayd), Some(other)) = (confined(Role::Relayd), confined(role)) else {
            return self.links.left(role);
        };
        let (one, two) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(failure) => {
                let class = failure.kind();
                return error!(worker = role.name(), %class, "no link between workers can be made; it is tried again");
            }
        };
        let peer = |role| ToWorker::PeerLink { role };
        if relayd.tell(peer(role), vec![one.into()]).is_err() {
            return self.fail(Role::Relayd, "it does not take its messages");
        }
        self.links.given(role);
        // What relayd was given ends with this end of it, which it tells.
        if other.tell(peer(Role::Relayd), vec![two.into()]).is_err() {
            self.fail(role, "it does not take its messages");
        }
    }
}
