//! The places of the listener: how many connections of each kind may be open, in a process that may hold
//! so many descriptors, and who has one. A place is given back when its holder drops it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use coreflow_ipc::line_budget::LineBudget;
use tokio::{sync::Notify, time::Instant};
use tracing::warn;

use super::admission::{Admission, Rules, Scarce, Source};
use crate::constants::{
    CONNECTION_GRACE, DESCRIPTORS_KEPT, HANDSHAKES, NODE_GRACE, NODE_SOCKETS, PULL_CONNECTIONS,
};

/// How many places of each kind there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Connections that have not asked for anything yet.
    pub(super) handshakes: usize,
    /// Connections of pulls.
    pub(super) pulls: usize,
    /// Node sockets.
    pub(super) nodes: usize,
}

impl Capacity {
    /// What fits under `descriptors`, the most that this process may hold: what the session, its dial and
    /// the links need is set aside first, a fourth of the rest at most is for handshakes, an eighth for
    /// pulls, which take two each, one to the node and one for the body, and nodes have what is left.
    pub(super) fn under(descriptors: usize) -> Self {
        let own = descriptors - DESCRIPTORS_KEPT.min(descriptors / 2);
        let handshakes = HANDSHAKES.min(own / 4);
        let pulls = PULL_CONNECTIONS.min(own / 16);
        Self { handshakes, pulls, nodes: NODE_SOCKETS.min(own - handshakes - 2 * pulls) }
    }
}

/// The three kinds of places.
pub(super) struct Gates {
    /// For a connection, until it asked for something.
    pub(super) handshakes: Arc<Gate>,
    /// For a connection that pulls.
    pub(super) pulls: Arc<Gate>,
    /// For a node's socket; proven once the node is carried.
    pub(super) nodes: Arc<Gate>,
}

impl Gates {
    pub(super) fn new(capacity: Capacity) -> Self {
        // A fourth: a site's nodes may all dial from behind one address, and three more such sites at once.
        let rules = |places: usize, grace| Rules { places, share: (places / 4).max(1), grace };
        Self {
            handshakes: Gate::new("handshakes", rules(capacity.handshakes, CONNECTION_GRACE)),
            // A pull keeps its place unless its source holds more than a newcomer's would; what is idle is
            // closed in its own time.
            pulls: Gate::new("pulls", rules(capacity.pulls, Duration::MAX)),
            nodes: Gate::new("nodes", rules(capacity.nodes, NODE_GRACE)),
        }
    }
}

/// One kind of places.
pub(super) struct Gate {
    kind: &'static str,
    admission: Mutex<Held>,
    started: Instant,
    lines: LineBudget,
}

struct Held {
    admission: Admission,
    /// Who is told that it lost its place: the unproven.
    losses: BTreeMap<u64, Arc<Notify>>,
}

impl Gate {
    pub(super) fn new(kind: &'static str, rules: Rules) -> Arc<Self> {
        let held = Held { admission: Admission::new(rules), losses: BTreeMap::new() };
        Arc::new(Self {
            kind,
            admission: Mutex::new(held),
            started: Instant::now(),
            lines: LineBudget::default(),
        })
    }

    /// A place for `source`; when there is none, a line says so.
    pub(super) fn take(self: &Arc<Self>, source: Source) -> Result<Place, Scarce> {
        let mut held = self.held();
        match held.admission.admit(source, self.started.elapsed()) {
            Ok(given) => {
                if let Some(loss) = given.instead.and_then(|lost| held.losses.remove(&lost)) {
                    loss.notify_one();
                }
                let loss = Arc::new(Notify::new());
                held.losses.insert(given.number, Arc::clone(&loss));
                drop(held);
                Ok(Place { gate: Arc::clone(self), number: given.number, loss: Some(loss) })
            }
            Err(scarce) => {
                drop(held);
                self.say(source, scarce);
                Err(scarce)
            }
        }
    }

    fn say(&self, source: Source, scarce: Scarce) {
        let Some(suppressed) = self.lines.admit() else { return };
        let kind = self.kind;
        match scarce {
            Scarce::Share => warn!(
                kind,
                suppressed,
                "listener-share-held: {source} holds its share of the listener's places; it is refused more"
            ),
            Scarce::Places => {
                warn!(kind, suppressed, "listener-full: all places are held; {source} is refused");
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.admission.lock().expect("no holder of the places panics")
    }
}

/// A place that is held.
pub(super) struct Place {
    gate: Arc<Gate>,
    number: u64,
    loss: Option<Arc<Notify>>,
}

impl Place {
    /// Nobody takes it away any more, and it counts for no share of its source.
    pub(super) fn prove(&mut self) {
        let mut held = self.gate.held();
        held.admission.prove(self.number);
        held.losses.remove(&self.number);
        drop(held);
        self.loss = None;
    }

    /// Ends when the place is given to another.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let loss = self.loss.clone();
        async move {
            match loss {
                Some(loss) => loss.notified().await,
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.gate.held();
        held.admission.leave(self.number);
        held.losses.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn source(last: u8) -> Source {
        Source::from(IpAddr::from([192, 0, 2, last]))
    }

    /// Nodes never take the descriptors that the session needs, however few there are; and where there are
    /// enough, there are as many places as the constants say.
    #[test]
    fn places_leave_descriptors_for_the_session() {
        let all = Capacity { handshakes: HANDSHAKES, pulls: PULL_CONNECTIONS, nodes: NODE_SOCKETS };
        assert_eq!(Capacity::under(65_536), all);
        for descriptors in [16, 64, 128, 256, 1024, 4096, 20_000, 65_536] {
            let Capacity { handshakes, pulls, nodes } = Capacity::under(descriptors);
            let kept = descriptors - handshakes - 2 * pulls - nodes;
            assert!(kept >= DESCRIPTORS_KEPT.min(descriptors / 2), "{descriptors}: {kept} are kept");
            assert!(nodes >= descriptors / 4 || nodes == NODE_SOCKETS, "{descriptors}: {nodes} for nodes");
        }
    }

    /// A place that is dropped can be given again; one that is taken away tells its holder.
    #[tokio::test(start_paused = true)]
    async fn a_place_is_given_back_or_taken_away() {
        let gate = Gate::new("test", Rules { places: 2, share: 2, grace: Duration::from_secs(1) });
        let first = gate.take(source(1)).unwrap();
        let second = gate.take(source(1)).unwrap();
        assert_eq!(gate.take(source(1)).err(), Some(Scarce::Share));
        let third = gate.take(source(2)).unwrap();
        first.lost().await;
        drop(first);
        assert_eq!(gate.take(source(1)).err(), Some(Scarce::Places), "what was lost is not given back twice");
        drop(third);
        let mut again = gate.take(source(2)).unwrap();
        again.prove();
        tokio::time::advance(Duration::from_secs(60)).await;
        drop(gate.take(source(2)).unwrap());
        second.lost().await;
        assert!(tokio::time::timeout(Duration::from_secs(60), again.lost()).await.is_err());
    }
}
