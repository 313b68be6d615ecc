//! `coreflow-vpnd`: the cluster's managed VPN hub, and the node's end of its tunnels.
//!
//! `hub` relays packets between the nodes of one network; `holding` decides when there is a hub; `life` is the
//! worker. `protocol` is what the hub and a node say to each other, both ends of it.

pub mod constants;
mod holding;
pub mod hub;
pub mod life;
pub mod node;
pub mod protocol;
mod relayd_link;
