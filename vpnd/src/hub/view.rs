//! What packets are judged by: one network and the sessions of its members, as they stand together. It never
//! changes; another takes its place (VPN-15, VPN-16).

use std::sync::Arc;

use super::{network::Network, slots::Slots};

/// A session, by a number that the hub gives once.
pub type SessionId = u64;

/// An immutable look at who is who and who is there.
#[derive(Debug)]
pub struct View {
    network: Arc<Network>,
    /// By the members' places.
    sessions: Slots<SessionId>,
}

impl View {
    /// The view of `network` with the sessions of its members by their places.
    pub fn new(network: Arc<Network>, sessions: Slots<SessionId>) -> Self {
        Self { network, sessions }
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The session of the member at `place`.
    pub fn session(&self, place: usize) -> Option<SessionId> {
        self.sessions.get(place).copied()
    }

    /// The place of the member with `key`, whose session this is; none once it is nobody's.
    pub fn place(&self, key: &[u8; 32], session: SessionId) -> Option<usize> {
        let place = self.network.place(key)?;
        (self.session(place) == Some(session)).then_some(place)
    }

    /// The sessions there are, by the members' places.
    pub fn sessions(&self) -> &Slots<SessionId> {
        &self.sessions
    }
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.network.held() == other.network.held() && self.sessions == other.sessions
    }
}

impl Eq for View {}
