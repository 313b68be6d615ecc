//! The nodes of a soak, under a process manager: a node whose registration was rejected is over (FWD-35) and
//! is started again, as a new process of that node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::body::{RETURNED, mark};
use super::ledger::{Ledger, Way};
use crate::dial::Target;
use crate::pallet::{PalletNode, Reaction, Setup};

/// The pause of the process manager before it starts a node again.
const RESTART: Duration = Duration::from_secs(1);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(250);

/// The nodes.
pub struct Fleet {
    target: Target,
    ids: Vec<String>,
    books: Arc<Mutex<Ledger>>,
    state: Mutex<State>,
}

struct State {
    nodes: Vec<Arc<PalletNode>>,
    /// Processes that were told to stop and may still have something to enter into the books.
    leaving: Vec<(usize, Arc<PalletNode>)>,
    restarts: BTreeMap<String, u64>,
}

impl Fleet {
    /// The ids of so many nodes.
    pub fn ids(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("node-{number}")).collect()
    }

    /// Starts a process for each node.
    pub fn start(target: &Target, ids: Vec<String>, books: Arc<Mutex<Ledger>>) -> Self {
        let nodes = ids.iter().map(|id| Arc::new(process(target, id))).collect();
        let state = State { nodes, leaving: Vec::new(), restarts: BTreeMap::new() };
        Self { target: target.clone(), ids, books, state: Mutex::new(state) }
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// The id of a node.
    pub fn id(&self, number: usize) -> &str {
        &self.ids[number]
    }

    /// The running process of a node.
    pub fn node(&self, number: usize) -> Arc<PalletNode> {
        self.state().nodes[number].clone()
    }

    /// Starts a second process of a node, which [`Fleet::replace`] may install.
    pub fn second(&self, number: usize) -> PalletNode {
        process(&self.target, &self.ids[number])
    }

    /// Stops the process of a node and has `process` in its place.
    pub fn replace(&self, number: usize, process: PalletNode) {
        let mut state = self.state();
        let former = std::mem::replace(&mut state.nodes[number], Arc::new(process));
        former.stop();
        state.leaving.push((number, former));
    }

    /// Stops the process of a node and starts another, counted under `why`.
    pub fn restart(&self, number: usize, why: &str) {
        *self.state().restarts.entry(why.to_owned()).or_default() += 1;
        self.replace(number, self.second(number));
    }

    /// How often nodes were started again, by reason.
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        self.state().restarts.clone()
    }

    /// Restarts what ended, and enters what arrived, until dropped.
    pub async fn tend(&self) {
        loop {
            self.collect();
            let ended = |number: &usize| self.node(*number).ended().is_some();
            let over: Vec<usize> = (0..self.count()).filter(ended).collect();
            tokio::time::sleep(if over.is_empty() { LOOK } else { RESTART }).await;
            for number in over {
                if let Some(why) = self.node(number).ended() {
                    self.restart(number, &why);
                }
            }
        }
    }

    /// Enters what arrived at the nodes into the books.
    pub fn collect(&self) {
        let all: Vec<(usize, Arc<PalletNode>)> = {
            let mut state = self.state();
            let leaving = state.leaving.clone();
            // A process that had ended before it was read has nothing more to say.
            state.leaving.retain(|(_, process)| process.ended().is_none());
            leaving.into_iter().chain(state.nodes.iter().cloned().enumerate()).collect()
        };
        let mut books = self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (number, process) in all {
            for push in process.take_pushes() {
                let body = push.message.request();
                let correlation = &push.message.ids.correlation;
                books.arrive(Way::Down, mark(body), body, correlation, Some(number));
            }
            for stray in process.take_strays() {
                books.stray(&stray.ids.correlation, &stray.text);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn process(target: &Target, id: &str) -> PalletNode {
    let node = PalletNode::start(Setup::new(target.clone(), id));
    for method in RETURNED {
        node.react(method, Reaction::Return);
    }
    node
}
