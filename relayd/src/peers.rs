//! Relayd's links to pulld and vpnd: greeted when the supervisor makes them, and known to be gone
//! when they end.

use std::os::fd::OwnedFd;

use coreflow_ipc::{
    hello::Role,
    link::Descriptors,
    messages::{
        peers::{RelaydToVpnd, VpndToRelayd},
        pulls::{PulldToRelayd, RelaydToPulld},
    },
    peer::{Greets, greet},
};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

/// The links to the other workers; a new one takes the place of the old.
#[derive(Default)]
pub struct Peers {
    pulld: Option<JoinHandle<()>>,
    vpnd: Option<JoinHandle<()>>,
}

impl Peers {
    /// The supervisor made a link to `role`; `end` is this worker's.
    pub fn linked(&mut self, role: Role, end: OwnedFd) {
        let (place, task) = match role {
            Role::Pulld => (&mut self.pulld, tokio::spawn(hold::<RelaydToPulld, PulldToRelayd>(end, role))),
            Role::Vpnd => (&mut self.vpnd, tokio::spawn(hold::<RelaydToVpnd, VpndToRelayd>(end, role))),
            Role::Supervisor | Role::Relayd => return warn!(%role, "a link to no worker was handed over"),
        };
        if let Some(former) = place.replace(task) {
            former.abort();
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
