//! The host release of Coreflow (area REL): one command compiles the executables, stages the declared files of each
//! target, checks them, and seals them into the set that a release tag publishes; and what else ships the same
//! executables, the Debian package.
//!
//! Everything that is made is the same bytes in every build of one source by one compiler.

pub mod archive;
pub mod bill;
pub mod compile;
pub mod debian;
pub mod declared;
pub mod digest;
pub mod extract;
pub mod failure;
pub mod licenses;
pub mod linked;
pub mod manifest;
pub mod notices;
mod program;
pub mod provenance;
pub mod runtime;
pub mod seal;
pub mod smoke;
pub mod source;
pub mod stage;
pub mod target;
