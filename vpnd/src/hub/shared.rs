//! What the tasks of the hub share: the view that packets go by, read without a lock, and everything that
//! changes seldom, behind one.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
};

use arc_swap::ArcSwap;
use coreflow_ipc::messages::vpn_network::NotApplied;
use quinn::Connection;
use tokio::sync::{Notify, oneshot};
use tracing::info;

use super::{
    ReadClock,
    admission::{Admission, Number},
    budget::Budget,
    counters::{Counters, Ending, Traffic},
    membership::{Action, Membership},
    network::{Member, Network},
    slots::Slots,
    view::{SessionId, View},
};
use crate::constants::DATAGRAM_SEND_BUFFER;
use crate::protocol::{close::Close, closing::close, egress::FragmentIds, noise::StaticKey};

/// One node's tunnel.
pub(super) struct Leg {
    pub(super) session: SessionId,
    /// The node's public key.
    pub(super) key: [u8; 32],
    pub(super) connection: Connection,
    pub(super) node_id: String,
    pub(super) address: Ipv4Addr,
    /// Unix milliseconds of its admission.
    pub(super) since: u64,
    pub(super) received: Traffic,
    pub(super) sent: Traffic,
    pub(super) fragments: Mutex<FragmentIds>,
}

impl Leg {
    /// The bytes that wait to be sent, the queue's own counted.
    pub(super) fn waiting(&self) -> usize {
        DATAGRAM_SEND_BUFFER.saturating_sub(self.connection.datagram_send_buffer_space())
    }
}

/// A view, with the tunnel of each of its sessions.
#[derive(Default)]
pub(super) struct Legs {
    pub(super) view: Option<Arc<View>>,
    by_place: Slots<Arc<Leg>>,
}

impl Legs {
    /// The tunnel of the member at `place`.
    pub(super) fn at(&self, place: usize) -> Option<&Arc<Leg>> {
        self.by_place.get(place)
    }

    /// The bytes that wait in the tunnels' queues, and how many tunnels there are.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.by_place.iter().fold((0, 0), |(bytes, legs), (_, leg)| (bytes + leg.waiting(), legs + 1))
    }
}

/// What changes seldom.
#[derive(Default)]
pub(super) struct State {
    pub(super) membership: Membership,
    pub(super) admission: Admission,
    /// Ends each handshake whose place another was given.
    pub(super) places: BTreeMap<Number, oneshot::Sender<()>>,
    /// The tunnels of the published view, and of what is about to be in it.
    legs: BTreeMap<SessionId, Arc<Leg>>,
    last_session: SessionId,
    stopped: bool,
}

impl State {
    /// The tunnels there are.
    pub(super) fn legs(&self) -> impl Iterator<Item = &Leg> {
        self.legs.values().map(Arc::as_ref)
    }
}

/// The hub.
pub(super) struct Shared {
    pub(super) key: Arc<StaticKey>,
    pub(super) clock: ReadClock,
    pub(super) bound: SocketAddr,
    pub(super) legs: ArcSwap<Legs>,
    pub(super) counters: Counters,
    pub(super) budget: Budget,
    /// The next deadline may be another.
    pub(super) deadline_moved: Notify,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn new(key: Arc<StaticKey>, clock: ReadClock, bound: SocketAddr) -> Self {
        Self {
            key,
            clock,
            bound,
            legs: ArcSwap::default(),
            counters: Counters::default(),
            budget: Budget::default(),
            deadline_moved: Notify::new(),
            state: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of it panics")
    }

    /// Serves `network`; when this returns no packet goes by the former one, and whom it withdraws is closed.
    pub(super) fn apply(&self, network: Arc<Network>) -> Result<(), NotApplied> {
        let mut state = self.state();
        let actions = state.membership.apply(network, (self.clock)())?;
        self.perform(&mut state, actions);
        Ok(())
    }

    /// The peer of `connection` proved to be `member`, and was told so.
    ///
    /// # Errors
    /// It is no member any more, or another than it was told, or the hub stops.
    pub(super) fn admit(&self, connection: Connection, member: &Member) -> Result<Arc<Leg>, Close> {
        let now = (self.clock)();
        let mut state = self.state();
        if state.stopped {
            return Err(Close::Stopping);
        }
        if !state.membership.has(member) {
            return Err(Close::Withdrawn);
        }
        state.last_session += 1;
        let session = state.last_session;
        let leg = Arc::new(Leg {
            session,
            key: member.key,
            connection,
            node_id: member.node_id.clone(),
            address: member.address,
            since: now.wall,
            received: Traffic::default(),
            sent: Traffic::default(),
            fragments: Mutex::default(),
        });
        state.legs.insert(session, Arc::clone(&leg));
        let actions = state.membership.proven(session, &member.key, now);
        self.perform(&mut state, actions);
        if !state.legs.contains_key(&session) {
            return Err(Close::NotAdmitted);
        }
        self.counters.admitted.add(1);
        info!(node = leg.node_id, address = %leg.address, remote = %leg.connection.remote_address(),
            "a node's tunnel is open");
        Ok(leg)
    }

    /// A tunnel ended by itself.
    pub(super) fn ended(&self, session: SessionId, ending: Ending) {
        let mut state = self.state();
        // Otherwise it was ended from here, and counted then.
        let Some(leg) = state.legs.remove(&session) else { return };
        self.over(&leg, ending);
        let actions = state.membership.closed(session);
        self.perform(&mut state, actions);
    }

    /// Ends every tunnel, and begins none any more. Nothing is left then for the ends to be noted in, so that all
    /// the time there is goes to telling the nodes.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        let legs = std::mem::take(&mut state.legs);
        self.legs.store(Arc::default());
        drop(state);
        for leg in legs.values() {
            close(&leg.connection, Close::Stopping);
        }
        // A line for each of thousands would take the time in which they are told.
        legs.values().for_each(|_| self.counters.ended(Ending::Closed(Close::Stopping)));
        info!(sessions = legs.len(), "the hub stops; every tunnel ends");
    }

    /// Time passed.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        let actions = state.membership.tick((self.clock)());
        self.perform(&mut state, actions);
    }

    fn perform(&self, state: &mut State, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Publish(view) => self.publish(state, view),
                Action::Admit(_) => {}
                Action::Refuse(session) => drop(state.legs.remove(&session)),
                Action::Close(session, why) => {
                    let Some(leg) = state.legs.remove(&session) else { continue };
                    close(&leg.connection, why);
                    self.over(&leg, Ending::Closed(why));
                }
            }
        }
        self.deadline_moved.notify_one();
    }

    fn publish(&self, state: &State, view: Arc<View>) {
        let former = self.legs.load();
        let leg_of = |session: &SessionId| state.legs.get(session).cloned();
        let by_place = match &former.view {
            Some(shown) => view.sessions().made_from(shown.sessions(), &former.by_place, leg_of),
            None => view.sessions().made_from(&Slots::default(), &Slots::default(), leg_of),
        };
        self.legs.store(Arc::new(Legs { view: Some(view), by_place }));
    }

    fn over(&self, leg: &Leg, ending: Ending) {
        self.counters.ended(ending);
        info!(node = leg.node_id, address = %leg.address, why = ending.name(), "a node's tunnel ended");
    }
}
