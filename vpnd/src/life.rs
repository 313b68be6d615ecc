//! Vpnd's life between its confinement and its stop.

use std::os::fd::OwnedFd;

use coreflow_ipc::{
    hello::Role,
    link::Descriptors,
    messages::{
        peers::{RelaydToVpnd, VpndToRelayd},
        vpnd::{FromVpnd, ToVpnd},
    },
    peer::greet,
    worker::{Confined, StartError, Told},
};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

/// Serves until the supervisor stops this worker or its link ends.
pub async fn serve(confined: Confined) -> Result<(), StartError> {
    let mut life = confined.join::<FromVpnd, ToVpnd>(Role::Vpnd).await?;
    let mut relayd: Option<JoinHandle<()>> = None;
    loop {
        match life.told().await.map_err(StartError::Link)? {
            Told::Peer(Role::Relayd, end) => {
                // A restarted relayd comes with a link of its own; the former one has ended.
                if let Some(former) = relayd.replace(tokio::spawn(hold(end))) {
                    former.abort();
                }
            }
            Told::Peer(role, _) => warn!(%role, "a link to no worker of vpnd's was handed over"),
            Told::Message(ToVpnd::Worker(_) | ToVpnd::AnswerSocket { .. }, _) => {}
            Told::Stop => break,
        }
    }
    life.stopped().await;
    Ok(())
}

async fn hold(end: OwnedFd) {
    match greet::<VpndToRelayd, RelaydToVpnd>(end, Descriptors::Refused, Role::Vpnd, Role::Relayd).await {
        Ok((_sender, mut receiver)) => {
            debug!("the link to relayd is greeted");
            let _ = receiver.receive().await;
            debug!("the link to relayd ended");
        }
        Err(why) => warn!("the link to relayd was not greeted: {why}"),
    }
}
