//! Pulld's life between its confinement and its stop.

use std::os::fd::OwnedFd;

use coreflow_ipc::{
    hello::Role,
    link::Descriptors,
    messages::{
        pulld::{FromPulld, ToPulld},
        pulls::{PulldToRelayd, RelaydToPulld},
    },
    peer::greet,
    worker::{Confined, StartError, Told},
};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

/// Serves until the supervisor stops this worker or its link ends.
pub async fn serve(confined: Confined) -> Result<(), StartError> {
    let mut life = confined.join::<FromPulld, ToPulld>(Role::Pulld).await?;
    let mut relayd: Option<JoinHandle<()>> = None;
    loop {
        match life.told().await.map_err(StartError::Link)? {
            Told::Peer(Role::Relayd, end) => {
                // A restarted relayd comes with a link of its own; the former one has ended.
                if let Some(former) = relayd.replace(tokio::spawn(hold(end))) {
                    former.abort();
                }
            }
            Told::Peer(role, _) => warn!(%role, "a link to no worker of pulld's was handed over"),
            Told::Message(ToPulld::Start(start), _) => {
                debug!(registry = start.registry_origin, "pulld has its configuration");
            }
            Told::Message(ToPulld::Worker(_) | ToPulld::AnswerConnection { .. }, _) => {}
            Told::Stop => break,
        }
    }
    life.stopped().await;
    Ok(())
}

async fn hold(end: OwnedFd) {
    match greet::<PulldToRelayd, RelaydToPulld>(end, Descriptors::Accepted, Role::Pulld, Role::Relayd).await {
        Ok((_sender, mut receiver)) => {
            debug!("the link to relayd is greeted");
            let _ = receiver.receive().await;
            debug!("the link to relayd ended");
        }
        Err(why) => warn!("the link to relayd was not greeted: {why}"),
    }
}
