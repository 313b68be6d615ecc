//! How much of the nodes' requests is on its way to Cloudly: bounded for each node, so that none takes
//! the others' share, and in all, so that they cannot fill the session's queue together.

use std::collections::BTreeMap;

use super::Socket;
use crate::constants::{FORWARD_OVERHEAD, FORWARDS_BYTES, NODE_IN_FLIGHT, NODE_IN_FLIGHT_BYTES};

/// Requests and bytes in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    sockets: BTreeMap<Socket, (usize, usize)>,
    bytes: usize,
}

impl InFlight {
    /// Whether a request with a body of `bytes` fits.
    pub(super) fn admits(&self, socket: Socket, bytes: usize) -> bool {
        let bytes = bytes + FORWARD_OVERHEAD;
        let (requests, held) = self.sockets.get(&socket).copied().unwrap_or_default();
        requests < NODE_IN_FLIGHT
            && held + bytes <= NODE_IN_FLIGHT_BYTES
            && self.bytes + bytes <= FORWARDS_BYTES
    }

    /// Counts a request that goes on its way.
    pub(super) fn take(&mut self, socket: Socket, bytes: usize) {
        let bytes = bytes + FORWARD_OVERHEAD;
        let (requests, held) = self.sockets.entry(socket).or_default();
        *requests += 1;
        *held += bytes;
        self.bytes += bytes;
    }

    /// A request was answered.
    pub(super) fn give_back(&mut self, socket: Socket, bytes: usize) {
        let bytes = bytes + FORWARD_OVERHEAD;
        let Some((requests, held)) = self.sockets.get_mut(&socket) else { return };
        *requests -= 1;
        *held -= bytes;
        self.bytes -= bytes;
        if *requests == 0 {
            self.sockets.remove(&socket);
        }
    }

    /// The socket ended, and its requests with it.
    pub(super) fn close(&mut self, socket: Socket) {
        if let Some((_, held)) = self.sockets.remove(&socket) {
            self.bytes -= held;
        }
    }

    /// Requests in flight.
    pub(super) fn count(&self) -> usize {
        self.sockets.values().map(|(requests, _)| requests).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{CLOUDLY_QUEUE, NODE_MESSAGE_LIMIT};

    #[test]
    fn one_node_takes_its_share_and_no_more() {
        let mut in_flight = InFlight::default();
        while in_flight.admits(1, NODE_MESSAGE_LIMIT) {
            in_flight.take(1, NODE_MESSAGE_LIMIT);
        }
        assert!(in_flight.count() >= 1, "one largest message always fits");
        assert!(in_flight.admits(2, NODE_MESSAGE_LIMIT), "another node has its own");
        in_flight.give_back(1, NODE_MESSAGE_LIMIT);
        assert!(in_flight.admits(1, NODE_MESSAGE_LIMIT));
        let mut many = InFlight::default();
        (0..NODE_IN_FLIGHT).for_each(|_| many.take(1, 2));
        assert!(!many.admits(1, 2), "its requests are used up");
    }

    #[test]
    fn all_nodes_together_leave_room_in_the_session_s_queue() {
        for body in [2, 4096, NODE_MESSAGE_LIMIT] {
            let (mut in_flight, mut socket) = (InFlight::default(), 0);
            while in_flight.admits(socket, body) {
                in_flight.take(socket, body);
                socket += 1;
            }
            assert!(in_flight.bytes <= FORWARDS_BYTES && in_flight.count() < CLOUDLY_QUEUE);
            in_flight.close(0);
            assert!(in_flight.admits(socket, body));
            (1..socket).for_each(|socket| in_flight.close(socket));
            assert_eq!((in_flight.bytes, in_flight.count()), (0, 0));
        }
    }
}
