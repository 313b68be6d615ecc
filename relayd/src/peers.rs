//! Relayd's links to pulld and vpnd: greeted when the supervisor makes them, and made anew when they end
//! while both workers live.

use std::{os::fd::OwnedFd, sync::Arc};

use coreflow_ipc::{
    hello::Role,
    link::Descriptors,
    messages::{
        peers::{RelaydToVpnd, VpndToRelayd},
        relayd::FromRelayd,
    },
    peer::{Greets, greet},
};
use tokio::{runtime::Handle, task::JoinHandle, time::sleep};
use tracing::{debug, warn};

use crate::{constants::LINK_AGAIN, pulls::Pulls, supervisor::Supervisor};

/// The links to the other workers; a new one takes the place of the old.
pub struct Peers {
    pulls: Arc<Pulls>,
    /// Where pulls are served, and so their link.
    listener: Handle,
    supervisor: Supervisor,
    pulld_links: u64,
    vpnd: Option<JoinHandle<()>>,
}

impl Peers {
    /// No link yet; that to pulld is served in the runtime of `listener`.
    pub fn new(supervisor: Supervisor, listener: Handle) -> Self {
        Self { pulls: Arc::default(), listener, supervisor, pulld_links: 0, vpnd: None }
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
                    // A pulld that ended is started and linked again in any case; one that lives is not.
                    sleep(LINK_AGAIN).await;
                    supervisor.tell(FromRelayd::LinkLost { role, number }).await;
                });
            }
            Role::Vpnd => {
                let task = tokio::spawn(hold::<RelaydToVpnd, VpndToRelayd>(end, role));
                if let Some(former) = self.vpnd.replace(task) {
                    former.abort();
                }
            }
            Role::Supervisor | Role::Relayd => warn!(%role, "a link to no worker was handed over"),
        }
    }
}

async fn hold<Out: Greets, In: Greets>(end: OwnedFd, role: Role) {
    match greet::<Out, In>(end, Descriptors::Refused, Role::Relayd, role).await {
        Ok((_sender, mut receiver)) => {
            debug!(%role, "the link between the workers is greeted");
            // A second hello is as unexpected as anything else: it ends the link.
            let ended = receiver.receive().await.err();
            debug!(%role, in_order = ended.is_some(), "the link between the workers ended");
        }
        Err(why) => warn!(%role, "the link between the workers was not greeted: {why}"),
    }
}
