//! A loopback Cloudly: the control plane of a cluster as the relay sees it.
//!
//! By itself it behaves as the contract says: it exchanges a bearer for an identity, registers
//! sessions and relays, hands out cluster config and certificate, and answers the ten methods
//! of a node. It models SES-06, PROT-16, PROT-34, REG-07, REG-18, REG-24, REG-25, REG-30, REG-31,
//! REG-36, REG-63, REG-64, REG-65, LIS-28, FWD-05, FWD-38, OUT-01, OUT-16, OUT-18, ESC-03, ESC-60, ING-01,
//! ING-13, VPN-05, VPN-13, CST-22, PLT-20, PLT-41, PUB-04, PUB-28, PUB-29 and
//! BAK-14. A test makes it differ per method ([`Step`]), by its standing facts ([`Settings`]), or by tearing at
//! connections, and sees how far a dial got ([`Stage`]).

mod closures;
mod corestore;
mod http_answer;
mod ingress;
mod judgement;
mod leases;
mod platform;
mod publications;
mod pulls;
mod recipients;
mod record;
mod rewound;
mod runtime;
mod script;
mod serving;
mod settings;
mod standing;
mod vpn;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::authority::{Authority, Issued, server_config};
use crate::carrier::{CallFailure, Carrier};
use crate::envelope::{Message, Outcome};
use crate::free_port::free_port;
use crate::registry::Registry;
use crate::waiting::{BOUND, Change, Late, poll};

pub use closures::{
    CHUNK, Frame, FrameBody, LARGEST, PROGRESS_TIMEOUT_MS, Replication, StreamName, WINDOW, sha256,
};
pub use ingress::{Route, route_table};
pub use leases::{HOLD, Signed, SignedRun, SigningAuthority, Windows};
pub use platform::{Capability, NodeCorestore, PlatformBinding};
pub use publications::{PublicationFault, mutation_id};
pub use recipients::REVOKED_KEPT;
pub use record::{Call, Stage};
pub use script::{Gate, Step, UPGRADE};
pub use settings::{AnswerForm, Front, Settings};
pub use standing::{AdvertisedHub, StandingRelay};
pub use vpn::{VpnMember, VpnNetwork, in_milliseconds};

use judgement::State;
pub(crate) use judgement::exact;
use pulls::Pulls;

/// What the session and the exchange are spoken over.
const HTTP_1: &[&str] = &["http/1.1"];

/// The running double. Dropping it ends its listener and every connection.
pub struct Cloudly {
    shared: Arc<Shared>,
    port: u16,
    listening: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    change: Change,
    certificate: Issued,
    acceptor: TlsAcceptor,
}

