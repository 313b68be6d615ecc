//! Networks on their way to the hub: one is being given to vpnd, a few wait in their order, and each is answered
//! within its budget (VPN-14, VPN-18, VPN-19, VPN-23, VPN-33, VPN-34, VPN-35, VPN-36, VPN-45, START-24).

use std::time::Duration;

use coreflow_ipc::{
    asks::AskId,
    messages::vpn_network::NotApplied,
    now::Now,
    typedrequest::{Body, Ids, Outcome, Request, plain_refusal, write_answer},
};

use super::{
    Action, Hub, Note,
    admission::{Decision, Holding, decide},
    reading::carried,
    snapshot::compose,
};
use crate::{
    constants::{NETWORK_BUDGET, NETWORKS_WAITING},
    contract::vpn_network::{InvalidNetwork, NetworkApplied, NetworkState, VpnNetwork},
    refusals::{HUB_ABSENT, HUB_BUSY, HUB_TIMEOUT, HUB_UNAVAILABLE, network_invalid},
    routes::APPLY_NETWORK,
    session::Connection,
};

/// Whose network it is to answer for.
pub(super) enum Asker {
    /// Cloudly pushed it.
    Push { connection: Connection, ids: Ids },
    /// It was read.
    Read,
}

/// A network that waits, and until when it is answered.
pub(super) struct Asked {
    by: Asker,
    network: Box<VpnNetwork>,
    deadline: Duration,
}

/// The network that vpnd is being given. One that was answered for already, because vpnd is late, is still the
/// one that is held once vpnd says so.
pub(super) struct Applying {
    id: AskId,
    by: Option<Asker>,
    network: Box<VpnNetwork>,
    deadline: Duration,
}

impl Asker {
    fn is_push(&self) -> bool {
        match self {
            Self::Push { .. } => true,
            Self::Read => false,
        }
    }
}

impl Hub {
    /// How many pushes of Cloudly are not answered yet (START-24).
    pub fn pushes_in_flight(&self) -> usize {
        let applying = self.applying.as_ref().and_then(|applying| applying.by.as_ref());
        applying
            .into_iter()
            .chain(self.waiting.iter().map(|asked| &asked.by))
            .filter(|by| by.is_push())
            .count()
    }

    pub(super) fn offers_deadline(&self) -> Option<Duration> {
        let applying = self.applying.as_ref().filter(|applying| applying.by.is_some());
        let applying = applying.map(|applying| applying.deadline);
        applying.into_iter().chain(self.waiting.front().map(|asked| asked.deadline)).min()
    }

    /// What is wrong with the body is said before anything is said of the hub, but that there is none.
    pub(super) fn pushed(
        &mut self,
        connection: Connection,
        request: Request,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let by = Asker::Push { connection, ids: request.ids };
        if self.facts.is_none() {
            return self.refuse(by, HUB_ABSENT, actions);
        }
        let taken = carried(&request.body);
        match taken.and_then(|network| network.ok_or_else(|| InvalidNetwork::at("network"))) {
            Ok(network) => self.offered(by, network, now, actions),
            Err(InvalidNetwork { path }) => {
                let refusal = network_invalid(&path);
                actions.push(Action::Note(Note::Invalid { path }));
                answer(by, &refusal, actions);
            }
        }
    }

    /// Gives the hub a network in its turn. It is judged by what is held then.
    pub(super) fn offered(
        &mut self,
        by: Asker,
        network: Box<VpnNetwork>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Some(facts) = &self.facts else { return self.refuse(by, HUB_ABSENT, actions) };
        if let Some(why) = facts.unavailable.clone() {
            return self.fail(by, &why, actions);
        }
        if self.vpnd.is_none() {
            self.missed = true;
            return self.fail(by, &format!("{HUB_UNAVAILABLE}: no hub runs"), actions);
        }
        if self.applying.is_some() && self.waiting.len() == NETWORKS_WAITING {
            let why = format!("{HUB_BUSY}: {NETWORKS_WAITING} networks wait for the hub");
            return self.fail(by, &why, actions);
        }
        self.waiting.push_back(Asked { by, network, deadline: now.mono + NETWORK_BUDGET });
        self.give_next(actions);
    }

