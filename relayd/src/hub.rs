//! The managed VPN hub as relayd sees it: Cloudly alone compiles the network (VPN-05), relayd admits it and has
//! vpnd serve it as it is (VPN-06), whole (VPN-14), one at a time.
//!
//! A network is held as long as the vpnd that serves it lives (VPN-27, VPN-28, VPN-29): what a former relayd
//! left with it is stated by vpnd itself. A network that is refused, or that the hub cannot take, leaves the held
//! one (VPN-23, VPN-34, VPN-35), and so does every loss of the session.

use std::{collections::VecDeque, time::Duration};

use coreflow_ipc::{
    asks::AskId,
    messages::{
        relayd::VpnFacts,
        vpn_network::{Held, NotApplied, Snapshot},
    },
    now::Now,
    typedrequest::{Answer, Request},
};

use crate::{
    pending::{Due, Pending},
    session::Connection,
};

mod admission;
mod note;
mod offers;
mod reading;
mod snapshot;

use admission::Holding;
pub use note::Note;
use offers::{Applying, Asked};

/// Numbers relayd's links to vpnd, from 1.
pub type Link = u64;

/// What happens on a link to vpnd.
pub enum Told {
    /// A vpnd stated its key and what it holds.
    Linked {
        /// The link.
        link: Link,
        /// Its Noise public key.
        public_key: [u8; 32],
        /// The network that it serves.
        held: Option<Held>,
    },
    /// The link ended.
    Lost {
        /// The link.
        link: Link,
    },
    /// The hub was given a network.
    Applied {
        /// The link.
        link: Link,
        /// Of [`Action::Apply`].
        id: AskId,
        /// Whether it is served now.
        outcome: Result<(), NotApplied>,
    },
}

/// What happens to the hub; Cloudly's answers are [`Hub::cloudly_answered`].
pub enum Event {
    /// The listener is open; the configured hub, if there is one.
    Configured(Option<VpnFacts>),
    /// Vpnd.
    Vpnd(Told),
    /// Cloudly sent `applyClusterVpnNetwork`.
    Dispatch {
        /// The connection that it came by, and that its answer belongs to.
        connection: Connection,
        /// The request.
        request: Request,
    },
    /// The session is dispatchable on a new connection.
    SessionUp,
    /// The session is not dispatchable any more.
    SessionDown,
    /// Cloudly accepted a registration of this relay, changed or not (VPN-24).
    Accepted,
    /// A deadline passed, or may have.
    Tick,
}

/// What the driver does for the hub.
pub enum Action {
    /// Send a frame to Cloudly on the session that stands.
    SendUp(String),
    /// Answer Cloudly, if its connection is still the session's.
    AnswerUp {
        /// The connection that the request came by.
        connection: Connection,
        /// What.
        frame: String,
    },
    /// Have vpnd serve a network.
    Apply {
        /// The link; of another one nobody waits for the answer.
        link: Link,
        /// Copied into the answer.
        id: AskId,
        /// The network, in the daemon's words.
        snapshot: Box<Snapshot>,
    },
    /// What the log says.
    Note(Note),
}

/// The vpnd that lives.
struct Vpnd {
    link: Link,
    public_key: [u8; 32],
    holding: Option<Holding>,
}

/// The hub's state.
#[derive(Default)]
pub struct Hub {
    facts: Option<VpnFacts>,
    session: bool,
    accepted: bool,
    vpnd: Option<Vpnd>,
    applying: Option<Applying>,
    waiting: VecDeque<Asked>,
    next: AskId,
    /// A network came while no vpnd was there to serve it.
    missed: bool,
    up: Pending<()>,
}

impl Hub {
    /// The configured hub that can run, and the key of the vpnd that is it (VPN-41).
    pub fn advertised(&self) -> Option<(&VpnFacts, [u8; 32])> {
        let facts = self.facts.as_ref().filter(|facts| facts.unavailable.is_none())?;
        self.vpnd.as_ref().map(|vpnd| (facts, vpnd.public_key))
    }

