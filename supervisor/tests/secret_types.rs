//! The bearer cannot get into a panic message, an error or a line, since its type cannot be written (LOG-15).

use std::fmt::{Debug, Display};

use coreflow_ipc::sys::SecretPages;
use coreflow_supervisor::bearer::{Bearer, BearerFault};
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// LOG-15, LOG-01: neither the bearer nor the pages that hold it have a `Debug`, a `Display` or a copy, or this does not
/// compile; what went wrong with one can be written.
#[test]
fn the_bearer_cannot_be_written() {
    assert_not_impl_any!(Bearer: Debug, Display, Clone);
    assert_not_impl_any!(SecretPages: Debug, Display, Clone);
    assert_impl_all!(BearerFault: Debug, Display);
}
