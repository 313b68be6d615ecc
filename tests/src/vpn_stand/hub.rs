//! The hub in this one process, confined as vpnd is (VPN-02, VPN-03): a bench or a test that measures the
//! process measures the code and the confinement that the relay runs.
//!
//! The process is told by signals: `SIGHUP` reads the network file again, `SIGUSR1` writes a report,
//! `SIGTERM` and `SIGINT` stop it. It answers in lines on standard output, each with a first word of its own:
//! `serving`, `applied`, `refused`, `report`, `stopped`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use coreflow_ipc::confine::{Profile, Started, confine};
use coreflow_ipc::sys;
use coreflow_vpnd::hub::Hub;
use coreflow_vpnd::protocol;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use socket2::{Domain, Socket, Type};

use super::network::Network;
use super::{HUB_KEY, NETWORK, keys};

/// What the hub's socket asks the kernel to buffer in each direction.
const SOCKET_BUFFER: usize = 4 << 20;
/// The most that is read of a network file.
const LARGEST_NETWORK: u64 = 16 << 20;
/// What the process is told by.
const TOLD: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1];

/// What is open before the confinement and used behind it.
struct Held {
    socket: UdpSocket,
    /// A signal descriptor; read as bytes, of which the first four are the signal's number.
    told: File,
    network: File,
}

/// Bytes of one signal (`signalfd_siginfo`).
const SIGNAL_BYTES: usize = 128;

/// Serves the network file of `folder` at `listen` until a signal stops it.
///
/// # Errors
/// What of the start failed.
pub fn serve(folder: &Path, listen: SocketAddr) -> Result<(), String> {
    let key = Arc::new(keys::read(&folder.join(HUB_KEY))?);
    let path = folder.join(NETWORK);
    let network = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let socket = bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    let told = TOLD.into_iter().collect::<SigSet>();
    told.thread_block().map_err(|error| format!("blocking signals: {error}"))?;
    let told = SignalFd::with_flags(&told, SfdFlags::SFD_CLOEXEC).map_err(|error| error.to_string())?;
    let told = File::from(OwnedFd::from(told));
    protocol::socket::probe();
    let mut held = enter(Held { socket, told, network })?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the runtime: {error}"))?;
    let _inside = runtime.enter();
    let hub = Hub::start(held.socket, key).map_err(|error| format!("the hub: {error}"))?;
    say(&format!("serving {listen}"));
    runtime.block_on(apply(&hub, &mut held.network));
    loop {
        let mut signal = [0; SIGNAL_BYTES];
        held.told.read_exact(&mut signal).map_err(|error| format!("the signals: {error}"))?;
        let [first, second, third, fourth, ..] = signal;
        match Signal::try_from(i32::from_ne_bytes([first, second, third, fourth])) {
            Ok(Signal::SIGHUP) => runtime.block_on(apply(&hub, &mut held.network)),
            Ok(Signal::SIGUSR1) => match serde_json::to_string(&runtime.block_on(hub.report())) {
                Ok(report) => say(&format!("report {report}")),
                Err(error) => say(&format!("report none: {error}")),
            },
            Ok(_) | Err(_) => break,
        }
    }
    runtime.block_on(hub.stop());
    say("stopped");
    Ok(())
}

/// The socket as the supervisor would bind it.
fn bind(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(listen), Type::DGRAM, None)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&listen.into())?;
    Ok(socket.into())
}

/// Confines this process. All but the three standard descriptors are closed by it, so that what is held waits
/// on the link at standard input meanwhile, where vpnd gets its descriptors too.
fn enter(held: Held) -> Result<Held, String> {
    let fault = |what: &str, why: &dyn std::fmt::Display| format!("{what}: {why}");
    let (sender, link) = UnixStream::pair().map_err(|error| fault("the link", &error))?;
    let descriptors = [held.socket.as_fd(), held.told.as_fd(), held.network.as_fd()];
    sys::send_with_descriptors(sender.as_fd(), b"held", &descriptors)
        .map_err(|error| fault("the link", &error))?;
    nix::unistd::dup2_stdin(&link).map_err(|error| fault("standard input", &error))?;
    // Closed here, by their owners, rather than below, by their numbers.
    drop((held, sender, link));
    let supervisor = std::os::unix::process::parent_id();
    let report = confine(&Profile::vpnd(), &Started { supervisor });
    for layer in report.map_err(|error| fault("the confinement", &error))?.layers {
        say(&format!("confined {}: {}", layer.layer, layer.state));
    }
    let received = sys::receive_with_descriptors(io::stdin().as_fd(), &mut [0; 8], 3);
    let (_, descriptors) = received.map_err(|error| fault("the link", &error))?;
    let Ok([socket, told, network]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return Err("the link: not all that was held came back".to_owned());
    };
    Ok(Held { socket: socket.into(), told: told.into(), network: network.into() })
}

/// Reads the network file and gives it to the hub; says what became of it.
async fn apply(hub: &Hub, file: &mut File) {
    match read(file) {
        Ok(network) => {
            let (generation, revision) = (network.generation, network.revision);
            let applied = match network.snapshot() {
                Ok(snapshot) => hub.apply(snapshot).await.map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            match applied {
                Ok(()) => say(&format!("applied {generation}/{revision}")),
                Err(why) => say(&format!("refused {generation}/{revision}: {why}")),
            }
        }
        Err(why) => say(&format!("refused: {why}")),
    }
}

/// The file as it stands; it is open since before the confinement, so its writer must not replace it.
fn read(file: &mut File) -> Result<Network, String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).map_err(|error| error.to_string())?;
    file.take(LARGEST_NETWORK).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Network::read(&text)
}

/// A line for whoever reads; one who has gone is no reason to end.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
