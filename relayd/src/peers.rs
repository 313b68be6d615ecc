//! Relayd's links to pulld and vpnd: greeted when the supervisor makes them, and made anew when they end
//! while both workers live.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use coreflow_ipc::{
    asks::AskId,
    hello::Role,
    link::{Descriptors, LinkReceiver, LinkSender},
    messages::{
        peers::{RelaydToVpnd, VpndToRelayd},
        relayd::FromRelayd,
        vpn_network::{Held, Snapshot},
    },
    peer::greet,
};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    constants::{LINK_AGAIN, STANDING_BUDGET},
    hub::{Link, Told},
    pulls::Pulls,
    supervisor::Supervisor,
};

/// What ends a link to vpnd: it said what it may not, or not then.
const UNPERMITTED: &str = "ipc-message-unpermitted";

/// The links to the other workers; a new one takes the place of the old.
pub struct Peers {
    pulls: Arc<Pulls>,
    /// Where pulls are served, and so their link.
    listener: Handle,
    supervisor: Supervisor,
    pulld_links: u64,
    vpnd_links: Link,
    /// The latest link to vpnd, and what is to be sent on it: one network at a time.
    vpnd: Option<mpsc::Sender<RelaydToVpnd>>,
    told: mpsc::Sender<Told>,
}

impl Peers {
    /// No link yet; that to pulld is served in the runtime of `listener`, and what happens on those to vpnd goes
    /// to `told`.
    pub fn new(supervisor: Supervisor, listener: Handle, told: mpsc::Sender<Told>) -> Self {
        let pulls = Arc::default();
        Self { pulls, listener, supervisor, pulld_links: 0, vpnd_links: 0, vpnd: None, told }
    }

    /// Image pulls.
    pub fn pulls(&self) -> Arc<Pulls> {
        Arc::clone(&self.pulls)
    }

    /// The supervisor made a link to `role`; `end` is this worker's.
    pub fn linked(&mut self, role: Role, end: OwnedFd) {
        match role {
            Role::Pulld => {
                self.pulld_links += 1;
                let (pulls, supervisor) = (Arc::clone(&self.pulls), self.supervisor.clone());
                let number = self.pulld_links;
                self.listener.spawn(async move {
                    pulls.serve(number, end).await;
                    again(role, number, &supervisor).await;
                });
            }
            Role::Vpnd => {
                self.vpnd_links += 1;
                let (sender, networks) = mpsc::channel(1);
                // The former link ends with its sender.
                self.vpnd = Some(sender);
                let (number, told, supervisor) =
                    (self.vpnd_links, self.told.clone(), self.supervisor.clone());
                tokio::spawn(async move {
                    hold(number, end, networks, &told).await;
                    again(role, number, &supervisor).await;
                });
            }
            Role::Supervisor | Role::Relayd => warn!(%role, "a link to no worker was handed over"),
        }
    }

    /// Has vpnd serve a network, if `link` is still the one to it. A link that takes none has ended, which is
    /// told.
    pub fn apply(&self, link: Link, id: AskId, snapshot: Box<Snapshot>) {
        if let Some(vpnd) = self.vpnd.as_ref().filter(|_| self.vpnd_links == link) {
            let _ = vpnd.try_send(RelaydToVpnd::Apply { id, snapshot });
        }
    }
}

/// A worker that ended is started and linked again in any case; one that lives is not.
async fn again(role: Role, number: u64, supervisor: &Supervisor) {
    sleep(LINK_AGAIN).await;
    supervisor.tell(FromRelayd::LinkLost { role, number }).await;
}

/// Both ends of a greeted link.
type Greeted = (LinkSender<RelaydToVpnd>, LinkReceiver<VpndToRelayd>);

/// Holds a link to vpnd until either end gives it up.
async fn hold(
    link: Link,
    end: OwnedFd,
    mut networks: mpsc::Receiver<RelaydToVpnd>,
    told: &mpsc::Sender<Told>,
) {
    let stood = tokio::select! {
        stood = stand(end) => stood,
        // Nothing is given to a vpnd that was not heard of.
        _ = networks.recv() => return debug!("the link to vpnd ended: another takes its place"),
    };
    let (mut sender, mut receiver) = match stood {
        Ok((ends, public_key, held)) => {
            let _ = told.send(Told::Linked { link, public_key, held }).await;
            ends
        }
        Err(why) => return warn!("{why}"),
    };
    // The network that vpnd has not answered for yet.
    let given = Mutex::new(None);
    let send = async {
        while let Some(message) = networks.recv().await {
            if let RelaydToVpnd::Apply { id, .. } = &message {
                *given.lock().expect("no holder of it panics") = Some(*id);
            }
            if let Err(why) = sender.send(&message, &[]).await {
                return why.to_string();
            }
        }
        "another takes its place".to_owned()
    };
    let receive = async {
        loop {
            match receiver.receive().await {
                Ok(received) => match received.message {
                    VpndToRelayd::Applied { id, outcome } => {
                        let asked =
                            given.lock().expect("no holder of it panics").take_if(|given| *given == id);
                        if asked.is_none() {
                            return UNPERMITTED.to_owned();
                        }
                        let _ = told.send(Told::Applied { link, id, outcome }).await;
                    }
                    VpndToRelayd::Hello(_) | VpndToRelayd::Standing { .. } => return UNPERMITTED.to_owned(),
                },
                Err(why) => return why.to_string(),
            }
        }
    };
    let why = tokio::select! {
        why = send => why,
        why = receive => why,
    };
    if why == UNPERMITTED {
        warn!("the link to vpnd is not used any more: {why}");
    } else {
        debug!("the link to vpnd ended: {why}");
    }
    let _ = told.send(Told::Lost { link }).await;
}

/// Greets a vpnd, which states its key and what it holds.
async fn stand(end: OwnedFd) -> Result<(Greeted, [u8; 32], Option<Held>), String> {
    let (sender, mut receiver) =
        greet::<RelaydToVpnd, VpndToRelayd>(end, Descriptors::Refused, Role::Relayd, Role::Vpnd)
            .await
            .map_err(|why| format!("the link to vpnd was not greeted: {why}"))?;
    match timeout(STANDING_BUDGET, receiver.receive()).await {
        Ok(Ok(received)) => match received.message {
            VpndToRelayd::Standing { public_key, held } => Ok(((sender, receiver), public_key, held)),
            VpndToRelayd::Hello(_) | VpndToRelayd::Applied { .. } => {
                Err(format!("the link to vpnd is not used: {UNPERMITTED}"))
            }
        },
        Ok(Err(why)) => Err(format!("the link to vpnd ended before vpnd stated its key: {why}")),
        Err(_) => Err("the link to vpnd is not used: vpnd does not state its key".to_owned()),
    }
}

#[cfg(test)]
mod tests;
