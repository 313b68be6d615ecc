//! A Pallet node: dials the relay, registers with its own bearer, acknowledges what it is
//! pushed, and comes back by itself.
//!
//! It models OUT-15 (back within a second after its socket closed, registering again), OUT-18 (a
//! re-pushed assignment is admitted by reference), FWD-35 (a rejected registration is terminal)
//! and FWD-36 (a registration has ten seconds). Where its setup says so it also keeps a network and its
//! workloads: it judges what it is pushed instead of acknowledging all of it.

mod acknowledgement;
mod network;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::carrier::{CallFailure, Carrier, Closing, Event};
use crate::cloudly::in_milliseconds;
use crate::dial::{Target, websocket};
use crate::envelope::{Message, Refusal, answer, random_hex, refusal};
use crate::offer::Offer;
use crate::waiting::{BOUND, Change, Late};

pub use network::{Judged, NodeClock, Verdict};
pub use workloads::Workload;

use network::Network;
use workloads::Workloads;

/// The pause before a new dial; a node is back within a second.
const PAUSE: Duration = Duration::from_millis(200);
/// Dials in a row before a node gives up.
const DIALS: u32 = 300;
/// The connection-restore callback's bound (FWD-36).
const RESTORE: Duration = Duration::from_secs(10);

/// How a node answers a push.
#[derive(Debug, Clone)]
pub enum Reaction {
    /// Bound, as the contract says.
    Acknowledge,
    /// With this JSON text as `response`.
    Answer(String),
    /// With the binding, and the whole request as it came: an answer that names its push.
    Return,
    /// With a refusal.
    Refuse(Refusal),
    /// Not at all.
    Never,
}

/// Who a node is and where it dials.
#[derive(Clone)]
pub struct Setup {
    /// The relay. Its client configuration offers ALPN `http/1.1`.
    pub target: Target,
    /// The node's id.
    pub node_id: String,
    /// The node's own bearer.
    pub bearer: String,
    /// The instance nonce, one per process of the node.
    pub nonce: String,
    /// The node's credential generation.
    pub credential_generation: u64,
    /// The offer on `palletRuntime`.
    pub offer: Offer,
    /// The whole registration body, in the place of the composed one.
    pub registration: Option<String>,
    /// Whether it keeps a network and its workloads.
    pub keeps_network: bool,
}

impl Setup {
    /// A node of the default Cloudly settings.
    pub fn new(target: Target, node_id: &str) -> Self {
        Self {
            target,
            node_id: node_id.to_owned(),
            bearer: format!("pallet-bearer-of-{node_id}"),
            nonce: random_hex::<16>(),
            credential_generation: 1,
            offer: Offer::new("33.1.0", "32.0.0"),
            registration: None,
            keeps_network: false,
        }
    }

    /// A node that judges what it is pushed: it pins its signing authority, admits projections only forward and
    /// renewals only as its own clock, authority and projection have them, and starts no workload that runs.
    #[must_use]
    pub fn keeping_network(mut self) -> Self {
        self.keeps_network = true;
        self
    }

    fn registration_text(&self) -> String {
        self.registration.clone().unwrap_or_else(|| {
            json!({
                "protocol": self.offer.json(),
                "authorization": self.bearer,
                "nodeId": self.node_id,
                "nodeInstanceNonce": self.nonce,
                "credentialGeneration": self.credential_generation,
            })
            .to_string()
        })
    }
}

/// A push the node got.
#[derive(Debug, Clone)]
pub struct Push {
    /// The envelope as it came.
    pub message: Message,
    /// When it arrived.
    pub at: Instant,
}

#[derive(Default)]
struct State {
    reactions: BTreeMap<String, Reaction>,
    registrations: Vec<Message>,
    pushes: Vec<Push>,
    strays: Vec<Message>,
    closes: Vec<(Closing, Instant)>,
    denied: Option<String>,
    carrier: Option<Carrier>,
    assignments: BTreeSet<String>,
    network: Option<Network>,
    workloads: Workloads,
}

