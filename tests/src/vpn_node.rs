//! `coreflow-vpn-node`: a node of the managed VPN, over the node side of vpnd's own library (VPN-44).
//!
//! It makes a TUN device when the hub first grants an address, gives it that address, the inner MTU and the
//! asked routes, in the network namespace that it was started in, and keeps it through every reconnect. Each
//! change of state is one line on standard output, with a first word of its own: `up`, `down`, `stopped`.

pub mod arguments;
mod carry;
mod device;

use std::future::Future;
use std::io::{self, Write};
use std::rc::Rc;

use coreflow_vpnd::node::{Node, NodeConfig, NodeEvent, Why};
use tokio::task::JoinSet;

pub use arguments::Arguments;

use crate::vpn_stand::keys;
use device::Device;

/// Runs until `stop` resolves, on one thread inside a local set; then the hub is told.
///
/// # Errors
/// What of the start failed, or why the device carries nothing any more.
pub async fn run(arguments: &Arguments, stop: impl Future<Output = ()>) -> Result<(), String> {
    let key = keys::read(&arguments.key)?;
    let config = NodeConfig {
        key,
        hub_key: arguments.hub_key,
        hub: arguments.hub,
        mtu: arguments.mtu,
        local: arguments.local,
    };
    let started = Node::start(config).map_err(|error| format!("the node: {error}"))?;
    let (node, sender, receiver, mut events) = started;
    let mut ends = Some((sender, receiver));
    let mut device: Option<Rc<Device>> = None;
    let mut carrying = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            event = events.recv() => match event {
                Some(NodeEvent::Up(grant)) => {
                    let held = match &device {
                        Some(held) => held.clone(),
                        None => device.insert(Rc::new(Device::make(&arguments.tun)?)).clone(),
                    };
                    held.follow(&grant, &arguments.routes)?;
                    say(&format!(
                        "up {}/{} mtu {} revision {}",
                        grant.address, grant.control_prefix.length, grant.mtu, grant.revision
                    ));
                    if let Some((sender, receiver)) = ends.take() {
                        carrying.spawn_local(carry::up(held.clone(), sender));
                        carrying.spawn_local(carry::down(held, receiver));
                    }
                }
                Some(NodeEvent::Down(why)) => say(&format!("down {}: {why}", word(&why))),
                None => return Err("the node ended by itself".to_owned()),
            },
            Some(ended) = carrying.join_next() => {
                return Err(match ended {
                    Ok(error) => format!("{}: {error}", arguments.tun),
                    Err(failed) => format!("carrying packets failed: {failed}"),
                });
            }
        }
    }
    node.stop().await;
    say("stopped");
    Ok(())
}

/// One word for a program that reads the line.
fn word(why: &Why) -> &'static str {
    match why {
        Why::Closed(close) => close.name(),
        Why::Unknown(_) => "unknown",
        Why::Lost => "lost",
        Why::Unanswered => "unanswered",
        Why::Refused => "refused",
        Why::NotTheHub => "not-the-hub",
        Why::Malformed(_) => "no-protocol",
        Why::Local(_) => "local",
    }
}

/// A line for whoever reads; one who has gone is no reason to end.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
