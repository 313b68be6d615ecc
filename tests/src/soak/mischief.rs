//! Does the faults of a plan, each lane by itself.

mod cloudly;
mod nodes;
mod strangers;
mod workers;

use std::time::Instant;

use futures_util::future::join_all;
use nix::sys::signal::Signal;

use super::fault::Fault;
use super::plan::{Lane, Plan};
use super::stage::Stage;

/// Does all of it, and is back when the last fault is over.
pub async fn run(stage: &Stage, plan: &Plan) {
    let begin = Instant::now();
    join_all(plan.lanes.iter().map(|lane| follow(stage, plan, lane, begin))).await;
}

/// A fault that took longer than planned puts off what follows; what would outlast the run is left out.
async fn follow(stage: &Stage, plan: &Plan, lane: &Lane, begin: Instant) {
    for entry in &lane.entries {
        tokio::time::sleep_until((begin + entry.at).into()).await;
        if begin.elapsed() + entry.fault.lasts() > plan.length {
            continue;
        }
        if perform(stage, &entry.fault).await {
            stage.done(entry.fault.kind());
        }
    }
}

/// False where there was nothing to do it to: no connection, no living worker.
async fn perform(stage: &Stage, fault: &Fault) -> bool {
    match fault {
        Fault::Cloudly(fault) => cloudly::perform(stage, fault).await,
        Fault::Worker(role, fault) => workers::perform(stage, *role, fault).await,
        Fault::Node(number, fault) => nodes::perform(stage, *number, fault).await,
        Fault::Stranger(fault) => strangers::perform(&stage.target, fault).await,
        Fault::Trace(time) => {
            stage.relay.signal(Signal::SIGUSR1);
            tokio::time::sleep(*time).await;
            stage.relay.signal(Signal::SIGUSR1);
            true
        }
    }
}
