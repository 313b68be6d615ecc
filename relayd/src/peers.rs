//! Relayd's links to pulld and vpnd: greeted when the supervisor makes them, and known to be gone
//! when they end.

use std::{os::fd::OwnedFd, sync::Arc};

use coreflow_ipc::{
    hello::Role,
    link::Descriptors,
    messages::peers::{RelaydToVpnd, VpndToRelayd},
    peer::{Greets, greet},
};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::pulls::{PullLinks, Pulls};

/// The links to the other workers; a new one takes the place of the old.
#[derive(Default)]
pub struct Peers {
    pulld: PullLinks,
    vpnd: Option<JoinHandle<()>>,
}

impl Peers {
    /// Image pulls, and the links that they take.
    pub fn pulls(&self) -> (Arc<Pulls>, PullLinks) {
        (Arc::default(), self.pulld.clone())
    }

    /// The supervisor made a link to `role`; `end` is this worker's.
    pub fn linked(&mut self, role: Role, end: OwnedFd) {
        match role {
            Role::Pulld => self.pulld.put(end),
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
