//! Which network this daemon holds, and the hub that serves it: at most one of each, and never one without the
//! other (VPN-28, VPN-37). There is no hub until the first network (VPN-10); the socket is asked for then, and
//! where the host refuses it nothing is held, and the next network asks again (VPN-34, VPN-35).

use std::{net::UdpSocket, sync::Arc};

use coreflow_ipc::{
    asks::AskId,
    messages::{
        hub_report::HubReport,
        vpn_network::{Held, NotApplied, Snapshot},
        vpnd::FromVpnd,
    },
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};
use tracing::{error, info, warn};

use crate::{
    constants::{NETWORK_QUEUE, SAY_QUEUE, SOCKET_QUEUE, SOCKET_WAIT},
    hub::{Hub, network::Network},
    protocol::noise::StaticKey,
};

/// What the holder is asked, in the order in which it is asked.
pub(crate) enum Ask {
    /// Hold this network.
    Apply(Box<Snapshot>, oneshot::Sender<Result<(), NotApplied>>),
    /// Say what is held.
    Held(oneshot::Sender<Option<Held>>),
}

/// What the supervisor answered to an ask for a socket.
pub(crate) struct Answered {
    pub(crate) id: AskId,
    /// The bound socket, or the class of what refused it.
    pub(crate) socket: Result<UdpSocket, String>,
}

/// The ends that the rest of the daemon has of the holder.
pub(crate) struct Ends {
    pub(crate) asks: mpsc::Sender<Ask>,
    pub(crate) answers: mpsc::Sender<Answered>,
    /// What is for the supervisor.
    pub(crate) says: mpsc::Receiver<FromVpnd>,
}

/// A hub that serves, what it serves, and how it stands.
struct Holds {
    hub: Hub,
    held: Held,
    reports: watch::Receiver<HubReport>,
}

/// Holds.
pub(crate) struct Holding {
    key: Arc<StaticKey>,
    say: mpsc::Sender<FromVpnd>,
    asks: mpsc::Receiver<Ask>,
    answers: mpsc::Receiver<Answered>,
    next_ask: AskId,
    holds: Option<Holds>,
}

impl Holding {
    /// A holder of nothing, whose hub has `key`.
    pub(crate) fn new(key: Arc<StaticKey>) -> (Self, Ends) {
        let (ask, asks) = mpsc::channel(NETWORK_QUEUE);
        let (answer, answers) = mpsc::channel(SOCKET_QUEUE);
        let (say, says) = mpsc::channel(SAY_QUEUE);
        let holding = Self { key, say, asks, answers, next_ask: 0, holds: None };
        (holding, Ends { asks: ask, answers: answer, says })
    }

    /// Holds until `stop` is told or dropped, and stops the hub then (VPN-46). A hub that ends by itself ends
    /// this too.
    pub(crate) async fn hold(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                Some(ask) = self.asks.recv() => match ask {
                    Ask::Held(answer) => {
                        let _ = answer.send(self.holds.as_ref().map(|holds| holds.held.clone()));
                    }
                    Ask::Apply(snapshot, answer) => {
                        // A stop does not wait for a socket.
                        let applied = tokio::select! {
                            biased;
                            _ = &mut stop => break,
                            applied = self.apply(*snapshot) => applied,
                        };
                        let _ = answer.send(applied);
                    }
                },
                report = changed(&mut self.holds) => match report {
                    Some(report) => drop(self.say.send(FromVpnd::Report(report)).await),
                    None => return error!("the managed VPN hub ended by itself"),
                },
                else => break,
            }
        }
        if let Some(holds) = self.holds {
            holds.hub.stop().await;
        }
    }

    async fn apply(&mut self, snapshot: Snapshot) -> Result<(), NotApplied> {
        let network = Network::of(snapshot)?;
        let applied = network.held().clone();
        if let Some(holds) = &mut self.holds {
            holds.hub.serve(network).await?;
            holds.held = applied;
            return Ok(());
        }
        let socket = self.socket().await.map_err(NotApplied::Bind)?;
        let hub = Hub::start(socket, Arc::clone(&self.key)).map_err(|why| {
            error!(%why, "the managed VPN hub cannot serve on its socket");
            NotApplied::Bind(why.to_string())
        })?;
        hub.serve(network).await?;
        info!(address = %hub.bound(), revision = applied.revision, "the managed VPN hub serves");
        let reports = hub.reports();
        self.holds = Some(Holds { hub, held: applied, reports });
        Ok(())
    }

    /// The socket that the supervisor binds.
    async fn socket(&mut self) -> Result<UdpSocket, String> {
        // One that came too late for its ask would keep the port from this one.
        while self.answers.try_recv().is_ok() {}
        let id = self.next_ask;
        self.next_ask += 1;
        let _ = self.say.send(FromVpnd::AskSocket { id }).await;
        let until = Instant::now() + SOCKET_WAIT;
        loop {
            match timeout_at(until, self.answers.recv()).await {
                Ok(Some(answered)) if answered.id == id => return answered.socket,
                Ok(Some(_)) => warn!("a socket came that is waited for no more"),
                Ok(None) | Err(_) => return Err("no answer".to_owned()),
            }
        }
    }
}

/// The next look at the hub; none once it has ended. Without a hub there is nothing to wait for.
async fn changed(holds: &mut Option<Holds>) -> Option<HubReport> {
    let Some(holds) = holds else { return std::future::pending().await };
    holds.reports.changed().await.ok()?;
    Some(holds.reports.borrow_and_update().clone())
}

#[cfg(test)]
mod tests;
