//! `getClusterVpnNetwork`: asked on every acceptance, and its answer admitted as a push is (VPN-24, VPN-25, VPN-26,
//! REG-66).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Body, Outcome},
};

use super::{Action, Hub, Note, offers::Asker};
use crate::{
    constants::CALL_BUDGET,
    contract::vpn_network::{CarriedNetwork, InvalidNetwork, VpnNetwork, validate_cluster_vpn_network},
    refusals::refusal_name,
};

impl Hub {
    /// A read of an earlier acceptance has nothing left to say.
    pub(super) fn read(&mut self, now: Now, actions: &mut Vec<Action>) {
        if !self.session {
            return;
        }
        self.missed = false;
        self.up.end_where(|()| true);
        let method = "getClusterVpnNetwork".to_owned();
        actions.push(Action::SendUp(self.up.open(method, Body::empty(), now.mono + CALL_BUDGET, ())));
    }

    pub(super) fn was_read(&mut self, outcome: &Outcome, now: Now, actions: &mut Vec<Action>) {
        let body = match outcome {
            Outcome::Response(body) => body,
            Outcome::Error(error) => return actions.push(self.not_read(refusal_name(error))),
        };
        match carried(body) {
            Ok(Some(network)) => self.offered(Asker::Read, network, now, actions),
            Ok(None) => actions.push(Action::Note(Note::NoNetwork)),
            Err(InvalidNetwork { path }) => actions.push(Action::Note(Note::Invalid { path })),
        }
    }

    /// The network could not be read; a relay without a hub has no use for one.
    pub(super) fn not_read(&self, class: String) -> Action {
        Action::Note(Note::NotRead { class, hub: self.facts.is_some() })
    }
}

/// The network that a body carries, validated; `None` for `null`.
pub(super) fn carried(body: &Body) -> Result<Option<Box<VpnNetwork>>, InvalidNetwork> {
    let carried: CarriedNetwork<'_> = body.read().map_err(|_| InvalidNetwork::at("network"))?;
    match carried.network.get() {
        "null" => Ok(None),
        _ => validate_cluster_vpn_network(carried.network).map(Box::new).map(Some),
    }
}
