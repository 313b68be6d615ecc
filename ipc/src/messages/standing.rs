//! How relayd and pulld stand, for an operator's look: numbers and public facts that the supervisor asks for when
//! it is asked itself. Nothing here is sent unasked, and no body, token, key or table has a place in it.

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Nodes of one page of the roster at most, each with an id of at most 128 characters.
pub const NODES_OF_PAGE: usize = 128;

/// One look at relayd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RelaydStanding {
    /// The session with Cloudly.
    pub session: SessionStanding,
    /// The listener's certificate, once there is one.
    pub certificate: Option<CertificateStanding>,
    /// What the listener carries.
    pub nodes: NodesStanding,
    /// The DNS lease renewals that are held.
    pub escrow: EscrowStanding,
    /// The cluster ingress and its route table.
    pub ingress: IngressStanding,
    /// Image pulls under way.
    pub pulls: u32,
    /// What happened since this relayd started.
    pub counters: RelaydCounters,
}

/// The session with Cloudly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SessionStanding {
    /// `controlPlaneReady`.
    pub dispatchable: bool,
    /// Connections on which the session registered (OUT-02).
    pub connections: u64,
    /// When the held identity ends, in Unix milliseconds.
    pub identity_ends_at: Option<u64>,
}

/// The certificate that the listener serves.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CertificateStanding {
    /// The one domain that it names.
    pub domain: String,
    /// Its end, in Unix milliseconds.
    pub ends_at: u64,
    /// When its renewal is tried next, in Unix milliseconds by the clock of now; none while one is under way, and
    /// none without a session, for a parked relay and during its stop.
    pub renewed_at: Option<u64>,
}

/// What the listener carries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodesStanding {
    /// WebSocket connections, of nodes, the ingress and whoever has not said yet.
    pub sockets: u32,
    /// Nodes that are carried.
    pub carried: u32,
    /// Of those, nodes whose registration is of an older connection of the session (OUT-04).
    pub awaiting: u32,
    /// Requests of nodes that wait for Cloudly.
    pub requests: u32,
    /// Pushes that wait for a node.
    pub pushes: u32,
}

/// The DNS lease renewals that are held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EscrowStanding {
    /// `open`, `stop`, or the refusal that ended custody (ESC-50).
    pub custody: String,
    /// Runs, one for a node at most.
    pub runs: u32,
    /// Renewals in all runs whose window has not ended.
    pub windows: u32,
    /// Runs with a renewal that is due by the relay's clock (ESC-26).
    pub due: u32,
    /// Offers that wait for a node.
    pub offers: u32,
    /// When the last window of all runs ends, in Unix milliseconds.
    pub last_ends_at: Option<u64>,
}

/// The cluster ingress and its route table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct IngressStanding {
    /// Whether an ingress is bound (ING-24).
    pub bound: bool,
    /// The held table's revision (ING-05).
    pub revision: Option<u64>,
    /// How many routes it holds (ING-05).
    pub routes: u32,
}

/// What happened since this relayd started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RelaydCounters {
    /// Registrations of nodes that Cloudly answered with a binding.
    pub registrations: u64,
    /// Requests of nodes that were handed to Cloudly, each once.
    pub requests: u64,
    /// Requests of nodes that the relay answered itself: refused, out of time, or cut off by a lost session.
    pub requests_refused: u64,
    /// Pushes that were handed to a node.
    pub pushes: u64,
    /// Pushes that the relay answered itself: for a node that is not connected, or that did not answer in time.
    pub pushes_refused: u64,
    /// Nodes that were asked to register again (OUT-08).
    pub asked_again: u64,
    /// Offers of a renewal to a node; one that is made anew counts again (ESC-34).
    pub renewals_offered: u64,
    /// Renewals that a node acknowledged.
    pub renewals_acknowledged: u64,
    /// Pulls that were answered with what the registry said.
    pub pulls: u64,
    /// Requests under `/v2/` that the relay answered itself.
    pub pulls_refused: u64,
    /// Connections of the listener that ended in their handshake or before it, for want of a place or of a
    /// handshake, and upgrades that found no place.
    pub connections_refused: u64,
}

/// How a node of the local roster stands (XTR-20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// Its registration is of this connection of the session, which is dispatchable.
    Registered,
    /// It is connected while the relay has no session; its registration is the latest that there was.
    Carried,
    /// It is connected and its registration is of an older connection of the session.
    AwaitingRegistration,
}

/// A node of the local roster.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeStanding {
    /// Its id.
    pub id: String,
    /// How it stands.
    pub state: NodeState,
}

/// A page of the roster, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodePage {
    /// At most [`NODES_OF_PAGE`], the first of those after the id that was asked for.
    pub nodes: Vec<NodeStanding>,
    /// Whether there are more after them.
    pub more: bool,
}

/// One look at pulld.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PulldStanding {
    /// Exchanges under way.
    pub exchanges: u32,
    /// Connections to the registry, busy ones and kept ones.
    pub connections: u32,
    /// Asks for a connection that the supervisor has not answered.
    pub asks: u32,
    /// Exchanges that the registry answered since this pulld started.
    pub answered: u64,
    /// Exchanges that failed before their answer, or whose answer's body was cut: the latter were answered too.
    pub failed: u64,
}
