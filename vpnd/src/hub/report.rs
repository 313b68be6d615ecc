//! One look at the hub, for `coreflowctl status`: no key and no packet. What is forwarded was handed to its
//! receiver's tunnel; what that gives up later, as its queue is full or its path has become smaller, stays counted.

use coreflow_ipc::messages::hub_report::{HubReport, LISTED_SESSIONS, SessionReport};

use super::shared::{Leg, Shared};

impl Shared {
    /// The hub as it is now.
    pub(super) fn report(&self) -> HubReport {
        let state = self.state();
        let network = state.membership.network();
        let mut legs: Vec<&Leg> = state.legs().collect();
        legs.sort_unstable_by_key(|leg| leg.address);
        HubReport {
            bound: Some(self.bound),
            revision: network.map(|network| network.held().revision),
            control_prefix: network.map(|network| network.held().control_prefix.to_string()),
            members: count(network.map_or(0, |network| network.members().len())),
            admissible: count(state.membership.count_admissible((self.clock)())),
            sessions: count(legs.len()),
            handshakes: count(state.admission.pending()),
            forwarded_packets: self.counters.forwarded.packets.get(),
            forwarded_bytes: self.counters.forwarded.bytes.get(),
            dropped: self.counters.drops(),
            admitted: self.counters.admitted.get(),
            ended: self.counters.ends(),
            listed: legs.into_iter().take(LISTED_SESSIONS).map(session).collect(),
        }
    }
}

fn session(leg: &Leg) -> SessionReport {
    SessionReport {
        node_id: leg.node_id.clone(),
        address: leg.address,
        remote: leg.connection.remote_address(),
        since: leg.since,
        received_packets: leg.received.packets.get(),
        received_bytes: leg.received.bytes.get(),
        sent_packets: leg.sent.packets.get(),
        sent_bytes: leg.sent.bytes.get(),
    }
}

fn count(many: usize) -> u32 {
    u32::try_from(many).expect("members, sessions and handshakes are bounded")
}
