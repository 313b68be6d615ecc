//! What happens to the relay's workers, and how their supervisor has to take it.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::sleep;

use crate::processes::is_alive;
use crate::soak::fault::{HANG, Role, WorkerFault};
use crate::soak::ledger::Party;
use crate::soak::stage::{Stage, look_until};

/// How long a worker that died may be away: the longest restart delay, and a start.
const AWAY: Duration = Duration::from_secs(45);

pub(super) async fn perform(stage: &Stage, role: Role, fault: &WorkerFault) -> bool {
    let Some(pid) = stage.relay.workers().get(role.name()).copied() else { return false };
    match fault {
        WorkerFault::Kill => {
            stage.kills(pid);
            stage.relay.signal_worker(role.name(), pid, Signal::SIGKILL);
        }
        WorkerFault::Pause(time) => {
            stage.relay.signal_worker(role.name(), pid, Signal::SIGSTOP);
            concerned(stage, role, sleep(*time)).await;
            stage.relay.signal_worker(role.name(), pid, Signal::SIGCONT);
            return true;
        }
        WorkerFault::Hang => {
            stage.kills(pid);
            stage.relay.signal_worker(role.name(), pid, Signal::SIGSTOP);
            let gone = look_until(HANG, || (!is_alive(pid)).then_some(()));
            if concerned(stage, role, gone).await.is_none() {
                stage.fail(format!("{} hung for {} s and was not replaced", role.name(), HANG.as_secs()));
                stage.relay.signal_worker(role.name(), pid, Signal::SIGKILL);
            }
        }
    }
    let again = || stage.relay.workers().get(role.name()).copied().filter(|other| *other != pid);
    if look_until(AWAY, again).await.is_none() {
        stage.fail(format!("{} was not started again within {} s", role.name(), AWAY.as_secs()));
    }
    true
}

async fn concerned<T>(stage: &Stage, role: Role, fault: impl Future<Output = T>) -> T {
    match role {
        Role::Relayd => stage.standing_still(Party::Relayd, fault).await,
        Role::Pulld | Role::Vpnd => fault.await,
    }
}
