//! `coreflow-pulld`: the exchange with the registry for image pulls.
//!
//! Relayd says what a node asks; pulld asks the one registry, over connections that the supervisor makes,
//! and hands the answer back. It decides nothing about who may pull and keeps nothing of what passes
//! (PULL-06, PULL-07, PULL-08).

pub mod answer;
pub mod challenge;
mod connections;
pub mod constants;
mod counts;
mod dials;
mod exchange;
mod failure;
mod idle;
pub mod life;
mod link;
pub mod notices;
pub mod origin;
pub mod registry;
mod registry_stream;
pub mod request;
mod waiting_streams;
