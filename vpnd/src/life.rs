//! Vpnd's life between its confinement and its stop. Its key is made here, lives as long as the process, and has
//! no way out: no message has room for it (VPN-27, VPN-30).

use std::{net::UdpSocket, sync::Arc};

use coreflow_ipc::{
    hello::Role,
    messages::vpnd::{FromVpnd, ToVpnd},
    worker::{Confined, Life, StartError, Told},
};
use tokio::{sync::oneshot, task::JoinHandle};
use tracing::{error, warn};

use crate::{
    holding::{Answered, Ends, Holding},
    protocol::noise::StaticKey,
    relayd_link,
};

/// Serves until the supervisor stops this worker or its link ends.
pub async fn serve(confined: Confined) -> Result<(), StartError> {
    let mut life = confined.join::<FromVpnd, ToVpnd>(Role::Vpnd).await?;
    let key = StaticKey::generate().map_err(|why| {
        error!(%why, "the hub's key cannot be made");
        StartError::Runtime(std::io::ErrorKind::Other)
    })?;
    let key = Arc::new(key);
    let (holding, ends) = Holding::new(Arc::clone(&key));
    let (stop, stopped) = oneshot::channel();
    let mut holding = tokio::spawn(holding.hold(stopped));
    let served = tokio::select! {
        served = listen(&mut life, &key, ends) => served,
        // It ends by itself only if the hub's thread, or it, came to grief.
        _ = &mut holding => return Err(StartError::Runtime(std::io::ErrorKind::Other)),
    };
    drop(stop);
    let _ = holding.await;
    served?;
    life.stopped().await;
    Ok(())
}

/// Acts on what the supervisor says, until it says stop.
async fn listen(
    life: &mut Life<FromVpnd, ToVpnd>,
    key: &StaticKey,
    mut ends: Ends,
) -> Result<(), StartError> {
    let mut relayd: Option<JoinHandle<()>> = None;
    loop {
        let told = tokio::select! {
            told = life.told() => told.map_err(StartError::Link)?,
            Some(message) = ends.says.recv() => {
                life.outbox.send(message).await;
                continue;
            }
        };
        match told {
            Told::Peer(Role::Relayd, end) => {
                let serving = relayd_link::serve(end, key.public(), ends.asks.clone());
                // A restarted relayd comes with a link of its own; the former one has ended.
                if let Some(former) = relayd.replace(tokio::spawn(serving)) {
                    former.abort();
                }
            }
            Told::Peer(role, _) => warn!(%role, "a link to no worker of vpnd's was handed over"),
            Told::Message(ToVpnd::AnswerSocket { id, answer }, descriptors) => {
                let socket = descriptors.into_iter().next().ok_or_else(|| "no socket came".to_owned());
                let socket = answer.and_then(|_| socket.map(UdpSocket::from));
                if ends.answers.try_send(Answered { id, socket }).is_err() {
                    warn!("a socket came that was not asked for");
                }
            }
            Told::Message(ToVpnd::Worker(_), _) => {}
            Told::Stop => return Ok(()),
        }
    }
}
