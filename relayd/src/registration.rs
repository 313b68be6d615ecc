//! Telling Cloudly which relay this is and where it listens: sequence, one in flight, pinning, the
//! refusals by name, and parking (REG).
//!
//! Named refusals wait for the next registration of the session; refused offers and unusable answers
//! are made again at the contract's pace; a call that failed is made again sooner. A hub's key that changes
//! overrides none of these waits: what is sent then states the key of then.

use std::time::Duration;

use coreflow_ipc::{
    backoff::Backoff,
    messages::relayd::{Kept, Reference as KeptReference},
    now::Now,
    typedrequest::{Body, INTERNAL_ERROR, PeerError},
};

use crate::{
    constants::{
        HUB_CHANGE_FIRST, HUB_CHANGE_LONGEST, HUB_KEY_WAIT, REFUSED_OFFER_RETRY, REGISTRATION_RETRY,
    },
    contract::{registration::RelayRegistered, values::Reference},
    protocol::{Disagreement, refused_by_cloudly},
    refusals::{CREDENTIAL_STALE, NODE_UNKNOWN, PROTOCOL_REFUSED, REGISTRATION},
};

pub mod acceptance;

use acceptance::NotAccepted;

/// What a `registerClusterRelay` led to.
#[derive(Clone)]
pub enum Answered {
    /// Cloudly answered with a body.
    Response(Body),
    /// Cloudly answered with an error.
    Refused(PeerError),
    /// The call failed on its way; class and code (REG-29).
    Failed(String),
}

/// What happens to the registration.
#[derive(Clone)]
pub enum Event {
    /// The listener serves: there is an endpoint to name (REG-04).
    Listening {
        /// A hub belongs to it, and its key is still to come (VPN-41).
        awaits_hub: bool,
    },
    /// The hub's key came, or is another one (VPN-42).
    HubChanged,
    /// The Cloudly session was registered, on a new connection or with a renewed identity (REG-02).
    SessionRegistered,
    /// The session is gone; what was in flight on it will not be answered.
    SessionLost,
    /// The registration in flight was answered.
    Answered(Answered),
    /// A deadline passed, or may have.
    Tick,
}

/// What follows, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send `registerClusterRelay`.
    Send {
        /// `registrationSequence`.
        sequence: u64,
    },
    /// Hand the supervisor what outlives this process, before anything that follows.
    Keep(Kept),
    /// The offers disagree (REG-09, REG-10).
    OfferRefused(Disagreement),
    /// Cloudly's offer is one that this relay serves.
    OfferAccepted,
    /// The answer is one that this build can act on, though no acceptance (PROT-26).
    Usable,
    /// The answer is no acceptance (REG-49); the line says why.
    Unusable(String),
    /// The credential was pinned, once for the service (REG-42).
    Pinned(KeptReference),
    /// The registration stands; the reads that depend on it follow (REG-66).
    Accepted {
        /// The origin that Cloudly published.
        origin: String,
    },
    /// Cloudly refused by name; nothing that is served changes (REG-27).
    Refused {
        /// `error.text`.
        text: String,
        /// What an operator does about it, where the specification knows (REG-32).
        remedy: Option<&'static str>,
        /// Whether the name is one of the contract's six (REG-26).
        named: bool,
    },
    /// The call failed (REG-29).
    Failed {
        /// Class and code.
        class: String,
    },
    /// Give up custody of what Cloudly dispatches; first of the four steps of parking (REG-57).
    GiveUpCustody,
    /// Schedule no identity refresh and no reconnect; the announcing ended with this machine's phase.
    ParkSession,
    /// State once what parked the relay (REG-59).
    StateParked(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No listener: nothing to announce.
    Unlistening { session: bool },
    /// The first registration waits for the hub's key, so long.
    AwaitingHub { session: bool, until: Duration },
    /// Nothing is in flight; `again` is when the offer is made again.
    Idle { session: bool, again: Option<Duration> },
    /// One registration is in flight; meanwhile there was cause for another, or the hub's key changed.
    InFlight { again: bool, hub_changed: bool },
    /// The credential was rotated away.
    Parked,
}

/// The registration's state.
#[derive(Debug)]
pub struct Registration {
    phase: Phase,
    kept: Kept,
    hub: HubPace,
}

/// How often the keys of a hub are registered: who could have relayd take any number of them makes Cloudly no work.
#[derive(Debug)]
struct HubPace {
    waits: Backoff,
    next: Duration,
}

impl HubPace {
    /// When a key that changes now is registered.
    fn take(&mut self, now: Duration) -> Duration {
        if now >= self.next + HUB_CHANGE_LONGEST {
            self.waits.reset();
        }
        let at = self.next.max(now);
        self.next = at + self.waits.advance();
        at
    }
}

