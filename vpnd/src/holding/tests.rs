//! Relayd and the supervisor at both ends of a daemon without a process: its link to relayd is a real one.

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use coreflow_ipc::{
    hello::Role,
    link::{Descriptors, LinkReceiver, LinkSender},
    messages::peers::{RelaydToVpnd, VpndToRelayd},
    peer::greet,
};
use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::{hub::sample, relayd_link};

const LATER: u64 = 4_000_000_000_000;

struct Daemon {
    key: Arc<StaticKey>,
    ends: Ends,
    stop: oneshot::Sender<()>,
    held: JoinHandle<()>,
}

struct Relayd {
    sender: LinkSender<RelaydToVpnd>,
    receiver: LinkReceiver<VpndToRelayd>,
    serving: JoinHandle<()>,
    next: AskId,
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// The same of a time that is paused.
async fn within_hours<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_hours(9), future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

fn network(revision: u64) -> Snapshot {
    sample::snapshot(revision, (0..2).map(|number| sample::member(number, LATER)).collect())
}

impl Daemon {
    fn new() -> Self {
        Self::of(Holding::new)
    }

    /// A daemon whose hub's thread waits while `hangs` is set.
    fn hanging(hangs: Arc<AtomicBool>) -> Self {
        let clock = Clock::start();
        let read = move || {
            while hangs.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            clock.now()
        };
        Self::of(|key| Holding::by(Arc::new(read), key))
    }

    fn of(new: impl FnOnce(Arc<StaticKey>) -> (Holding, Ends)) -> Self {
        let key = Arc::new(StaticKey::generate().unwrap());
        let (holding, ends) = new(Arc::clone(&key));
        let (stop, stopped) = oneshot::channel();
        Self { key, ends, stop, held: tokio::spawn(holding.hold(stopped)) }
    }

    /// A relayd that starts.
    async fn relayd(&self) -> (Relayd, Option<Held>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serving =
            tokio::spawn(relayd_link::serve(ours.into(), self.key.public(), self.ends.asks.clone()));
        let greeted = greet(theirs.into(), Descriptors::Refused, Role::Relayd, Role::Vpnd).await;
        let (sender, receiver) = greeted.unwrap();
        let mut relayd = Relayd { sender, receiver, serving, next: 40 };
        let VpndToRelayd::Standing { public_key, held } = relayd.hear().await else { panic!("no standing") };
        assert_eq!(public_key, self.key.public());
        (relayd, held)
    }

    /// The ask for a socket, which alone is said before there is a hub.
    async fn asked(&mut self) -> AskId {
        let Some(FromVpnd::AskSocket { id }) = within("an ask", self.ends.says.recv()).await else {
            panic!("something else is said")
        };
        id
    }

    async fn answer(&self, id: AskId, socket: Result<UdpSocket, String>) {
        self.ends.answers.send(Answered { id, socket }).await.map_err(drop).unwrap();
    }

    async fn report(&mut self, of: impl Fn(&HubReport) -> bool) -> HubReport {
        within("a report", async {
            loop {
                match self.ends.says.recv().await {
                    Some(FromVpnd::Report(report)) if of(&report) => return report,
                    Some(FromVpnd::Report(_)) => {}
                    Some(FromVpnd::AskSocket { .. } | FromVpnd::Worker(_)) | None => panic!("no report"),
                }
            }
        })
        .await
    }
}

impl Relayd {
    async fn hear(&mut self) -> VpndToRelayd {
        within("an answer", self.receiver.receive()).await.unwrap().message
    }

    async fn offer(&mut self, snapshot: Snapshot) {
        self.next += 1;
        let offer = RelaydToVpnd::Apply { id: self.next, snapshot: Box::new(snapshot) };
        self.sender.send(&offer, &[]).await.unwrap();
    }

