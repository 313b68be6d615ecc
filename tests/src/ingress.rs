//! The cluster ingress: dials the relay's listener as a node does, registers with a bearer of its own,
//! pulls the route table, and terminates TLS with it.
//!
//! It models ING-01 (TLS for the hosts of the table, forwarded to their destinations) and ING-19 (a hint is
//! answered, and followed by a pull with the revision that is applied). Refused with `retryAfterMs`, it
//! comes again after that time. A test makes it answer otherwise by [`Reaction`].

mod destination;
mod termination;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::Role;

pub use destination::Destination;

use crate::carrier::{Carrier, Event};
use crate::dial::{Target, websocket};
use crate::envelope::{Message, Refusal, UNKNOWN_METHOD, answer, random_hex, refusal};
use crate::offer::Offer;
use crate::waiting::{BOUND, Change, Late};

use termination::Termination;

const REGISTER: &str = "registerClusterIngress";
const PULL: &str = "getClusterIngressRouteTable";
const HINT: &str = "pushClusterIngressRouteTableChanged";
const STATISTICS: &str = "getClusterTrafficStatistics";
/// The pause before a new dial.
const PAUSE: Duration = Duration::from_millis(200);
/// Dials in a row before it gives up.
const DIALS: u32 = 300;
/// How long it waits for an answer of the relay.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the ingress answers what it is asked.
#[derive(Debug, Clone)]
pub enum Reaction {
    /// As the contract says: a hint by `{}`, statistics by an empty page.
    Ordinary,
    /// With this JSON text as `response`.
    Answer(String),
    /// With a refusal.
    Refuse(Refusal),
    /// Not at all.
    Never,
}

/// Who the ingress is and where it dials.
#[derive(Clone)]
pub struct Setup {
    /// The relay. Its client configuration offers ALPN `http/1.1`.
    pub target: Target,
    /// The node that the ingress runs on.
    pub node_id: String,
    /// Its own bearer.
    pub bearer: String,
    /// One per process of the ingress.
    pub nonce: String,
    /// The offer on `clusterIngress`.
    pub offer: Offer,
    /// The whole registration body, in the place of the composed one.
    pub registration: Option<String>,
}

impl Setup {
    /// An ingress of the default Cloudly settings.
    pub fn new(target: Target, node_id: &str) -> Self {
        Self {
            target,
            node_id: node_id.to_owned(),
            bearer: format!("ingress-bearer-of-{node_id}"),
            nonce: random_hex::<16>(),
            offer: Offer::new("33.1.0", "32.0.0"),
            registration: None,
        }
    }

    /// The registration's body.
    pub fn registration_text(&self) -> String {
        self.registration.clone().unwrap_or_else(|| {
            json!({
                "protocol": self.offer.json(),
                "authorization": self.bearer,
                "nodeId": self.node_id,
                "ingressInstanceNonce": self.nonce,
            })
            .to_string()
        })
    }
}

#[derive(Default)]
struct State {
    reactions: BTreeMap<String, Reaction>,
    registrations: Vec<Message>,
    refusals: Vec<Refusal>,
    asked: Vec<Message>,
    pulls: Vec<Message>,
    carrier: Option<Carrier>,
}

struct Shared {
    state: Mutex<State>,
    change: Change,
    termination: Termination,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The running ingress. Dropping it drops its connection and its listener.
pub struct ClusterIngress {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl ClusterIngress {
    /// Listens on a port of 127.0.0.1 and starts dialling the relay.
    pub async fn start(setup: Setup) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            change: Change::default(),
            termination: Termination::start().await,
        });
        Self { task: tokio::spawn(live(setup, shared.clone())), shared }
    }

    /// Answers every request of `method` by `reaction`.
    pub fn react(&self, method: &str, reaction: Reaction) {
        self.shared.state().reactions.insert(method.to_owned(), reaction);
    }

    /// Where it terminates TLS.
    pub fn address(&self) -> SocketAddr {
        self.shared.termination.address()
    }

    /// The revision of the table that it serves.
    pub fn applied(&self) -> Option<u64> {
        self.shared.termination.revision()
    }

    /// Waits for its `count`th registration (from 1) and gives the answer.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_registered(&self, count: usize) -> Result<Message, Late> {
        let what = format!("registration {count} of the ingress");
        self.until(&what, |state| state.registrations.get(count - 1).cloned()).await
    }

    /// Waits for the `count`th refusal of a registration (from 1).
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_refused(&self, count: usize) -> Result<Refusal, Late> {
        let what = format!("refusal {count} of the ingress");
        self.until(&what, |state| state.refusals.get(count - 1).cloned()).await
    }

    /// Waits for the `count`th answer to a pull (from 1).
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_pulled(&self, count: usize) -> Result<Message, Late> {
        self.until(&format!("pull {count} of the ingress"), |state| state.pulls.get(count - 1).cloned()).await
    }

    /// Waits until it serves the table of this revision.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_applied(&self, revision: u64) -> Result<(), Late> {
        let what = format!("table of revision {revision} at the ingress");
        self.until(&what, |_| (self.applied() == Some(revision)).then_some(())).await
    }

    /// Waits for the `count`th request of `method` (from 1).
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_asked(&self, method: &str, count: usize) -> Result<Message, Late> {
        let what = format!("request {count} of {method} at the ingress");
        let of_method = |message: &&Message| message.method == method;
        self.until(&what, |state| state.asked.iter().filter(of_method).nth(count - 1).cloned()).await
    }

    /// Every request of `method` so far.
    pub fn asked(&self, method: &str) -> Vec<Message> {
        self.shared.state().asked.iter().filter(|message| message.method == method).cloned().collect()
    }

    /// The handle of its connection, for raw frames and cuts.
    pub fn carrier(&self) -> Option<Carrier> {
        self.shared.state().carrier.clone()
    }

    async fn until<T>(&self, what: &str, look: impl Fn(&State) -> Option<T>) -> Result<T, Late> {
        self.shared.change.until(BOUND, what, || look(&self.shared.state())).await
    }
}

