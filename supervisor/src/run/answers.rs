//! What relayd asks for, and what it gets: an identity and never the bearer, addresses, the launch
//! facts of a listener, and its socket (ARC-07 – ARC-09).

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use coreflow_ipc::{
    asks::AskId,
    hello::Role,
    messages::{
        pulls::RegistryFailure,
        relayd::{FromRelayd, Identity, IdentityDenied, ToRelayd},
    },
};
use tracing::{debug, error, info, warn};

use super::{Supervisor, standing};
use crate::{
    exchange::{self, ExchangeBounds, ExchangeError},
    supervision,
};

/// Resolutions that may be under way for relayd.
const RESOLUTIONS: usize = 4;

/// What a task of the supervisor brought back for relayd.
pub(super) enum Answered {
    Identity { process: u64, id: AskId, result: Result<Identity, ExchangeError> },
    Addresses { process: u64, id: AskId, result: Result<Vec<SocketAddr>, String> },
    Bind { process: u64, id: AskId, result: Result<Vec<SocketAddr>, String> },
    Connection { process: u64, id: AskId, result: Result<OwnedFd, RegistryFailure> },
}

impl Supervisor {
    pub(super) async fn said_by_relayd(&mut self, message: FromRelayd) {
        match message {
            FromRelayd::Worker(_) => {}
            // A relay that stops opens nothing any more, and a relayd that is to be started again serves nothing.
            FromRelayd::AskListenerFacts { .. } | FromRelayd::AskListener { .. } | FromRelayd::Open
                if self.relayd_ends() => {}
            FromRelayd::AskIdentity { id } => self.ask_identity(id),
            FromRelayd::AskAddresses { id } => self.ask_addresses(id),
            FromRelayd::AskListenerFacts { id, relay_origin } => self.ask_listener_facts(id, relay_origin),
            FromRelayd::AskListener { id } => self.ask_listener(id),
            FromRelayd::Waiting { what } => {
                self.readiness.wait_for(&what);
                self.waiting.set(what.chars().take(200).collect());
                self.tell_waiting();
                self.note_readiness();
            }
            FromRelayd::Open => self.open(),
            FromRelayd::Keep(kept) => {
                if let Err(violation) = self.custody.take(kept) {
                    self.fail(Role::Relayd, &violation.to_string());
                }
            }
            FromRelayd::Readiness { refusals } => {
                self.readiness.state(refusals);
                self.note_readiness();
            }
            FromRelayd::AnswerStanding { id, standing } => {
                self.answered_look(Role::Relayd, id, standing::Answered::Relayd(standing));
            }
            FromRelayd::AnswerNodes { id, page } => {
                self.answered_look(Role::Relayd, id, standing::Answered::Nodes(page));
            }
            FromRelayd::LinkLost { role, number } => self.link_lost(role, number),
            FromRelayd::StartFailed { cause } => self.start_failed(cause),
        }
    }

    /// Whether relayd was told to end, with the relay or to be started again.
    fn relayd_ends(&self) -> bool {
        self.stopping.is_some() || self.workers[&Role::Relayd].supervision.is_restarting()
    }

    fn relayd_process(&self) -> u64 {
        self.workers[&Role::Relayd].processes
    }

    fn ask_identity(&mut self, id: AskId) {
        if self.custody.is_parked() {
            debug!("an exchange was refused: the relay is parked");
            let answer = Err(IdentityDenied::Parked);
            return self.tell_relayd(ToRelayd::AnswerIdentity { id, answer }, Vec::new());
        }
        if self.exchanging.is_some() {
            return self.fail(Role::Relayd, "it asks for a second identity while one is exchanged");
        }
        let (cloudly, tls, bearer) = (self.cloudly.clone(), Arc::clone(&self.tls), Arc::clone(&self.bearer));
        let (answers, process, clock) = (self.answers.0.clone(), self.relayd_process(), self.clock);
        let exchange = tokio::spawn(async move {
            let now = || clock.now().wall;
            let result = exchange::exchange(&cloudly, &tls, &bearer, ExchangeBounds::default(), now).await;
            let result = result.map(Identity::from);
            let _ = answers.send(Answered::Identity { process, id, result }).await;
        });
        self.exchanging = Some(exchange.abort_handle());
    }

    fn ask_addresses(&mut self, id: AskId) {
        if self.resolving >= RESOLUTIONS {
            return self.fail(Role::Relayd, "it asks for more addresses than are being resolved");
        }
        self.resolving += 1;
        let tls = self.cloudly.is_tls();
        let (host, port) = (self.cloudly.host(), self.cloudly.port());
        let (answers, process) = (self.answers.0.clone(), self.relayd_process());
        tokio::spawn(async move {
            let result = exchange::resolve(&host, port).await.map_err(|error| error.to_string());
            // Without TLS an identity goes to this host alone, whatever its name resolves to.
            let result = result.map(|addresses| {
                addresses.into_iter().filter(|address| tls || address.ip().is_loopback()).collect()
            });
            let _ = answers.send(Answered::Addresses { process, id, result }).await;
        });
    }

