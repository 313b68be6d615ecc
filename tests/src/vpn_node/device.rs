//! The TUN device of the node program: with the kernel's segmentation offload, and with address, MTU and routes
//! as the hub grants them.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::process::Command;

use coreflow_ipc::messages::vpn_network::Prefix;
use coreflow_vpnd::protocol::control::Grant;
use tun_rs::{AsyncDevice, DeviceBuilder};

/// Packets that wait in the kernel for this program.
const QUEUE: u32 = 1000;

/// The device.
pub(super) struct Device {
    /// Where packets are read and written.
    pub(super) tun: AsyncDevice,
    name: String,
    address: Cell<Option<Ipv4Addr>>,
}

impl Device {
    /// Makes the device, down and without an address.
    pub(super) fn make(name: &str) -> Result<Self, String> {
        let built = DeviceBuilder::new().name(name).offload(true).tx_queue_len(QUEUE).build_async();
        let tun = built.map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { tun, name: name.to_owned(), address: Cell::new(None) })
    }

    /// Gives the device what the hub grants now. An address that stays is left alone, with what uses it.
    pub(super) fn follow(&self, grant: &Grant, routes: &[Prefix]) -> Result<(), String> {
        let former = self.address.replace(Some(grant.address));
        if let Some(former) = former.filter(|former| *former != grant.address) {
            let former = format!("{former}/{}", grant.control_prefix.length);
            ip(&["address", "delete", &former, "dev", &self.name])?;
        }
        ip(&["link", "set", &self.name, "mtu", &grant.mtu.to_string(), "up"])?;
        let address = format!("{}/{}", grant.address, grant.control_prefix.length);
        ip(&["address", "replace", &address, "dev", &self.name])?;
        for route in routes {
            ip(&["route", "replace", &route.to_string(), "dev", &self.name])?;
        }
        Ok(())
    }
}

/// Runs `ip` in this process's own network namespace.
fn ip(words: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}