impl Registration {
    /// Goes on from what an earlier relayd of this service left (ARC-17).
    pub fn resume(kept: Kept) -> Self {
        let phase = if kept.parked.is_some() { Phase::Parked } else { Phase::Unlistening { session: false } };
        let waits = Backoff::new(HUB_CHANGE_FIRST, HUB_CHANGE_LONGEST);
        Self { phase, kept, hub: HubPace { waits, next: Duration::ZERO } }
    }

    /// The parked statement, once the relay is parked.
    pub fn parked(&self) -> Option<&str> {
        self.kept.parked.as_deref()
    }

    /// When [`Event::Tick`] is due, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Idle { session: true, again } => again,
            Phase::AwaitingHub { until, .. } => Some(until),
            Phase::Idle { session: false, .. }
            | Phase::Unlistening { .. }
            | Phase::InFlight { .. }
            | Phase::Parked => None,
        }
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Action> {
        match (self.phase, event) {
            (Phase::Parked, _) => Vec::new(),
            (Phase::Unlistening { session }, Event::Listening { awaits_hub: true }) => {
                self.phase = Phase::AwaitingHub { session, until: now.mono + HUB_KEY_WAIT };
                Vec::new()
            }
            (Phase::Unlistening { session }, Event::Listening { awaits_hub: false }) => self.begin(session),
            (Phase::AwaitingHub { session, .. }, Event::HubChanged) => {
                self.hub.take(now.mono);
                self.begin(session)
            }
            (Phase::AwaitingHub { session, until }, Event::Tick) if until <= now.mono => self.begin(session),
            (Phase::Unlistening { .. }, Event::SessionRegistered) => {
                self.phase = Phase::Unlistening { session: true };
                Vec::new()
            }
            (Phase::Unlistening { .. }, Event::SessionLost) => {
                self.phase = Phase::Unlistening { session: false };
                Vec::new()
            }
            (Phase::AwaitingHub { until, .. }, Event::SessionRegistered) => {
                self.phase = Phase::AwaitingHub { session: true, until };
                Vec::new()
            }
            (Phase::AwaitingHub { until, .. }, Event::SessionLost) => {
                self.phase = Phase::AwaitingHub { session: false, until };
                Vec::new()
            }
            (Phase::Idle { .. }, Event::SessionRegistered) => self.send(),
            (Phase::Idle { session: true, again: None }, Event::HubChanged) => self.hub_changed(now),
            (Phase::Idle { session: true, again: Some(again) }, Event::Tick) if again <= now.mono => {
                self.send()
            }
            (Phase::Idle { .. } | Phase::InFlight { .. }, Event::SessionLost) => {
                self.phase = Phase::Idle { session: false, again: None };
                Vec::new()
            }
            (Phase::InFlight { hub_changed, .. }, Event::SessionRegistered) => {
                self.phase = Phase::InFlight { again: true, hub_changed };
                Vec::new()
            }
            (Phase::InFlight { again, .. }, Event::HubChanged) => {
                self.phase = Phase::InFlight { again, hub_changed: true };
                Vec::new()
            }
            (Phase::InFlight { again, hub_changed }, Event::Answered(answered)) => {
                let mut actions = self.answered(answered, now);
                match self.phase {
                    Phase::Parked => {}
                    _ if again => actions.extend(self.send()),
                    Phase::Idle { again: None, .. } if hub_changed => actions.extend(self.hub_changed(now)),
                    // What is sent next states the key of then.
                    Phase::Idle { .. }
                    | Phase::Unlistening { .. }
                    | Phase::AwaitingHub { .. }
                    | Phase::InFlight { .. } => {}
                }
                actions
            }
            // Its connection ended before it was answered (REG-29).
            (Phase::Idle { session: false, .. }, Event::Answered(Answered::Failed(class))) => {
                vec![Action::Failed { class }]
            }
            (Phase::Unlistening { .. }, Event::Tick | Event::Answered(_) | Event::HubChanged)
            | (Phase::AwaitingHub { .. }, Event::Tick | Event::Listening { .. } | Event::Answered(_))
            | (
                Phase::Idle { .. },
                Event::Tick | Event::Listening { .. } | Event::Answered(_) | Event::HubChanged,
            )
            | (Phase::InFlight { .. }, Event::Tick | Event::Listening { .. }) => Vec::new(),
        }
    }

    /// There is all to name that is named.
    fn begin(&mut self, session: bool) -> Vec<Action> {
        self.phase = Phase::Idle { session, again: None };
        if session { self.send() } else { Vec::new() }
    }

    fn hub_changed(&mut self, now: Now) -> Vec<Action> {
        let at = self.hub.take(now.mono);
        if at <= now.mono {
            return self.send();
        }
        self.phase = Phase::Idle { session: true, again: Some(at) };
        Vec::new()
    }

    fn send(&mut self) -> Vec<Action> {
        let sequence = self.kept.last_sequence.map_or(0, |last| last + 1);
        self.kept.last_sequence = Some(sequence);
        self.phase = Phase::InFlight { again: false, hub_changed: false };
        vec![Action::Keep(self.kept.clone()), Action::Send { sequence }]
    }

    fn answered(&mut self, answered: Answered, now: Now) -> Vec<Action> {
        let wait = |pace| Phase::Idle { session: true, again: Some(now.mono + pace) };
        match answered {
            Answered::Failed(class) => {
                self.phase = wait(REGISTRATION_RETRY);
                vec![Action::Failed { class }]
            }
            Answered::Refused(error) => match error.name() {
                PROTOCOL_REFUSED => {
                    self.phase = wait(REFUSED_OFFER_RETRY);
                    vec![Action::OfferRefused(refused_by_cloudly(&error.data))]
                }
                CREDENTIAL_STALE => {
                    let refused = refused(error.text);
                    [vec![refused], self.park()].concat()
                }
                INTERNAL_ERROR => {
                    self.phase = wait(REGISTRATION_RETRY);
                    vec![refused(error.text)]
                }
                name => {
                    self.phase = Phase::Idle { session: true, again: None };
                    // Cloudly settles the offer before anything else (PROT-34), and a refusal by name is an
                    // answer that this build can act on (PROT-26).
                    let acted_on = REGISTRATION.contains(&name);
                    let settled = [Action::OfferAccepted, Action::Usable];
                    let settled = settled.into_iter().filter(|_| acted_on);
                    settled.chain([refused(error.text)]).collect()
                }
            },
            Answered::Response(body) => {
                self.phase = wait(REFUSED_OFFER_RETRY);
                match acceptance::read(&body) {
                    Err(NotAccepted::Offer(disagreement)) => vec![Action::OfferRefused(disagreement)],
                    Err(NotAccepted::Unreadable(path)) => vec![
                        Action::OfferAccepted,
                        Action::Unusable(format!("registerClusterRelay was answered without a valid {path}")),
                    ],
                    Ok(acceptance) => [vec![Action::OfferAccepted], self.weigh(acceptance)].concat(),
                }
            }
        }
    }

    /// Orders an acceptance against the pinned credential and the last record (REG-41 – REG-47).
    fn weigh(&mut self, acceptance: RelayRegistered) -> Vec<Action> {
        let credential = keep(&acceptance.credential);
        let record = keep(&acceptance.registration);
        if self.kept.credential.as_ref().is_some_and(|pinned| *pinned != credential) {
            return self.park();
        }
        if let Some(last) = &self.kept.record
            && (last.id != record.id || record.generation <= last.generation)
        {
            let line = format!(
                "registerClusterRelay was answered with record {} generation {}, which does not advance {} generation {}",
                record.id, record.generation, last.id, last.generation
            );
            return vec![Action::Unusable(line)];
        }
        let news = self.kept.credential.is_none().then(|| credential.clone());
        self.kept.credential = Some(credential);
        self.kept.record = Some(record);
        self.phase = Phase::Idle { session: true, again: None };
        let mut actions = vec![Action::Keep(self.kept.clone())];
        actions.extend(news.map(Action::Pinned));
        actions.push(Action::Accepted { origin: acceptance.origin });
        actions
    }

    /// The specified order: custody, announcing, schedules, and the statement last (REG-57).
    fn park(&mut self) -> Vec<Action> {
        let bound = self.kept.credential.as_ref().map_or_else(
            || "an unknown generation of its cluster relay credential".to_owned(),
            |pinned| format!("cluster relay credential {} generation {}", pinned.id, pinned.generation),
        );
        let line = format!(
            "{CREDENTIAL_STALE}: this relay is bound to {bound}, which was superseded; only a restart with the \
             bearer of the current generation serves this cluster again"
        );
        self.phase = Phase::Parked;
        self.kept.parked = Some(line.clone());
        vec![
            Action::GiveUpCustody,
            Action::Keep(self.kept.clone()),
            Action::ParkSession,
            Action::StateParked(line),
        ]
    }
}

fn keep(reference: &Reference) -> KeptReference {
    KeptReference { id: reference.id.as_str().to_owned(), generation: reference.generation.get() }
}

fn refused(text: String) -> Action {
    let name = text.split_once(": ").map_or(text.as_str(), |(name, _)| name);
    let named = REGISTRATION.contains(&name);
    let remedy = (name == NODE_UNKNOWN).then_some("enroll the node first: run `spark enrollnode` on it");
    Action::Refused { text, remedy, named }
}

#[cfg(test)]
mod tests;