    async fn outcome(&mut self) -> Result<(), NotApplied> {
        let VpndToRelayd::Applied { id, outcome } = self.hear().await else { panic!("no outcome") };
        assert_eq!(id, self.next);
        outcome
    }
}

fn socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// VPN-10, VPN-37, VPN-41: the key is said before anything is bound, the first network asks for the socket and
/// later ones do not; what is bound is reported.
#[tokio::test]
async fn the_first_network_asks_for_the_socket() {
    let mut daemon = Daemon::new();
    let (mut relayd, held) = daemon.relayd().await;
    assert_eq!(held, None);
    assert!(daemon.ends.says.try_recv().is_err(), "nothing is asked for without a network");
    relayd.offer(network(1)).await;
    let socket = socket();
    let bound = socket.local_addr().unwrap();
    let id = daemon.asked().await;
    daemon.answer(id, Ok(socket)).await;
    assert_eq!(relayd.outcome().await, Ok(()));
    relayd.offer(network(2)).await;
    assert_eq!(relayd.outcome().await, Ok(()));
    let report = daemon.report(|report| report.revision == Some(2)).await;
    assert_eq!((report.bound, report.members), (Some(bound), 2));
}

/// VPN-33, VPN-34, VPN-35: a bind that the host refuses leaves nothing held, and each later network asks again.
#[tokio::test]
async fn a_refused_bind_holds_nothing_and_is_tried_again() {
    let mut daemon = Daemon::new();
    let (mut relayd, _) = daemon.relayd().await;
    let mut ids = Vec::new();
    for revision in [1, 1, 2] {
        relayd.offer(network(revision)).await;
        ids.push(daemon.asked().await);
        daemon.answer(*ids.last().unwrap(), Err("address in use".to_owned())).await;
        assert_eq!(relayd.outcome().await, Err(NotApplied::Bind("address in use".to_owned())));
    }
    ids.dedup();
    assert_eq!(ids.len(), 3, "an ask is never taken for another");
    let (mut relayd, held) = daemon.relayd().await;
    assert_eq!(held, None);
    // An older network is no older than nothing. A late answer to a former ask is no answer to this one.
    relayd.offer(network(1)).await;
    let id = daemon.asked().await;
    daemon.answer(ids[0], Err("late".to_owned())).await;
    daemon.answer(id, Ok(socket())).await;
    assert_eq!(relayd.outcome().await, Ok(()));
}

/// Waits until nothing is bound to `address`.
async fn freed(address: SocketAddr) -> UdpSocket {
    within("the end of a socket", async {
        loop {
            match UdpSocket::bind(address) {
                Ok(socket) => return socket,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// VPN-34, VPN-37: a supervisor that does not answer is a bind that failed, within a bound. The answer that comes
/// after all serves the network that waits then, and without one it is closed at once.
#[tokio::test]
async fn an_ask_that_is_not_answered_ends() {
    let mut daemon = Daemon::new();
    let (mut relayd, _) = daemon.relayd().await;
    relayd.offer(network(1)).await;
    let late = daemon.asked().await;
    // Nothing else is waited for, so the wait is over at once.
    tokio::time::pause();
    assert_eq!(relayd.outcome().await, Err(NotApplied::Bind("no answer".to_owned())));
    tokio::time::resume();
    let socket = socket();
    let bound = socket.local_addr().unwrap();
    daemon.answer(late, Ok(socket)).await;
    let again = freed(bound).await;
    relayd.offer(network(1)).await;
    let late = daemon.asked().await;
    tokio::time::pause();
    assert_eq!(relayd.outcome().await, Err(NotApplied::Bind("no answer".to_owned())));
    tokio::time::resume();
    // The next one asks for no second socket beside the one that may be on its way.
    let (answer, outcome) = oneshot::channel();
    daemon.ends.asks.send(Ask::Apply(Box::new(network(1)), answer)).await.map_err(drop).unwrap();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(daemon.ends.says.try_recv().is_err());
    daemon.answer(late, Ok(again)).await;
    assert_eq!(within("an answer", outcome).await.unwrap(), Ok(()));
    daemon.report(|report| report.bound == Some(bound)).await;
}

/// A hub that hangs is found, with a network to serve and without, and ends the daemon; a stop does not wait for it.
#[tokio::test]
async fn a_hub_that_hangs_ends_the_daemon() {
    for offers in [true, false] {
        let hangs = Arc::<AtomicBool>::default();
        let mut daemon = Daemon::hanging(Arc::clone(&hangs));
        let (mut relayd, _) = daemon.relayd().await;
        relayd.offer(network(1)).await;
        let id = daemon.asked().await;
        daemon.answer(id, Ok(socket())).await;
        assert_eq!(relayd.outcome().await, Ok(()));
        hangs.store(true, Relaxed);
        let (answer, outcome) = oneshot::channel();
        if offers {
            daemon.ends.asks.send(Ask::Apply(Box::new(network(2)), answer)).await.map_err(drop).unwrap();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        // Nobody takes what is said any more.
        daemon.ends.says.close();
        // All that is waited for is the hub's silence.
        tokio::time::pause();
        within_hours("the end", daemon.held).await.unwrap();
        tokio::time::resume();
        assert!(!offers || outcome.await.is_err());
        hangs.store(false, Relaxed);
    }
    let hangs = Arc::<AtomicBool>::default();
    let mut daemon = Daemon::hanging(Arc::clone(&hangs));
    let (mut relayd, _) = daemon.relayd().await;
    relayd.offer(network(1)).await;
    let id = daemon.asked().await;
    daemon.answer(id, Ok(socket())).await;
    assert_eq!(relayd.outcome().await, Ok(()));
    hangs.store(true, Relaxed);
    drop(daemon.stop);
    tokio::time::pause();
    within_hours("the end", daemon.held).await.unwrap();
    hangs.store(false, Relaxed);
}

/// VPN-12, VPN-18, VPN-20, VPN-21, VPN-22, VPN-23: what may not follow is refused, and no socket is asked for in its
/// name.
#[tokio::test]
async fn what_is_refused_leaves_the_held_network() {
    let mut daemon = Daemon::new();
    let (mut relayd, _) = daemon.relayd().await;
    let mut spoiled = network(1);
    spoiled.schema_version = 7;
    relayd.offer(spoiled.clone()).await;
    assert_eq!(relayd.outcome().await, Err(NotApplied::Snapshot("schema version 7".to_owned())));
    assert!(daemon.ends.says.try_recv().is_err());
    relayd.offer(network(5)).await;
    let id = daemon.asked().await;
    daemon.answer(id, Ok(socket())).await;
    assert_eq!(relayd.outcome().await, Ok(()));
    let mut foreign = network(6);
    foreign.network.authority = "other".into();
    let mut moved = network(6);
    moved.network.control_prefix.length = 25;
    for refused in [network(4), foreign, moved] {
        relayd.offer(refused).await;
        assert_eq!(relayd.outcome().await, Err(NotApplied::Passed));
    }
    relayd.offer(spoiled).await;
    assert!(matches!(relayd.outcome().await, Err(NotApplied::Snapshot(_))));
    relayd.offer(network(5)).await;
    assert_eq!(relayd.outcome().await, Ok(()));
    assert_eq!(daemon.relayd().await.1, Some(network(5).network));
}

/// VPN-28: a relayd that ends leaves the hub serving, and the next one is told what is held. Where the first ended
/// before it had its answer that is told at once, whether or not a socket comes for it, and it is true.
#[tokio::test]
async fn a_new_relayd_is_told_what_is_held() {
    let mut daemon = Daemon::new();
    let (mut first, _) = daemon.relayd().await;
    first.offer(network(3)).await;
    let id = daemon.asked().await;
    first.serving.abort();
    drop(first);
    let (mut second, held) = daemon.relayd().await;
    assert_eq!(held, None);
    let late = socket();
    let bound = late.local_addr().unwrap();
    daemon.answer(id, Ok(late)).await;
    let again = freed(bound).await;
    second.offer(network(4)).await;
    let id = daemon.asked().await;
    daemon.answer(id, Ok(again)).await;
    assert_eq!(second.outcome().await, Ok(()));
    daemon.report(|report| report.revision == Some(4) && report.bound.is_some()).await;
    second.serving.abort();
    drop(second);
    let (mut third, held) = daemon.relayd().await;
    assert_eq!(held, Some(network(4).network));
    third.offer(network(5)).await;
    assert_eq!(third.outcome().await, Ok(()));
}

/// VPN-46: the end of the daemon is the end of the hub and of its socket, and no ask outlives it.
#[tokio::test]
async fn a_stop_ends_the_hub() {
    let mut daemon = Daemon::new();
    let (mut relayd, _) = daemon.relayd().await;
    relayd.offer(network(1)).await;
    let socket = socket();
    let bound = socket.local_addr().unwrap();
    let id = daemon.asked().await;
    daemon.answer(id, Ok(socket)).await;
    assert_eq!(relayd.outcome().await, Ok(()));
    assert!(UdpSocket::bind(bound).is_err());
    drop(daemon.stop);
    within("the end", daemon.held).await.unwrap();
    UdpSocket::bind(bound).unwrap();

    let mut daemon = Daemon::new();
    let (mut relayd, _) = daemon.relayd().await;
    relayd.offer(network(1)).await;
    daemon.asked().await;
    drop(daemon.stop);
    within("the end", daemon.held).await.unwrap();
    within("the end of the link", relayd.serving).await.unwrap();
}
