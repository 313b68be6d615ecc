//! Pulld's life between its confinement and its stop.

use std::{future::pending, sync::Arc};

use coreflow_ipc::{
    hello::Role,
    messages::{
        pulld::{FromPulld, PulldStart, ToPulld},
        pulls::RegistryFailure,
        standing::PulldStanding,
    },
    worker::{Confined, StartError, Told},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tracing::{debug, error, warn};

use crate::{
    connections::Connections,
    constants::STOP_DRAIN,
    counts::Exchanged,
    dials::Dials,
    link::{self, Configured},
    notices::Notices,
    registry::Registry,
};

/// Serves until the supervisor stops this worker or its link ends. At a stop no exchange begins any more, and those
/// that are under way have [`STOP_DRAIN`] to end.
pub async fn serve(confined: Confined) -> Result<(), StartError> {
    let mut life = confined.join::<FromPulld, ToPulld>(Role::Pulld).await?;
    let (dials, mut asked) = Dials::new();
    let (configured, notices) = (Arc::<Configured>::default(), Arc::<Notices>::default());
    let exchanged = Arc::<Exchanged>::default();
    let stop = watch::Sender::new(false);
    let mut relayd: Option<JoinHandle<()>> = None;
    let mut cut_at: Option<Instant> = None;
    loop {
        let told = tokio::select! {
            told = life.told() => told.map_err(StartError::Link)?,
            Some(id) = asked.recv() => {
                life.outbox.send(FromPulld::AskConnection { id }).await;
                continue;
            }
            is_whole = drained(&mut relayd, cut_at) => {
                if !is_whole {
                    warn!(under_way = exchanged.open.get(), "pulls do not end in time for the stop and are cut");
                }
                break;
            }
        };
        match told {
            // What comes for a pulld that is to end is for the one after it.
            Told::Peer(..) | Told::Message(ToPulld::Start(_), _) | Told::Stop if cut_at.is_some() => {}
            Told::Peer(Role::Relayd, end) => {
                let (configured, notices) = (Arc::clone(&configured), Arc::clone(&notices));
                let serving = link::serve(end, configured, notices, Arc::clone(&exchanged), stop.subscribe());
                // A restarted relayd comes with a link of its own; the former one has ended, and its exchanges.
                if let Some(former) = relayd.replace(tokio::spawn(serving)) {
                    former.abort();
                }
            }
            Told::Peer(role, _) => warn!(%role, "a link to no worker of pulld's was handed over"),
            Told::Message(ToPulld::Start(start), _) => configure(start, &dials, &configured),
            Told::Message(ToPulld::AnswerConnection { id, answer }, descriptors) => {
                let socket = descriptors.into_iter().next().ok_or(RegistryFailure::Connect);
                if !dials.answered(id, answer.and(socket)) {
                    warn!("a connection came that was not asked for");
                }
            }
            Told::Message(ToPulld::AskStanding { id }, _) => {
                life.outbox.offer(FromPulld::AnswerStanding { id, standing: standing(&dials, &exchanged) });
            }
            Told::Message(ToPulld::Worker(_), _) => {}
            Told::Stop => {
                stop_exchanges(&configured, &stop);
                cut_at = Some(Instant::now() + STOP_DRAIN);
            }
        }
    }
    life.stopped().await;
    Ok(())
}

/// No exchange begins any more: one that is asked for fails. Those that are under way keep their connections.
pub(crate) fn stop_exchanges(configured: &Configured, stop: &watch::Sender<bool>) {
    configured.lock().expect("no holder of it panics").take();
    stop.send_replace(true);
}

/// Waits, from a stop on, until the link to relayd has ended with its exchanges, which is `true`, or `cut_at` has come.
async fn drained(relayd: &mut Option<JoinHandle<()>>, cut_at: Option<Instant>) -> bool {
    let Some(cut_at) = cut_at else { return pending().await };
    let Some(relayd) = relayd else { return true };
    timeout_at(cut_at, relayd).await.is_ok()
}

/// How this pulld stands.
pub(crate) fn standing(dials: &Dials, exchanged: &Exchanged) -> PulldStanding {
    PulldStanding {
        exchanges: exchanged.open.get(),
        connections: dials.connections(),
        asks: dials.asks(),
        answered: exchanged.answered(),
        failed: exchanged.failed(),
    }
}

/// Later exchanges use the new configuration; those that are under way end with the one they began with.
pub(crate) fn configure(start: PulldStart, dials: &Arc<Dials>, configured: &Configured) {
    let Some(registry) = Registry::new(start) else {
        return error!("the configuration of image pulls cannot be used; none is served");
    };
    debug!(registry = %registry.origin, "pulld has its configuration");
    let connections = Connections::new(registry, Arc::clone(dials));
    configured.lock().expect("no holder of it panics").replace(connections);
}
