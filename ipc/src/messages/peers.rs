//! Relayd ↔ vpnd: the network, and what the hub says of it.
//!
//! Both ends say hello, so that a link between builds that differ is found before it carries
//! anything, and both see the other's end as end of file.

use bincode::{Decode, Encode};

use super::{
    message,
    vpn_network::{Held, NotApplied, Snapshot},
};
use crate::{asks::AskId, hello::Hello, peer::Greets};

/// Relayd → vpnd.
#[derive(Encode, Decode)]
pub enum RelaydToVpnd {
    /// First frame.
    Hello(Hello),
    /// Serve this network in the place of the held one; answered with [`VpndToRelayd::Applied`]. One at a
    /// time.
    Apply {
        /// Copied into the answer.
        id: AskId,
        /// The whole network.
        snapshot: Box<Snapshot>,
    },
}

/// Vpnd → relayd.
#[derive(Encode, Decode)]
pub enum VpndToRelayd {
    /// First frame.
    Hello(Hello),
    /// Second frame: the key of this daemon, and the network that it holds (VPN-41, ARC-17).
    Standing {
        /// X25519, for the life of this daemon.
        public_key: [u8; 32],
        /// The network that is served; none before the first one.
        held: Option<Held>,
    },
    /// Answers [`RelaydToVpnd::Apply`], once every session that the network withdraws is closed.
    Applied {
        /// The ask.
        id: AskId,
        /// Whether the network is the held one now; otherwise what was held is untouched (VPN-23).
        outcome: Result<(), NotApplied>,
    },
}

/// Gives a message type its hello.
macro_rules! greets {
    ($kind:ty) => {
        impl Greets for $kind {
            fn of_hello(hello: Hello) -> Self {
                Self::Hello(hello)
            }

            fn hello(&self) -> Option<&Hello> {
                if let Self::Hello(hello) = self { Some(hello) } else { None }
            }
        }
    };
}

// 4,096 members with every prefix and every grant that a network may have: some 5 MiB.
message!(RelaydToVpnd, 8 << 20);
greets!(RelaydToVpnd);
message!(VpndToRelayd, 4 << 10);
greets!(VpndToRelayd);
