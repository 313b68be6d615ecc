//! How the escrow stands: numbers of runs and windows, and nothing of what Cloudly signed (ESC-26, ESC-50).

use coreflow_ipc::messages::standing::EscrowStanding;

use super::Escrow;

/// What happened since this relayd started.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Offers of a renewal to a node.
    pub offered: u64,
    /// Renewals that a node acknowledged.
    pub acknowledged: u64,
}

impl Escrow {
    /// What happened here.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What is held at `wall` (Unix milliseconds), from one pass over all that is held.
    pub fn standing(&self, wall: u64) -> EscrowStanding {
        let mut standing = EscrowStanding {
            custody: self.custody.reason().to_owned(),
            runs: short(self.runs.len()),
            offers: short(self.offers.len()),
            ..EscrowStanding::default()
        };
        for held in self.runs.values() {
            standing.windows += short(held.windows(wall));
            standing.due += u32::from(held.due(wall).is_some());
            standing.last_ends_at = standing.last_ends_at.max(Some(held.end()));
        }
        standing
    }
}

fn short(count: usize) -> u32 {
    u32::try_from(count).expect("runs and their renewals are bounded")
}
