//! The managed VPN hub: it relays IPv4 packets between the nodes of one network, inside this process and on
//! one UDP socket that was made elsewhere, without a TUN device, a route or a right of its own (VPN-01, VPN-02,
//! VPN-03). It runs on a thread of its own, so that a busy hub answers for its worker and an idle worker costs
//! the hub nothing.
//!
//! `network`, `routes`, `slots`, `view`, `membership`, `forwarding`, `budget` and `admission` decide; `shared`, `handshake`, `session`
//! and `driver` do.

use std::{
    fmt, io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    thread::{self, JoinHandle},
};

use coreflow_ipc::{
    messages::{
        hub_report::HubReport,
        vpn_network::{NotApplied, Snapshot},
    },
    now::{Clock, Now},
};
use quinn::{Endpoint, TokioRuntime};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use self::{
    driver::{Command, drive},
    network::Network,
    shared::Shared,
};
use crate::{
    constants::{COMMAND_QUEUE, HUB_SILENCE, HUB_STACK, STOP_BOUND},
    protocol::{
        noise::StaticKey,
        socket::Datagrams,
        tls::{self, TlsError},
        transport,
    },
};

pub mod admission;
pub mod budget;
pub mod counters;
mod driver;
pub mod forwarding;
mod handshake;
pub mod membership;
pub mod network;
mod report;
pub mod routes;
#[cfg(test)]
pub(crate) mod sample;
mod session;
mod shared;
pub mod slots;
#[cfg(test)]
mod tests;
pub mod view;

/// Reads both clocks.
pub type ReadClock = Arc<dyn Fn() -> Now + Send + Sync>;

/// A hub that serves. Dropped, it stops without being waited for.
pub struct Hub {
    commands: mpsc::Sender<Command>,
    reports: watch::Receiver<HubReport>,
    bound: SocketAddr,
    thread: JoinHandle<()>,
}

/// Why no hub serves.
#[derive(Debug)]
pub enum StartError {
    /// TLS cannot be had.
    Tls(TlsError),
    /// The system refuses the socket, or the thread.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::System(error) => write!(f, "the hub's socket or thread: {}", error.kind()),
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Hub {
    /// Serves on `socket`, which is bound, under `key`. Until a network is applied nobody is admitted.
    ///
    /// # Errors
    /// The system refuses; the socket is closed then.
    pub fn start(socket: UdpSocket, key: Arc<StaticKey>) -> Result<Self, StartError> {
        let clock = Clock::start();
        Self::start_by(Arc::new(move || clock.now()), socket, key)
    }

    /// The same by other clocks, of which the monotonic one is as fast as this machine's.
    ///
    /// # Errors
    /// As [`Hub::start`].
    pub fn start_by(clock: ReadClock, socket: UdpSocket, key: Arc<StaticKey>) -> Result<Self, StartError> {
        let config = tls::hub_config().map_err(StartError::Tls)?;
        let (commands, told) = mpsc::channel(COMMAND_QUEUE);
        let (show, reports) = watch::channel(HubReport::default());
        let (opened, bound) = std::sync::mpsc::sync_channel(1);
        // The runtime begins and ends on the thread, which may wait for it.
        let thread =
            thread::Builder::new().name("hub".to_owned()).stack_size(HUB_STACK).spawn(move || {
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                runtime.block_on(async {
                    match open(config, socket) {
                        Ok((endpoint, bound)) => {
                            let _ = opened.send(Ok(bound));
                            drive(Arc::new(Shared::new(key, clock, bound)), endpoint, told, show).await;
                        }
                        Err(error) => drop(opened.send(Err(error))),
                    }
                });
                runtime.shutdown_background();
            })?;
        let bound = bound.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
        Ok(Self { commands, reports, bound, thread })
    }

    /// What is bound.
    pub fn bound(&self) -> SocketAddr {
        self.bound
    }

    /// Serves the network that `snapshot` is; answers once every session that it withdraws is closed.
    ///
    /// # Errors
    /// It is none, or none that may follow the one that is served, which goes on then (VPN-23).
    pub async fn apply(&self, snapshot: Snapshot) -> Result<(), NotApplied> {
        self.serve(Network::of(snapshot)?).await
    }

    /// The same of a network that is made already.
    ///
    /// # Errors
    /// It may not follow the one that is served.
    pub async fn serve(&self, network: Network) -> Result<(), NotApplied> {
        let (answer, answered) = oneshot::channel();
        let _ = self.commands.send(Command::Apply(Arc::new(network), answer)).await;
        answered.await.unwrap_or_else(|_| Err(NotApplied::Snapshot("the hub has ended".to_owned())))
    }

    /// The hub as it is now; nothing of a hub that has ended.
    pub async fn report(&self) -> HubReport {
        let (answer, answered) = oneshot::channel();
        let _ = self.commands.send(Command::Report(answer)).await;
        answered.await.unwrap_or_default()
    }

    /// The hub as it was at each change, at most once a second. The sender is gone when the hub is.
    pub fn reports(&self) -> watch::Receiver<HubReport> {
        self.reports.clone()
    }

    /// Returns once the hub's thread has had its turn, or is no more.
    pub async fn answers(&self) {
        let (answer, answered) = oneshot::channel();
        let _ = self.commands.send(Command::Answer(answer)).await;
        let _ = answered.await;
    }

    /// Ends every session with a code that says so, and waits for the ends to be heard, within a bound. The
    /// socket is closed then, unless the hub's thread hangs.
    pub async fn stop(self) {
        let (answer, answered) = oneshot::channel();
        let stopped = async {
            let _ = self.commands.send(Command::Stop(answer)).await;
            let _ = answered.await;
        };
        if timeout(STOP_BOUND + HUB_SILENCE, stopped).await.is_ok() {
            // It has nothing left to wait for.
            let _ = self.thread.join();
        }
    }
}

/// Within the runtime.
fn open(config: quinn::ServerConfig, socket: UdpSocket) -> io::Result<(Endpoint, SocketAddr)> {
    socket.set_nonblocking(true)?;
    let bound = socket.local_addr()?;
    let socket = Datagrams::over(socket)?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint =
        Endpoint::new_with_abstract_socket(transport::endpoint_config(), Some(config), socket, runtime)?;
    Ok((endpoint, bound))
}
