//! What every process of the relay shares: the link between them and what travels on it, the
//! confinement of a worker, log records, secrets, clocks, and the TypedRequest envelope that the
//! supervisor and relayd both speak.

pub mod asks;
pub mod backoff;
mod bounded_map;
pub mod codec;
pub mod confine;
pub mod frame;
pub mod hello;
pub mod line_budget;
pub mod link;
pub mod messages;
pub mod now;
pub mod outgoing;
pub mod peer;
pub mod record;
pub mod secret;
pub mod sys;
pub mod typedrequest;
pub mod worker;

/// The build of this workspace: one value for every process (ARC-24, CFG-45, REG-06).
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
