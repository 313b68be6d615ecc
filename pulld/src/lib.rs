//! `coreflow-pulld`: the exchange with the registry for image pulls.
//!
//! In this version the worker starts, confines itself, greets the supervisor and relayd, answers
//! pings and stops; it serves nothing yet.

pub mod life;
