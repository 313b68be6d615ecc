//! A VPN in network namespaces: the hub and each node in one of its own, joined by veth pairs alone, without an
//! uplink or a default route, so that every packet between two nodes crosses the hub and none leaves the machine.
//!
//! Needs root, and `ip`, `ping` and `ethtool`. What a field made is gone when it is dropped, after a panic too; a run that
//! was killed leaves namespaces behind, whose names carry its process id, and the next run takes them away.
//!
//! - [`namespace`]: one network of its own, and sockets in it. [`program`]: a process and what it says.
//! - [`standing`]: the hub, and what it is told. [`wire`]: whole packets on a device, [`packet`]: how they are made.
//! - [`traffic`]: what nodes say to each other.
//! - [`translator`]: the NAT between a node and the hub. [`flood`]: who would like to be a member.

pub mod flood;
pub mod namespace;
pub mod packet;
pub mod program;
pub mod standing;
pub mod traffic;
pub mod translator;
pub mod wire;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coreflow_ipc::messages::vpn_network::Prefix;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::vpn_stand::network::{Member, Network};
use crate::vpn_stand::{HUB_KEY, keys, node_key};
use namespace::Namespace;
use program::Program;
use standing::Standing;

/// Where the hub is, in the network between the namespaces.
pub const HUB: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 51_900);
/// The hub's own address inside the tunnel.
pub const HUB_CONTROL: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The TUN device of each node.
pub const TUN: &str = "tun0";
/// A node's device towards the hub.
pub const UPLINK: &str = "uplink";

/// How long a member may take part where a test says nothing.
const TERM: Duration = Duration::from_secs(60 * 60);
/// The most that a start, a connect or a change may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A hub and its nodes `a`, `b` and `c`, of which each may reach each.
pub struct Field {
    // Programs are dropped before the namespaces they run in.
    /// The hub's process.
    pub hub: Standing,
    /// The nodes, in the order of their names.
    pub nodes: Vec<Node>,
    /// The network that was last applied.
    pub network: Network,
    /// The hub's namespace.
    pub ground: Namespace,
    binaries: PathBuf,
    folder: TempDir,
    /// One field at a time, so that no test sees another's load.
    _turn: MutexGuard<'static, ()>,
}

/// Whose turn it is.
static TURN: Mutex<()> = Mutex::new(());

/// A node's namespace and, once it is started, its process.
pub struct Node {
    /// The node program.
    pub program: Option<Program>,
    /// Its namespace.
    pub ground: Namespace,
    /// Its id.
    pub name: String,
    /// Its address inside the tunnel.
    pub address: Ipv4Addr,
    /// An address of the range behind it.
    pub behind: Ipv4Addr,
    /// Its address on the way to the hub.
    pub underlay: Ipv4Addr,
}

/// Unix milliseconds from now.
pub fn milliseconds_from_now(after: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from((now + after).as_millis()).expect("a time of this age")
}

/// Fails by name where the tests of this file cannot run.
///
/// # Panics
/// Without root, `ip`, `ping` or `ethtool`.
pub fn demand_namespaces() {
    assert!(nix::unistd::geteuid().is_root(), "network namespaces take root: run this test as root");
    for (program, package) in [("ip", "iproute2"), ("ping", "iputils-ping"), ("ethtool", "ethtool")] {
        let found = std::process::Command::new(program).arg("-V").output().is_ok();
        assert!(found, "{program} is missing (package {package})");
    }
}

impl Field {
    /// A field whose links have an MTU of 1500, with every node up.
    pub fn up(stand: &str) -> Self {
        Self::with_links(stand, 1500)
    }

    /// A field whose links have this MTU, with every node up. `stand` is the stand's executable; the node's lies
    /// beside it.
    ///
    /// # Panics
    /// Where a step fails, with its words.
    pub fn with_links(stand: &str, mtu: u16) -> Self {
        let mut field = Self::idle(stand, mtu);
        for node in 0..field.nodes.len() {
            field.start(node);
        }
        for node in &field.nodes {
            node.program().wait("up ", PATIENCE);
        }
        field
    }

    /// A field whose hub serves and whose nodes are not started.
    ///
    /// # Panics
    /// Where a step fails, with its words.
    pub fn idle(stand: &str, mtu: u16) -> Self {
        demand_namespaces();
        // A field that panicked has cleared up like any other.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        namespace::sweep();
        let folder = TempDir::new().expect("a temporary folder");
        keys::make(&folder.path().join(HUB_KEY)).expect("a key in a temporary folder");
        let ground = Namespace::make("h");
        ground.ip(&["address", "add", &format!("{}/32", HUB.ip()), "dev", "lo"]);
        let nodes: Vec<Node> = (1..=3).map(|place| Node::make(place, &ground, mtu)).collect();
        let members = nodes.iter().map(|node| node.member(folder.path())).collect();
        let mut network = Network {
            authority: "field".to_owned(),
            generation: 1,
            revision: 1,
            control_prefix: Prefix { address: Ipv4Addr::new(10, 99, 0, 0), length: 24 },
            members,
            grants: Vec::new(),
        };
        let names = || nodes.iter().map(|node| node.name.clone());
        let pairs = names().flat_map(|from| names().map(move |to| (from.clone(), to)));
        network.grants = pairs.filter(|(from, to)| from != to).collect();
        let stand = PathBuf::from(stand);
        let binaries = stand.parent().expect("an executable lies in a folder").to_owned();
        let hub = Standing::start(&ground, &stand, folder.path(), &network);
        Self { hub, nodes, network, ground, binaries, folder, _turn: turn }
    }

