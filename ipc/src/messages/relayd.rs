//! Supervisor ↔ relayd: everything that relayd may ask for, and what it is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bincode::{Decode, Encode};

use super::{
    FromWorker, ToWorker, message,
    readiness::Refusal,
    standing::{NodePage, RelaydStanding},
};
use crate::{
    asks::AskId,
    hello::Role,
    secret::SecretText,
    worker::{FromAnyWorker, ToAnyWorker},
};

/// Where Cloudly answers.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CloudlyEndpoint {
    /// Host name or IP literal, as a URL spells it.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether the session runs over TLS; without it only on loopback.
    pub tls: bool,
}

/// All that relayd is told before it acts.
#[derive(Encode, Decode)]
pub struct RelaydStart {
    /// Where Cloudly answers.
    pub cloudly: CloudlyEndpoint,
    /// DER certificates that Cloudly's chain may end in; relayd can open no file.
    pub trust_anchors: Vec<Vec<u8>>,
    /// What an earlier relayd of this service left (ARC-17).
    pub kept: Kept,
}

/// A public reference of Cloudly: an id and a generation, never material.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Id of the credential or record.
    pub id: String,
    /// Its generation.
    pub generation: u64,
}

/// What outlives a relayd, kept by the supervisor for the life of the service (ARC-17).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Kept {
    /// The last `registrationSequence` that was sent; the next one is higher (REG-13).
    pub last_sequence: Option<u64>,
    /// The relay credential pinned by the first acceptance (REG-41).
    pub credential: Option<Reference>,
    /// The registration record of the latest acceptance (REG-44).
    pub record: Option<Reference>,
    /// The parked statement, once the relay is parked (REG-54).
    pub parked: Option<String>,
}

/// A cluster identity that Cloudly issued for the bearer.
#[derive(Clone, Encode, Decode)]
pub struct Identity {
    /// The identity object as Cloudly wrote it; requests carry it verbatim.
    pub document: SecretText,
    /// Unix milliseconds of its end.
    pub expires_at: u64,
}

/// Why an ask for an identity got none.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum IdentityDenied {
    /// Cloudly refused the bearer; the refusal's name. It ends a start (START-18) and is tried again
    /// while the relay runs (SES-20).
    Refused(String),
    /// Cloudly answered what is no identity of a cluster; the path that is wrong.
    Unusable(String),
    /// Cloudly was not reached; the failure's class (SES-16).
    Unreachable(String),
    /// The relay is parked: no exchange happens any more (ARC-09).
    Parked,
}

/// Launch facts that are read only when the cluster has a relay block (CFG-17 – CFG-29).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ListenerFacts {
    /// `COREFLOW_NODE_ID`.
    pub node_id: String,
    /// `COREFLOW_RELAY_BIND_HOSTNAME`.
    pub bind_hostname: String,
    /// `COREFLOW_RELAY_BIND_PORT`.
    pub bind_port: u16,
    /// The managed VPN hub's address and UDP port, when the pair is configured.
    pub vpn: Option<VpnFacts>,
}

/// `COREFLOW_VPN_BIND_HOSTNAME` and `COREFLOW_VPN_QUIC_PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct VpnFacts {
    /// Address that the hub binds and advertises (CFG-24).
    pub address: Ipv4Addr,
    /// UDP port of the hub (CFG-25).
    pub quic_port: u16,
    /// Why no hub can run at all: its executable is missing or is none (CFG-41, VPN-36).
    pub unavailable: Option<String>,
}

