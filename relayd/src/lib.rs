//! `coreflow-relayd`: the Cloudly session, the registration, the TLS listener and the forwarding of
//! runtime sessions.
//!
//! What decides is a machine without socket, task or clock; [`wiring`] performs. The tables to open
//! first are [`routes`], [`refusals`] and [`constants`].

pub mod certificate;
pub mod cluster;
pub mod constants;
pub mod continuity;
pub mod contract;
pub mod core;
pub mod escrow;
pub mod forwarder;
pub mod hub;
pub mod ingress;
pub mod listener;
pub mod peers;
pub mod pending;
pub mod protocol;
pub mod pulls;
pub mod readiness;
pub mod refusals;
pub mod registration;
pub mod retired;
pub mod routes;
pub mod session;
pub mod start;
pub mod supervisor;
pub mod websocket;
pub mod wiring;
