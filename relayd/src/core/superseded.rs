//! Sockets whose node is carried, or whose ingress is bound, on another one: each is closed after a grace, unless it
//! is again what a node or the ingress is served on (FWD-14, ING-25, OUT-10).

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{constants::SUPERSEDED_GRACE, forwarder::Socket};

/// The sockets in the order in which they were superseded; an entry counts while it is the latest of its
/// socket.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    queue: VecDeque<(Duration, Socket)>,
    latest: BTreeMap<Socket, Duration>,
}

impl Superseded {
    pub(super) fn add(&mut self, socket: Socket, mono: Duration) {
        let due = mono + SUPERSEDED_GRACE;
        self.queue.push_back((due, socket));
        self.latest.insert(socket, due);
    }

    /// The socket ended by itself.
    pub(super) fn ended(&mut self, socket: Socket) {
        self.latest.remove(&socket);
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// The sockets whose grace is over.
    pub(super) fn take_due(&mut self, mono: Duration) -> Vec<Socket> {
        let mut sockets = Vec::new();
        while let Some((due, socket)) = self.queue.pop_front_if(|(due, _)| *due <= mono) {
            if self.latest.get(&socket) == Some(&due) {
                self.latest.remove(&socket);
                sockets.push(socket);
            }
        }
        sockets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_socket_has_its_grace_from_the_last_time_on() {
        let mut superseded = Superseded::default();
        superseded.add(1, S);
        superseded.add(2, 2 * S);
        superseded.add(1, 20 * S);
        superseded.add(3, 21 * S);
        superseded.ended(3);
        assert_eq!((superseded.next_deadline(), superseded.take_due(30 * S)), (Some(31 * S), vec![]));
        assert_eq!(superseded.take_due(32 * S), [2]);
        assert_eq!((superseded.take_due(60 * S), superseded.next_deadline()), (vec![1], None));
        assert!(superseded.latest.is_empty());
    }
}
