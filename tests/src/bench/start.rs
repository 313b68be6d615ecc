//! How long each relay takes from its start until it serves nodes: its executable is there already, its session to
//! Cloudly is not.

use std::collections::BTreeMap;

use super::arguments::Arguments;
use super::contestant::{Contestant, Ground, Kind};
use super::latencies::Latencies;

/// Starts each relay in turn, as often as there are rounds.
///
/// # Errors
/// What did not work, and with whom.
pub async fn measure(
    arguments: &Arguments,
    ground: &Ground<'_>,
) -> Result<BTreeMap<Kind, Latencies>, String> {
    let mut measured: BTreeMap<Kind, Latencies> = BTreeMap::new();
    for _ in 0..arguments.rounds {
        for kind in Kind::RELAYS {
            let contestant = Contestant::start(kind, ground).await?;
            measured.entry(kind).or_default().add(contestant.started);
        }
    }
    Ok(measured)
}
