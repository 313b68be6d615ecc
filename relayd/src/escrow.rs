//! The DNS lease renewal escrow: holds the renewals that Cloudly signed ahead for each carried node, in
//! memory, and hands a node the one whose window is current only while the relay has no session (ESC).
//!
//! The escrow signs, verifies and invents nothing: all it can offer is Cloudly's own statement, byte for
//! byte (ESC-02, ESC-67). Whatever becomes of an offer is the node's to judge by its own clock (ESC-44).
//! Where a hold came from is decided by who calls [`Escrow::handle`] with it: the router of the Cloudly
//! session alone (ESC-05, ESC-07).

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use coreflow_ipc::{
    now::Now,
    typedrequest::{Answer, Request, UNKNOWN_METHOD, plain_refusal},
};

use crate::{
    constants::{CLOCK_JUMP, CLOCK_LOOK, ESCROW_HOLDS, ESCROWED_RUNS},
    contract::{renewal::Projection, runtime::Binding, values::Id},
    forwarder::Socket,
    pending::Pending,
    session::Connection,
};

mod agenda;
mod custody;
mod dropping;
mod holds;
mod known;
mod notes;
mod precedence;
mod release;
mod run;
mod standing;

use agenda::Agenda;
use custody::Custody;
pub use dropping::RegistrationRefusal;
use holds::Arrived;
use known::Known;
pub use notes::{Dropped, Failure, Note};
use release::Offer;
use run::Held;
pub use standing::Counts;

/// Who is carried: the forwarder's part of what the escrow decides.
pub trait Carried {
    /// The binding that a carried node has at this moment, and the socket that it is carried on.
    fn carried(&self, node: &Id) -> Option<(&Binding, Socket)>;
}

/// What happens to the escrow.
pub enum Event {
    /// A `holdRuntimeNetworkDnsLeaseRenewals` arrived on the Cloudly router.
    Hold {
        /// The connection that it came by, and that its answer belongs to.
        connection: Connection,
        /// The request.
        request: Request,
    },
    /// A node answered something; what is no answer to an offer is passed over.
    NodeAnswered {
        /// Where it came from.
        socket: Socket,
        /// The answer.
        answer: Answer,
    },
    /// Cloudly issued the node a binding, which `carried` states from here on (ESC-46, ESC-47).
    Registered {
        /// The node.
        node: Id,
    },
    /// A node acknowledged a projection, read with
    /// [`crate::contract::renewal::binders::bind_projection_acknowledgement`] (FWD-33).
    Acknowledged {
        /// The session that it was pushed in.
        session: Binding,
        /// What the node has in it.
        projection: Projection,
    },
    /// The socket of a carried node ended.
    Gone {
        /// The node.
        node: Id,
    },
    /// The session is dispatchable: `controlPlaneReady` is true.
    SessionUp,
    /// The session is not dispatchable any more.
    SessionDown,
    /// Cloudly refused a registration of this relay; `error.text` as it is.
    RegistrationRefused {
        /// Matched exactly (ESC-51).
        text: String,
    },
    /// Cloudly accepted a registration of this relay.
    RegistrationAccepted,
    /// The relay is parked (ESC-59).
    Parked,
    /// The listener stops (ESC-40).
    Stop,
    /// A deadline passed, or may have.
    Tick,
}

/// What the driver does for the escrow, in this order.
pub enum Action {
    /// Answer a hold, if its connection is still the session's.
    AnswerUp {
        /// The connection that the hold came by.
        connection: Connection,
        /// What.
        frame: String,
    },
    /// Offer a renewal to a node.
    SendDown {
        /// To whom.
        socket: Socket,
        /// What.
        frame: String,
    },
    /// What the log says.
    Note(Note),
}

/// The escrow's state. No Debug: it holds what Cloudly signed.
pub struct Escrow {
    custody: Custody,
    session: bool,
    arrived: VecDeque<Arrived>,
    runs: BTreeMap<Id, Held>,
    /// The number of the run that was held last.
    numbers: u64,
    known: Known,
    offers: Pending<Offer>,
    agenda: Agenda,
    clocks: Option<Now>,
    sweep: Duration,
    counts: Counts,
}

