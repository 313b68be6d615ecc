//! What opens a session and what does not.

use std::{net::Ipv4Addr, time::Duration};

use coreflow_ipc::messages::vpn_network::Prefix;
use proptest::prelude::*;
use snow::{params::DHChoice, resolvers::CryptoResolver, types::Dh};

use super::*;
use crate::protocol::control::{Grant, Wish};

fn key(seed: u8) -> StaticKey {
    StaticKey::of_bytes(Zeroizing::new([seed; 32]))
}

fn binding_of(seed: u8) -> Binding {
    Binding::of_bytes([seed; 32])
}

fn bytes(hexadecimal: &str) -> [u8; 32] {
    std::array::from_fn(|at| u8::from_str_radix(&hexadecimal[2 * at..2 * at + 2], 16).unwrap())
}

fn refused(key: &StaticKey, binding: &Binding, message: &[u8]) -> Option<NoiseError> {
    Asked::read(key, binding, message).err()
}

/// Each end learns the other's public key is proven, and what it said; the lengths are the
/// protocol's.
#[test]
fn both_ends_prove_their_keys_and_say_their_payloads() {
    let (hub, node) = (StaticKey::generate().unwrap(), StaticKey::generate().unwrap());
    let (asking, first) = Asking::begin(&node, &hub.public(), &binding_of(1), b"wish").unwrap();
    assert_eq!(first.len(), 96 + 4);
    let asked = Asked::read(&hub, &binding_of(1), &first).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!((asked.node_key(), asked.payload()), (&node.public(), &b"wish"[..]));
    let second = asked.answer(b"grant").unwrap();
    assert_eq!(second.len(), 48 + 5);
    assert_eq!(asking.finish(&second).as_deref(), Ok(&b"grant"[..]));
}

/// The test vector of RFC 7748, section 6.1.
#[test]
fn the_public_half_is_that_of_x25519() {
    let private = bytes("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
    let public = bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    assert_eq!(StaticKey::of_bytes(Zeroizing::new(private)).public(), public);
}

/// snow's own X25519 agrees with this one.
#[test]
fn the_shared_secret_is_that_of_another_x25519() {
    let mut other = DefaultResolver.resolve_dh(&DHChoice::Curve25519).unwrap();
    for seed in 1..20 {
        other.set(&[seed; 32]);
        let mut own = X25519::default();
        own.set(&[seed; 32]);
        assert_eq!((own.pubkey(), own.privkey()), (other.pubkey(), other.privkey()));
        let (mut shared, mut others) = ([0; 32], [0; 32]);
        own.dh(&key(seed + 100).public(), &mut shared).unwrap();
        other.dh(&key(seed + 100).public(), &mut others).unwrap();
        assert_eq!(shared, others);
    }
}

/// Who stands between the two has two TLS sessions, hence two bindings.
#[test]
fn a_message_of_another_session_opens_nothing() {
    let (hub, node) = (key(1), key(2));
    let (asking, first) = Asking::begin(&node, &hub.public(), &binding_of(1), b"wish").unwrap();
    assert_eq!(refused(&hub, &binding_of(2), &first), Some(NoiseError::Message), "passed on, or replayed");
    let Ok(asked) = Asked::read(&hub, &binding_of(1), &first) else { panic!("its own session") };
    let second = asked.answer(b"grant").unwrap();
    let (other, _) = Asking::begin(&node, &hub.public(), &binding_of(2), b"wish").unwrap();
    assert_eq!(other.finish(&second), Err(NoiseError::Message));
    assert!(asking.finish(&second).is_ok());
}

#[test]
fn only_the_hub_that_was_meant_reads_and_answers() {
    let (hub, false_hub, node, binding) = (key(1), key(3), key(2), binding_of(1));
    let (asking, first) = Asking::begin(&node, &hub.public(), &binding, b"").unwrap();
    assert_eq!(refused(&false_hub, &binding, &first), Some(NoiseError::Message));
    // It may ask itself in the node's stead, and still cannot answer the node.
    let (_, forged) = Asking::begin(&node, &false_hub.public(), &binding, b"").unwrap();
    let Ok(asked) = Asked::read(&false_hub, &binding, &forged) else { panic!("meant for it") };
    assert_eq!(asking.finish(&asked.answer(b"").unwrap()), Err(NoiseError::Message));
}

#[test]
fn a_key_that_anybody_has_is_refused() {
    let mut low = vec![[0; 32], [0; 32]];
    low[1][0] = 1;
    for first in 0xec..=0xee {
        let mut near_prime = [0xff; 32];
        (near_prime[0], near_prime[31]) = (first, 0x7f);
        low.push(near_prime);
    }
    for text in [
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ] {
        low.push(bytes(text));
    }
    let curve = X25519::of(Zeroizing::new([9; 32]));
    for mut public in low {
        let mut shared = [1; 32];
        curve.dh(&public, &mut shared).unwrap();
        assert_eq!(shared, [0; 32], "{public:02x?} is of low order");
        for top in [0, 0x80] {
            public[31] |= top;
            assert!(is_of_low_order(&public), "{public:02x?}");
            assert_eq!(Asking::begin(&key(2), &public, &binding_of(1), b"").err(), Some(NoiseError::Key));
        }
    }
    for seed in 0..50 {
        assert!(!is_of_low_order(&key(seed).public()));
    }
}

#[test]
fn a_message_keeps_to_its_longest() {
    let (hub, node, binding) = (key(1), key(2), binding_of(1));
    let most = LONGEST_CONTROL_MESSAGE - 96;
    let (_, first) = Asking::begin(&node, &hub.public(), &binding, &vec![0; most]).unwrap();
    assert_eq!(first.len(), LONGEST_CONTROL_MESSAGE);
    assert!(Asked::read(&hub, &binding, &first).is_ok());
    let beyond = Asking::begin(&node, &hub.public(), &binding, &vec![0; most + 1]);
    assert_eq!(beyond.err(), Some(NoiseError::Length));
    assert_eq!(refused(&hub, &binding, &[0; 1025]), Some(NoiseError::Length));
}

fn fixed<'a>(ephemeral: &'a [u8; 32], key: &'a StaticKey, prologue: &'a [u8]) -> snow::Builder<'a> {
    builder()
        .fixed_ephemeral_key_for_testing_only(ephemeral)
        .prologue(prologue)
        .and_then(|builder| builder.local_private_key(key.private.as_slice()))
        .unwrap()
}

