//! Pulld's life between its confinement and its stop.

use std::sync::Arc;

use coreflow_ipc::{
    hello::Role,
    messages::{
        pulld::{FromPulld, PulldStart, ToPulld},
        pulls::RegistryFailure,
        standing::PulldStanding,
    },
    worker::{Confined, StartError, Told},
};
use tokio::task::JoinHandle;
use tracing::{debug, error, warn};

use crate::{
    connections::Connections,
    counts::Exchanged,
    dials::Dials,
    link::{self, Configured},
    notices::Notices,
    registry::Registry,
};

/// Serves until the supervisor stops this worker or its link ends.
pub async fn serve(confined: Confined) -> Result<(), StartError> {
    let mut life = confined.join::<FromPulld, ToPulld>(Role::Pulld).await?;
    let (dials, mut asked) = Dials::new();
    let (configured, notices) = (Arc::<Configured>::default(), Arc::<Notices>::default());
    let exchanged = Arc::<Exchanged>::default();
    let mut relayd: Option<JoinHandle<()>> = None;
    loop {
        let told = tokio::select! {
            told = life.told() => told.map_err(StartError::Link)?,
            Some(id) = asked.recv() => {
                life.outbox.send(FromPulld::AskConnection { id }).await;
                continue;
            }
        };
        match told {
            Told::Peer(Role::Relayd, end) => {
                let (configured, notices) = (Arc::clone(&configured), Arc::clone(&notices));
                let serving = link::serve(end, configured, notices, Arc::clone(&exchanged));
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
            Told::Stop => break,
        }
    }
    life.stopped().await;
    Ok(())
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
