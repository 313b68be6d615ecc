//! How relayd stands, composed of what each machine says of itself, and the roster by pages: told to the
//! supervisor on its asking, over the link that there is (XTR-20, XTR-21).

use coreflow_ipc::{
    messages::standing::{CertificateStanding, NodePage, NodesStanding, RelaydCounters, RelaydStanding},
    now::Now,
};

use super::Core;

/// What is counted beside the core, at the sockets and on the listener's thread.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// WebSocket connections of the listener.
    pub sockets: u32,
    /// Image pulls under way.
    pub pulls_under_way: u32,
    /// Pulls that were answered with what the registry said.
    pub pulls: u64,
    /// Requests under `/v2/` that the relay answered itself.
    pub pulls_refused: u64,
    /// Connections that the listener did not take, and upgrades.
    pub connections_refused: u64,
}

impl Core {
    /// One look at this relayd. It changes nothing, and costs one pass over nodes and runs.
    pub fn standing(&self, beside: Beside, now: Now) -> RelaydStanding {
        let (forwarded, released) = (self.forwarder.counts(), self.escrow.counts());
        RelaydStanding {
            session: self.session.standing(),
            certificate: self.certificate_standing(now),
            nodes: NodesStanding { sockets: beside.sockets, ..self.forwarder.standing() },
            escrow: self.escrow.standing(now.wall),
            ingress: self.ingress.standing(),
            pulls: beside.pulls_under_way,
            counters: RelaydCounters {
                registrations: forwarded.registrations,
                requests: forwarded.requests,
                requests_refused: forwarded.requests_refused,
                pushes: forwarded.pushes,
                pushes_refused: forwarded.pushes_refused,
                asked_again: self.continuity.asked(),
                renewals_offered: released.offered,
                renewals_acknowledged: released.acknowledged,
                pulls: beside.pulls,
                pulls_refused: beside.pulls_refused,
                connections_refused: beside.connections_refused,
            },
        }
    }

    /// The page of the roster that follows the node `after`.
    pub fn nodes(&self, after: Option<&str>) -> NodePage {
        self.forwarder.page(after)
    }

    fn certificate_standing(&self, now: Now) -> Option<CertificateStanding> {
        let endpoint = self.endpoint.as_ref()?;
        let wait = self.certificate_deadline(now).map(|due| due.saturating_sub(now.mono).as_millis());
        let wall = |wait| now.wall.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX));
        Some(CertificateStanding {
            domain: endpoint.origin.host().to_owned(),
            ends_at: endpoint.certificate.term.ends,
            renewed_at: wait.map(wall),
        })
    }
}
