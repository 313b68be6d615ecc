//! `coreflow`, the supervisor: configuration, the bearer and its exchange, and the life of the
//! workers. It is the only process that ever has the bearer in its memory (ARC-02).
//!
//! A reviewer opens [`permitted`] first: it is the whole list of what a worker can make it do.

pub mod bearer;
pub mod command;
pub mod configuration;
pub mod constants;
pub mod control;
pub mod coreflowctl;
pub mod custody;
pub mod dial_pace;
pub mod exchange;
pub mod hub_socket;
pub mod latest;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod notify;
pub mod options;
pub mod peer_links;
pub mod permitted;
pub mod process;
pub mod programs;
pub mod readiness;
pub mod registry;
pub mod relay;
pub mod run;
pub mod sockets;
pub mod spawn;
pub mod status;
pub mod stopping;
pub mod supervision;
pub mod trace;
pub mod trust;
pub mod worker_asks;
