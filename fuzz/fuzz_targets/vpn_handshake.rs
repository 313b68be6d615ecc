//! The control stream of a tunnel: what is not exactly the message of the peer is none, and a payload has one form
//! (VPN-07, VPN-41).
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use coreflow_vpnd::{
    constants::{INNER_MTU, LEAST_INNER_MTU, LONGEST_CONTROL_MESSAGE},
    protocol::{
        control::{Grant, Wish},
        noise::{Asked, Asking, Binding, StaticKey},
    },
};
use libfuzzer_sys::fuzz_target;
use zeroize::Zeroizing;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    /// What is done to a message on its way: at a place, other bits.
    changes: Vec<(u16, u8)>,
    /// Bytes that it is longer or shorter by.
    longer: i8,
    bytes: &'a [u8],
}

static HUB: LazyLock<StaticKey> = LazyLock::new(|| StaticKey::of_bytes(Zeroizing::new([7; 32])));
static NODE: LazyLock<StaticKey> = LazyLock::new(|| StaticKey::of_bytes(Zeroizing::new([9; 32])));

fn binding() -> Binding {
    Binding::of_bytes([3; 32])
}

impl Input<'_> {
    fn changed(&self, message: &[u8]) -> Vec<u8> {
        let mut changed = message.to_vec();
        let length = changed.len().saturating_add_signed(isize::from(self.longer));
        changed.resize(length, 0);
        for (place, bits) in &self.changes {
            if !changed.is_empty() {
                let place = usize::from(*place) % changed.len();
                changed[place] ^= bits;
            }
        }
        changed
    }
}

/// A first message is taken only as it was sent, and so is the second.
fn handshake(input: &Input<'_>) {
    let payload = &input.bytes[..input.bytes.len().min(1200)];
    let Ok((asking, first)) = Asking::begin(&NODE, &HUB.public(), &binding(), payload) else {
        assert!(payload.len() > LONGEST_CONTROL_MESSAGE - 96, "what fits is sent");
        return;
    };
    assert!(first.len() <= LONGEST_CONTROL_MESSAGE);
    let arrived = input.changed(&first);
    match Asked::read(&HUB, &binding(), &arrived) {
        Ok(asked) => {
            assert_eq!(arrived, first, "a changed message is none");
            assert!(*asked.node_key() == NODE.public() && asked.payload() == payload);
        }
        Err(_) => assert_ne!(arrived, first),
    }
    let Ok(asked) = Asked::read(&HUB, &binding(), &first) else { panic!("what was sent is read") };
    let Ok(second) = asked.answer(payload) else {
        assert!(payload.len() > LONGEST_CONTROL_MESSAGE - 48);
        return;
    };
    let arrived = input.changed(&second);
    match asking.finish(&arrived) {
        Ok(read) => assert!(arrived == second && read == payload),
        Err(_) => assert_ne!(arrived, second),
    }
}

fuzz_target!(|input: Input<'_>| {
    // Nobody without the node's key makes a message out of nothing.
    assert!(Asked::read(&HUB, &binding(), input.bytes).is_err());
    if let Ok(wish) = Wish::decode(input.bytes) {
        assert_eq!(wish.encode(), input.bytes);
        assert!((LEAST_INNER_MTU..=INNER_MTU).contains(&wish.granted_mtu()));
    }
    if let Ok(grant) = Grant::decode(input.bytes) {
        assert_eq!(grant.encode(), input.bytes);
        assert!(grant.mtu >= LEAST_INNER_MTU && grant.address != grant.hub_address());
    }
    handshake(&input);
});
