//! How the forwarder stands and what it carried, and the roster by pages: of a node its id and its state and
//! nothing else (XTR-20).

use coreflow_ipc::messages::standing::{NODES_OF_PAGE, NodePage, NodeStanding, NodeState, NodesStanding};

use super::Forwarder;

/// What happened since this relayd started.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Registrations that Cloudly answered with a binding.
    pub registrations: u64,
    /// Requests that were handed to Cloudly, each once.
    pub requests: u64,
    /// Requests that the relay answered itself.
    pub requests_refused: u64,
    /// Pushes that were handed to a node.
    pub pushes: u64,
    /// Pushes that the relay answered itself.
    pub pushes_refused: u64,
}

impl Forwarder {
    /// What happened here.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What is carried now; the sockets are the listener's to count.
    pub fn standing(&self) -> NodesStanding {
        NodesStanding {
            sockets: 0,
            carried: short(self.roster.len()),
            awaiting: short(self.roster.count_older_than(self.latest)),
            requests: short(self.up.len() + self.waiting.len()),
            pushes: short(self.down.len()),
        }
    }

    /// The page of the roster that follows the node `after`, which may be gone.
    pub fn page(&self, after: Option<&str>) -> NodePage {
        let mut following = self.roster.following(after);
        let nodes = following
            .by_ref()
            .take(NODES_OF_PAGE)
            .map(|(node, count)| NodeStanding { id: node.as_str().to_owned(), state: self.state(count) });
        NodePage { nodes: nodes.collect(), more: following.next().is_some() }
    }

    fn state(&self, count: u64) -> NodeState {
        if count < self.latest {
            NodeState::AwaitingRegistration
        } else if self.session.is_some() {
            NodeState::Registered
        } else {
            NodeState::Carried
        }
    }
}

fn short(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