impl State {
    /// The node's own answer to a push.
    fn answer(&mut self, push: &Message) -> Result<String, Refusal> {
        let Some(network) = &mut self.network else {
            return acknowledgement::bound(push, &mut self.assignments);
        };
        if let Some(answer) = network.answer(push, in_milliseconds(Duration::ZERO)) {
            return answer;
        }
        let assignment = acknowledgement::part(push.request(), "assignment").unwrap_or_default();
        let running = self.workloads.apply(&serde_json::from_str(&assignment).unwrap_or_default());
        match running {
            Some(by_reference) => acknowledgement::assigned(push, by_reference),
            None => acknowledgement::bound(push, &mut self.assignments),
        }
    }
}

struct Shared {
    state: Mutex<State>,
    change: Change,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The running node. Dropping it drops its connection.
pub struct PalletNode {
    id: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl PalletNode {
    /// Starts dialling.
    pub fn start(setup: Setup) -> Self {
        let id = setup.node_id.clone();
        let network = setup.keeps_network.then(|| Network::of(&id));
        let state = Mutex::new(State { network, ..State::default() });
        let shared = Arc::new(Shared { state, change: Change::default() });
        Self { id, task: tokio::spawn(live(setup, shared.clone())), shared }
    }

    /// Answers every push of `method` by `reaction`.
    pub fn react(&self, method: &str, reaction: Reaction) {
        self.shared.state().reactions.insert(method.to_owned(), reaction);
    }

    /// The answers to its registrations, oldest first.
    pub fn registrations(&self) -> Vec<Message> {
        self.shared.state().registrations.clone()
    }

    /// The binding of its last registration, as it came.
    pub fn binding(&self) -> Option<String> {
        acknowledgement::part(self.shared.state().registrations.last()?.response(), "session")
    }

    /// Waits for its `count`th registration (from 1) and gives the binding.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_registered(&self, count: usize) -> Result<String, Late> {
        let what = format!("registration {count} of node {}", self.id);
        let look = || {
            let state = self.shared.state();
            acknowledgement::part(state.registrations.get(count - 1)?.response(), "session")
        };
        self.shared.change.until(BOUND, &what, look).await
    }

    /// Waits until a registration was rejected, which is terminal (FWD-35), and says why.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_denied(&self) -> Result<String, Late> {
        let what = format!("denied registration of node {}", self.id);
        self.shared.change.until(BOUND, &what, || self.shared.state().denied.clone()).await
    }

    /// Every push so far.
    pub fn pushes(&self) -> Vec<Push> {
        self.shared.state().pushes.clone()
    }

    /// Waits for the `count`th push of `method` (from 1).
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_push(&self, method: &str, count: usize) -> Result<Push, Late> {
        let what = format!("push {count} of {method} at node {}", self.id);
        let of_method = |push: &&Push| push.message.method == method;
        let look = || self.shared.state().pushes.iter().filter(of_method).nth(count - 1).cloned();
        self.shared.change.until(BOUND, &what, look).await
    }

    /// The pushes since the last call of this, which are forgotten.
    pub fn take_pushes(&self) -> Vec<Push> {
        std::mem::take(&mut self.shared.state().pushes)
    }

    /// The answers since the last call of this that belong to no request that waits; they are forgotten.
    pub fn take_strays(&self) -> Vec<Message> {
        std::mem::take(&mut self.shared.state().strays)
    }

    /// Why it dials no more: a rejected registration (FWD-35), or too many dials in vain. `None` while
    /// it lives.
    pub fn ended(&self) -> Option<String> {
        let why = || self.shared.state().denied.clone().unwrap_or_else(|| "dials in vain".to_owned());
        self.task.is_finished().then(why)
    }

    /// How its connections ended, and when.
    pub fn closes(&self) -> Vec<(Closing, Instant)> {
        self.shared.state().closes.clone()
    }

    /// Waits for the `count`th end of a connection (from 1).
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_close(&self, count: usize) -> Result<Closing, Late> {
        let what = format!("close {count} at node {}", self.id);
        let look = || self.shared.state().closes.get(count - 1).map(|(closing, _)| closing.clone());
        self.shared.change.until(BOUND, &what, look).await
    }

