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
    /// By a code of this end's; or by one of a peer that is done, or does not understand the hub.
    Closed(Close),
    /// The peer closed it by a code that is not a peer's to send, which tells nothing.
    PeerClosed,
    /// Nothing came any more.
    Idle,
    /// The connection failed.
    Lost,
    /// It was turned away at its first packet.
    Refused,
}

impl Ending {
    /// How many there are.
    const COUNT: usize = Close::ALL.len() + Self::OTHERS.len();
    /// Those without a code.
    const OTHERS: [Self; 4] = [Self::PeerClosed, Self::Idle, Self::Lost, Self::Refused];

    /// What it means that a connection ended by itself.
    pub fn of(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => match Close::of(close.error_code) {
                Some(why @ (Close::Ended | Close::Malformed)) => Self::Closed(why),
                // What a peer says of the hub's own decisions is not counted among them.
                Some(
                    Close::Stopping
                    | Close::Superseded
                    | Close::NotAdmitted
                    | Close::Withdrawn
                    | Close::Expired
                    | Close::Version
                    | Close::Busy
                    | Close::Late,
                )
                | None => Self::PeerClosed,
            },
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
            Self::PeerClosed => Close::ALL.len(),
            Self::Idle => Close::ALL.len() + 1,
            Self::Lost => Close::ALL.len() + 2,
            Self::Refused => Close::ALL.len() + 3,
        }
    }

    /// The name in counters, logs and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed(close) => close.name(),
            Self::PeerClosed => "peer-closed",
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
        let all = closed.chain(Ending::OTHERS);
        named(all.map(|ending| (ending.name(), self.ended[ending.number()].get())))
    }
}

fn named(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use coreflow_ipc::messages::hub_report::{COUNTED_REASONS, DROP_REASONS, END_REASONS, REASON_NAME};
    use quinn::{ApplicationClose, VarInt};

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
        for ending in endings.chain(Ending::OTHERS) {
            counters.ended(ending);
            assert_eq!(counters.ends().get(ending.name()), Some(&1));
        }
        assert_eq!(counters.ends().len(), Ending::COUNT);
        // Figures are told by these names alone.
        assert_eq!(Reason::ALL.map(Reason::name), DROP_REASONS);
        let endings = Close::ALL.into_iter().map(Ending::Closed).chain(Ending::OTHERS);
        assert_eq!(endings.map(Ending::name).collect::<Vec<_>>(), END_REASONS);
        // More, or a longer name, and the supervisor refuses the report.
        for counts in [counters.drops(), counters.ends()] {
            assert!(counts.len() <= COUNTED_REASONS && counts.keys().all(|name| name.len() <= REASON_NAME));
        }
    }

    /// A peer cannot make the hub say of it that it was withdrawn, or that its time has passed.
    #[test]
    fn a_peers_own_code_counts_as_the_peers() {
        let closed = |code| {
            let reason = ApplicationClose { error_code: code, reason: Bytes::new() };
            Ending::of(&ConnectionError::ApplicationClosed(reason))
        };
        for close in Close::ALL {
            let own = matches!(close, Close::Ended | Close::Malformed);
            let ending = if own { Ending::Closed(close) } else { Ending::PeerClosed };
            assert_eq!(closed(close.code()), ending, "{close}");
        }
        assert_eq!(closed(VarInt::from_u32(77)), Ending::PeerClosed);
    }
}
