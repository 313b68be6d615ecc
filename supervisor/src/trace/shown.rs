//! What of each message of a supervisor's link may be shown: its name, its number, and a word of this program.
//! No text, identity, key, certificate, address, node or table of a message has a place here (LOG-01).

use coreflow_ipc::{
    asks::AskId,
    hello::{Hello, Role},
    messages::{
        FromWorker, ToWorker,
        hub_report::HubReport,
        pulld::{FromPulld, PulldStart, ToPulld},
        relayd::{FromRelayd, Identity, IdentityDenied, Kept, RelaydStart, ToRelayd},
        vpnd::{FromVpnd, ToVpnd},
    },
    record::Record,
};
use serde::Serialize;

/// What is shown of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The message's name.
    pub kind: &'static str,
    /// The number by which an answer belongs to its ask, or a pong to its ping.
    pub id: Option<AskId>,
    /// What else of it is public: whether an ask was granted, a level, a role.
    pub note: Option<&'static str>,
}

impl Shown {
    fn named(kind: &'static str) -> Self {
        Self { kind, id: None, note: None }
    }

    fn numbered(kind: &'static str, id: AskId) -> Self {
        Self { id: Some(id), ..Self::named(kind) }
    }

    fn noted(kind: &'static str, note: &'static str) -> Self {
        Self { note: Some(note), ..Self::named(kind) }
    }

    /// An answer: that it was granted or refused, and not what.
    fn answered<T, E>(kind: &'static str, id: AskId, answer: &Result<T, E>) -> Self {
        let note = if answer.is_ok() { "granted" } else { "refused" };
        Self { kind, id: Some(id), note: Some(note) }
    }
}

/// A message of which something may be shown.
pub trait Traceable {
    /// What.
    fn shown(&self) -> Shown;
}

fn role(role: Role) -> &'static str {
    role.name()
}

impl Traceable for ToWorker {
    fn shown(&self) -> Shown {
        match self {
            Self::Hello(Hello { protocol: _, version: _, role: who, pid: _ }) => {
                Shown::noted("Hello", role(*who))
            }
            Self::PeerLink { role: who } => Shown::noted("PeerLink", role(*who)),
            Self::LogLevel(level) => Shown::noted("LogLevel", level.word()),
            Self::Ping(number) => Shown::numbered("Ping", *number),
            Self::Stop => Shown::named("Stop"),
        }
    }
}

impl Traceable for FromWorker {
    fn shown(&self) -> Shown {
        match self {
            Self::Hello(Hello { protocol: _, version: _, role: who, pid: _ }) => {
                Shown::noted("Hello", role(*who))
            }
            Self::Confined(report) => {
                let degraded = report.degraded().next().is_some();
                Shown::noted("Confined", if degraded { "degraded" } else { "in full" })
            }
            Self::Record(Record { level, message: _, fields: _ }) => Shown::noted("Record", level.word()),
            Self::Pong(number) => Shown::numbered("Pong", *number),
            Self::Stopped => Shown::named("Stopped"),
        }
    }
}

impl Traceable for ToRelayd {
    fn shown(&self) -> Shown {
        match self {
            Self::Worker(message) => message.shown(),
            Self::Start(RelaydStart { cloudly: _, trust_anchors: _, kept: _ }) => Shown::named("Start"),
            Self::AnswerIdentity { id, answer } => {
                match answer {
                    Ok(Identity { document: _, expires_at: _ }) => {}
                    Err(
                        IdentityDenied::Refused(_)
                        | IdentityDenied::Unusable(_)
                        | IdentityDenied::Unreachable(_)
                        | IdentityDenied::Parked,
                    ) => {}
                }
                Shown::answered("AnswerIdentity", *id, answer)
            }
            Self::AnswerAddresses { id, answer } => Shown::answered("AnswerAddresses", *id, answer),
            Self::AnswerListenerFacts { id, answer } => Shown::answered("AnswerListenerFacts", *id, answer),
            Self::AnswerListener { id, answer } => Shown::answered("AnswerListener", *id, answer),
            Self::HubUnavailable(_) => Shown::named("HubUnavailable"),
            Self::AskStanding { id } => Shown::numbered("AskStanding", *id),
            Self::AskNodes { id, after: _ } => Shown::numbered("AskNodes", *id),
        }
    }
}

impl Traceable for FromRelayd {
    fn shown(&self) -> Shown {
        match self {
            Self::Worker(message) => message.shown(),
            Self::AskIdentity { id } => Shown::numbered("AskIdentity", *id),
            Self::AskAddresses { id } => Shown::numbered("AskAddresses", *id),
            Self::AskListenerFacts { id, relay_origin: _ } => Shown::numbered("AskListenerFacts", *id),
            Self::AskListener { id } => Shown::numbered("AskListener", *id),
            Self::Waiting { what: _ } => Shown::named("Waiting"),
            Self::Open => Shown::named("Open"),
            Self::Keep(Kept { last_sequence: _, credential: _, record: _, parked: _ }) => {
                Shown::named("Keep")
            }
            Self::Readiness { refusals } => {
                Shown::noted("Readiness", if refusals.is_empty() { "nothing blocks" } else { "blocked" })
            }
            Self::AnswerStanding { id, standing: _ } => Shown::numbered("AnswerStanding", *id),
            Self::AnswerNodes { id, page: _ } => Shown::numbered("AnswerNodes", *id),
            Self::LinkLost { role: who, number: _ } => Shown::noted("LinkLost", role(*who)),
            Self::StartFailed { cause: _ } => Shown::named("StartFailed"),
        }
    }
}

impl Traceable for ToPulld {
    fn shown(&self) -> Shown {
        match self {
            Self::Worker(message) => message.shown(),
            Self::Start(PulldStart { registry_origin: _, relay_origin: _, trust_anchors: _ }) => {
                Shown::named("Start")
            }
            Self::AnswerConnection { id, answer } => Shown::answered("AnswerConnection", *id, answer),
            Self::AskStanding { id } => Shown::numbered("AskStanding", *id),
        }
    }
}

impl Traceable for FromPulld {
    fn shown(&self) -> Shown {
        match self {
            Self::Worker(message) => message.shown(),
            Self::AskConnection { id } => Shown::numbered("AskConnection", *id),
            Self::AnswerStanding { id, standing: _ } => Shown::numbered("AnswerStanding", *id),
        }
    }
}

impl Traceable for ToVpnd {
    fn shown(&self) -> Shown {
        match self {
            Self::Worker(message) => message.shown(),
            Self::AnswerSocket { id, answer } => Shown::answered("AnswerSocket", *id, answer),
        }
    }
}

impl Traceable for FromVpnd {
    fn shown(&self) -> Shown {
        match self {
            Self::Worker(message) => message.shown(),
            Self::AskSocket { id } => Shown::numbered("AskSocket", *id),
            Self::Report(HubReport { revision, .. }) => {
                Shown::noted("Report", if revision.is_some() { "serves" } else { "serves nothing" })
            }
        }
    }
}