/// The handshake that the document prints, for those who write their own end: private keys, exporter and
/// ephemeral keys fixed, both messages follow.
#[test]
fn the_document_prints_a_true_handshake() {
    let document = include_str!("../../../../docs/vpn-protocol.md");
    let (node, hub, binding) = (key(1), key(2), binding_of(5));
    let wish = Wish::of_mtu(1380).encode();
    let grant = Grant {
        address: Ipv4Addr::new(10, 99, 0, 7),
        control_prefix: Prefix { address: Ipv4Addr::new(10, 99, 0, 0), length: 24 },
        mtu: 1380,
        keepalive: Duration::from_secs(5),
        generation: 3,
        revision: 258,
    };
    let prologue = prologue(&binding);
    let hub_public = hub.public();
    let mut state = fixed(&[3; 32], &node, &prologue)
        .remote_public_key(&hub_public)
        .and_then(snow::Builder::build_initiator)
        .unwrap();
    let first = write(&mut state, &wish).unwrap();
    assert!(Asked::read(&hub, &binding, &first).is_ok_and(|asked| asked.payload() == wish));
    let mut answering = fixed(&[4; 32], &hub, &prologue).build_responder().unwrap();
    read(&mut answering, &first).unwrap();
    let second = write(&mut answering, &grant.encode()).unwrap();
    assert_eq!(Asking { state }.finish(&second), Ok(grant.encode()));
    let mut missing = String::new();
    for (what, bytes) in [
        ("prologue", &prologue[..]),
        ("node's public key", &node.public()),
        ("hub's public key", &hub_public),
        ("payload 1", &wish),
        ("message 1", &first),
        ("payload 2", &grant.encode()),
        ("message 2", &second),
    ] {
        let printed: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let lines = printed.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap());
        let printed = lines.collect::<Vec<_>>().join("\n");
        if !document.contains(&printed) {
            missing = format!("{missing}\n{what}:\n{printed}");
        }
    }
    assert!(missing.is_empty(), "not in the document: {missing}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_flipped_bit_or_a_missing_byte_opens_nothing(at in 0_usize..100, bit in 0_u8..8, cut in 0_usize..100) {
        let (hub, node, binding) = (key(1), key(2), binding_of(1));
        let (asking, first) = Asking::begin(&node, &hub.public(), &binding, b"wish").unwrap();
        let mut flipped = first.clone();
        flipped[at] ^= 1 << bit;
        // The highest bit of a public key means nothing to X25519, but to the hash of the handshake.
        prop_assert_eq!(refused(&hub, &binding, &flipped), Some(NoiseError::Message));
        prop_assert_eq!(refused(&hub, &binding, &first[..cut]), Some(NoiseError::Message));
        let Ok(asked) = Asked::read(&hub, &binding, &first) else { panic!("the true one") };
        let mut second = asked.answer(b"grant").unwrap();
        let place = at % second.len();
        second[place] ^= 1 << bit;
        prop_assert_eq!(asking.finish(&second), Err(NoiseError::Message));
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        prop_assert!(refused(&key(1), &binding_of(1), &bytes).is_some());
        let (asking, _) = Asking::begin(&key(2), &key(1).public(), &binding_of(1), b"").unwrap();
        prop_assert!(asking.finish(&bytes).is_err());
    }
}