impl Default for Escrow {
    fn default() -> Self {
        Self {
            custody: Custody::default(),
            session: false,
            arrived: VecDeque::new(),
            runs: BTreeMap::new(),
            numbers: 0,
            known: Known::default(),
            offers: Pending::of_owners(|offer| offer.run),
            agenda: Agenda::default(),
            clocks: None,
            sweep: Duration::ZERO,
            counts: Counts::default(),
        }
    }
}

impl Escrow {
    /// An escrow that holds nothing yet; in a service whose relay is parked it never will (ESC-54).
    pub fn resume(parked: bool) -> Self {
        let stale = RegistrationRefusal::CredentialGenerationStale;
        let custody = if parked { Custody::Ended(stale) } else { Custody::Open };
        Self { custody, ..Self::default() }
    }

    /// When [`Event::Tick`] is due, on the monotonic clock: at once while a hold waits for its validation,
    /// and otherwise only without a session (ESC-38, ESC-39).
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        if !self.arrived.is_empty() {
            return Some(now.mono);
        }
        let look = (!self.session && !self.runs.is_empty()).then(|| self.last_look(now) + CLOCK_LOOK);
        [self.agenda.next_deadline(now), self.offers.next_deadline(), look].into_iter().flatten().min()
    }

    /// Whether an answer of a socket is to an offer.
    pub fn offered(&self, answer: &Answer) -> bool {
        self.offers.made(answer)
    }

    /// How many runs are held.
    pub fn held(&self) -> usize {
        self.runs.len()
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Now, carried: &impl Carried) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Hold { connection, request } => {
                self.arrives(connection, request, now, carried, &mut actions);
            }
            Event::NodeAnswered { socket, answer } => self.answered(socket, answer, now, &mut actions),
            Event::Registered { node } => self.registered(&node, now, carried, &mut actions),
            Event::Acknowledged { session, projection } => {
                self.acknowledges(session, projection, carried, &mut actions);
            }
            Event::Gone { node } => self.gone(&node, now, &mut actions),
            Event::SessionUp => self.session_up(now),
            Event::SessionDown => {
                (self.session, self.clocks) = (false, Some(now));
                self.release_all(now, carried, &mut actions);
            }
            Event::RegistrationRefused { text } => {
                if let Some(refusal) =
                    RegistrationRefusal::named(&text).filter(|refusal| refusal.ends_custody())
                {
                    self.end(Custody::Ended(refusal), &mut actions);
                }
            }
            Event::RegistrationAccepted => self.custody.accepted(),
            Event::Parked => {
                self.end(Custody::Ended(RegistrationRefusal::CredentialGenerationStale), &mut actions);
            }
            Event::Stop => self.end(Custody::Stopped, &mut actions),
            Event::Tick => self.tick(now, carried, &mut actions),
        }
        self.check_invariants();
        actions
    }

    /// Another session ends custody of the node's run; the same one keeps it (ESC-46, ESC-47).
    fn registered(&mut self, node: &Id, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        let (Some(held), Some((binding, _))) = (self.runs.get(node), carried.carried(node)) else { return };
        if *binding != held.binding {
            self.drop_run(node, Dropped::OtherSession, actions);
        } else {
            self.release(node, now, carried, actions);
        }
    }

    /// A node admits projections only forward, and never a renewal of one that it replaced (ESC-48,
    /// ESC-49, FWD-33). What it says late of a former session is nothing to the one that it is carried in.
    fn acknowledges(
        &mut self,
        session: Binding,
        projection: Projection,
        carried: &impl Carried,
        actions: &mut Vec<Action>,
    ) {
        let node = session.node_id.clone();
        if carried.carried(&node).is_none_or(|(binding, _)| *binding != session) {
            return;
        }
        if self.runs.get(&node).is_some_and(|held| !precedence::renews(&held.run.projection, &projection)) {
            self.drop_run(&node, Dropped::ProjectionReplaced, actions);
        }
        self.known.acknowledges(session, projection);
    }

    /// Nobody answers the offer on its way. The run stays: the node may be back with the same binding.
    fn gone(&mut self, node: &Id, now: Now, actions: &mut Vec<Action>) {
        self.known.forget(node);
        let Some(held) = self.runs.get(node) else { return };
        for ended in self.offers.end_of(held.number) {
            self.failed(&ended.purpose, Failure::Gone, now, actions);
        }
    }

    /// Cloudly signs and delivers again: nothing more is offered (ESC-38).
    fn session_up(&mut self, now: Now) {
        self.session = true;
        self.offers.end_where(|_| true);
        self.agenda.clear();
        self.runs.values_mut().for_each(|held| held.pause(now.wall));
    }

    /// Ends custody of everything; the holds on their way here are refused (ESC-50, ESC-58, ESC-59). What nodes
    /// acknowledged stays known: no later hold may renew what they replaced (ESC-48).
    fn end(&mut self, custody: Custody, actions: &mut Vec<Action>) {
        self.custody.end(custody);
        self.agenda.clear();
        self.offers.end_where(|_| true);
        let runs = std::mem::take(&mut self.runs).len();
        for arrived in std::mem::take(&mut self.arrived) {
            let outcome = self
                .custody
                .refused()
                .map_or_else(|| plain_refusal(UNKNOWN_METHOD), |refused| refused.outcome());
            actions.push(arrived.answer(&outcome));
        }
        if runs > 0 {
            actions.push(Action::Note(Note::CustodyEnded { runs, why: self.custody.reason() }));
        }
    }

    fn drop_run(&mut self, node: &Id, why: Dropped, actions: &mut Vec<Action>) {
        if self.remove(node) {
            actions.push(Action::Note(Note::Dropped { node: node.clone(), why }));
        }
    }

    fn remove(&mut self, node: &Id) -> bool {
        self.agenda.remove(node);
        let Some(held) = self.runs.remove(node) else { return false };
        self.offers.end_of(held.number);
        true
    }

    fn tick(&mut self, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        if self.sweep <= now.mono {
            self.sweep = now.mono + CLOCK_LOOK;
            self.forget_gone(now, carried, actions);
        }
        let jumped = self.clocks.is_some_and(|last| {
            let passed = now.mono.saturating_sub(last.mono).as_millis();
            let expected = u128::from(last.wall) + passed;
            u128::from(now.wall).abs_diff(expected) > CLOCK_JUMP.as_millis()
        });
        self.clocks = Some(now);
        self.expire_offers(now, carried, actions);
        if jumped {
            self.release_all(now, carried, actions);
        }
        while let Some(node) = self.agenda.due(now) {
            self.release(&node, now, carried, actions);
        }
        while let Some(first) = self.arrived.pop_front() {
            self.apply(&first, now, carried, actions);
        }
    }

    /// Runs of nodes that are gone do not pile up; nobody's release finds that they ended (ESC-57).
    fn forget_gone(&mut self, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        let gone = |node: &Id| carried.carried(node).is_none();
        let ended = self.runs.iter().filter(|(node, held)| held.has_ended(now.wall) && gone(node));
        let ended: Vec<Id> = ended.map(|(node, _)| node.clone()).collect();
        ended.iter().for_each(|node| self.drop_run(node, Dropped::Ended, actions));
    }

    fn last_look(&self, now: Now) -> Duration {
        self.clocks.map_or(now.mono, |last| last.mono)
    }

    fn check_invariants(&self) {
        debug_assert!(self.arrived.len() <= ESCROW_HOLDS && self.runs.len() <= ESCROWED_RUNS);
        debug_assert!(self.offers.len() <= self.runs.len(), "at most one offer in flight per run");
        debug_assert!(!self.session || self.offers.is_empty(), "nothing is offered while the session stands");
    }
}

#[cfg(test)]
mod tests;
