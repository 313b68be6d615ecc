//! `coreflow-vpn-stand`: the VPN hub as the target of a bench or of a suite of failures, without a relay
//! around it.
//!
//! - `prepare` makes keys and the network file in a folder.
//! - `hub` serves them, confined as vpnd is: see [`hub`].
//! - `spoke` becomes the node program, `coreflow-vpn-node`, which lies beside this one.
//!
//! Without options the three are the adapter of `tests/vpn/vpnbench.py` and `tests/vpn/vpnfail.py`, whose
//! environment (`VB_…`) says everything; see [`adapter`].

pub mod adapter;
pub mod hub;
pub mod keys;
pub mod network;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The hub's private key in a stand's folder.
pub const HUB_KEY: &str = "hub.key";
/// The hub's public key there.
pub const HUB_PUBLIC: &str = "hub.pub";
/// The network there.
pub const NETWORK: &str = "network.json";

/// The node program of this build.
pub const NODE_PROGRAM: &str = "coreflow-vpn-node";

/// The file of a node's private key in a stand's folder.
pub fn node_key(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.key"))
}

/// Runs the stand by its command line, without the program's name.
///
/// # Errors
/// What it could not do, and why.
pub fn run(words: impl IntoIterator<Item = String>) -> Result<(), String> {
    let words: Vec<String> = words.into_iter().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["prepare"] => adapter::prepare(),
        ["hub"] => adapter::hub(),
        ["spoke"] => adapter::spoke(),
        ["hub", "--folder", folder, "--listen", listen] => {
            let listen: SocketAddr = listen.parse().map_err(|_| format!("{listen:?} is no address"))?;
            hub::serve(Path::new(folder), listen)
        }
        _ => Err(
            "usage: coreflow-vpn-stand prepare|hub|spoke, or hub --folder <folder> --listen <address:port>"
                .to_owned(),
        ),
    }
}
