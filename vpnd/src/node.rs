//! The node's end of a tunnel, as a library (VPN-44): it dials the hub, keeps a session as long as it can,
//! and moves IPv4 packets between its host and the hub.
//!
//! The host brings the packets, from a TUN device or otherwise, and takes those that arrive; both go through
//! sessions that come and go. What is addressed to whom is the hub's to decide on its side and the host's on
//! this one: all that is delivered here is well-formed IPv4.

pub mod dialing;
mod driver;
mod local;
mod receiver;
mod sender;
mod session;
mod why;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use self::{
    driver::{Driver, Order},
    local::Local,
    session::{Dialer, Session},
};
pub use self::{
    receiver::{NodeReceiver, ReceivedCounts, Stopped},
    sender::{NodeSender, SentCounts},
    why::Why,
};
use crate::{
    constants::{NODE_EVENTS, NODE_OWN_PACKETS},
    protocol::{control::Grant, noise::StaticKey, socket, tls},
};

/// What a node is told to start with.
pub struct NodeConfig {
    /// Its own key, whose public half is in the network.
    pub key: StaticKey,
    /// The hub's public key.
    pub hub_key: [u8; 32],
    /// Where the hub is.
    pub hub: SocketAddr,
    /// The inner MTU that it would like, in bytes.
    pub mtu: u16,
    /// What it binds; any address and port without.
    pub local: Option<SocketAddr>,
}

/// What a host is told of a node's tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// A session began: the hub admitted the node, under this.
    Up(Grant),
    /// A session ended, or a dial came to nothing. The node dials again by itself.
    Down(Why),
}

/// A running node; dropping it ends the tunnel as [`Node::stop`] does, and does not wait.
pub struct Node {
    local: Arc<Local>,
    orders: mpsc::Sender<Order>,
    sessions: watch::Receiver<Option<Arc<Session>>>,
    attempts: Arc<AtomicU64>,
    driver: JoinHandle<()>,
}

/// The four ends of a node: itself, both directions of packets, and what it says.
pub type Started = (Node, NodeSender, NodeReceiver, mpsc::Receiver<NodeEvent>);

impl Node {
    /// Starts a node, within a tokio runtime; it begins to dial at once.
    ///
    /// # Errors
    ///
    /// The local address cannot be bound, or the system has no random numbers.
    pub fn start(config: NodeConfig) -> io::Result<Started> {
        socket::probe();
        let local = config.local.unwrap_or_else(|| any_address_towards(config.hub));
        Self::start_from(Local::bind(local)?, config)
    }

    fn start_from(local: Local, config: NodeConfig) -> io::Result<Started> {
        let client = tls::node_config().map_err(io::Error::other)?;
        let local = Arc::new(local);
        let (told, sessions) = watch::channel(None);
        let (events, heard) = mpsc::channel(NODE_EVENTS);
        // Orders tell of a state that the latest one describes: one that does not fit changes nothing.
        let (orders, ordered) = mpsc::channel(1);
        let (own, of_node) = mpsc::channel(NODE_OWN_PACKETS);
        let attempts = Arc::new(AtomicU64::new(0));
        let dialer = Dialer::new(Arc::clone(&local), client, config);
        let driver = Driver::new(dialer, told, events, ordered, Arc::clone(&attempts));
        let node =
            Self { local, orders, sessions: sessions.clone(), attempts, driver: tokio::spawn(driver.run()) };
        Ok((node, NodeSender::new(sessions.clone(), own), NodeReceiver::new(sessions, of_node), heard))
    }

    /// Goes on from another local address: a session moves along, and a wait for the next dial that the hub
    /// did not ask for ends.
    ///
    /// # Errors
    ///
    /// The address cannot be bound; the node then goes on from the former one.
    pub fn rebind(&self, local: SocketAddr) -> io::Result<()> {
        self.local.rebind(local)?;
        let _ = self.orders.try_send(Order::Moved);
        Ok(())
    }

    /// Where the node's datagrams leave from.
    ///
    /// # Errors
    ///
    /// What the system said; or the node's socket failed, and no other could be had yet.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local.address()
    }

    /// Under what the node is admitted at present, if it is.
    pub fn granted(&self) -> Option<Grant> {
        self.sessions.borrow().as_ref().map(|session| session.grant)
    }

    /// Dials since the last session that stood for a minute.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Ends the tunnel: the hub is told, by code 0, and half a second is waited for that to be out.
    pub async fn stop(self) {
        let Self { orders, driver, .. } = self;
        drop(orders);
        let _ = driver.await;
    }
}

fn any_address_towards(hub: SocketAddr) -> SocketAddr {
    if hub.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}

#[cfg(test)]
mod tests;