impl Drop for ClusterIngress {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(carrier) = self.shared.state().carrier.take() {
            carrier.cut();
        }
    }
}

async fn live(setup: Setup, shared: Arc<Shared>) {
    let mut dials = 0;
    while dials < DIALS {
        dials += 1;
        let mut pause = PAUSE;
        if let Ok(socket) = websocket(&setup.target, "/", &[]).await {
            dials = 0;
            let (carrier, events) = Carrier::start(socket, Role::Client);
            shared.state().carrier = Some(carrier.clone());
            pause = connected(&setup, &shared, &carrier, events).await;
            shared.state().carrier = None;
            carrier.cut();
            shared.change.announce();
        }
        tokio::time::sleep(pause).await;
    }
}

/// Registers, pulls, and answers until the connection ends; gives the pause before the next dial.
async fn connected(
    setup: &Setup,
    shared: &Shared,
    carrier: &Carrier,
    mut events: mpsc::Receiver<Event>,
) -> Duration {
    let Ok(registered) = carrier.call(REGISTER, &setup.registration_text(), PATIENCE).await else {
        return PAUSE;
    };
    match registered.outcome() {
        Ok(_) => shared.state().registrations.push(registered),
        Err(refusal) => {
            let wait = refusal.data["retryAfterMs"].as_u64();
            shared.state().refusals.push(refusal);
            shared.change.announce();
            return wait.map_or(PAUSE, Duration::from_millis);
        }
    }
    shared.change.announce();
    pull(shared, carrier).await;
    while let Some(event) = events.recv().await {
        match event {
            Event::Request(message, _) => asked(shared, carrier, message).await,
            Event::Stray(_) | Event::Stream(_) | Event::Unreadable(_) => {}
            Event::Closed(_) => break,
        }
    }
    PAUSE
}

async fn asked(shared: &Shared, carrier: &Carrier, message: Message) {
    let (method, ids) = (message.method.clone(), message.ids.clone());
    let reaction = shared.state().reactions.get(&method).cloned().unwrap_or(Reaction::Ordinary);
    let text = match reaction {
        Reaction::Ordinary => match method.as_str() {
            HINT => Some(answer(&method, "{}", &ids)),
            STATISTICS => Some(answer(&method, r#"{"entries":[],"cursor":null}"#, &ids)),
            _ => Some(refusal(&method, &Refusal::new(UNKNOWN_METHOD), &ids)),
        },
        Reaction::Answer(body) => Some(answer(&method, &body, &ids)),
        Reaction::Refuse(refused) => Some(refusal(&method, &refused, &ids)),
        Reaction::Never => None,
    };
    shared.state().asked.push(message);
    shared.change.announce();
    let Some(text) = text else { return };
    carrier.send_text(text).await;
    if method == HINT {
        pull(shared, carrier).await;
    }
}

async fn pull(shared: &Shared, carrier: &Carrier) {
    let body = json!({"appliedRevision": shared.termination.revision()}).to_string();
    let Ok(pulled) = carrier.call(PULL, &body, PATIENCE).await else { return };
    if let Ok(body) = pulled.outcome() {
        let body: Value = serde_json::from_str(body.get()).expect("a member of a JSON object is JSON");
        shared.termination.apply(&body["routeTable"]);
    }
    shared.state().pulls.push(pulled);
    shared.change.announce();
}

#[cfg(test)]
mod tests;
