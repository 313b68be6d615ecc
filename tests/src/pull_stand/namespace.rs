//! A relay whose Cloudly and whose registry are two parties at one address.
//!
//! The relay runs in a network namespace of its own. At the upstream's address stands a front there: what
//! pulld dials it hands to the true upstream outside, as TCP, so that TLS, its failures and its ends are
//! between the two; what anybody else dials is Cloudly's. Outside, the relay's port is handed in the same
//! way. A socket belongs to the namespace it was made in, so the outer thread makes those that are outside
//! and gives them to the inner one. It takes root, for the namespace and for telling whose a connection is.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, unshare};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{Arguments, Stand};
use crate::free_port::free_port;
use crate::processes::workers_of;
use crate::sockets::tcp_sockets_of;

/// Sockets that are on their way between the threads.
const UNDER_WAY: usize = 64;

type Socket = std::net::TcpStream;
/// Asks for a connection to the true upstream.
type Dial = oneshot::Sender<io::Result<Socket>>;

fn here(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Serves until its future is dropped or the inside fails.
pub(super) async fn run(arguments: &Arguments) -> Result<(), String> {
    let (clients, arriving) = mpsc::channel(UNDER_WAY);
    let (dial, mut dials) = mpsc::channel::<Dial>(UNDER_WAY);
    let (opened, open) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let inside = arguments.clone();
    let thread = std::thread::spawn(move || enter(&inside, arriving, dial, opened, ended));
    let inner = Inner { end: Some(end), thread: Some(thread) };
    if open.await.is_err() {
        return inner.fault();
    }
    let bound = TcpListener::bind(here(arguments.port)).await;
    let listener = bound.map_err(|error| format!("port {}: {error}", arguments.port))?;
    let mut dialling = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let Ok(client) = client.into_std() else { continue };
                if clients.send(client).await.is_err() {
                    return inner.fault();
                }
            }
            dial = dials.recv() => {
                let Some(dial) = dial else { return inner.fault() };
                let upstream = here(arguments.upstream_port);
                dialling.spawn(async move {
                    let socket = TcpStream::connect(upstream).await.and_then(TcpStream::into_std);
                    // Who asked may have gone.
                    drop(dial.send(socket));
                });
            }
            Some(_) = dialling.join_next() => {}
        }
    }
}

/// The thread in the namespace. Dropping it ends the relay and waits for that.
struct Inner {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Inner {
    fn fault(mut self) -> Result<(), String> {
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_else(|| Err("the inside of the stand failed".to_owned()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn enter(
    arguments: &Arguments,
    arriving: mpsc::Receiver<Socket>,
    dial: mpsc::Sender<Dial>,
    opened: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
) -> Result<(), String> {
    let refused = |error| format!("no network namespace, which takes root: {error}");
    unshare(CloneFlags::CLONE_NEWNET).map_err(refused)?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    if !up.as_ref().is_ok_and(std::process::ExitStatus::success) {
        return Err(format!("no loopback in the namespace: ip link: {up:?}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        tokio::select! {
            served = serve(arguments, arriving, dial, opened) => served,
            _ = ended => Ok(()),
        }
    })
}

async fn serve(
    arguments: &Arguments,
    mut arriving: mpsc::Receiver<Socket>,
    dial: mpsc::Sender<Dial>,
    opened: oneshot::Sender<()>,
) -> Result<(), String> {
    let front = TcpListener::bind(here(arguments.upstream_port)).await.map_err(|error| error.to_string())?;
    let cloudly = free_port();
    let stand = Stand::start(arguments, cloudly).await?;
    let (supervisor, own) = (stand.relay.pid(), arguments.upstream_port);
    let fronting = async {
        let mut passing = JoinSet::new();
        while let Ok((near, from)) = front.accept().await {
            let dial = dial.clone();
            passing.spawn(async move {
                // The supervisor dials for pulld and hands over: whoever speaks first has the connection.
                let _ = near.peek(&mut [0]).await;
                let pulls = is_of_pulld(supervisor, from.port(), own);
                let far = if pulls { outside(&dial).await } else { TcpStream::connect(here(cloudly)).await };
                pass(near, far).await;
            });
            while passing.try_join_next().is_some() {}
        }
        Err("the front failed".to_owned())
    };
    let handing = async {
        stand.open().await?;
        let _ = opened.send(());
        let (mut passing, relay) = (JoinSet::new(), here(arguments.port));
        let handing = async {
            while let Some(client) = arriving.recv().await {
                passing.spawn(async move {
                    let Ok(near) = TcpStream::from_std(client) else { return };
                    pass(near, TcpStream::connect(relay).await).await;
                });
                while passing.try_join_next().is_some() {}
            }
            Ok(())
        };
        tokio::select! {
            handed = handing => handed,
            told = stand.tell() => told,
        }
    };
    tokio::select! {
        failed = fronting => failed,
        ended = handing => ended,
    }
}

/// Whether the connection from `port` to `front` is pulld's.
fn is_of_pulld(supervisor: u32, port: u16, front: u16) -> bool {
    let pulld = workers_of(supervisor).get("pulld").copied();
    let sockets = pulld.and_then(|pid| tcp_sockets_of(pid).ok()).unwrap_or_default();
    sockets.iter().any(|socket| (socket.local_port, socket.remote_port) == (port, front))
}

async fn outside(dial: &mpsc::Sender<Dial>) -> io::Result<TcpStream> {
    let gone = || io::Error::from(io::ErrorKind::NotConnected);
    let (reply, socket) = oneshot::channel();
    dial.send(reply).await.map_err(|_| gone())?;
    TcpStream::from_std(socket.await.map_err(|_| gone())??)
}

/// Passes bytes and ends both ways; without a far end the near one is closed.
async fn pass(mut near: TcpStream, far: io::Result<TcpStream>) {
    let Ok(mut far) = far else { return };
    drop((near.set_nodelay(true), far.set_nodelay(true)));
    drop(copy_bidirectional(&mut near, &mut far).await);
}
