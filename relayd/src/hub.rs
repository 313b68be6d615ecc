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
    typedrequest::{Answer, Body, Request},
};

use crate::{
    constants::HUB_KEY_HOLD,
    pending::{Due, Pending},
    session::Connection,
};

mod admission;
mod giving;
mod note;
mod offers;
mod reading;
pub mod snapshot;

use admission::Holding;
use giving::Applying;
pub use note::Note;
use offers::{Asked, Asker, Validating};
use reading::Rereads;
pub use reading::{Carried, Offered, read_carried};

/// Numbers relayd's links to vpnd, from 1.
pub type Link = u64;

/// Numbers the validations of networks, from 1.
pub type Job = u64;

/// What happens on a link to vpnd, or to vpnd itself.
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
    /// The supervisor cannot start a vpnd any more (VPN-36).
    Unavailable {
        /// Why, by name.
        why: String,
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
    /// A network was validated.
    Validated {
        /// Of [`Action::Validate`].
        job: Job,
        /// What [`read_carried`] made of the body.
        carried: Carried,
    },
    /// The session is dispatchable on a new connection.
    SessionUp,
    /// The session is not dispatchable any more.
    SessionDown,
    /// Cloudly accepted a registration of this relay, changed or not (VPN-24).
    Accepted,
    /// The relay is parked: Cloudly is asked for nothing any more (REG-57).
    Parked,
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
    /// Read a body beside the core, by [`read_carried`]: one at a time.
    Validate {
        /// Copied into [`Event::Validated`].
        job: Job,
        /// What carries the network.
        body: Body,
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
    /// Why no hub can run, while none is configured yet.
    unavailable: Option<String>,
    session: bool,
    accepted: bool,
    vpnd: Option<Vpnd>,
    /// The latest link there was.
    latest: Link,
    /// The key of a vpnd whose link is gone, and until when it is advertised all the same.
    former: Option<([u8; 32], Duration)>,
    unread: VecDeque<Asked<Body>>,
    validating: Option<Validating>,
    jobs: Job,
    waiting: VecDeque<Asked<Offered>>,
    applying: Option<Applying>,
    next: AskId,
    rereads: Rereads,
    up: Pending<()>,
}

impl Hub {
    /// The configured hub that can run, and the key of the vpnd that is it (VPN-41). While a link is made anew it is
    /// the former one's for a while, so that a registration in between does not withdraw a hub that serves.
    pub fn advertised(&self) -> Option<(&VpnFacts, [u8; 32])> {
        let facts = self.facts.as_ref().filter(|facts| facts.unavailable.is_none())?;
        let linked = self.vpnd.as_ref().map(|vpnd| vpnd.public_key);
        linked.or(self.former.map(|(public_key, _)| public_key)).map(|public_key| (facts, public_key))
    }

    /// Whether there is a hub whose key is still to come.
    pub fn lacks_key(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.unavailable.is_none()) && self.advertised().is_none()
    }

    /// When [`Event::Tick`] is due, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        let former = self.former.map(|(_, until)| until);
        [self.up.next_deadline(), self.offers_deadline(), self.rereads.next_deadline(), former]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether an answer of Cloudly is to what was sent up from here.
    pub fn asked_cloudly(&self, answer: &Answer) -> bool {
        self.up.made(answer)
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Configured(mut facts) => {
                if let Some(facts) = &mut facts {
                    facts.unavailable = facts.unavailable.take().or(self.unavailable.take());
                }
                self.facts = facts;
            }
            Event::Vpnd(Told::Linked { link, public_key, held }) => {
                self.linked(Vpnd { link, public_key, holding: held.map(Holding::Stated) }, now, &mut actions);
            }
            Event::Vpnd(Told::Lost { link }) => {
                if self.is_linked(link) {
                    self.lost(now, &mut actions);
                }
            }
            Event::Vpnd(Told::Applied { link, id, outcome }) => {
                if self.is_linked(link) {
                    self.applied(id, outcome, now, &mut actions);
                }
            }
            Event::Vpnd(Told::Unavailable { why }) => match &mut self.facts {
                Some(facts) => facts.unavailable = Some(why),
                // The facts were read before, and are configured once the listener is open.
                None => self.unavailable = Some(why),
            },
            Event::Dispatch { connection, request: Request { ids, body, .. } } => {
                self.offered(Asker::Push { connection, ids }, body, now, &mut actions);
            }
            Event::Validated { job, carried } => self.validated(job, carried, now, &mut actions),
            Event::SessionUp => self.session = true,
            Event::SessionDown => self.session_down(now, &mut actions),
            Event::Accepted => {
                self.accepted = self.session;
                self.read(now, &mut actions);
            }
            Event::Parked => {
                self.accepted = false;
                self.rereads.settle();
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
        self.was_read(outcome, now, &mut actions);
        self.check_invariants();
        Some(actions)
    }

    fn is_linked(&self, link: Link) -> bool {
        self.vpnd.as_ref().is_some_and(|vpnd| vpnd.link == link)
    }

    /// A vpnd is there. What came while none was is asked for again; a new key has the relay register, and the
    /// acceptance that follows asks in any case (VPN-24). A link that was made before this one is heard of too late.
    fn linked(&mut self, vpnd: Vpnd, now: Now, actions: &mut Vec<Action>) {
        if vpnd.link <= self.latest {
            return;
        }
        self.latest = vpnd.link;
        if self.vpnd.is_some() {
            self.lost(now, actions);
        }
        actions.push(Action::Note(Note::Linked { revision: vpnd.holding.as_ref().map(Holding::revision) }));
        (self.vpnd, self.former) = (Some(vpnd), None);
        self.read_what_was_missed(now, actions);
    }

    /// What it holds is nothing of this relay's until it is linked again, and what was to be served is not (VPN-29).
    fn lost(&mut self, now: Now, actions: &mut Vec<Action>) {
        let vpnd = self.vpnd.take().expect("a link that is lost was there");
        self.former = Some((vpnd.public_key, now.mono + HUB_KEY_HOLD));
        actions.push(Action::Note(Note::Lost { revision: vpnd.holding.as_ref().map(Holding::revision) }));
        self.rereads.lost();
        self.fail_offers(now, actions);
    }

    /// A network that is being served was Cloudly's to push, whatever becomes of its connection.
    fn session_down(&mut self, now: Now, actions: &mut Vec<Action>) {
        (self.session, self.accepted) = (false, false);
        self.rereads.settle();
        for _ in self.up.end_where(|()| true) {
            self.not_read("closed".to_owned(), now, actions);
        }
    }

    fn tick(&mut self, now: Now, actions: &mut Vec<Action>) {
        while let Some(due) = self.up.due(now) {
            match due {
                Due::Resend { frame, .. } => actions.push(Action::SendUp(frame)),
                Due::Expired(_) => self.not_read("timeout".to_owned(), now, actions),
            }
        }
        self.former.take_if(|(_, until)| *until <= now.mono);
        self.offers_due(now, actions);
        self.reread_due(now, actions);
    }

    fn holding(&self) -> Option<&Holding> {
        self.vpnd.as_ref().and_then(|vpnd| vpnd.holding.as_ref())
    }

    fn check_invariants(&self) {
        debug_assert!(self.up.len() <= 1, "one read is under way at most");
        debug_assert!(self.session || self.up.is_empty(), "nothing is read without a session");
        debug_assert!(self.vpnd.is_some() || self.applying.is_none(), "only a vpnd is given a network");
        debug_assert!(self.applying.is_some() || self.waiting.is_empty(), "nothing waits for nothing");
        debug_assert!(self.validating.is_some() || self.unread.is_empty(), "nothing waits for nothing");
        let reads = self.rereads.next_deadline().is_some();
        debug_assert!(!reads || self.accepted && self.vpnd.is_some(), "a read is made again for a hub");
    }
}

#[cfg(test)]
mod tests;
