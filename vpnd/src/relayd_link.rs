//! The link to relayd: what this daemon is and holds, said first (VPN-41), and then networks, one at a time, each
//! answered when it is served or refused (VPN-14). A relayd that dies leaves the hub as it is; the next one is
//! told what is held (ARC-17).

use std::os::fd::OwnedFd;

use coreflow_ipc::{
    hello::Role,
    link::{Descriptors, LinkError, LinkReceiver, LinkSender},
    messages::peers::{RelaydToVpnd, VpndToRelayd},
    peer::greet,
};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use crate::holding::Ask;

/// Serves one link until it ends.
pub(crate) async fn serve(end: OwnedFd, public_key: [u8; 32], asks: mpsc::Sender<Ask>) {
    let greeted = greet::<VpndToRelayd, RelaydToVpnd>(end, Descriptors::Refused, Role::Vpnd, Role::Relayd);
    let (sender, receiver) = match greeted.await {
        Ok(ends) => {
            debug!("the link to relayd is greeted");
            ends
        }
        Err(why) => return warn!("the link to relayd was not greeted: {why}"),
    };
    match answer(sender, receiver, public_key, &asks).await {
        Ok(()) => {}
        Err(LinkError::Closed) => debug!("the link to relayd ended"),
        Err(why) => warn!("the link to relayd ended: {why}"),
    }
}

/// Answers until the link fails, or nothing holds networks any more.
async fn answer(
    mut sender: LinkSender<VpndToRelayd>,
    mut receiver: LinkReceiver<RelaydToVpnd>,
    public_key: [u8; 32],
    asks: &mpsc::Sender<Ask>,
) -> Result<(), LinkError> {
    // Behind a network that the former relayd offered, so that its outcome is told.
    let Some(held) = ask(asks, Ask::Held).await else { return Ok(()) };
    sender.send(&VpndToRelayd::Standing { public_key, held }, &[]).await?;
    loop {
        match receiver.receive().await?.message {
            RelaydToVpnd::Hello(_) => {
                warn!("relayd greeted twice; its link ends");
                return Ok(());
            }
            RelaydToVpnd::Apply { id, snapshot } => {
                let apply = |answer| Ask::Apply(snapshot, answer);
                let Some(outcome) = ask(asks, apply).await else { return Ok(()) };
                sender.send(&VpndToRelayd::Applied { id, outcome }, &[]).await?;
            }
        }
    }
}

async fn ask<T>(asks: &mpsc::Sender<Ask>, of: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    asks.send(of(answer)).await.ok()?;
    answered.await.ok()
}
