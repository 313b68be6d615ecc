//! The stand by the environment of the namespace bench: `VB_DIR`, `VB_HUB_ADDR`, `VB_HUB_PORT`, `VB_PREFIX`,
//! `VB_IP_A` and `VB_IP_B`, and of a spoke `VB_SPOKE`, `VB_TUN` and `VB_MTU`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::network::{Member, Network, prefix};
use super::{HUB_KEY, HUB_PUBLIC, NETWORK, NODE_PROGRAM, keys, node_key};

/// How long a member of a bench may take part.
const TERM: Duration = Duration::from_secs(24 * 60 * 60);
/// The bench's two spokes and the variables of their addresses.
const SPOKES: [(&str, &str); 2] = [("a", "VB_IP_A"), ("b", "VB_IP_B")];

/// Makes the keys of the hub and of both spokes, and a network in which each may reach the other.
///
/// # Errors
/// The variable or the file.
pub fn prepare() -> Result<(), String> {
    let folder = folder()?;
    let hub = folder.join(HUB_KEY);
    keys::make(&hub)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    let expires_at = u64::try_from((now + TERM).as_millis()).map_err(|error| error.to_string())?;
    let mut members = Vec::new();
    for (node, address) in SPOKES {
        let key = node_key(&folder, node);
        keys::make(&key)?;
        members.push(Member {
            node_id: node.to_owned(),
            public_key: keys::read(&key)?.public(),
            address: parsed(address)?,
            prefixes: Vec::new(),
            expires_at,
        });
    }
    let [(a, _), (b, _)] = SPOKES.map(|(node, variable)| (node.to_owned(), variable));
    let network = Network {
        authority: "bench".to_owned(),
        generation: 1,
        revision: 1,
        control_prefix: prefix(&variable("VB_PREFIX")?)?,
        members,
        grants: vec![(a.clone(), b.clone()), (b, a)],
    };
    write(&folder.join(NETWORK), &network.text())?;
    write(&folder.join(HUB_PUBLIC), &keys::encode(&keys::read(&hub)?.public()))
}

/// Serves what [`prepare`] made.
///
/// # Errors
/// What of the start failed.
pub fn hub() -> Result<(), String> {
    let listen = format!("{}:{}", variable("VB_HUB_ADDR")?, variable("VB_HUB_PORT")?);
    let listen = listen.parse().map_err(|_| format!("{listen:?} is no address"))?;
    super::hub::serve(&folder()?, listen)
}

/// Becomes the node program for one of the spokes.
///
/// # Errors
/// The variable or the file; the program that could not be run.
pub fn spoke() -> Result<(), String> {
    let folder = folder()?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name(NODE_PROGRAM);
    let public = folder.join(HUB_PUBLIC);
    let public =
        std::fs::read_to_string(&public).map_err(|error| format!("{}: {error}", public.display()))?;
    let hub = format!("{}:{}", variable("VB_HUB_ADDR")?, variable("VB_HUB_PORT")?);
    let failed = Command::new(&program)
        .arg(format!("hub={hub}"))
        .arg(format!("hub-key={public}"))
        .arg(format!("key={}", node_key(&folder, &variable("VB_SPOKE")?).display()))
        .arg(format!("tun={}", variable("VB_TUN")?))
        .arg(format!("mtu={}", variable("VB_MTU")?))
        .exec();
    Err(format!("{}: {failed}", program.display()))
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set"))
}

fn folder() -> Result<PathBuf, String> {
    variable("VB_DIR").map(PathBuf::from)
}

fn parsed<T: std::str::FromStr>(name: &str) -> Result<T, String> {
    let value = variable(name)?;
    value.parse().map_err(|_| format!("{name} says nothing: {value:?}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
