//! What the hub counts, for `coreflowctl status`: packets that went on, packets that did not and why, sessions
//! and how they ended. One thread counts and others may look, so a count is a load and a store.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use quinn::ConnectionError;

use super::forwarding::Reason;
use crate::protocol::close::Close;

/// A number that one thread raises.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Raises it.
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Packets, and their bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    /// How many.
    pub packets: Count,
    /// How long they are together.
    pub bytes: Count,
}

impl Traffic {
    /// Counts one packet of so many bytes.
    pub fn add(&self, bytes: usize) {
        self.packets.add(1);
        self.bytes.add(bytes as u64);
    }
}

/// How a session, or a handshake, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By a code, of either end.
    Closed(Close),
    /// Nothing came any more.
    Idle,
    /// The connection failed, or was closed by no code of the protocol.
    Lost,
    /// It was turned away at its first packet.
    Refused,
}

impl Ending {
    /// How many there are.
    const COUNT: usize = Close::ALL.len() + 3;

    /// What a connection's end means.
    pub fn of(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                Close::of(close.error_code).map_or(Self::Lost, Self::Closed)
            }
            ConnectionError::TimedOut => Self::Idle,
            ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::Reset
            | ConnectionError::LocallyClosed
            | ConnectionError::CidsExhausted => Self::Lost,
        }
    }

    fn number(self) -> usize {
        match self {
            Self::Closed(close) => close as usize,
            Self::Idle => Close::ALL.len(),
            Self::Lost => Close::ALL.len() + 1,
            Self::Refused => Close::ALL.len() + 2,
        }
    }

    /// The name in counters, logs and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed(close) => close.name(),
            Self::Idle => "idle",
            Self::Lost => "lost",
            Self::Refused => "refused",
        }
    }
}

/// All that is counted of the hub as a whole.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets that went on to a member.
    pub forwarded: Traffic,
    /// Sessions that were admitted.
    pub admitted: Count,
    dropped: [Count; Reason::ALL.len()],
    ended: [Count; Ending::COUNT],
}

impl Counters {
    /// Counts a packet that went to nobody.
    pub fn dropped(&self, reason: Reason) {
        self.dropped[reason.number()].add(1);
    }

    /// Counts the end of a session or a handshake.
    pub fn ended(&self, ending: Ending) {
        self.ended[ending.number()].add(1);
    }

    /// The drops there were, by the reason's name.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        named(Reason::ALL.iter().map(|reason| (reason.name(), self.dropped[reason.number()].get())))
    }

    /// The ends there were, by the reason's name.
    pub fn ends(&self) -> BTreeMap<String, u64> {
        let closed = Close::ALL.into_iter().map(Ending::Closed);
        let all = closed.chain([Ending::Idle, Ending::Lost, Ending::Refused]);
        named(all.map(|ending| (ending.name(), self.ended[ending.number()].get())))
    }
}

fn named(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_and_each_ending_has_a_count_and_a_name_of_its_own() {
        let counters = Counters::default();
        for reason in Reason::ALL {
            counters.dropped(reason);
            assert_eq!(counters.drops().get(reason.name()), Some(&1));
        }
        assert_eq!(counters.drops().len(), Reason::ALL.len());
        let endings = Close::ALL.into_iter().map(Ending::Closed);
        for ending in endings.chain([Ending::Idle, Ending::Lost, Ending::Refused]) {
            counters.ended(ending);
            assert_eq!(counters.ends().get(ending.name()), Some(&1));
        }
        assert_eq!(counters.ends().len(), Ending::COUNT);
    }
}
