//! Relayd ↔ vpnd: a link between workers.
//!
//! Both ends say hello, so that a link between builds that differ is found before it carries
//! anything, and both see the other's end as end of file.

use bincode::{Decode, Encode};

use super::message;
use crate::{hello::Hello, peer::Greets};

/// Relayd → vpnd.
#[derive(Encode, Decode)]
pub enum RelaydToVpnd {
    /// First frame.
    Hello(Hello),
}

/// Vpnd → relayd.
#[derive(Encode, Decode)]
pub enum VpndToRelayd {
    /// First frame.
    Hello(Hello),
}

/// Gives a message type its hello.
macro_rules! greets {
    ($kind:ty) => {
        impl Greets for $kind {
            fn of_hello(hello: Hello) -> Self {
                Self::Hello(hello)
            }

            fn hello(&self) -> Option<&Hello> {
                let Self::Hello(hello) = self;
                Some(hello)
            }
        }
    };
}

message!(RelaydToVpnd, 4 << 10);
greets!(RelaydToVpnd);
message!(VpndToRelayd, 4 << 10);
greets!(VpndToRelayd);
