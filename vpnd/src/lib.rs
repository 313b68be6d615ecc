//! `coreflow-vpnd`: the cluster's managed VPN hub, and the node's end of its tunnels.
//!
//! In this version the worker starts, confines itself, greets the supervisor and relayd, answers
//! pings and stops; it serves nothing yet.

pub mod constants;
pub mod hub;
pub mod life;
pub mod node;
pub mod protocol;
