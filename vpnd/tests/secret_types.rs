//! A key cannot get into a panic message, an error or a line, since its type cannot be written (LOG-15).

use coreflow_vpnd::{
    node::{Node, NodeConfig, NodeEvent, NodeReceiver, NodeSender},
    protocol::noise::{Asked, Asking, Binding, NoiseError, StaticKey},
};

/// Whether a type has a trait. What a type has itself goes before what every type has by another trait.
macro_rules! has {
    ($type:ty, $trait:path) => {{
        #[allow(dead_code, reason = "of the two constants one is asked for")]
        trait Otherwise {
            const ANSWER: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        #[allow(dead_code, reason = "it is asked and never made")]
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "of the two constants one is asked for")]
        impl<T: ?Sized + $trait> Probe<T> {
            const ANSWER: bool = true;
        }
        <Probe<$type>>::ANSWER
    }};
}

macro_rules! assert_unwritable {
    ($($type:ty),+ $(,)?) => {
        $(
            assert!(!has!($type, std::fmt::Debug), "{} has a Debug", stringify!($type));
            assert!(!has!($type, std::fmt::Display), "{} has a Display", stringify!($type));
        )+
    };
}

/// LOG-15: keys, what is derived from them, and whatever carries packets.
#[test]
fn no_type_that_holds_a_key_or_packets_can_be_written() {
    assert_unwritable!(StaticKey, Binding, Asked, Asking, NodeConfig, Node, NodeSender, NodeReceiver);
    assert!(!has!(StaticKey, Clone) && !has!(Binding, Clone));
}

/// The same question finds what can be written.
#[test]
fn what_is_public_can_be_written() {
    assert!(has!(NoiseError, std::fmt::Display) && has!(NodeEvent, std::fmt::Debug));
}
