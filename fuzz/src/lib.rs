//! What several fuzz targets share: the memory that an input costs, and a peer that says some bytes and ends.

pub mod memory;
pub mod peer;
