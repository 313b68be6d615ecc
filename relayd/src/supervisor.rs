//! Relayd's side of its link to the supervisor: asks with a deadline, statements, and what it is
//! told.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    time::Duration,
};

use coreflow_ipc::{
    asks::{AskId, Asks},
    messages::relayd::{FromRelayd, Identity, IdentityDenied, ListenerFacts, ToRelayd},
    now::Clock,
    worker::Outbox,
};
use tokio::{sync::oneshot, time::timeout};
use tracing::debug;

use crate::constants::ASK_BUDGET;

/// An answer of the supervisor, with the listener's socket where one came.
enum Answer {
    Identity(Result<Identity, IdentityDenied>),
    Addresses(Result<Vec<IpAddr>, String>),
    ListenerFacts(Result<ListenerFacts, String>),
    Listener(Result<(SocketAddr, OwnedFd), String>),
}

/// Asks the supervisor; clones share one link.
#[derive(Clone)]
pub struct Supervisor {
    outbox: Outbox<FromRelayd>,
    asks: Arc<Mutex<Asks<oneshot::Sender<Answer>>>>,
    clock: Clock,
}

impl Supervisor {
    /// A supervisor that hears through `outbox`.
    pub fn new(outbox: Outbox<FromRelayd>, clock: Clock) -> Self {
        Self { outbox, asks: Arc::default(), clock }
    }

    /// States something.
    pub async fn tell(&self, message: FromRelayd) {
        self.outbox.send(message).await;
    }

    /// Answers what the supervisor does without, if there is room for it at once.
    pub fn offer(&self, message: FromRelayd) {
        if !self.outbox.offer(message) {
            debug!("an answer found no room on the link to the supervisor");
        }
    }

    /// Asks for an identity (ARC-08).
    pub async fn ask_identity(&self) -> Result<Identity, IdentityDenied> {
        match self.ask(|id| FromRelayd::AskIdentity { id }, ASK_BUDGET).await {
            Some(Answer::Identity(answer)) => answer,
            Some(_) | None => Err(IdentityDenied::Unreachable("timeout".to_owned())),
        }
    }

    /// Asks for the addresses of Cloudly's host.
    pub async fn ask_addresses(&self) -> Result<Vec<IpAddr>, String> {
        match self.ask(|id| FromRelayd::AskAddresses { id }, ASK_BUDGET).await {
            Some(Answer::Addresses(answer)) => answer,
            Some(_) | None => Err("timeout".to_owned()),
        }
    }

    /// Asks for the launch facts of a cluster with a relay block.
    pub async fn ask_listener_facts(&self, relay_origin: String) -> Result<ListenerFacts, String> {
        match self.ask(|id| FromRelayd::AskListenerFacts { id, relay_origin }, ASK_BUDGET).await {
            Some(Answer::ListenerFacts(answer)) => answer,
            Some(_) | None => Err("the supervisor did not answer".to_owned()),
        }
    }

    /// Asks for the bound socket of the listener.
    pub async fn ask_listener(&self) -> Result<(SocketAddr, OwnedFd), String> {
        match self.ask(|id| FromRelayd::AskListener { id }, ASK_BUDGET).await {
            Some(Answer::Listener(answer)) => answer,
            Some(_) | None => Err("the supervisor did not answer".to_owned()),
        }
    }

    async fn ask(&self, message: impl FnOnce(AskId) -> FromRelayd, budget: Duration) -> Option<Answer> {
        let (waiter, answer) = oneshot::channel();
        let id = {
            let mut asks = self.asks.lock().expect("no holder of the asks panics");
            let now = self.clock.now().mono;
            asks.expire(now);
            asks.open(now + budget, waiter)
        };
        self.outbox.send(message(id)).await;
        timeout(budget, answer).await.ok()?.ok()
    }

    /// Gives an answer to whoever waits for it; what is no answer was said at its own time.
    pub fn settle(&self, message: ToRelayd, descriptors: Vec<OwnedFd>) {
        let (id, answer) = match message {
            ToRelayd::AnswerIdentity { id, answer } => (id, Answer::Identity(answer)),
            ToRelayd::AnswerAddresses { id, answer } => (id, Answer::Addresses(answer)),
            ToRelayd::AnswerListenerFacts { id, answer } => (id, Answer::ListenerFacts(answer)),
            ToRelayd::AnswerListener { id, answer } => {
                let listener = answer.and_then(|address| {
                    let socket = descriptors.into_iter().next();
                    socket.map(|socket| (address, socket)).ok_or_else(|| "no socket came".to_owned())
                });
                (id, Answer::Listener(listener))
            }
            ToRelayd::Worker(_)
            | ToRelayd::Start(_)
            | ToRelayd::HubUnavailable(_)
            | ToRelayd::AskStanding { .. }
            | ToRelayd::AskNodes { .. } => return,
        };
        let waiter = self.asks.lock().expect("no holder of the asks panics").settle(id);
        if let Some(waiter) = waiter {
            let _ = waiter.send(answer);
        }
    }
}
