//! Networks on their way to the hub: each is validated beside the core, one after the other, waits for its turn, and is
//! answered within its budget (VPN-14, VPN-23, VPN-34, VPN-36, VPN-45, START-24).
//!
//! As many wait as may; the newest is never the one that is lost for it.

use std::{collections::VecDeque, time::Duration};

use coreflow_ipc::{
    now::Now,
    typedrequest::{Body, Ids, Outcome, plain_refusal, write_answer},
};

use super::{
    Action, Hub, Job, Note,
    admission::{Holding, passes},
    reading::{Carried, Offered},
};
use crate::{
    constants::{NETWORK_BUDGET, NETWORKS_BYTES, NETWORKS_WAITING},
    contract::vpn_network::{InvalidNetwork, NetworkApplied, NetworkState},
    refusals::{HUB_ABSENT, HUB_BUSY, HUB_TIMEOUT, HUB_UNAVAILABLE, NETWORK_REVISION_STALE, network_invalid},
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

/// A network that waits, as a body or validated, and until when it is answered.
pub(super) struct Asked<T> {
    pub(super) by: Asker,
    pub(super) deadline: Duration,
    pub(super) network: T,
}

/// The one validation that is under way; nobody waits for it any more when it was answered for already.
pub(super) struct Validating {
    job: Job,
    asked: Option<Asked<()>>,
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
        self.open().filter(|(by, _)| by.is_push()).count()
    }

    pub(super) fn offers_deadline(&self) -> Option<Duration> {
        self.open().map(|(_, deadline)| deadline).min()
    }

    /// Whom a network is to be answered for, and until when.
    fn open(&self) -> impl Iterator<Item = (&Asker, Duration)> {
        let applying =
            self.applying.as_ref().and_then(|applying| Some((applying.by.as_ref()?, applying.deadline)));
        let validating = self.validating.as_ref().and_then(|validating| validating.asked.as_ref());
        let waiting = self.waiting.iter().map(|asked| (&asked.by, asked.deadline));
        let unread = self.unread.iter().map(|asked| (&asked.by, asked.deadline));
        let validating = validating.map(|asked| (&asked.by, asked.deadline));
        applying.into_iter().chain(waiting).chain(validating).chain(unread)
    }

    /// Takes a network, if there is a hub for it. It is judged by what is held in its turn.
    pub(super) fn offered(&mut self, by: Asker, body: Body, now: Now, actions: &mut Vec<Action>) {
        let Some(facts) = &self.facts else { return self.refuse(by, HUB_ABSENT, actions) };
        if let Some(why) = facts.unavailable.clone() {
            return self.fail(by, &why, now, actions);
        }
        if self.vpnd.is_none() {
            self.rereads.miss();
            return self.fail(by, &format!("{HUB_UNAVAILABLE}: no hub runs"), now, actions);
        }
        while self.unread.len() == NETWORKS_WAITING || !self.unread.is_empty() && !self.has_room(&body) {
            let oldest = self.unread.pop_front().expect("more wait than may");
            let why = format!("{HUB_BUSY}: later networks wait for their validation");
            self.fail(oldest.by, &why, now, actions);
        }
        self.unread.push_back(Asked { by, deadline: now.mono + NETWORK_BUDGET, network: body });
        self.validate_next(actions);
    }

    fn has_room(&self, body: &Body) -> bool {
        let waiting: usize = self.unread.iter().map(|asked| asked.network.len()).sum();
        waiting + body.len() <= NETWORKS_BYTES
    }

    fn validate_next(&mut self, actions: &mut Vec<Action>) {
        if self.validating.is_some() {
            return;
        }
        let Some(Asked { by, deadline, network: body }) = self.unread.pop_front() else { return };
        self.jobs += 1;
        self.validating =
            Some(Validating { job: self.jobs, asked: Some(Asked { by, deadline, network: () }) });
        actions.push(Action::Validate { job: self.jobs, body });
    }

    pub(super) fn validated(&mut self, job: Job, carried: Carried, now: Now, actions: &mut Vec<Action>) {
        let Some(validating) = self.validating.take_if(|validating| validating.job == job) else { return };
        if let Some(Asked { by, deadline, network: () }) = validating.asked {
            match carried.and_then(|network| network.ok_or_else(|| InvalidNetwork::at("network"))) {
                Ok(network) => self.wait(Asked { by, deadline, network }, now, actions),
                Err(InvalidNetwork { path }) => {
                    let refusal = network_invalid(&path);
                    actions.push(Action::Note(Note::Invalid { path }));
                    answer(by, &refusal, actions);
                }
            }
        }
        self.validate_next(actions);
    }

    /// Those that wait and come before it have been passed: the hub is not given them any more.
    fn wait(&mut self, asked: Asked<Offered>, now: Now, actions: &mut Vec<Action>) {
        let passed: VecDeque<_>;
        (passed, self.waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|other| passes(&asked.network.network, &other.network.network));
        for other in passed {
            self.refuse(other.by, NETWORK_REVISION_STALE, actions);
        }
        if self.waiting.len() == NETWORKS_WAITING {
            let why = format!("{HUB_BUSY}: {NETWORKS_WAITING} networks wait for the hub");
            return self.fail(asked.by, &why, now, actions);
        }
        self.waiting.push_back(asked);
        self.give_next(actions);
    }

    /// The vpnd that was to serve them is gone.
    pub(super) fn fail_offers(&mut self, now: Now, actions: &mut Vec<Action>) {
        let applying = self.applying.take();
        if applying.is_some() {
            self.rereads.miss();
        }
        let mut asked: Vec<Asker> = applying.and_then(|applying| applying.by).into_iter().collect();
        asked.extend(std::mem::take(&mut self.waiting).into_iter().map(|asked| asked.by));
        let validating = self.validating.as_mut().and_then(|validating| validating.asked.take());
        asked.extend(validating.map(|asked| asked.by));
        asked.extend(std::mem::take(&mut self.unread).into_iter().map(|asked| asked.by));
        for by in asked {
            self.fail(by, &format!("{HUB_UNAVAILABLE}: its link ended"), now, actions);
        }
    }

    /// Each came after the one before it, and has as long.
    pub(super) fn offers_due(&mut self, now: Now, actions: &mut Vec<Action>) {
        let mut late = Vec::new();
        let applying = self.applying.as_mut().filter(|applying| applying.deadline <= now.mono);
        late.extend(applying.and_then(|applying| applying.by.take()));
        while let Some(asked) = self.waiting.pop_front_if(|asked| asked.deadline <= now.mono) {
            late.push(asked.by);
        }
        let validating = self.validating.as_mut();
        let validating =
            validating.and_then(|validating| validating.asked.take_if(|asked| asked.deadline <= now.mono));
        late.extend(validating.map(|asked| asked.by));
        while let Some(asked) = self.unread.pop_front_if(|asked| asked.deadline <= now.mono) {
            late.push(asked.by);
        }
        let why = format!("{HUB_TIMEOUT}: {APPLY_NETWORK} after {} ms", NETWORK_BUDGET.as_millis());
        for by in late {
            self.fail(by, &why, now, actions);
        }
    }

    pub(super) fn refuse(&self, by: Asker, name: &'static str, actions: &mut Vec<Action>) {
        actions.push(Action::Note(Note::Refused { name, held: self.holding().map(Holding::revision) }));
        answer(by, &plain_refusal(name), actions);
    }

    /// It is not served, though another time it may be.
    pub(super) fn fail(&mut self, by: Asker, reason: &str, now: Now, actions: &mut Vec<Action>) {
        actions.push(Action::Note(Note::Failed { reason: reason.to_owned() }));
        if !by.is_push() {
            self.read_again(now);
        }
        self.answer_state(by, NetworkState::Failed, Some(reason), actions);
    }

    /// The answer states the revision that is held afterwards.
    pub(super) fn answer_state(
        &self,
        by: Asker,
        state: NetworkState,
        reason: Option<&str>,
        actions: &mut Vec<Action>,
    ) {
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
