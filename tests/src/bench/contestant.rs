//! The relays that are measured, each with a Cloudly of its own, and the Cloudly without a relay that tells
//! what of a time is the exchange's own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::cloudly::{Cloudly, Facts};
use super::cost;
use super::node::Dial;
use crate::authority::Authority;
use crate::free_port::free_port;
use crate::processes::is_alive;
use crate::relay::{Relay, RelaySetup};
use crate::waiting::{BOUND, poll};

/// The script of the Node relay, in the folder of the published packages.
const SCRIPT: &str = "bench-relay.mjs";
/// Time without work after which a relay counts as at rest, and how much of it may go into its own clocks.
const REST: Duration = Duration::from_millis(600);
const STIR: Duration = Duration::from_millis(30);
/// Longest wait for that.
const SETTLING: Duration = Duration::from_secs(30);

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// This project's relay.
    Coreflow,
    /// The Node relay of the published packages.
    Node,
    /// No relay: nodes dial Cloudly.
    Direct,
}

impl Kind {
    /// The relays.
    pub const RELAYS: [Self; 2] = [Self::Coreflow, Self::Node];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coreflow => "Coreflow",
            Self::Node => "Node relay",
            Self::Direct => "no relay",
        }
    }
}

/// A running one. Dropping it ends its processes.
pub struct Contestant {
    /// Which.
    pub kind: Kind,
    /// How its nodes dial.
    pub dial: Dial,
    /// Its Cloudly.
    pub cloudly: Cloudly,
    /// From its start until it served nodes.
    pub started: Duration,
    server: Server,
}

enum Server {
    Coreflow(Box<Relay>),
    Node(NodeRelay),
    Cloudly,
}

/// What is needed to start one.
pub struct Ground<'a> {
    /// Whose certificates they have.
    pub authority: &'a Authority,
    /// The folder of this project's executables.
    pub binaries: &'a Path,
    /// The folder of the published packages.
    pub peers: &'a Path,
}

impl Contestant {
    /// Starts one and waits until it serves nodes.
    ///
    /// # Errors
    /// Why it does not, with the last lines it wrote.
    pub async fn start(kind: Kind, ground: &Ground<'_>) -> Result<Self, String> {
        let setup = RelaySetup::new(ground.authority);
        let facts = Facts { origin: setup.origin(), host: setup.host_name.clone() };
        let cloudly =
            Cloudly::start(ground.authority, facts).map_err(|error| format!("no Cloudly: {error}"))?;
        let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, setup.port));
        let host = setup.host_name.clone();
        let begin = Instant::now();
        let (server, address) = match kind {
            Kind::Coreflow => (Server::Coreflow(Box::new(coreflow(setup, &cloudly, ground).await?)), relay),
            Kind::Node => (Server::Node(NodeRelay::start(&setup, &cloudly, ground).await?), relay),
            Kind::Direct => (Server::Cloudly, cloudly.address()),
        };
        let started = begin.elapsed();
        Ok(Self { kind, dial: Dial::new(address, &host), cloudly, started, server })
    }

    /// The processes whose cost is counted, by name; none without a relay.
    pub fn named_processes(&self) -> BTreeMap<String, u32> {
        match &self.server {
            Server::Coreflow(relay) => {
                relay.workers().into_iter().chain([("supervisor".to_owned(), relay.pid())]).collect()
            }
            Server::Node(relay) => BTreeMap::from([("node".to_owned(), relay.child.id())]),
            Server::Cloudly => BTreeMap::new(),
        }
    }

    /// The processes whose cost is counted.
    pub fn processes(&self) -> Vec<u32> {
        self.named_processes().into_values().collect()
    }

    /// CPU time used so far.
    ///
    /// # Errors
    /// A process that is gone.
    pub fn cpu(&self) -> Result<Duration, String> {
        cost::cpu(&self.processes())
    }

    /// Resident memory once the relay is at rest, in bytes.
    ///
    /// # Errors
    /// A process that is gone, or one that finds no rest.
    pub async fn memory_at_rest(&self) -> Result<u64, String> {
        self.rest().await?;
        if let Server::Node(relay) = &self.server {
            relay.collect_garbage().await?;
        }
        cost::memory(&self.processes())
    }

    async fn rest(&self) -> Result<(), String> {
        let resting = async {
            loop {
                let before = self.cpu()?;
                tokio::time::sleep(REST).await;
                if self.cpu()? < before + STIR {
                    return Ok(());
                }
            }
        };
        let late = |_| Err(format!("{} finds no rest", self.kind.name()));
        tokio::time::timeout(SETTLING, resting).await.unwrap_or_else(late)
    }

    /// The account of a failure: who, why, and what the relay wrote last.
    pub fn blame(&self, why: &str) -> String {
        format!("{}: {why}; it wrote {:#?}", self.kind.name(), self.last_lines())
    }

    fn last_lines(&self) -> Vec<String> {
        let lines: Vec<String> = match &self.server {
            Server::Coreflow(relay) => relay.lines().into_iter().map(|line| line.text).collect(),
            Server::Node(relay) => relay.lines(),
            Server::Cloudly => Vec::new(),
        };
        lines.into_iter().rev().take(12).rev().collect()
    }
}

