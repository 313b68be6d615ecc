//! Resident memory of each relay with idle nodes: connected over TLS, upgraded, registered, silent.

use std::collections::BTreeMap;

use super::arguments::Arguments;
use super::contestant::{Contestant, Ground, Kind};
use super::cost;
use super::crowd::Crowd;

/// What one relay holds.
#[derive(Debug)]
pub struct Held {
    /// Bytes without a node.
    pub empty: u64,
    /// Bytes without a node of each process, by its name.
    pub processes: BTreeMap<String, u64>,
    /// Bytes by number of nodes.
    pub with: BTreeMap<usize, u64>,
}

impl Held {
    /// Kibibytes that each of `nodes` nodes adds.
    #[expect(clippy::cast_precision_loss, reason = "memory of a process is far below 2^52 bytes")]
    pub fn per_node(&self, nodes: usize) -> Option<f64> {
        let added = self.with.get(&nodes)?.saturating_sub(self.empty);
        Some(added as f64 / 1024.0 / nodes as f64)
    }
}

/// Measures both relays, one after the other, each with a rising number of nodes.
///
/// # Errors
/// What did not work, and with whom.
pub async fn measure(arguments: &Arguments, ground: &Ground<'_>) -> Result<BTreeMap<Kind, Held>, String> {
    let mut measured = BTreeMap::new();
    for kind in Kind::RELAYS {
        let contestant = Contestant::start(kind, ground).await?;
        let empty = contestant.memory_at_rest().await?;
        let processes = contestant.named_processes().into_iter();
        let processes = processes.map(|(name, pid)| Ok((name, cost::memory(&[pid])?)));
        let processes = processes.collect::<Result<_, String>>()?;
        let mut held = Held { empty, processes, with: BTreeMap::new() };
        let mut crowd = Crowd::default();
        for count in arguments.nodes.iter().copied() {
            crowd.grow(&contestant, count).await?;
            let bytes = contestant.memory_at_rest().await?;
            crowd.all_there(&contestant)?;
            held.with.insert(count, bytes);
        }
        measured.insert(kind, held);
    }
    Ok(measured)
}
