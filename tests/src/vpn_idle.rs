//! `coreflow-vpn-idle`: the memory that a node costs the hub which has a session and says nothing. Hub and nodes
//! talk over loopback, the nodes all in this process, the hub in the stand's, confined; no root is needed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use coreflow_ipc::messages::vpn_network::Prefix;
use coreflow_vpnd::node::{Node, NodeConfig, NodeEvent, Started};
use coreflow_vpnd::protocol::noise::StaticKey;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::field::milliseconds_from_now;
use crate::field::program::Program;
use crate::free_port::free_port;
use crate::vpn_stand::network::{Member, Network};
use crate::vpn_stand::{HUB_KEY, NETWORK, keys};

/// The range that the nodes have their addresses from.
const RANGE: Prefix = Prefix { address: Ipv4Addr::new(10, 96, 0, 0), length: 16 };
/// How long they may take part.
const TERM: Duration = Duration::from_secs(60 * 60);
/// How long one may take to connect.
const CONNECT: Duration = Duration::from_secs(30);
/// How long the hub is left alone before it is looked at: some keepalives of every node.
const SETTLING: Duration = Duration::from_secs(12);
/// Nodes that connect at a time; the hub takes no more from one address.
const TOGETHER: usize = 4;
/// Sessions with which the base is measured.
const BASE: usize = 2;

/// Connects so many nodes and prints what the hub's memory was without any, with two and with all.
///
/// # Errors
/// What could not be started; a node that was not let in.
pub async fn run(nodes: usize) -> Result<(), String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|error| error.to_string())?;
    let folder = TempDir::new().map_err(|error| error.to_string())?;
    let path = folder.path().join(HUB_KEY);
    keys::make(&path)?;
    let hub_key = keys::read(&path)?.public();
    let mut members = Vec::new();
    let mut private = Vec::new();
    for node in 0..u32::try_from(nodes).map_err(|error| error.to_string())? {
        let key = StaticKey::generate().map_err(|error| error.to_string())?;
        members.push(Member {
            node_id: format!("node-{node}"),
            public_key: key.public(),
            address: Ipv4Addr::from_bits(RANGE.address.to_bits() + 2 + node),
            prefixes: Vec::new(),
            expires_at: milliseconds_from_now(TERM),
        });
        private.push(key);
    }
    let network = Network {
        authority: "idle".to_owned(),
        generation: 1,
        revision: 1,
        control_prefix: RANGE,
        members,
        grants: Vec::new(),
    };
    std::fs::write(folder.path().join(NETWORK), network.text()).map_err(|error| error.to_string())?;
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let hub = start(folder.path(), listen)?;
    let none = hub.resident();

    let mut connected = Vec::new();
    let mut left = private.into_iter();
    for key in left.by_ref().take(BASE) {
        connected.push(connect(key, hub_key, listen).await?);
    }
    tokio::time::sleep(SETTLING).await;
    let base = hub.resident();
    let mut connecting = JoinSet::new();
    loop {
        while connecting.len() < TOGETHER {
            let Some(key) = left.next() else { break };
            connecting.spawn(connect(key, hub_key, listen));
        }
        let Some(done) = connecting.join_next().await else { break };
        connected.push(done.map_err(|error| error.to_string())??);
    }
    tokio::time::sleep(SETTLING).await;
    let all = hub.resident();
    println!(
        "the hub without a session: {none} KiB; with {BASE}: {base} KiB; with {}: {all} KiB",
        connected.len()
    );
    let more = connected.len().saturating_sub(BASE);
    if more > 0 {
        let each = all.saturating_sub(base) * 10 / u64::try_from(more).map_err(|error| error.to_string())?;
        println!("each further idle node: {}.{} KiB", each / 10, each % 10);
    }
    Ok(())
}

/// Starts the stand that lies beside this program, and waits until it serves the network.
fn start(folder: &Path, listen: SocketAddr) -> Result<Program, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own.with_file_name("coreflow-vpn-stand"));
    command.args(["hub", "--folder"]).arg(folder).args(["--listen", &listen.to_string()]);
    let hub = Program::start("hub", &mut command);
    hub.wait("applied ", CONNECT);
    Ok(hub)
}

/// Lets a node in and keeps it.
async fn connect(key: StaticKey, hub_key: [u8; 32], hub: SocketAddr) -> Result<Started, String> {
    let config = NodeConfig { key, hub_key, hub, mtu: 1380, local: None };
    let (node, sender, receiver, mut events) = Node::start(config).map_err(|error| error.to_string())?;
    let up = async {
        loop {
            match events.recv().await {
                Some(NodeEvent::Up(_)) => return Ok(()),
                // It dials again by itself.
                Some(NodeEvent::Down(_)) => {}
                None => return Err("a node ended by itself".to_owned()),
            }
        }
    };
    timeout(CONNECT, up).await.map_err(|_| "a node was not let in".to_owned())??;
    Ok((node, sender, receiver, events))
}
