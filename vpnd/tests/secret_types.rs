//! A key cannot get into a panic message, an error or a line, since its type cannot be written (LOG-15).

use std::fmt::{Debug, Display};

use coreflow_vpnd::{
    node::{Node, NodeConfig, NodeEvent, NodeReceiver, NodeSender},
    protocol::noise::{Asked, Asking, Binding, NoiseError, StaticKey},
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// Does not compile where one of the types can be written.
macro_rules! assert_unwritable {
    ($($type:ty),+ $(,)?) => {
        $(assert_not_impl_any!($type: Debug, Display);)+
    };
}

/// LOG-15: keys, what is derived from them, and whatever carries packets; what went wrong can be written.
#[test]
fn no_type_that_holds_a_key_or_packets_can_be_written() {
    assert_unwritable!(StaticKey, Binding, Asked, Asking, NodeConfig, Node, NodeSender, NodeReceiver);
    assert_not_impl_any!(StaticKey: Clone);
    assert_not_impl_any!(Binding: Clone);
    assert_impl_all!(NoiseError: Display);
    assert_impl_all!(NodeEvent: Debug);
}
