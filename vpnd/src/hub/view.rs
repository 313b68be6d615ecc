//! What packets are judged by: one network and the sessions of its members, as they stand together. It never
//! changes; another takes its place (VPN-15, VPN-16).

use std::sync::Arc;

use super::network::Network;

/// A session, by a number that the hub gives once.
pub type SessionId = u64;

/// An immutable look at who is who and who is there.
#[derive(Debug)]
pub struct View {
    network: Arc<Network>,
    /// By the members' places.
    sessions: Vec<Option<SessionId>>,
    /// Ascending, with the place of each.
    places: Vec<(SessionId, usize)>,
}

impl View {
    /// The view of `network` with the sessions of its members by their places.
    pub fn new(network: Arc<Network>, sessions: Vec<Option<SessionId>>) -> Self {
        let with_session = sessions.iter().enumerate();
        let mut places: Vec<_> =
            with_session.filter_map(|(place, session)| Some(((*session)?, place))).collect();
        places.sort_unstable();
        Self { network, sessions, places }
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The session of the member at `place`.
    pub fn session(&self, place: usize) -> Option<SessionId> {
        *self.sessions.get(place)?
    }

    /// The place of the member whose session this is; none once it is nobody's.
    pub fn place(&self, session: SessionId) -> Option<usize> {
        let at = self.places.binary_search_by_key(&session, |(held, _)| *held).ok()?;
        Some(self.places[at].1)
    }

    /// The sessions there are, with the place of each.
    pub fn sessions(&self) -> &[(SessionId, usize)] {
        &self.places
    }
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.network.held() == other.network.held() && self.sessions == other.sessions
    }
}

impl Eq for View {}
