//! What a worker may ask or state, and when: the whole list of what the unprivileged side can make
//! the supervisor do.
//!
//! An unpermitted, repeated or unordered message ends the worker, by name.

use std::collections::BTreeSet;

/// A kind of message from a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Hello.
    Hello,
    /// The confinement's report.
    Confined,
    /// A log record.
    Record,
    /// An answer to a ping.
    Pong,
    /// The worker stopped.
    Stopped,
    /// relayd asks for an identity.
    AskIdentity,
    /// relayd asks for Cloudly's addresses.
    AskAddresses,
    /// relayd asks for the launch facts of a cluster with a relay block.
    AskListenerFacts,
    /// relayd asks for the listener.
    AskListener,
    /// relayd states what the start waits for.
    Waiting,
    /// pulld asks for a connection to the registry.
    AskConnection,
    /// vpnd asks for its UDP socket.
    AskSocket,
    /// vpnd says how its hub stands.
    Report,
    /// relayd is open.
    Open,
    /// relayd hands over what outlives it.
    Keep,
    /// relayd states what blocks its hops.
    Readiness,
    /// relayd or pulld answers how it stands.
    AnswerStanding,
    /// relayd answers with a page of its roster.
    AnswerNodes,
    /// relayd states that a link between workers ended.
    LinkLost,
    /// relayd's start cannot succeed.
    StartFailed,
}

/// How far a worker has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing came yet.
    New,
    /// The hello came and was accepted.
    Greeted,
    /// The confinement was reported.
    Confined,
    /// relayd got the launch facts.
    Informed,
    /// relayd is open.
    Open,
    /// The worker said its last.
    Stopped,
}

/// The table: kind, from which phase, up to which phase, and whether only once.
const PERMITTED: [(Kind, Phase, Phase, bool); 20] = [
    (Kind::Hello, Phase::New, Phase::New, true),
    (Kind::Confined, Phase::Greeted, Phase::Greeted, true),
    (Kind::Record, Phase::Confined, Phase::Open, false),
    (Kind::Pong, Phase::Confined, Phase::Open, false),
    (Kind::Stopped, Phase::Confined, Phase::Open, true),
    (Kind::AskIdentity, Phase::Confined, Phase::Open, false),
    (Kind::AskAddresses, Phase::Confined, Phase::Open, false),
    (Kind::AskConnection, Phase::Confined, Phase::Open, false),
    (Kind::AskSocket, Phase::Confined, Phase::Open, false),
    (Kind::Report, Phase::Confined, Phase::Open, false),
    (Kind::AskListenerFacts, Phase::Confined, Phase::Confined, true),
    (Kind::AskListener, Phase::Informed, Phase::Informed, true),
    (Kind::Waiting, Phase::Confined, Phase::Open, false),
    (Kind::Open, Phase::Confined, Phase::Informed, true),
    (Kind::Keep, Phase::Confined, Phase::Open, false),
    (Kind::Readiness, Phase::Confined, Phase::Open, false),
    (Kind::AnswerStanding, Phase::Confined, Phase::Open, false),
    (Kind::AnswerNodes, Phase::Confined, Phase::Open, false),
    (Kind::LinkLost, Phase::Confined, Phase::Open, false),
    (Kind::StartFailed, Phase::Confined, Phase::Informed, true),
];

/// A message that its worker may not send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpermitted {
    /// What was sent.
    pub kind: Kind,
    /// In which phase.
    pub phase: Phase,
    /// Whether it was permitted, but only once.
    pub repeated: bool,
}

impl std::fmt::Display for Unpermitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fault = if self.repeated { "repeated" } else { "unpermitted" };
        write!(f, "ipc-message-{fault}: {:?} in phase {:?}", self.kind, self.phase)
    }
}

/// The gate of one worker process.
#[derive(Debug)]
pub struct Gate {
    phase: Phase,
    seen: BTreeSet<Kind>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { phase: Phase::New, seen: BTreeSet::new() }
    }
}

impl Gate {
    /// Admits a message and moves on, or names what was wrong with it.
    pub fn admit(&mut self, kind: Kind) -> Result<(), Unpermitted> {
        let unpermitted = |repeated| Unpermitted { kind, phase: self.phase, repeated };
        let (_, from, until, once) = PERMITTED
            .iter()
            .find(|(permitted, ..)| *permitted == kind)
            .copied()
            .expect("the table has a row for each kind");
        if once && self.seen.contains(&kind) {
            return Err(unpermitted(true));
        }
        if !(from..=until).contains(&self.phase) {
            return Err(unpermitted(false));
        }
        self.seen.insert(kind);
        self.phase = match kind {
            Kind::Hello => Phase::Greeted,
            Kind::Confined => Phase::Confined,
            Kind::AskListenerFacts => Phase::Informed,
            Kind::Open => Phase::Open,
            Kind::Stopped => Phase::Stopped,
            Kind::Record
            | Kind::Pong
            | Kind::AskIdentity
            | Kind::AskAddresses
            | Kind::AskConnection
            | Kind::AskSocket
            | Kind::Report
            | Kind::AskListener
            | Kind::Waiting
            | Kind::Keep
            | Kind::Readiness
            | Kind::AnswerStanding
            | Kind::AnswerNodes
            | Kind::LinkLost
            | Kind::StartFailed => self.phase,
        };
        Ok(())
    }

    /// How far the worker has come.
    pub fn phase(&self) -> Phase {
        self.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(kinds: &[Kind]) -> Result<Phase, Unpermitted> {
        let mut gate = Gate::default();
        for kind in kinds {
            gate.admit(*kind)?;
        }
        Ok(gate.phase())
    }

    const GREETED: [Kind; 2] = [Kind::Hello, Kind::Confined];

    #[test]
    fn the_specified_order_is_admitted() {
        let with_listener = [
            Kind::Hello,
            Kind::Confined,
            Kind::Record,
            Kind::AskIdentity,
            Kind::AskAddresses,
            Kind::AskListenerFacts,
            Kind::AskListener,
            Kind::Open,
            Kind::Keep,
            Kind::Pong,
            Kind::Stopped,
        ];
        assert_eq!(admitted(&with_listener), Ok(Phase::Stopped));
        assert_eq!(admitted(&[Kind::Hello, Kind::Confined, Kind::Open]), Ok(Phase::Open));
    }

    /// A worker that asks out of order, twice, or before its hello is refused by name.
    #[test]
    fn what_is_out_of_order_or_repeated_is_refused() {
        for kind in PERMITTED.map(|(kind, ..)| kind).into_iter().filter(|kind| *kind != Kind::Hello) {
            assert!(admitted(&[kind]).is_err(), "{kind:?} before the hello");
        }
        for (more, repeated) in [
            (&[Kind::Hello][..], true),
            (&[Kind::Confined], true),
            (&[Kind::AskListener], false),
            (&[Kind::AskListenerFacts, Kind::AskListenerFacts], true),
            (&[Kind::AskListenerFacts, Kind::AskListener, Kind::AskListener], true),
            (&[Kind::Open, Kind::Open], true),
            (&[Kind::Open, Kind::StartFailed], false),
            (&[Kind::Open, Kind::AskListenerFacts], false),
            (&[Kind::Stopped, Kind::Record], false),
        ] {
            let error = admitted(&[&GREETED, more].concat()).unwrap_err();
            assert_eq!(error.repeated, repeated, "{error}");
        }
    }
}