    /// Applies the network as `change` leaves it, under the next revision.
    ///
    /// # Panics
    /// When the hub does not apply it.
    pub fn apply(&mut self, change: impl FnOnce(&mut Network)) {
        change(&mut self.network);
        self.network.revision += 1;
        self.hub.apply(&self.network);
    }

    /// Starts a node's program.
    ///
    /// # Panics
    /// When it is no program.
    pub fn start(&mut self, node: usize) {
        let hub = SocketAddr::V4(HUB);
        let started = self.program_of(node, &self.nodes[node].ground, hub);
        self.nodes[node].program = Some(started);
    }

    /// Starts a node's program behind something that forwards to the hub.
    pub fn start_behind(&mut self, node: usize, hub: SocketAddr) {
        let started = self.program_of(node, &self.nodes[node].ground, hub);
        self.nodes[node].program = Some(started);
    }

    /// A program with a node's key, in any namespace, dialling `hub`.
    pub fn program_of(&self, node: usize, ground: &Namespace, hub: SocketAddr) -> Program {
        let key = node_key(self.folder.path(), &self.nodes[node].name);
        let mut command = ground.command(&self.binaries.join(crate::vpn_stand::NODE_PROGRAM));
        command
            .arg(format!("hub={hub}"))
            .arg(format!("hub-key={}", keys::encode(&self.hub_key())))
            .arg(format!("key={}", key.display()))
            .arg(format!("tun={TUN}"));
        for other in self.nodes.iter().filter(|other| other.name != self.nodes[node].name) {
            command.arg(format!("route={}/24", range_of(other.behind)));
        }
        Program::start(&self.nodes[node].name, &mut command)
    }

    /// The hub's public key.
    pub fn hub_key(&self) -> [u8; 32] {
        keys::read(&self.folder.path().join(HUB_KEY))
            .map(|key| key.public())
            .unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts the hub again in the place of one that ended.
    pub fn restart_hub(&mut self) {
        let stand = self.binaries.join("coreflow-vpn-stand");
        self.hub = Standing::start(&self.ground, &stand, self.folder.path(), &self.network);
    }

    /// Waits until a datagram from one node has reached another, sending it again all the while.
    ///
    /// # Panics
    /// When none does within `bound`.
    pub fn wait_reach(&self, from: usize, to: usize, bound: Duration) -> Duration {
        let began = std::time::Instant::now();
        let at = SocketAddrV4::new(self.nodes[to].address, 7_000);
        let target = self.nodes[to].ground.udp(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7_000));
        target.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout of a socket");
        let source = self.nodes[from].ground.udp(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        while began.elapsed() < bound {
            // Without a route yet, as without a tunnel, nothing is sent.
            drop(source.send_to(b"reach", at));
            if target.recv(&mut [0; 16]).is_ok() {
                return began.elapsed();
            }
        }
        panic!(
            "{} does not reach {} within {} s; the hub: {}",
            self.nodes[from].name,
            self.nodes[to].name,
            bound.as_secs(),
            self.hub.report()
        );
    }
}

impl Node {
    fn make(place: u8, hub: &Namespace, mtu: u16) -> Self {
        let name = char::from(b'a' + place - 1).to_string();
        let ground = Namespace::make(&name);
        let towards = format!("to-{name}");
        let (near, underlay) = (Ipv4Addr::new(10, 77, place, 1), Ipv4Addr::new(10, 77, place, 2));
        namespace::join((hub, &towards), (&ground, UPLINK));
        for (side, device, address) in [(hub, towards.as_str(), near), (&ground, UPLINK, underlay)] {
            side.ip(&["address", "add", &format!("{address}/24"), "dev", device]);
            side.ip(&["link", "set", device, "mtu", &mtu.to_string(), "up"]);
        }
        ground.ip(&["route", "add", &HUB.ip().to_string(), "via", &near.to_string()]);
        let behind = Ipv4Addr::new(10, 100 + place, 0, 1);
        ground.ip(&["address", "add", &format!("{behind}/32"), "dev", "lo"]);
        Self { program: None, ground, name, address: Ipv4Addr::new(10, 99, 0, 1 + place), behind, underlay }
    }

    fn member(&self, folder: &Path) -> Member {
        let key = node_key(folder, &self.name);
        keys::make(&key).expect("a key in a temporary folder");
        Member {
            node_id: self.name.clone(),
            public_key: keys::read(&key).map(|key| key.public()).unwrap_or_else(|why| panic!("{why}")),
            address: self.address,
            prefixes: vec![Prefix { address: range_of(self.behind), length: 24 }],
            expires_at: milliseconds_from_now(TERM),
        }
    }

    /// Its process.
    ///
    /// # Panics
    /// Before it is started.
    pub fn program(&self) -> &Program {
        self.program.as_ref().expect("the node is started")
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) {
        crate::processes::signal(self.program().pid(), signal);
    }
}

/// The range of 256 addresses that this one is in.
fn range_of(address: Ipv4Addr) -> Ipv4Addr {
    let [first, second, third, _] = address.octets();
    Ipv4Addr::new(first, second, third, 0)
}
