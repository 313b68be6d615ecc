//! What two nodes see of the managed VPN: packets cross by the network that Cloudly gave, and no longer by a grant that it
//! withdrew.

use serde_json::{Value, json};

use super::{DemoFailure, step};
use crate::cloudly::{AdvertisedHub, Cloudly, VpnNetwork};
use crate::relay::Relay;
use crate::tunnel::{NodeKey, Tunnel, crosses};

/// Two nodes with tunnels, and the network that lets them reach each other.
pub(super) struct Vpn {
    network: VpnNetwork,
    tunnels: [Tunnel; 2],
}

impl Vpn {
    /// Has Cloudly give the relay a network, and its two nodes dial the hub that the relay advertised before.
    pub(super) async fn tell(cloudly: &Cloudly) -> Result<Self, DemoFailure> {
        let hub = step("the relay advertised its VPN hub", cloudly.wait_hub(None)).await?;
        let keys = [(); 2].map(|()| NodeKey::default());
        let [one, two] = keys.each_ref().map(NodeKey::public);
        let network =
            VpnNetwork::of([("node-1", one.as_str()), ("node-2", two.as_str())]).linking("node-1", "node-2");
        step("the hub serves the network that Cloudly gave", apply(cloudly, &network)).await?;
        let tunnels = step("two nodes opened tunnels to the hub", dialled(keys, hub)).await?;
        let mut vpn = Self { network, tunnels };
        vpn.cross("packets crossed between them, both ways").await?;
        Ok(vpn)
    }

    /// Packets cross on the tunnels that were opened at first.
    pub(super) async fn cross(&mut self, name: &'static str) -> Result<(), DemoFailure> {
        step(name, async {
            let [one, two] = &mut self.tunnels;
            crosses(one, two, b"there").await;
            crosses(two, one, b"and back").await;
            Ok::<_, String>(())
        })
        .await
    }

    /// Has Cloudly withdraw one direction: its packets are dropped on the live tunnel, the other direction's cross.
    pub(super) async fn withdraw(mut self, cloudly: &Cloudly, relay: &Relay) -> Result<(), DemoFailure> {
        step("a grant was withdrawn, and its packet is dropped on the live tunnel", async {
            self.network = self.network.withdrawing_grant("node-1", "node-2");
            apply(cloudly, &self.network).await?;
            let [one, two] = &mut self.tunnels;
            one.send(two.grant.address, b"withdrawn");
            let dropped = |status: &Value| status["vpnHub"]["report"]["dropped"]["no-grant"] == json!(1);
            relay.wait_status_json("the packet dropped", dropped).await.map_err(|late| late.to_string())?;
            crosses(two, one, b"still granted").await;
            Ok::<_, String>(())
        })
        .await
    }
}

async fn apply(cloudly: &Cloudly, network: &VpnNetwork) -> Result<(), String> {
    let pushed = cloudly.push_vpn_network(network).await.map_err(|failure| failure.to_string())?;
    let answer = pushed.map_err(|refusal| refusal.to_string())?;
    let applied = answer == json!({"state": "applied", "revision": network.revision});
    applied.then_some(()).ok_or_else(|| answer.to_string())
}

async fn dialled(keys: [NodeKey; 2], hub: AdvertisedHub) -> Result<[Tunnel; 2], String> {
    let dial = async |key| Tunnel::dial(key, &hub).await.map_err(|why| format!("{why:?}"));
    let [one, two] = &keys;
    Ok([dial(one).await?, dial(two).await?])
}
