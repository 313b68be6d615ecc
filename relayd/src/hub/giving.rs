//! The network that vpnd is being given: one at a time, judged by what is held in its turn, and held once vpnd says so
//! (VPN-14, VPN-18, VPN-19, VPN-23, VPN-33, VPN-34, VPN-35).

use std::time::Duration;

use coreflow_ipc::{asks::AskId, messages::vpn_network::NotApplied, now::Now};

use super::{
    Action, Hub, Note,
    admission::{Decision, Holding, decide},
    offers::{Asked, Asker},
};
use crate::contract::vpn_network::{NetworkState, VpnNetwork};

/// The network that vpnd is being given. One that was answered for already, because vpnd is late, is still the
/// one that is held once vpnd says so.
pub(super) struct Applying {
    pub(super) id: AskId,
    pub(super) by: Option<Asker>,
    pub(super) network: Box<VpnNetwork>,
    pub(super) deadline: Duration,
}

impl Hub {
    pub(super) fn give_next(&mut self, actions: &mut Vec<Action>) {
        while self.applying.is_none() {
            let Some(Asked { by, deadline, network: offered }) = self.waiting.pop_front() else { return };
            match decide(self.holding(), &offered) {
                Decision::TakeOver => {
                    let id = self.next;
                    self.next += 1;
                    let link = self.vpnd.as_ref().expect("networks wait for a vpnd").link;
                    actions.push(Action::Apply { link, id, snapshot: offered.snapshot });
                    self.applying = Some(Applying { id, by: Some(by), network: offered.network, deadline });
                }
                Decision::Replay => {
                    self.rereads.settle();
                    let revision = offered.network.revision.get();
                    actions.push(Action::Note(Note::Replayed { revision }));
                    self.answer_state(by, NetworkState::Replayed, None, actions);
                }
                Decision::Refuse(name) => self.refuse(by, name, actions),
            }
        }
    }

    pub(super) fn applied(
        &mut self,
        id: AskId,
        outcome: Result<(), NotApplied>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Some(Applying { by, network, .. }) = self.applying.take_if(|applying| applying.id == id) else {
            return;
        };
        match (outcome, by) {
            (Ok(()), by) => {
                self.rereads.settle();
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
            // Another time it may be bound (VPN-35).
            (Err(why @ NotApplied::Bind(_)), Some(by)) => self.fail(by, &why.to_string(), now, actions),
            (Err(why), by) => {
                let reason = why.to_string();
                actions.push(Action::Note(Note::Failed { reason: reason.clone() }));
                if let Some(by) = by {
                    self.answer_state(by, NetworkState::Failed, Some(&reason), actions);
                }
            }
        }
        self.give_next(actions);
    }
}
