//! The relay's state as one value: what the supervisor answers over its control socket, and what
//! `coreflowctl` prints as plain text and as JSON (PROT-21, PROT-22, PROT-24, PROT-25, PROT-35, OPS-02).
//!
//! It holds public facts alone: no bearer, identity, key or body has a place in it.

use std::net::SocketAddr;

use coreflow_ipc::messages::{
    readiness::Refusal,
    relayd::Reference,
    standing::{PulldStanding, RelaydStanding},
};
use serde::{Deserialize, Serialize};

mod confined;
mod standing;
mod text;
mod upgrade;
mod vpn_hub;
mod worker;

pub use confined::{Confined, LayerState};
pub use standing::{bounded_page, bounded_standing};
pub use vpn_hub::VpnHub;
pub use worker::{Memory, Worker, WorkerState, table};

/// One look at the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The build.
    pub version: String,
    /// The supervisor's process id.
    pub pid: u32,
    /// How long the supervisor runs, in milliseconds.
    pub uptime_ms: u64,
    /// How far the relay is.
    pub state: State,
    /// What a relay that is not open waits for, in words; a parked one waits for nothing.
    pub waiting_for: Option<String>,
    /// `checkReadiness()` of the contract, section 9.
    pub readiness: Readiness,
    /// The address that the listener is bound to.
    pub listener: Option<SocketAddr>,
    /// What stands between this relay and Cloudly.
    pub registration: Registration,
    /// How relayd stands; none while there is none that can be asked, and of one that does not answer.
    pub relayd: Option<RelaydStanding>,
    /// How pulld stands, in the same way.
    pub pulld: Option<PulldStanding>,
    /// The workers that were asked and did not answer in time.
    pub unanswered: Vec<String>,
    /// The managed VPN hub, once the launch facts are read and name one.
    pub vpn_hub: Option<VpnHub>,
    /// The workers, always all three.
    pub workers: Vec<Worker>,
}

/// How far the relay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It was not open yet.
    Starting,
    /// It is open for Cloudly dispatch.
    Open,
    /// It was open, and its relayd is being started again.
    Restarting,
    /// It stops.
    Stopping,
}

/// Whether the relay serves all its hops, and what blocks them (PROT-21, PROT-22).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// The relay is open and nothing blocks a hop.
    pub ready: bool,
    /// One entry for each thing that blocks a hop, in the order of the hops.
    pub refusals: Vec<Refusal>,
}

/// The registration as the supervisor keeps it (ARC-17).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The relay credential pinned by the first acceptance.
    pub credential: Option<Reference>,
    /// The registration record of the latest acceptance.
    pub record: Option<Reference>,
    /// The parked statement, once the relay is parked.
    pub parked: Option<String>,
}

impl Status {
    /// The plain text, for an operator's one look.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// The JSON document; see [`json`].
    pub fn json(&self) -> String {
        json(self)
    }
}

/// A document in lines for people. Control characters that JSON would let through are escaped.
pub fn json(document: &impl Serialize) -> String {
    let json = serde_json::to_string_pretty(document).expect("its keys are text, and no part of it fails");
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        // Outside of strings there is no control character but the end of a line.
        if character.is_control() && character != '\n' {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
pub(crate) mod tests;
