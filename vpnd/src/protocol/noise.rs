//! How the hub and a node prove their keys: `Noise_IK_25519_ChaChaPoly_BLAKE2s`, two messages (VPN-07,
//! VPN-41).
//!
//! Both messages are bound to the TLS session they travel in: the prologue is the protocol's name and 32
//! bytes of that session's exporter. The certificate of the session proves nothing; who stands between the two
//! has two sessions with two exporters, and neither message is any good in the other. For the same reason a
//! recorded message 1 opens nothing later.

use std::fmt;

use quinn::Connection;
use snow::{
    HandshakeState,
    params::NoiseParams,
    resolvers::{DefaultResolver, FallbackResolver, RingResolver},
};
use zeroize::Zeroizing;

use self::x25519::X25519;
use crate::constants::{EXPORTER_LABEL, LONGEST_CONTROL_MESSAGE, PROTOCOL};

mod x25519;

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";

/// Why a handshake came to nothing. Which of a message's parts was wrong is told to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseError {
    /// The system has no random numbers.
    Random,
    /// The TLS session has no exporter: it is not established.
    Exporter,
    /// A public key with which every shared secret is the same.
    Key,
    /// A message that does not fit one of 1024 bytes.
    Length,
    /// A message of another key, of another session, or changed on its way.
    Message,
}

impl fmt::Display for NoiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Random => "no random numbers",
            Self::Exporter => "the TLS session exports no key material",
            Self::Key => "a public key of low order",
            Self::Length => "a Noise message of an impossible length",
            Self::Message => "a Noise message that is not meant for this key and session",
        })
    }
}

impl std::error::Error for NoiseError {}

/// An X25519 key pair. The private half is overwritten when it is dropped, and so is each copy that a handshake has
/// of it.
pub struct StaticKey {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl StaticKey {
    /// A new one.
    pub fn generate() -> Result<Self, NoiseError> {
        let mut private = Zeroizing::new([0; 32]);
        getrandom::fill(private.as_mut_slice()).map_err(|_| NoiseError::Random)?;
        Ok(Self::of_bytes(private))
    }

    /// The pair of a private key.
    pub fn of_bytes(private: Zeroizing<[u8; 32]>) -> Self {
        let (private, public) = X25519::of(private).into_halves();
        Self { private, public }
    }

    /// The half that others may know.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }
}

/// 32 bytes that both ends of one TLS session can compute and nobody else can.
pub struct Binding(Zeroizing<[u8; 32]>);

impl Binding {
    /// The binding of these bytes, of a session that is none of quinn's.
    pub fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

/// The binding of an established connection.
pub fn binding(connection: &Connection) -> Result<Binding, NoiseError> {
    let mut bytes = Zeroizing::new([0; 32]);
    connection
        .export_keying_material(bytes.as_mut_slice(), EXPORTER_LABEL, &[])
        .map_err(|_| NoiseError::Exporter)?;
    Ok(Binding(bytes))
}

/// A message 1 that was meant for the hub: who asks, and for what.
pub struct Asked {
    state: HandshakeState,
    node_key: [u8; 32],
    payload: Vec<u8>,
}

impl Asked {
    /// Reads message 1 with the hub's key.
    pub fn read(key: &StaticKey, binding: &Binding, message: &[u8]) -> Result<Self, NoiseError> {
        let prologue = prologue(binding);
        let mut state = builder()
            .prologue(&prologue)
            .and_then(|builder| builder.local_private_key(key.private.as_slice()))
            .and_then(snow::Builder::build_responder)
            .map_err(|_| NoiseError::Random)?;
        let payload = read(&mut state, message)?;
        let node_key = state.get_remote_static().and_then(|key| key.try_into().ok());
        let node_key = node_key.ok_or(NoiseError::Message)?;
        if is_of_low_order(&node_key) {
            return Err(NoiseError::Key);
        }
        Ok(Self { state, node_key, payload })
    }

    /// The public key whose private half the asking node has.
    pub fn node_key(&self) -> &[u8; 32] {
        &self.node_key
    }

    /// What the node asks for.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Message 2, with `payload` for the node alone.
    pub fn answer(mut self, payload: &[u8]) -> Result<Vec<u8>, NoiseError> {
        write(&mut self.state, payload)
    }
}

/// A node's handshake between its message and the hub's.
pub struct Asking {
    state: HandshakeState,
}

impl Asking {
    /// Message 1 to the hub whose public key is `hub`, with `payload` for it alone.
    pub fn begin(
        key: &StaticKey,
        hub: &[u8; 32],
        binding: &Binding,
        payload: &[u8],
    ) -> Result<(Self, Vec<u8>), NoiseError> {
        if is_of_low_order(hub) {
            return Err(NoiseError::Key);
        }
        let prologue = prologue(binding);
        let mut state = builder()
            .prologue(&prologue)
            .and_then(|builder| builder.local_private_key(key.private.as_slice()))
            .and_then(|builder| builder.remote_public_key(hub))
            .and_then(snow::Builder::build_initiator)
            .map_err(|_| NoiseError::Random)?;
        let message = write(&mut state, payload)?;
        Ok((Self { state }, message))
    }

    /// Reads message 2. That it can be read proves the hub's key.
    pub fn finish(mut self, message: &[u8]) -> Result<Vec<u8>, NoiseError> {
        read(&mut self.state, message)
    }
}

fn builder<'a>() -> snow::Builder<'a> {
    let parameters: NoiseParams = PATTERN.parse().expect("the pattern is one that snow is built with");
    // ring where it has the primitive: its cipher is several times as fast.
    let others = FallbackResolver::new(Box::new(RingResolver), Box::new(DefaultResolver));
    let resolver = FallbackResolver::new(Box::new(x25519::Resolver), Box::new(others));
    snow::Builder::with_resolver(parameters, Box::new(resolver))
}

fn prologue(binding: &Binding) -> Zeroizing<Vec<u8>> {
    Zeroizing::new([PROTOCOL, binding.0.as_slice()].concat())
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, NoiseError> {
    if message.len() > LONGEST_CONTROL_MESSAGE {
        return Err(NoiseError::Length);
    }
    let mut payload = vec![0; message.len()];
    let length = state.read_message(message, &mut payload).map_err(|_| NoiseError::Message)?;
    payload.truncate(length);
    Ok(payload)
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, NoiseError> {
    let mut message = vec![0; LONGEST_CONTROL_MESSAGE];
    let length = state.write_message(payload, &mut message).map_err(|failure| match failure {
        snow::Error::Rng => NoiseError::Random,
        _ => NoiseError::Length,
    })?;
    message.truncate(length);
    Ok(message)
}

/// Whether a public key is of low order, so that a secret shared with it is zero whatever the private key:
/// anybody could prove to have it. The points and their other encodings, the highest bit aside (RFC 7748,
/// section 6.1).
fn is_of_low_order(public: &[u8; 32]) -> bool {
    const ORDER_8: [[u8; 32]; 2] = [
        [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
            0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
        ],
        [
            0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b,
            0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
        ],
    ];
    let mut reduced = *public;
    reduced[31] &= 0x7f;
    let [first, middle @ .., last] = &reduced;
    let near_zero = *first <= 1 && *last == 0 && middle.iter().all(|byte| *byte == 0);
    let near_prime =
        (0xec..=0xee).contains(first) && *last == 0x7f && middle.iter().all(|byte| *byte == 0xff);
    near_zero || near_prime || ORDER_8.contains(&reduced)
}

#[cfg(test)]
mod tests;