/// Supervisor → relayd.
#[derive(Encode, Decode)]
pub enum ToRelayd {
    /// What is said to every worker.
    Worker(ToWorker),
    /// Configuration, once, after the hello.
    Start(RelaydStart),
    /// Answers [`FromRelayd::AskIdentity`].
    AnswerIdentity {
        /// The ask.
        id: AskId,
        /// The identity, or why there is none.
        answer: Result<Identity, IdentityDenied>,
    },
    /// Answers [`FromRelayd::AskAddresses`].
    AnswerAddresses {
        /// The ask.
        id: AskId,
        /// At least one address of Cloudly's host, or the failure's class.
        answer: Result<Vec<IpAddr>, String>,
    },
    /// Answers [`FromRelayd::AskListenerFacts`].
    AnswerListenerFacts {
        /// The ask.
        id: AskId,
        /// The facts, or the cause that fails the start, naming each variable.
        answer: Result<ListenerFacts, String>,
    },
    /// Answers [`FromRelayd::AskListener`]; a bound, listening TCP socket travels beside a success.
    AnswerListener {
        /// The ask.
        id: AskId,
        /// The address that was bound, or the cause that fails the start.
        answer: Result<SocketAddr, String>,
    },
    /// No hub can run any more, as [`VpnFacts::unavailable`] says of one that never could: its executable failed
    /// when vpnd was to be started again (VPN-36).
    HubUnavailable(String),
    /// Answered with [`FromRelayd::AnswerStanding`].
    AskStanding {
        /// Copied into the answer.
        id: AskId,
    },
    /// Answered with [`FromRelayd::AnswerNodes`]: the first nodes of the roster whose id comes after this one.
    AskNodes {
        /// Copied into the answer.
        id: AskId,
        /// The last id of the page before.
        after: Option<String>,
    },
}

/// Relayd → supervisor: the whole list of what relayd may ask or state.
#[derive(Encode, Decode)]
pub enum FromRelayd {
    /// What every worker says.
    Worker(FromWorker),
    /// Exchange the bearer for an identity (ARC-08).
    AskIdentity {
        /// Copied into the answer.
        id: AskId,
    },
    /// Resolve Cloudly's host; relayd can open no resolver.
    AskAddresses {
        /// Copied into the answer.
        id: AskId,
    },
    /// Read the launch facts of a cluster with a relay block.
    AskListenerFacts {
        /// Copied into the answer.
        id: AskId,
        /// The origin of the relay block, for pulld.
        relay_origin: String,
    },
    /// Bind the listener's socket, as the last step of the start (START-03).
    AskListener {
        /// Copied into the answer.
        id: AskId,
    },
    /// What the start waits for, in words for the operator.
    Waiting {
        /// Such as `Cloudly to accept the protocol offer`.
        what: String,
    },
    /// The relay is open for Cloudly dispatch.
    Open,
    /// What the supervisor keeps beyond this process.
    Keep(Kept),
    /// What blocks the hops; empty when nothing does (PROT-21).
    Readiness {
        /// At most one per hop and kind, in the order of the hops.
        refusals: Vec<Refusal>,
    },
    /// Answers [`ToRelayd::AskStanding`].
    AnswerStanding {
        /// The ask.
        id: AskId,
        /// One look.
        standing: Box<RelaydStanding>,
    },
    /// Answers [`ToRelayd::AskNodes`].
    AnswerNodes {
        /// The ask.
        id: AskId,
        /// The page.
        page: NodePage,
    },
    /// A link between workers ended while relayd goes on; the supervisor makes a new one, unless it did.
    LinkLost {
        /// Who held the other end.
        role: Role,
        /// The number of the link among those to `role` that this relayd was given, from 1.
        number: u64,
    },
    /// The start cannot succeed (START-15).
    StartFailed {
        /// The cause, by name.
        cause: String,
    },
}

message!(ToRelayd, 1 << 20, |message| match message {
    ToRelayd::Worker(worker) => worker.descriptors(),
    ToRelayd::AnswerListener { answer: Ok(_), .. } => 1,
    ToRelayd::AnswerListener { answer: Err(_), .. }
    | ToRelayd::Start(_)
    | ToRelayd::AnswerIdentity { .. }
    | ToRelayd::AnswerAddresses { .. }
    | ToRelayd::AnswerListenerFacts { .. }
    | ToRelayd::HubUnavailable(_)
    | ToRelayd::AskStanding { .. }
    | ToRelayd::AskNodes { .. } => 0,
});
message!(FromRelayd, 32 << 10);

impl FromAnyWorker for FromRelayd {
    fn of_worker(message: FromWorker) -> Self {
        Self::Worker(message)
    }
}

impl ToAnyWorker for ToRelayd {
    fn for_worker(self) -> Result<ToWorker, Self> {
        match self {
            Self::Worker(message) => Ok(message),
            other => Err(other),
        }
    }
}
