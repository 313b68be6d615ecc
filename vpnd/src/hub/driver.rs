//! The hub's own loop: what it is told, first packets, the ends of members' times, and what it shows of itself.

use std::{future::Future, sync::Arc, time::Duration};

use coreflow_ipc::messages::{hub_report::HubReport, vpn_network::NotApplied};
use futures_util::FutureExt;
use quinn::Endpoint;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use tracing::error;

use super::{handshake, network::Network, shared::Shared};
use crate::{
    constants::{MOST_ARRIVALS_IN_A_ROW, REPORT_PACE, STOP_BOUND},
    protocol::close::Close,
};

/// What the hub is told.
pub(super) enum Command {
    /// Serve this network.
    Apply(Arc<Network>, oneshot::Sender<Result<(), NotApplied>>),
    /// Say how it stands.
    Report(oneshot::Sender<HubReport>),
    /// Say that it runs.
    Answer(oneshot::Sender<()>),
    /// End every session.
    Stop(oneshot::Sender<()>),
}

/// Runs until it is told to stop, or nobody can tell it anything any more, or its endpoint is no more: a hub that
/// nobody can reach does not go on saying that it is bound.
pub(super) async fn drive(
    shared: Arc<Shared>,
    endpoint: Endpoint,
    mut told: mpsc::Receiver<Command>,
    show: watch::Sender<HubReport>,
) {
    let mut accepting = tokio::spawn(accept(Arc::clone(&shared), endpoint.clone()));
    let mut look = interval(REPORT_PACE);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stopped = loop {
        tokio::select! {
            command = told.recv() => match command {
                Some(Command::Apply(network, answer)) => drop(answer.send(shared.apply(network))),
                Some(Command::Report(answer)) => drop(answer.send(shared.report())),
                Some(Command::Answer(answer)) => drop(answer.send(())),
                Some(Command::Stop(answer)) => break Some(answer),
                None => break None,
            },
            () = time_is_up(&shared) => shared.tick(),
            _ = &mut accepting => {
                error!("the hub's endpoint failed");
                break None;
            }
            _ = look.tick() => {
                let report = shared.report();
                show.send_if_modified(|shown| {
                    let changed = *shown != report;
                    if changed {
                        *shown = report;
                    }
                    changed
                });
            }
        }
    };
    accepting.abort();
    shared.stop();
    // And whoever is still shaking hands.
    endpoint.close(Close::Stopping.code(), &[]);
    let _ = timeout(STOP_BOUND, endpoint.wait_idle()).await;
    if let Some(stopped) = stopped {
        let _ = stopped.send(());
    }
}

async fn accept(shared: Arc<Shared>, endpoint: Endpoint) {
    in_rows(|| endpoint.accept(), |incoming| handshake::arrived(&shared, incoming)).await;
}

/// Takes all that comes. A flood takes turns with everything else, a row at each.
async fn in_rows<T, F: Future<Output = Option<T>>>(next: impl Fn() -> F, mut take: impl FnMut(T)) {
    while let Some(first) = next().await {
        take(first);
        for _ in 1..MOST_ARRIVALS_IN_A_ROW {
            let Some(Some(more)) = next().now_or_never() else {
                break;
            };
            take(more);
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until a tick is due; starts over whenever that may have become sooner.
async fn time_is_up(shared: &Shared) {
    loop {
        let deadline = shared.state().membership.next_deadline();
        let left = deadline.map(|deadline| deadline.saturating_sub((shared.clock)().mono));
        tokio::select! {
            () = sleep(left.unwrap_or(Duration::MAX)), if left.is_some() => return,
            () = shared.deadline_moved.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests;