    /// Whether there is a hub whose key is still to come.
    pub fn lacks_key(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.unavailable.is_none()) && self.vpnd.is_none()
    }

    /// When [`Event::Tick`] is due, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        [self.up.next_deadline(), self.offers_deadline()].into_iter().flatten().min()
    }

    /// Whether an answer of Cloudly is to what was sent up from here.
    pub fn asked_cloudly(&self, answer: &Answer) -> bool {
        self.up.made(answer)
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Configured(facts) => self.facts = facts,
            Event::Vpnd(Told::Linked { link, public_key, held }) => {
                self.linked(Vpnd { link, public_key, holding: held.map(Holding::Stated) }, now, &mut actions);
            }
            Event::Vpnd(Told::Lost { link }) => {
                if self.is_linked(link) {
                    self.lost(&mut actions);
                }
            }
            Event::Vpnd(Told::Applied { link, id, outcome }) => {
                if self.is_linked(link) {
                    self.applied(id, outcome, &mut actions);
                }
            }
            Event::Dispatch { connection, request } => self.pushed(connection, request, now, &mut actions),
            Event::SessionUp => self.session = true,
            Event::SessionDown => self.session_down(&mut actions),
            Event::Accepted => {
                self.accepted = self.session;
                self.read(now, &mut actions);
            }
            Event::Tick => self.tick(now, &mut actions),
        }
        self.check_invariants();
        actions
    }

    /// Takes an answer of Cloudly; `None` when it answers nothing that was sent up from here.
    pub fn cloudly_answered(&mut self, answer: Answer, now: Now) -> Option<Vec<Action>> {
        let mut actions = Vec::new();
        let (_, outcome) = self.up.answered(answer, now, |()| true)?;
        self.was_read(&outcome, now, &mut actions);
        self.check_invariants();
        Some(actions)
    }

    fn is_linked(&self, link: Link) -> bool {
        self.vpnd.as_ref().is_some_and(|vpnd| vpnd.link == link)
    }

    /// A vpnd is there. What came while none was is asked for again; a new key has the relay register, and the
    /// acceptance that follows asks in any case (VPN-24).
    fn linked(&mut self, vpnd: Vpnd, now: Now, actions: &mut Vec<Action>) {
        if self.vpnd.is_some() {
            self.lost(actions);
        }
        actions.push(Action::Note(Note::Linked { revision: vpnd.holding.as_ref().map(Holding::revision) }));
        self.vpnd = Some(vpnd);
        if self.missed && self.accepted {
            self.read(now, actions);
        }
    }

    /// Nothing is held any more, and what was to be served is not (VPN-29).
    fn lost(&mut self, actions: &mut Vec<Action>) {
        let vpnd = self.vpnd.take().expect("a link that is lost was there");
        actions.push(Action::Note(Note::Lost { revision: vpnd.holding.as_ref().map(Holding::revision) }));
        self.fail_offers(actions);
    }

    /// A network that is being served was Cloudly's to push, whatever becomes of its connection.
    fn session_down(&mut self, actions: &mut Vec<Action>) {
        (self.session, self.accepted) = (false, false);
        for _ in self.up.end_where(|()| true) {
            actions.push(self.not_read("closed".to_owned()));
        }
    }

    fn tick(&mut self, now: Now, actions: &mut Vec<Action>) {
        while let Some(due) = self.up.due(now) {
            match due {
                Due::Resend { frame, .. } => actions.push(Action::SendUp(frame)),
                Due::Expired(_) => actions.push(self.not_read("timeout".to_owned())),
            }
        }
        self.offers_due(now, actions);
    }

    fn holding(&self) -> Option<&Holding> {
        self.vpnd.as_ref().and_then(|vpnd| vpnd.holding.as_ref())
    }

    fn check_invariants(&self) {
        debug_assert!(self.up.len() <= 1, "one read is under way at most");
        debug_assert!(self.session || self.up.is_empty(), "nothing is read without a session");
        debug_assert!(self.vpnd.is_some() || self.applying.is_none(), "only a vpnd is given a network");
        debug_assert!(self.applying.is_some() || self.waiting.is_empty(), "nothing waits for nothing");
    }
}

#[cfg(test)]
mod tests;