impl Shared {
    fn reached(&self, stage: Stage) {
        *self.state().reached.entry(stage).or_default() += 1;
        self.change.announce();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Cloudly {
    /// Listens on a port of 127.0.0.1 from the system, with a certificate of `authority` for
    /// `localhost`. `settings` are the facts it stands for.
    ///
    /// # Panics
    /// When no port can be bound.
    pub async fn start(authority: &Authority, settings: Settings) -> Self {
        Self::start_on(free_port(), authority, settings).await
    }

    /// [`Cloudly::start`] on a port of 127.0.0.1 that the caller chose.
    ///
    /// # Panics
    /// When the port cannot be bound.
    pub async fn start_on(port: u16, authority: &Authority, settings: Settings) -> Self {
        let certificate = authority.issue(&["localhost"]);
        let acceptor = TlsAcceptor::from(server_config(&certificate, HTTP_1));
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(authority.clone(), settings)),
            change: Change::default(),
            certificate,
            acceptor,
        });
        let listener =
            serving::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("Cloudly's port is free");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let task = tokio::spawn(serving::listen(shared.clone(), listener));
        Self { shared, port, listening: Mutex::new(Some(task)) }
    }

    /// `CLOUDLY_URL` of this double.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The port it listens on, also after [`Cloudly::come_back`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Gives connections to `registry` from now on that begin with another request than Cloudly's own.
    pub fn pulls_from(&self, registry: &Registry) {
        self.shared.state().pulls = Some(Pulls::Registry(registry.clone()));
    }

    /// [`Cloudly::pulls_from`], where a registry of another kind listens at `address`. With `tls` it is spoken
    /// to by TLS and whatever certificate it has is taken.
    pub fn pass_pulls_to(&self, address: SocketAddr, tls: bool) {
        self.shared.state().pulls = Some(Pulls::At(address, tls));
    }

    /// Changes the standing facts.
    pub fn change<T>(&self, change: impl FnOnce(&mut Settings) -> T) -> T {
        change(&mut self.shared.state().settings)
    }

    /// Answers the next request of `method` by `step`; several queue up.
    pub fn once(&self, method: &str, step: Step) {
        self.shared.state().script.once(method, step);
    }

    /// Answers every request of `method` by `step`, once the queued steps are used up.
    pub fn always(&self, method: &str, step: Step) {
        self.shared.state().script.always(method, step);
    }

    /// Forgets every step of `method`.
    pub fn ordinary(&self, method: &str) {
        self.shared.state().script.ordinary(method);
    }

    /// The cluster document of the standing facts, as `getClusterConfig` answers it.
    pub fn config(&self) -> String {
        self.shared.state().config_text()
    }

    /// The bearer is `bearer` from now on and the credential one generation further. Identities
    /// of the old bearer stay valid for their life, but registrations under them are stale
    /// (REG-55), and the old bearer buys no new one (REG-63).
    pub fn rotate_credential(&self, bearer: &str) {
        self.change(|settings| {
            bearer.clone_into(&mut settings.bearer);
            settings.credential_generation += 1;
        });
    }

    /// Every request so far, in order of arrival.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state().calls.clone()
    }

    /// Every request of `method` so far.
    pub fn calls_of(&self, method: &str) -> Vec<Call> {
        self.shared.state().calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// The requests since the last call of this, which are forgotten: what a long run asks, so that they
    /// do not pile up.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.shared.state().calls)
    }

    /// Waits for the `count`th request of `method` (from 1) and gives it.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_for(&self, method: &str, count: usize) -> Result<Call, Late> {
        self.wait_for_within(method, count, BOUND).await
    }

    /// [`Cloudly::wait_for`] with a bound of its own.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_for_within(&self, method: &str, count: usize, bound: Duration) -> Result<Call, Late> {
        let what = format!("request {count} of {method} at Cloudly");
        let look = || self.calls_of(method).into_iter().nth(count - 1);
        self.shared.change.until(bound, &what, look).await
    }

    /// Waits until `count` relay registrations have been accepted since the start.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_accepted(&self, count: u64) -> Result<(), Late> {
        let what = format!("acceptance {count} of a relay registration");
        let look = || (self.acceptances() >= count).then_some(());
        self.shared.change.until(BOUND, &what, look).await
    }

    /// How many relay registrations have been accepted.
    pub fn acceptances(&self) -> u64 {
        self.shared.state().acceptances
    }

    /// How many exchanges of a bearer were asked for.
    pub fn exchanges(&self) -> usize {
        self.calls_of("getIdentityByToken").len()
    }

    /// How many calls tried to set or remove a connection tag (SES-05).
    pub fn tag_calls(&self) -> usize {
        self.shared.state().calls.iter().filter(|call| call.method.starts_with("__typedsocket_")).count()
    }

    /// The jwt of every identity issued so far, oldest first.
    pub fn issued_jwts(&self) -> Vec<String> {
        self.shared.state().identities.keys().cloned().collect()
    }

    /// How many WebSocket connections are open.
    pub fn open_connections(&self) -> usize {
        self.shared.state().connections.len()
    }

    /// How many WebSocket connections were ever opened.
    pub fn connections_seen(&self) -> u64 {
        self.shared.state().connections_seen
    }

    /// How many dials got as far as `stage`.
    pub fn reached(&self, stage: Stage) -> u64 {
        self.shared.state().reached.get(&stage).copied().unwrap_or_default()
    }

    /// Waits until `count` dials have got as far as `stage`.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_reached(&self, stage: Stage, count: u64) -> Result<(), Late> {
        let what = format!("dial {count} that got as far as {stage:?}");
        self.shared.change.until(BOUND, &what, || (self.reached(stage) >= count).then_some(())).await
    }

    /// Waits until exactly `count` WebSocket connections are open.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_open_connections(&self, count: usize) -> Result<(), Late> {
        let what = format!("state with {count} open relay connections");
        self.shared.change.until(BOUND, &what, || (self.open_connections() == count).then_some(())).await
    }

    /// Answers on the socket that belong to no call, as whole texts.
    pub fn strays(&self) -> Vec<String> {
        self.shared.state().strays.clone()
    }

    /// [`Cloudly::strays`], which are forgotten.
    pub fn take_strays(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().strays)
    }

    /// Frames that were no envelope, as whole texts.
    pub fn unreadable(&self) -> Vec<String> {
        self.shared.state().unreadable.clone()
    }

    /// The binding in force for a node, as issued on any open connection.
    pub fn binding_of(&self, node: &str) -> Option<String> {
        self.shared.state().connections.values().rev().find_map(|open| open.binding_of(node))
    }

    /// What the relay answered to the pushes that were owed to nodes, in their order (OUT-16).
    pub fn deliveries(&self) -> Vec<(String, Result<Outcome, CallFailure>)> {
        let state = self.shared.state();
        let copy = |(node, answer): &(String, Result<Message, CallFailure>)| {
            (node.clone(), answer.clone().map(|message| message.outcome()))
        };
        state.deliveries.iter().map(copy).collect()
    }

    /// Asks the relay on its newest registered connection and waits at most Cloudly's own ten
    /// seconds (FWD-37).
    ///
    /// # Errors
    /// [`CallFailure`]; a refusal is an answer, see [`Message::outcome`].
    pub async fn push(&self, method: &str, body: &str) -> Result<Message, CallFailure> {
        self.push_within(method, body, Duration::from_secs(10)).await
    }

    /// [`Cloudly::push`] with a bound of its own.
    ///
    /// # Errors
    /// [`CallFailure`].
    pub async fn push_within(
        &self,
        method: &str,
        body: &str,
        bound: Duration,
    ) -> Result<Message, CallFailure> {
        let carrier = self.carrier().ok_or(CallFailure::NotConnected)?;
        carrier.call(method, body, bound).await
    }

    /// Computes the cluster's route table, JSON text, and pushes it.
    ///
    /// # Errors
    /// [`CallFailure`]; a refusal is an answer.
    pub async fn push_routes(&self, table: &str) -> Result<Message, CallFailure> {
        self.change(|settings| settings.route_table = Some(table.to_owned()));
        self.push("pushClusterRouteTable", &format!(r#"{{"routeTable":{table}}}"#)).await
    }

    /// The handle of the newest registered connection, for raw frames, closes and cuts.
    pub fn carrier(&self) -> Option<Carrier> {
        self.shared.state().registered_carrier()
    }

    /// Drops every WebSocket connection at once, without a close frame; the listener stays.
    pub fn drop_connections(&self) {
        self.shared.state().cut_all();
        self.shared.change.announce();
    }

    /// Closes every WebSocket connection with a close frame.
    pub async fn close_connections(&self, code: u16) {
        let carriers: Vec<Carrier> = self.shared.state().carriers();
        for carrier in carriers {
            carrier.close(Some(code)).await;
        }
    }

    /// Stops listening and drops every connection.
    pub async fn go_away(&self) {
        let listening = self.listening.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = listening {
            task.abort();
            drop(task.await);
        }
        self.drop_connections();
    }

    /// Listens again on the same port. What it knew of identities and acceptances it still
    /// knows; the bindings of the old connections are gone (OUT-01).
    ///
    /// # Errors
    /// [`Late`] when the port does not become free.
    pub async fn come_back(&self) -> Result<(), Late> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener = poll(BOUND, "Cloudly's port free again", || serving::bind(address).ok()).await?;
        let task = tokio::spawn(serving::listen(self.shared.clone(), listener));
        let mut listening = self.listening.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(former) = listening.replace(task) {
            former.abort();
        }
        Ok(())
    }
}

impl Drop for Cloudly {
    fn drop(&mut self) {
        let mut listening = self.listening.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(task) = listening.take() {
            task.abort();
        }
        self.shared.state().cut_all();
    }
}

/// The relay's carriers and their state, by connection number (from 1).
type Connections = BTreeMap<u64, judgement::Connection>;

#[cfg(test)]
mod tests;
