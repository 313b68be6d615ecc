//! Which network this daemon holds, and the hub that serves it: at most one of each, and never one without the
//! other (VPN-28, VPN-37). There is no hub until the first network (VPN-10); the socket is asked for then, and
//! where the host refuses it nothing is held, and the next network asks again (VPN-34, VPN-35).
//!
//! Nothing here waits without a bound. A hub whose thread hangs ends this, and the process with it: another is started
//! in its place, while this one would answer pings for ever.

use std::{net::UdpSocket, pin::pin, sync::Arc};

use coreflow_ipc::{
    asks::AskId,
    messages::{
        hub_report::HubReport,
        vpn_network::{Held, NotApplied, Snapshot},
        vpnd::FromVpnd,
    },
    now::Clock,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, timeout, timeout_at},
};
use tracing::{error, info, warn};

use crate::{
    constants::{HUB_LOOK, HUB_SILENCE, NETWORK_QUEUE, SAY_QUEUE, SOCKET_QUEUE, SOCKET_WAIT},
    hub::{Hub, ReadClock, network::Network},
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
    clock: ReadClock,
    say: mpsc::Sender<FromVpnd>,
    asks: mpsc::Receiver<Ask>,
    answers: mpsc::Receiver<Answered>,
    next_ask: AskId,
    /// The ask that was not answered yet. There is no second beside it: its socket would be in the way of the
    /// other's.
    asked: Option<AskId>,
    holds: Option<Holds>,
}

/// The hub's thread does not answer.
struct Hangs;

impl Holding {
    /// A holder of nothing, whose hub has `key`.
    pub(crate) fn new(key: Arc<StaticKey>) -> (Self, Ends) {
        let clock = Clock::start();
        Self::by(Arc::new(move || clock.now()), key)
    }

    /// The same of a hub that goes by `clock`.
    fn by(clock: ReadClock, key: Arc<StaticKey>) -> (Self, Ends) {
        let (ask, asks) = mpsc::channel(NETWORK_QUEUE);
        let (answer, answers) = mpsc::channel(SOCKET_QUEUE);
        let (say, says) = mpsc::channel(SAY_QUEUE);
        let holding = Self { key, clock, say, asks, answers, next_ask: 0, asked: None, holds: None };
        (holding, Ends { asks: ask, answers: answer, says })
    }

    /// Holds until `stop` is told or dropped, and stops the hub then (VPN-46). A hub that ends by itself, or hangs,
    /// ends this too.
    pub(crate) async fn hold(mut self, stop: oneshot::Receiver<()>) {
        if let Err(Hangs) = self.until(stop).await {
            error!("the managed VPN hub hangs; vpnd ends, to be started again");
        }
    }

    async fn until(&mut self, mut stop: oneshot::Receiver<()>) -> Result<(), Hangs> {
        let mut look = interval(HUB_LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                Some(ask) = self.asks.recv() => match ask {
                    Ask::Held(answer) => {
                        let _ = answer.send(self.holds.as_ref().map(|holds| holds.held.clone()));
                    }
                    Ask::Apply(snapshot, mut answer) => {
                        // A stop does not wait for a socket.
                        let applied = tokio::select! {
                            biased;
                            _ = &mut stop => break,
                            applied = self.apply(*snapshot, &mut answer) => applied?,
                        };
                        let _ = answer.send(applied);
                    }
                },
                // VPN-37: nothing is bound without a network.
                Some(late) = self.answers.recv() => self.drop_late(late),
                report = changed(&mut self.holds) => match report {
                    Some(report) => drop(self.say.send(FromVpnd::Report(report)).await),
                    None => {
                        error!("the managed VPN hub ended by itself");
                        return Ok(());
                    }
                },
                _ = look.tick() => if let Some(holds) = &self.holds {
                    answered(holds.hub.answers()).await?;
                },
                else => break,
            }
        }
        if let Some(holds) = self.holds.take() {
            holds.hub.stop().await;
        }
        Ok(())
    }

    /// Whoever has `answer` is waited for; where it is gone no socket is.
    async fn apply(
        &mut self,
        snapshot: Snapshot,
        answer: &mut oneshot::Sender<Result<(), NotApplied>>,
    ) -> Result<Result<(), NotApplied>, Hangs> {
        let network = match Network::of(snapshot) {
            Ok(network) => network,
            Err(why) => return Ok(Err(why.into())),
        };
        let applied = network.held().clone();
        if let Some(holds) = &mut self.holds {
            let served = answered(holds.hub.serve(network)).await?;
            if served.is_ok() {
                holds.held = applied;
            }
            return Ok(served);
        }
        // The next relayd is told what is held now, and not when a socket has come.
        let socket = tokio::select! {
            biased;
            socket = self.socket() => socket,
            () = answer.closed() => Err("nobody waits for it".to_owned()),
        };
        let hub = socket.and_then(|socket| {
            let hub = Hub::start_by(Arc::clone(&self.clock), socket, Arc::clone(&self.key));
            hub.map_err(|why| {
                error!(%why, "the managed VPN hub cannot serve on its socket");
                why.to_string()
            })
        });
        let hub = match hub {
            Ok(hub) => hub,
            Err(why) => return Ok(Err(NotApplied::Bind(why))),
        };
        if let Err(refused) = answered(hub.serve(network)).await? {
            hub.stop().await;
            return Ok(Err(refused));
        }
        info!(address = %hub.bound(), revision = applied.revision, "the managed VPN hub serves");
        let reports = hub.reports();
        self.holds = Some(Holds { hub, held: applied, reports });
        Ok(Ok(()))
    }

    /// The socket that the supervisor binds.
    async fn socket(&mut self) -> Result<UdpSocket, String> {
        let id = match self.asked {
            // Its answer is as good as another's.
            Some(asked) => asked,
            None => {
                let id = self.next_ask;
                let _ = self.say.send(FromVpnd::AskSocket { id }).await;
                self.next_ask += 1;
                *self.asked.insert(id)
            }
        };
        let until = Instant::now() + SOCKET_WAIT;
        loop {
            match timeout_at(until, self.answers.recv()).await {
                Ok(Some(answered)) if answered.id == id => {
                    self.asked = None;
                    return answered.socket;
                }
                Ok(Some(other)) => self.drop_late(other),
                Ok(None) | Err(_) => return Err("no answer".to_owned()),
            }
        }
    }

    /// Nobody waits for this socket, and it is closed.
    fn drop_late(&mut self, late: Answered) {
        if self.asked == Some(late.id) {
            self.asked = None;
        }
        warn!(bound = late.socket.is_ok(), "a socket came that is waited for no more");
    }
}

/// What the hub answers, if it does. One silence may be this process's own, which was halted.
async fn answered<T>(answer: impl Future<Output = T>) -> Result<T, Hangs> {
    let mut answer = pin!(answer);
    for _ in 0..2 {
        if let Ok(answer) = timeout(HUB_SILENCE, &mut answer).await {
            return Ok(answer);
        }
    }
    Err(Hangs)
}

/// The next look at the hub; none once it has ended. Without a hub there is nothing to wait for.
async fn changed(holds: &mut Option<Holds>) -> Option<HubReport> {
    let Some(holds) = holds else { return std::future::pending().await };
    holds.reports.changed().await.ok()?;
    Some(holds.reports.borrow_and_update().clone())
}

#[cfg(test)]
mod tests;
