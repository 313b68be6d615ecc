//! How much of the nodes' requests is on its way to Cloudly: bounded for each socket, so that none takes
//! the others' share, and in all, so that they cannot fill the session's queue together. Sockets on which no
//! node is carried have a small share of their own: no stranger can take that of the nodes.

use std::collections::BTreeMap;

use super::Socket;
use crate::constants::{
    FORWARD_OVERHEAD, FORWARDS_BYTES, NODE_IN_FLIGHT, NODE_IN_FLIGHT_BYTES, STRANGER_IN_FLIGHT,
    STRANGER_IN_FLIGHT_BYTES, STRANGERS_BYTES,
};

/// Whose share a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// Of a socket that a node is carried on.
    Node,
    /// Of any other socket.
    Stranger,
}

impl Share {
    /// Requests and bytes of one socket, and bytes of all.
    fn bounds(self) -> (usize, usize, usize) {
        match self {
            Self::Node => (NODE_IN_FLIGHT, NODE_IN_FLIGHT_BYTES, FORWARDS_BYTES - STRANGERS_BYTES),
            Self::Stranger => (STRANGER_IN_FLIGHT, STRANGER_IN_FLIGHT_BYTES, STRANGERS_BYTES),
        }
    }
}

/// Requests and bytes of one socket; of its bytes, how many were taken as a stranger's.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    requests: usize,
    bytes: usize,
    strange: usize,
}

/// Requests and bytes in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    sockets: BTreeMap<Socket, Held>,
    node_bytes: usize,
    strange_bytes: usize,
}

impl InFlight {
    /// Whether a request with a body of `bytes` fits.
    pub(super) fn admits(&self, socket: Socket, bytes: usize, share: Share) -> bool {
        let bytes = bytes + FORWARD_OVERHEAD;
        let held = self.sockets.get(&socket).copied().unwrap_or_default();
        let (requests, of_socket, of_all) = share.bounds();
        let all = match share {
            Share::Node => self.node_bytes,
            Share::Stranger => self.strange_bytes,
        };
        held.requests < requests && held.bytes + bytes <= of_socket && all + bytes <= of_all
    }

    /// Counts a request that goes on its way.
    pub(super) fn take(&mut self, socket: Socket, bytes: usize, share: Share) {
        let bytes = bytes + FORWARD_OVERHEAD;
        let held = self.sockets.entry(socket).or_default();
        held.requests += 1;
        held.bytes += bytes;
        match share {
            Share::Node => self.node_bytes += bytes,
            Share::Stranger => {
                held.strange += bytes;
                self.strange_bytes += bytes;
            }
        }
    }

    /// A request was answered; `share` is the one that it took.
    pub(super) fn give_back(&mut self, socket: Socket, bytes: usize, share: Share) {
        let bytes = bytes + FORWARD_OVERHEAD;
        let Some(held) = self.sockets.get_mut(&socket) else { return };
        held.requests -= 1;
        held.bytes -= bytes;
        match share {
            Share::Node => self.node_bytes -= bytes,
            Share::Stranger => {
                held.strange -= bytes;
                self.strange_bytes -= bytes;
            }
        }
        if held.requests == 0 {
            self.sockets.remove(&socket);
        }
    }

    /// The socket ended, and its requests with it.
    pub(super) fn close(&mut self, socket: Socket) {
        if let Some(held) = self.sockets.remove(&socket) {
            self.strange_bytes -= held.strange;
            self.node_bytes -= held.bytes - held.strange;
        }
    }

    /// Whether a request of the socket is in flight.
    pub(super) fn holds(&self, socket: Socket) -> bool {
        self.sockets.contains_key(&socket)
    }

    /// Requests in flight.
    pub(super) fn count(&self) -> usize {
        self.sockets.values().map(|held| held.requests).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{CLOUDLY_QUEUE, NODE_MESSAGE_LIMIT};

    /// Takes what fits, one request a socket.
    fn fill(in_flight: &mut InFlight, body: usize, share: Share) -> u64 {
        let mut socket = 1_000_000;
        while in_flight.admits(socket, body, share) {
            in_flight.take(socket, body, share);
            socket += 1;
        }
        socket
    }

    #[test]
    fn one_node_takes_its_share_and_no_more() {
        let mut in_flight = InFlight::default();
        while in_flight.admits(1, NODE_MESSAGE_LIMIT, Share::Node) {
            in_flight.take(1, NODE_MESSAGE_LIMIT, Share::Node);
        }
        assert!(in_flight.count() >= 1, "one largest message always fits");
        assert!(in_flight.admits(2, NODE_MESSAGE_LIMIT, Share::Node), "another node has its own");
        in_flight.give_back(1, NODE_MESSAGE_LIMIT, Share::Node);
        assert!(in_flight.admits(1, NODE_MESSAGE_LIMIT, Share::Node));
        let mut many = InFlight::default();
        (0..NODE_IN_FLIGHT).for_each(|_| many.take(1, 2, Share::Node));
        assert!(!many.admits(1, 2, Share::Node), "its requests are used up");
    }

    /// No number of strangers keeps a carried node from a largest message.
    #[test]
    fn strangers_leave_the_nodes_their_share() {
        let mut in_flight = InFlight::default();
        assert!(!in_flight.admits(1, STRANGER_IN_FLIGHT_BYTES, Share::Stranger), "too large");
        for body in [2, 1 << 10, STRANGER_IN_FLIGHT_BYTES - FORWARD_OVERHEAD] {
            fill(&mut in_flight, body, Share::Stranger);
        }
        assert!(in_flight.strange_bytes <= STRANGERS_BYTES);
        assert!(!in_flight.admits(2, 2, Share::Stranger) || STRANGERS_BYTES - in_flight.strange_bytes > 256);
        assert!(in_flight.admits(1, NODE_MESSAGE_LIMIT, Share::Node));
        let mut one = InFlight::default();
        (0..STRANGER_IN_FLIGHT).for_each(|_| one.take(1, 2, Share::Stranger));
        assert!(!one.admits(1, 2, Share::Stranger) && one.admits(2, 2, Share::Stranger));
    }

    #[test]
    fn all_sockets_together_leave_room_in_the_session_s_queue() {
        for body in [2, 4096, NODE_MESSAGE_LIMIT] {
            let mut in_flight = InFlight::default();
            fill(&mut in_flight, 2, Share::Stranger);
            let strangers = in_flight.count();
            (1_000_000..1_000_000 + strangers as u64).for_each(|socket| in_flight.close(socket));
            assert_eq!((in_flight.strange_bytes, in_flight.node_bytes, in_flight.count()), (0, 0, 0));
            let next = fill(&mut in_flight, body, Share::Node);
            assert!(in_flight.node_bytes <= FORWARDS_BYTES);
            assert!(in_flight.count() + strangers < CLOUDLY_QUEUE);
            in_flight.close(1_000_000);
            assert!(in_flight.admits(next, body, Share::Node));
            (1_000_001..next).for_each(|socket| in_flight.close(socket));
            assert_eq!((in_flight.node_bytes, in_flight.count()), (0, 0));
        }
    }
}