    /// Reads the facts that only a cluster with a relay block needs (CFG-17 – CFG-29), and starts the
    /// workers that serve it.
    fn ask_listener_facts(&mut self, id: AskId, relay_origin: String) {
        let mut answer = match &self.facts {
            Some(facts) => Ok(facts.clone()),
            None => self.reader.listener_facts().map_err(|error| error.to_string()),
        };

        if let Ok(facts) = &mut answer {
            self.facts = Some(facts.clone());
            let relay_origin: String = relay_origin.chars().take(300).collect();
            if relay_origin != self.relay_origin {
                self.relay_origin = relay_origin;
                self.configure_pulld();
            }
            self.judge(Role::Pulld, supervision::Event::Wanted);
            if let Some(vpn) = &mut facts.vpn {
                self.judge(Role::Vpnd, supervision::Event::Wanted);
                vpn.unavailable = self.hub_unavailability();
            }
        }
        self.tell_relayd(ToRelayd::AnswerListenerFacts { id, answer }, Vec::new());
    }

    fn ask_listener(&mut self, id: AskId) {
        let Some(facts) = self.facts.clone() else { return };
        let (answers, process) = (self.answers.0.clone(), self.relayd_process());
        tokio::spawn(async move {
            let resolved = exchange::resolve(&facts.bind_hostname, facts.bind_port).await;
            let result = resolved.map_err(|error| error.to_string());
            let _ = answers.send(Answered::Bind { process, id, result }).await;
        });
    }

    pub(super) fn answered(&mut self, answered: Answered) {
        if matches!(answered, Answered::Addresses { .. }) {
            self.resolving -= 1;
        }
        let process = match &answered {
            Answered::Identity { process, .. }
            | Answered::Addresses { process, .. }
            | Answered::Bind { process, .. } => *process,
            Answered::Connection { .. } => self.relayd_process(),
        };
        if process != self.relayd_process() {
            return debug!("an answer came for a relayd that is gone");
        }
        match answered {
            Answered::Identity { id, result, .. } => self.exchanged(id, result),
            Answered::Addresses { id, result, .. } => {
                let answer = result.map(|addresses| addresses.iter().map(SocketAddr::ip).collect());
                self.tell_relayd(ToRelayd::AnswerAddresses { id, answer }, Vec::new());
            }
            Answered::Bind { .. } if self.relayd_ends() => {}
            Answered::Bind { id, result, .. } => self.bind(id, result),
            Answered::Connection { process, id, result } => self.dialed(process, id, result),
        }
    }

    fn exchanged(&mut self, id: AskId, result: Result<Identity, ExchangeError>) {
        self.exchanging = None;
        let exchanges = match &result {
            Ok(_) => &mut self.counters.exchanges,
            Err(_) => &mut self.counters.exchanges_failed,
        };
        *exchanges += 1;
        let failure = result.as_ref().err().map(ToString::to_string);
        self.readiness.exchanged(failure.as_deref());
        self.note_readiness();
        let answer = result.map_err(|error| {
            warn!(method = "getIdentityByToken", "no identity: {error}");
            if error.refuses_the_bearer() && !self.opened {
                // A start with a refused bearer cannot succeed (START-18); a running relay goes on
                // trying (SES-20).
                let hint = if self.bearer.ends_with_line_break() {
                    "; the stored bearer ends with a line break, which is part of its value"
                } else {
                    ""
                };
                self.fail_start(format!(
                    "{error}: Cloudly refused SERVEZONE_CLUSTER_RELAY_AUTHORIZATION{hint}"
                ));
            }
            denied(&error)
        });
        self.tell_relayd(ToRelayd::AnswerIdentity { id, answer }, Vec::new());
    }

    fn bind(&mut self, id: AskId, resolved: Result<Vec<SocketAddr>, String>) {
        let Some(facts) = &self.facts else { return };
        let asked = format!("{}:{}", facts.bind_hostname, facts.bind_port);
        let bound = resolved
            .and_then(|addresses| self.listener.lend(&addresses).map_err(|error| error.kind().to_string()));
        let (answer, descriptors) = match bound {
            Ok((address, socket)) => (Ok(address), vec![socket]),
            Err(why) => {
                let cause = format!(
                    "listener-bind-failed: {asked}: {why}; COREFLOW_RELAY_BIND_HOSTNAME and \
                     COREFLOW_RELAY_BIND_PORT must be an address of this host and a free port"
                );
                (Err(cause), Vec::new())
            }
        };
        self.tell_relayd(ToRelayd::AnswerListener { id, answer }, descriptors);
    }

    fn open(&mut self) {
        self.waiting.forget();
        if self.opened {
            info!("relayd serves again");
        } else {
            self.opened = true;
            info!("the relay is open for Cloudly dispatch");
            self.notify.ready(self.mono());
        }
        self.note_readiness();
    }

    /// A start that cannot succeed ends the process; of a relayd that was restarted it is an error
    /// that the next restart may mend (START-15, START-26).
    fn start_failed(&mut self, cause: String) {
        if self.opened {
            error!(worker = Role::Relayd.name(), "relayd cannot serve: {cause}");
            return self.judge(Role::Relayd, supervision::Event::Failed);
        }
        self.fail_start(cause);
    }
}

fn denied(error: &ExchangeError) -> IdentityDenied {
    match error {
        ExchangeError::Refused(_) => IdentityDenied::Refused(error.to_string()),
        ExchangeError::Unusable { .. } => IdentityDenied::Unusable(error.to_string()),
        ExchangeError::Postponed | ExchangeError::Transport { .. } => {
            IdentityDenied::Unreachable(error.to_string())
        }
    }
}
