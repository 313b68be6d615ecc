//! Who is carried on which socket: one entry per node, with the binding that Cloudly issued and the
//! connection count that it was issued under (OUT-12, OUT-13).

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use super::Socket;
use crate::{
    contract::{runtime::Binding, values::Id},
    refusals::Foreign,
};

struct Carried {
    socket: Socket,
    binding: Binding,
    count: u64,
}

/// A node was tied to a socket.
pub(super) struct Tied {
    /// The other node that the socket carried before.
    pub(super) replaced: Option<Id>,
    /// The other socket that the node was carried on before.
    pub(super) superseded: Option<Socket>,
}

/// The carried nodes.
#[derive(Default)]
pub(super) struct Roster {
    nodes: BTreeMap<Id, Carried>,
    sockets: BTreeMap<Socket, Id>,
}

impl Roster {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Ties a node to the socket that registered it. The node's earlier socket and the socket's
    /// earlier node are superseded. Two registrations of one node may be answered out of order: on one
    /// connection of the session the later generation stays. Gives the node that the socket carried before,
    /// where it is another one; `None` when the node was not tied.
    pub(super) fn register(&mut self, socket: Socket, binding: Binding, count: u64) -> Option<Tied> {
        let node = binding.node_id.clone();
        let superseded = self
            .nodes
            .get(&node)
            .is_some_and(|carried| carried.count == count && carried.binding.generation > binding.generation);
        if superseded {
            return None;
        }
        let replaced = self.close(socket).filter(|former| *former != node);
        let earlier = self.nodes.insert(node.clone(), Carried { socket, binding, count });
        let superseded = earlier.map(|earlier| earlier.socket);
        if let Some(superseded) = superseded {
            self.sockets.remove(&superseded);
        }
        self.sockets.insert(socket, node);
        Some(Tied { replaced, superseded })
    }

    /// Drops the entry of a socket that ended; the node that it carried (FWD-24).
    pub(super) fn close(&mut self, socket: Socket) -> Option<Id> {
        let node = self.sockets.remove(&socket)?;
        self.nodes.remove(&node);
        Some(node)
    }

    /// The binding and the socket of a node.
    pub(super) fn carried(&self, node: &Id) -> Option<(&Binding, Socket)> {
        self.nodes.get(node).map(|carried| (&carried.binding, carried.socket))
    }

    /// The socket of a node (FWD-20).
    pub(super) fn socket(&self, node: &Id) -> Option<Socket> {
        self.nodes.get(node).map(|carried| carried.socket)
    }

    /// The node of a socket.
    pub(super) fn node(&self, socket: Socket) -> Option<&Id> {
        self.sockets.get(&socket)
    }

    /// Whether a request that states `binding` is of the current session of this very socket
    /// (FWD-12). `session` is the count of the session that stands, if one does.
    pub(super) fn check(
        &self,
        socket: Socket,
        binding: &Binding,
        session: Option<u64>,
    ) -> Result<(), Foreign> {
        let carried = self.nodes.get(&binding.node_id).filter(|carried| carried.socket == socket);
        let Some(carried) = carried else { return Err(Foreign::Socket) };
        if carried.binding.session_id != binding.session_id {
            return Err(Foreign::Session);
        }
        if carried.binding.cluster_id != binding.cluster_id {
            return Err(Foreign::Cluster);
        }
        let older = session.is_some_and(|count| carried.count < count);
        if older || carried.binding.generation != binding.generation {
            return Err(Foreign::Registration);
        }
        Ok(())
    }

    /// How many are of an older connection of the session than this count.
    pub(super) fn count_older_than(&self, count: u64) -> usize {
        self.nodes.values().filter(|carried| carried.count < count).count()
    }

    /// The nodes whose id comes after `after`, by id, each with the connection count of its registration.
    pub(super) fn following(&self, after: Option<&str>) -> impl Iterator<Item = (&Id, u64)> {
        let begin = after.map_or(Unbounded, Excluded);
        self.nodes.range::<str, _>((begin, Unbounded)).map(|(node, carried)| (node, carried.count))
    }

    pub(super) fn older_than(&self, count: u64) -> Vec<(Id, Socket)> {
        let older = self.nodes.iter().filter(|(_, carried)| carried.count < count);
        older.map(|(node, carried)| (node.clone(), carried.socket)).collect()
    }

    pub(super) fn is_older(&self, node: &Id, socket: Socket, count: u64) -> bool {
        self.nodes.get(node).is_some_and(|carried| carried.socket == socket && carried.count < count)
    }

    pub(super) fn check_invariants(&self) {
        debug_assert_eq!(self.nodes.len(), self.sockets.len(), "one socket per node, one node per socket");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(node: &str, generation: u64) -> Binding {
        let text =
            format!(r#"{{"sessionId":"s","nodeId":"{node}","clusterId":"c","generation":{generation}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn id(node: &str) -> Id {
        Id::parse(node).unwrap()
    }

    /// OUT-12: a node has one entry, of its connection, its binding and the count that this was registered under;
    /// the next registration takes the entry's place, and the end of the connection ends it.
    #[test]
    fn a_node_has_one_entry_of_its_connection_binding_and_count() {
        let mut roster = Roster::default();
        for (socket, generation, count) in [(1, 4, 1), (2, 5, 1), (2, 1, 2)] {
            roster.register(socket, binding("n", generation), count);
            roster.register(9, binding("other", 1), count);
            // Named one by one, so that whatever else an entry or the roster kept would have to be named here.
            let Roster { nodes, sockets } = &roster;
            let entries: Vec<_> = nodes
                .iter()
                .map(|(node, Carried { socket, binding, count })| {
                    (node, *socket, binding.generation.get(), *count)
                })
                .collect();
            assert_eq!(entries, [(&id("n"), socket, generation, count), (&id("other"), 9, 1, count)]);
            let sockets: Vec<_> = sockets.iter().map(|(socket, node)| (*socket, node)).collect();
            assert_eq!(sockets, [(socket, &id("n")), (9, &id("other"))]);
        }
        assert_eq!(roster.older_than(3), [(id("n"), 2), (id("other"), 9)]);
        assert_eq!(roster.older_than(2), []);
        assert_eq!((roster.close(1), roster.close(2), roster.close(2)), (None, Some(id("n")), None));
        assert_eq!((roster.len(), roster.nodes.len(), roster.sockets.len()), (1, 1, 1));
    }
}
