//! Many registered nodes at once, each with a task of its own that answers pings while it has nothing to do.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::contestant::Contestant;
use super::latencies::Latencies;
use super::node::{Dial, Node, Trouble};

/// Dials that are under way at the same time.
const DIALS: usize = 64;

/// What the nodes are told to do: the first `nodes` of them ask one request after the other until `end`.
#[derive(Clone, Copy)]
struct Order {
    nodes: usize,
    end: Instant,
}

/// What a node's task reports: its registration without samples, then what it measured, or why it ended.
type Report = Result<Latencies, Trouble>;

/// The nodes of one contestant. Dropping them drops their connections.
pub struct Crowd {
    nodes: JoinSet<()>,
    dialling: Arc<Semaphore>,
    orders: watch::Sender<Option<Order>>,
    reporting: mpsc::UnboundedSender<Report>,
    reports: mpsc::UnboundedReceiver<Report>,
}

impl Default for Crowd {
    fn default() -> Self {
        let (reporting, reports) = mpsc::unbounded_channel();
        Self {
            nodes: JoinSet::new(),
            dialling: Arc::new(Semaphore::new(DIALS)),
            orders: watch::Sender::new(None),
            reporting,
            reports,
        }
    }
}

impl Crowd {
    /// Registers as many more nodes as are missing from `count`.
    ///
    /// # Errors
    /// Why the first that failed did, or an older one ended, with the relay's last lines.
    pub async fn grow(&mut self, contestant: &Contestant, count: usize) -> Result<(), String> {
        let present = self.nodes.len();
        for number in present..count {
            let (dial, dialling) = (contestant.dial.clone(), self.dialling.clone());
            let (orders, reports) = (self.orders.subscribe(), self.reporting.clone());
            self.nodes.spawn(async move {
                let trouble = live(&dial, number, &dialling, orders, &reports).await;
                drop(reports.send(Err(trouble)));
            });
        }
        for _ in present..count {
            self.report(contestant).await?;
        }
        Ok(())
    }

    /// Has `nodes` nodes ask until `end`, each one request after the other, and gives the time of every exchange.
    ///
    /// # Errors
    /// What went wrong with the first node with which something did, with the relay's last lines.
    pub async fn ask(
        &mut self,
        contestant: &Contestant,
        nodes: usize,
        end: Instant,
    ) -> Result<Latencies, String> {
        self.orders.send_replace(Some(Order { nodes, end }));
        let mut latencies = Latencies::default();
        for _ in 0..nodes {
            latencies.merge(self.report(contestant).await?);
        }
        Ok(latencies)
    }

    /// Fails when a node has ended meanwhile.
    ///
    /// # Errors
    /// Why it ended, with the relay's last lines.
    pub fn all_there(&mut self, contestant: &Contestant) -> Result<(), String> {
        match self.reports.try_recv() {
            Ok(Err(trouble)) => Err(contestant.blame(&trouble)),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    async fn report(&mut self, contestant: &Contestant) -> Result<Latencies, String> {
        let report = self.reports.recv().await.expect("the crowd itself holds a sender");
        report.map_err(|trouble| contestant.blame(&trouble))
    }
}

async fn live(
    dial: &Dial,
    number: usize,
    dialling: &Semaphore,
    mut orders: watch::Receiver<Option<Order>>,
    reports: &mpsc::UnboundedSender<Report>,
) -> Trouble {
    let registered = {
        let _place = dialling.acquire().await.expect("the semaphore is never closed");
        Node::register(dial, number).await
    };
    let mut node = match registered {
        Ok(node) => node,
        Err(trouble) => return trouble,
    };
    orders.mark_unchanged();
    drop(reports.send(Ok(Latencies::default())));
    loop {
        tokio::select! {
            changed = orders.changed() => if changed.is_err() {
                return "the crowd is gone".to_owned();
            },
            () = node.idle() => return "the server closed a node that had nothing to say".to_owned(),
        }
        let order = *orders.borrow_and_update();
        if let Some(Order { nodes, end }) = order
            && number < nodes
        {
            match ask(&mut node, end).await {
                Ok(latencies) => drop(reports.send(Ok(latencies))),
                Err(trouble) => return trouble,
            }
        }
    }
}

async fn ask(node: &mut Node, end: Instant) -> Report {
    let mut latencies = Latencies::default();
    let mut asked = Instant::now();
    while asked < end {
        node.ask().await?;
        let answered = Instant::now();
        latencies.add(answered - asked);
        asked = answered;
    }
    Ok(latencies)
}
