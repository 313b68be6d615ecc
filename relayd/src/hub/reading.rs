//! `getClusterVpnNetwork`: asked on every acceptance, and its answer admitted as a push is (VPN-24, VPN-25, VPN-26,
//! REG-66); and what is read of a body that carries a network.

use std::time::Duration;

use coreflow_ipc::{
    messages::vpn_network::Snapshot,
    now::Now,
    typedrequest::{Body, Outcome},
};

use super::{Action, Hub, Note, offers::Asker, snapshot::compose};
use crate::{
    constants::{CALL_BUDGET, NETWORK_RETRY},
    contract::vpn_network::{CarriedNetwork, InvalidNetwork, VpnNetwork, validate_cluster_vpn_network},
    refusals::refusal_name,
};

/// A body that carries `null` is no longer than this, in bytes; another one is read beside the core.
const NULL_LENGTH: usize = 64;

/// A valid network, and what vpnd is given for it.
pub struct Offered {
    pub(super) network: Box<VpnNetwork>,
    pub(super) snapshot: Box<Snapshot>,
}

/// What a body carries: a network, `null`, or what makes it invalid.
pub type Carried = Result<Option<Offered>, InvalidNetwork>;

/// Reads, validates and composes the network of a body. A million grants take their time, so that this is no part of
/// a turn of the core's: it is what [`Action::Validate`] asks for.
pub fn read_carried(body: &Body) -> Carried {
    let carried: CarriedNetwork<'_> = body.read().map_err(|_| InvalidNetwork::at("network"))?;
    if carried.network.get() == "null" {
        return Ok(None);
    }
    let network = Box::new(validate_cluster_vpn_network(carried.network)?);
    let snapshot = Box::new(compose(&network));
    Ok(Some(Offered { network, snapshot }))
}

/// When Cloudly is asked for the network without a new acceptance.
#[derive(Default)]
pub(super) struct Rereads {
    /// A network, or a read of it, came to nothing while no vpnd was there to serve it.
    missed: bool,
    /// The last read brought no decision.
    again: Option<Duration>,
    /// A new link causes no read before.
    spaced: Duration,
}

impl Rereads {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.again
    }

    /// What comes next brings what was missed.
    pub(super) fn forget(&mut self) {
        (self.missed, self.again) = (false, None);
    }

    pub(super) fn miss(&mut self) {
        self.missed = true;
    }

    /// A hub holds what Cloudly says, whichever way it came.
    pub(super) fn settle(&mut self) {
        self.again = None;
    }

    /// The vpnd that it would be for is gone.
    pub(super) fn lost(&mut self) {
        self.missed |= self.again.take().is_some();
    }
}

impl Hub {
    /// A read of an earlier acceptance has nothing left to say.
    pub(super) fn read(&mut self, now: Now, actions: &mut Vec<Action>) {
        if !self.session {
            return;
        }
        self.rereads.forget();
        self.up.end_where(|()| true);
        let method = "getClusterVpnNetwork".to_owned();
        actions.push(Action::SendUp(self.up.open(method, Body::empty(), now.mono + CALL_BUDGET, ())));
    }

    /// A vpnd is there: what came while none was is asked for. One that comes and goes causes no more reads than any
    /// other failure does.
    pub(super) fn read_what_was_missed(&mut self, now: Now, actions: &mut Vec<Action>) {
        if !(self.rereads.missed && self.accepted) {
            return;
        }
        if self.rereads.spaced <= now.mono {
            self.rereads.spaced = now.mono + NETWORK_RETRY;
            return self.read(now, actions);
        }
        (self.rereads.missed, self.rereads.again) = (false, Some(self.rereads.spaced));
    }

    /// The last read brought no decision: while the registration stands it is made again, with a vpnd that it is for.
    pub(super) fn read_again(&mut self, now: Now) {
        if self.accepted && self.vpnd.is_some() {
            self.rereads.again = Some(now.mono + NETWORK_RETRY);
        } else {
            self.rereads.miss();
        }
    }

    pub(super) fn reread_due(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.rereads.again.take_if(|at| *at <= now.mono).is_some() {
            self.read(now, actions);
        }
    }

    pub(super) fn was_read(&mut self, outcome: Outcome, now: Now, actions: &mut Vec<Action>) {
        match outcome {
            Outcome::Error(error) => self.not_read(refusal_name(&error), now, actions),
            Outcome::Response(body) if is_null(&body) => actions.push(Action::Note(Note::NoNetwork)),
            Outcome::Response(body) => self.offered(Asker::Read, body, now, actions),
        }
    }

    /// The network could not be read; a relay without a hub has no use for one.
    pub(super) fn not_read(&mut self, class: String, now: Now, actions: &mut Vec<Action>) {
        actions.push(Action::Note(Note::NotRead { class, hub: self.facts.is_some() }));
        self.read_again(now);
    }
}

/// Cloudly has compiled no network: no reason to look for a hub.
fn is_null(body: &Body) -> bool {
    body.len() <= NULL_LENGTH
        && body.read::<CarriedNetwork<'_>>().is_ok_and(|carried| carried.network.get() == "null")
}