    fn give_next(&mut self, actions: &mut Vec<Action>) {
        while self.applying.is_none() {
            let Some(Asked { by, network, deadline }) = self.waiting.pop_front() else { return };
            match decide(self.holding(), &network) {
                Decision::TakeOver => {
                    let id = self.next;
                    self.next += 1;
                    let link = self.vpnd.as_ref().expect("networks wait for a vpnd").link;
                    actions.push(Action::Apply { link, id, snapshot: Box::new(compose(&network)) });
                    self.applying = Some(Applying { id, by: Some(by), network, deadline });
                }
                Decision::Replay => {
                    actions.push(Action::Note(Note::Replayed { revision: network.revision.get() }));
                    self.answer_state(by, NetworkState::Replayed, None, actions);
                }
                Decision::Refuse(name) => self.refuse(by, name, actions),
            }
        }
    }

    pub(super) fn applied(&mut self, id: AskId, outcome: Result<(), NotApplied>, actions: &mut Vec<Action>) {
        let Some(Applying { by, network, .. }) = self.applying.take_if(|applying| applying.id == id) else {
            return;
        };
        match outcome {
            Ok(()) => {
                actions.push(Action::Note(Note::Adopted {
                    authority: network.authority.clone(),
                    generation: network.generation.get(),
                    revision: network.revision.get(),
                    members: network.members.len(),
                    grants: network.grants.count(),
                }));
                self.vpnd.as_mut().expect("it answered").holding = Some(Holding::Network(network));
                if let Some(by) = by {
                    self.answer_state(by, NetworkState::Applied, None, actions);
                }
            }
            Err(not_applied) => {
                let reason = not_applied.to_string();
                let note = match not_applied {
                    NotApplied::Bind(class) => Note::BindRefused { class },
                    NotApplied::Snapshot(_) | NotApplied::Passed => Note::Failed { reason: reason.clone() },
                };
                actions.push(Action::Note(note));
                if let Some(by) = by {
                    self.answer_state(by, NetworkState::Failed, Some(&reason), actions);
                }
            }
        }
        self.give_next(actions);
    }

    /// The vpnd that was to serve them is gone.
    pub(super) fn fail_offers(&mut self, actions: &mut Vec<Action>) {
        let applying = self.applying.take();
        self.missed |= applying.is_some();
        let applying = applying.and_then(|applying| applying.by);
        let waiting = std::mem::take(&mut self.waiting);
        for by in applying.into_iter().chain(waiting.into_iter().map(|asked| asked.by)) {
            self.fail(by, &format!("{HUB_UNAVAILABLE}: the hub ended"), actions);
        }
    }

    pub(super) fn offers_due(&mut self, now: Now, actions: &mut Vec<Action>) {
        let why = format!("{HUB_TIMEOUT}: {APPLY_NETWORK} after {} ms", NETWORK_BUDGET.as_millis());
        let late = self.applying.as_mut().filter(|applying| applying.deadline <= now.mono);
        if let Some(by) = late.and_then(|applying| applying.by.take()) {
            self.fail(by, &why, actions);
        }
        // Each came after the one before it, and has as long.
        while let Some(asked) = self.waiting.pop_front_if(|asked| asked.deadline <= now.mono) {
            self.fail(asked.by, &why, actions);
        }
    }

    fn refuse(&self, by: Asker, name: &'static str, actions: &mut Vec<Action>) {
        actions.push(Action::Note(Note::Refused { name, held: self.holding().map(Holding::revision) }));
        answer(by, &plain_refusal(name), actions);
    }

    fn fail(&self, by: Asker, reason: &str, actions: &mut Vec<Action>) {
        actions.push(Action::Note(Note::Failed { reason: reason.to_owned() }));
        self.answer_state(by, NetworkState::Failed, Some(reason), actions);
    }

    /// The answer states the revision that is held afterwards.
    fn answer_state(&self, by: Asker, state: NetworkState, reason: Option<&str>, actions: &mut Vec<Action>) {
        let revision = self.holding().map(Holding::revision);
        answer(by, &Outcome::Response(Body::of(&NetworkApplied { state, revision, reason })), actions);
    }
}

/// Nobody is told of a network that was read.
fn answer(by: Asker, outcome: &Outcome, actions: &mut Vec<Action>) {
    match by {
        Asker::Push { connection, ids } => {
            let frame = write_answer(APPLY_NETWORK, &ids, outcome);
            actions.push(Action::AnswerUp { connection, frame });
        }
        Asker::Read => {}
    }
}