async fn coreflow(setup: RelaySetup, cloudly: &Cloudly, ground: &Ground<'_>) -> Result<Relay, String> {
    let mut setup = setup
        .variable("CLOUDLY_URL", &cloudly.url())
        .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
        .variable("COREFLOW_VPN_QUIC_PORT", &free_port().to_string());
    setup.bearer = "bearer-of-the-bench".to_owned();
    setup.executables = Some(ground.binaries.to_owned());
    let relay = setup.start();
    // A failure's lines are printed by the wait itself.
    relay.wait_open().await.map_err(|late| late.to_string())?;
    let registered = || (cloudly.acceptances() > 0).then_some(());
    poll(BOUND, "registration of the relay", registered).await.map_err(|late| late.to_string())?;
    Ok(relay)
}

struct NodeRelay {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl NodeRelay {
    async fn start(setup: &RelaySetup, cloudly: &Cloudly, ground: &Ground<'_>) -> Result<Self, String> {
        let issued = ground.authority.issue(&[&setup.host_name]);
        let how = json!({
            "cloudlyUrl": cloudly.url(), "ca": ground.authority.ca_pem(), "cert": issued.chain_pem,
            "key": issued.key_pem, "host": setup.host_name, "port": setup.port,
        });
        let mut child = Command::new("node")
            .args(["--expose-gc", SCRIPT])
            .current_dir(ground.peers)
            .env("BENCH_RELAY", how.to_string())
            // Held open as long as this process lives, whose end is then the relay's.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("node cannot be started: {error}"))?;
        let lines = Arc::default();
        keep(child.stdout.take().expect("stdout is a pipe"), &lines);
        keep(child.stderr.take().expect("stderr is a pipe"), &lines);
        let relay = Self { child, lines };
        relay.wait_lines("open", 1).await?;
        Ok(relay)
    }

    async fn collect_garbage(&self) -> Result<(), String> {
        let before = self.count("collected");
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id fits"));
        kill(pid, Signal::SIGUSR2).map_err(|error| format!("the Node relay is gone: {error}"))?;
        self.wait_lines("collected", before + 1).await
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|known| *known == line).count()
    }

    async fn wait_lines(&self, line: &str, count: usize) -> Result<(), String> {
        let seen = || {
            let seen = self.count(line) >= count;
            (seen || !is_alive(self.child.id())).then_some(seen)
        };
        let what = format!("line \"{line}\" of the Node relay");
        match poll(BOUND, &what, seen).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("the Node relay ended; it wrote {:#?}", self.lines())),
            Err(late) => Err(format!("{late}; it wrote {:#?}", self.lines())),
        }
    }
}

impl Drop for NodeRelay {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Keeps the lines of a stream. A library that writes a line per message must not block on a full pipe, nor fill
/// this process: only the first are kept, and those that are waited for.
fn keep(stream: impl std::io::Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) {
    const KEPT: usize = 10_000;
    let lines = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut lines = lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if lines.len() < KEPT || line == "collected" {
                lines.push(line);
            }
        }
    });
}
