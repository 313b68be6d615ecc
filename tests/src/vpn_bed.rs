//! A relay with a managed VPN hub, in front of a Cloudly: what the tests of the VPN begin with. What the relay
//! wrote is shown when a test fails.

use std::net::{Ipv4Addr, SocketAddrV4};

use coreflow_vpnd::node::Why;
use serde_json::Value;

use crate::authority::Authority;
use crate::cloudly::{AdvertisedHub, Cloudly, VpnNetwork};
use crate::envelope::Refusal;
use crate::relay::{Relay, RelaySetup};
use crate::sockets::is_udp_bound;
use crate::tunnel::{NodeKey, Tunnel};
use crate::waiting::{BOUND, poll};

/// The parties.
pub struct VpnBed {
    /// Cloudly.
    pub cloudly: Cloudly,
    /// How the relay was started.
    pub setup: RelaySetup,
    /// The relay.
    pub relay: Relay,
    /// The UDP address of the hub.
    pub address: SocketAddrV4,
}

impl VpnBed {
    /// A relay that is open, and whose accepted registration advertises its hub. Cloudly has compiled no network, which
    /// the relay has read.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn open() -> Self {
        let bed = Self::start(|_, _| {}).await;
        bed.relay.wait_open().await.expect("the relay opens");
        bed.hub().await;
        bed.wait_read(1).await;
        bed
    }

    /// A relay that was just started; `prepare` changes its setup and scripts Cloudly before that. The hub's port
    /// is the variable's, where `prepare` sets another one.
    ///
    /// # Panics
    /// When nothing can be started.
    pub async fn start(prepare: impl FnOnce(&mut RelaySetup, &Cloudly)) -> Self {
        let authority = Authority::new();
        let setup = RelaySetup::new(&authority).controlled();
        let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
        let port = crate::free_port::free_port().to_string();
        let mut setup = setup
            .facing(&cloudly)
            .variable("COREFLOW_VPN_BIND_HOSTNAME", "127.0.0.1")
            .variable("COREFLOW_VPN_QUIC_PORT", &port);
        prepare(&mut setup, &cloudly);
        let variable = |name: &str| setup.variables.get(name).and_then(|text| text.parse().ok());
        let port = variable("COREFLOW_VPN_QUIC_PORT").unwrap_or_default();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Self { relay: setup.start(), cloudly, setup, address }
    }

    /// The hub that the standing registration advertises.
    ///
    /// # Panics
    /// When none does in time.
    pub async fn hub(&self) -> AdvertisedHub {
        self.cloudly.wait_hub(None).await.expect("the relay advertises its hub")
    }

    /// Pushes a network that has to be answered, and gives the answer or the refusal.
    ///
    /// # Panics
    /// When no answer comes.
    pub async fn push(&self, network: &VpnNetwork) -> Result<Value, Refusal> {
        self.cloudly.push_vpn_network(network).await.expect("the relay answers the push")
    }

    /// Pushes a network that has to be applied.
    ///
    /// # Panics
    /// When it is not.
    pub async fn apply(&self, network: &VpnNetwork) {
        let applied = serde_json::json!({"state": "applied", "revision": network.revision});
        assert_eq!(self.push(network).await, Ok(applied));
    }

    /// A tunnel of the node with `key` to the advertised hub.
    ///
    /// # Errors
    /// Why there is no session.
    ///
    /// # Panics
    /// When no hub is advertised.
    pub async fn dial(&self, key: &NodeKey) -> Result<Tunnel, Why> {
        Tunnel::dial(key, &self.hub().await).await
    }

    /// Whether the hub's address is bound.
    pub fn is_bound(&self) -> bool {
        is_udp_bound(self.address)
    }

    /// `vpnHub` of the first status of which `seen` holds.
    ///
    /// # Panics
    /// When it comes not in time.
    pub async fn status(&self, what: &str, seen: impl Fn(&Value) -> bool) -> Value {
        let status = self.relay.wait_status_json(what, |status| seen(&status["vpnHub"])).await;
        status.expect("the status comes to say so")["vpnHub"].clone()
    }

    /// How many lines with `part` the relay has written.
    pub fn lines(&self, part: &str) -> usize {
        self.relay.lines().iter().filter(|line| line.text.contains(part)).count()
    }

    /// Waits until the relay has asked for the network `count` times.
    ///
    /// # Panics
    /// When it does not.
    pub async fn wait_read(&self, count: usize) {
        self.cloudly.wait_for("getClusterVpnNetwork", count).await.expect("the relay reads the network");
    }

    /// Waits until the hub's address is bound.
    ///
    /// # Panics
    /// When it is not in time.
    pub async fn wait_bound(&self) {
        poll(BOUND, "hub that is bound", || self.is_bound().then_some(())).await.expect("the hub is bound");
    }
}

impl Drop for VpnBed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.relay.lines() {
                eprintln!("relay: {}", line.text);
            }
        }
    }
}