    /// Sends a request with `body` as it is and waits at most ten seconds.
    ///
    /// # Errors
    /// [`CallFailure`]; a refusal is an answer.
    pub async fn request(&self, method: &str, body: &str) -> Result<Message, CallFailure> {
        let carrier = self.carrier().ok_or(CallFailure::NotConnected)?;
        carrier.call(method, body, RESTORE).await
    }

    /// The handle of its connection, for raw frames and cuts.
    pub fn carrier(&self) -> Option<Carrier> {
        self.shared.state().carrier.clone()
    }

    /// Drops the connection and dials no more.
    pub fn stop(&self) {
        self.task.abort();
        if let Some(carrier) = self.shared.state().carrier.take() {
            carrier.cut();
        }
    }
}

impl Drop for PalletNode {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn live(setup: Setup, shared: Arc<Shared>) {
    let mut dials = 0;
    while dials < DIALS {
        dials += 1;
        if let Ok(socket) = websocket(&setup.target, "/", &[]).await {
            dials = 0;
            let (carrier, events) = Carrier::start(socket, Role::Client);
            shared.state().carrier = Some(carrier.clone());
            let (closing, denied) = connected(&setup, &shared, &carrier, events).await;
            {
                let mut state = shared.state();
                state.carrier = None;
                state.closes.push((closing, Instant::now()));
                state.denied.clone_from(&denied);
            }
            shared.change.announce();
            if denied.is_some() {
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Registers and serves until the connection ends; the text is why the relay denied the node.
async fn connected(
    setup: &Setup,
    shared: &Shared,
    carrier: &Carrier,
    mut events: mpsc::Receiver<Event>,
) -> (Closing, Option<String>) {
    let text = setup.registration_text();
    let mut registration = std::pin::pin!(carrier.call("registerPalletRuntimeSession", &text, RESTORE));
    let mut registering = true;
    let broken = Closing { code: None, reason: String::new(), clean: false };
    loop {
        tokio::select! {
            answer = &mut registration, if registering => {
                registering = false;
                let denied = match answer {
                    Ok(message) => match message.outcome() {
                        Ok(_) => {
                            shared.state().registrations.push(message);
                            shared.change.announce();
                            None
                        }
                        Err(refusal) => Some(refusal.text),
                    },
                    Err(CallFailure::NotConnected) => None,
                    Err(failure @ CallFailure::Unanswered(_)) => Some(failure.to_string()),
                };
                if denied.is_some() {
                    carrier.cut();
                    return (broken, denied);
                }
            }
            event = events.recv() => match event {
                Some(Event::Request(message, _)) => pushed(shared, carrier, message).await,
                Some(Event::Stray(message)) => shared.state().strays.push(message),
                Some(Event::Stream(_) | Event::Unreadable(_)) => {}
                Some(Event::Closed(closing)) => return (closing, None),
                None => return (broken, None),
            },
        }
    }
}

async fn pushed(shared: &Shared, carrier: &Carrier, message: Message) {
    let (method, ids) = (message.method.clone(), message.ids.clone());
    let text = {
        let mut state = shared.state();
        let reaction = state.reactions.get(&method).cloned().unwrap_or(Reaction::Acknowledge);
        let text = match reaction {
            Reaction::Acknowledge => match state.answer(&message) {
                Ok(body) => Some(answer(&method, &body, &ids)),
                Err(refused) => Some(refusal(&method, &refused, &ids)),
            },
            Reaction::Answer(body) => Some(answer(&method, &body, &ids)),
            Reaction::Return => Some(answer(&method, &acknowledgement::returned(&message), &ids)),
            Reaction::Refuse(refused) => Some(refusal(&method, &refused, &ids)),
            Reaction::Never => None,
        };
        state.pushes.push(Push { message, at: Instant::now() });
        text
    };
    if let Some(text) = text {
        carrier.send_text(text).await;
    }
    shared.change.announce();
}

#[cfg(test)]
mod tests;
