//! The configuration: one reader for every variable, from an injected set of sources (CFG-01..CFG-04).
//!
//! [`Sources`] says where to look, [`ConfigurationReader`] looks, and gives [`LaunchFacts`] while the
//! supervisor is constructed and the listener's facts once a relay block is found. Every refusal is a
//! [`ConfigurationError`].

mod bounded_file;
mod cloudly_url;
mod environment;
mod flat_map;
mod launch;
mod listener;
mod mistake;
mod reader;
mod sources;
#[cfg(test)]
mod tests;
mod variable;

pub use bounded_file::FileFault;
pub use cloudly_url::{CloudlyUrl, CloudlyUrlFault};
pub use coreflow_ipc::messages::relayd::{ListenerFacts, VpnFacts};
pub use environment::{Environment, runtime_directory_of_process};
pub use launch::LaunchFacts;
pub use mistake::{ConfigurationError, MapFault, Mistake, Source, ValueFault};
pub use reader::ConfigurationReader;
pub(crate) use reader::VALUE_BYTES;
pub use sources::{Sources, is_host_release};
pub use variable::Variable;
