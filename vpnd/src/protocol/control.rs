//! The control stream: the framing of its two messages, and what their payloads say.
//!
//! A message is a length of two bytes, big-endian, and so many bytes, 1 to 1024. The node's carries a
//! [`Wish`], the hub's a [`Grant`]; both travel inside Noise messages and are read strictly: a byte too many or
//! too few is no payload of this version.

use std::{fmt, net::Ipv4Addr, time::Duration};

use coreflow_ipc::messages::vpn_network::Prefix;

use crate::constants::{
    CONTROL_PREFIX_BITS, INNER_MTU, LEAST_INNER_MTU, LONGEST_CONTROL_MESSAGE, PROTOCOL_VERSION,
};

/// Why a control message or its payload is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlError {
    /// The stream or its connection ended first.
    Ended,
    /// A length outside 1 to 1024.
    Length(usize),
    /// A payload of another version.
    Version(u16),
    /// A payload of the wrong length, or with a member that no such payload has; says which.
    Payload(&'static str),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the control stream ended"),
            Self::Length(length) => write!(f, "a control message of {length} bytes"),
            Self::Version(version) => write!(f, "version {version} of the tunnel protocol"),
            Self::Payload(member) => write!(f, "a payload with an impossible {member}"),
        }
    }
}

impl std::error::Error for ControlError {}

/// Reads one message.
pub async fn read_message(stream: &mut quinn::RecvStream) -> Result<Vec<u8>, ControlError> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await.map_err(|_| ControlError::Ended)?;
    let length = usize::from(u16::from_be_bytes(length));
    if !(1..=LONGEST_CONTROL_MESSAGE).contains(&length) {
        return Err(ControlError::Length(length));
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await.map_err(|_| ControlError::Ended)?;
    Ok(message)
}

/// Writes one message.
pub async fn write_message(stream: &mut quinn::SendStream, message: &[u8]) -> Result<(), ControlError> {
    let framed = framed(message)?;
    stream.write_all(&framed).await.map_err(|_| ControlError::Ended)
}

fn framed(message: &[u8]) -> Result<Vec<u8>, ControlError> {
    if !(1..=LONGEST_CONTROL_MESSAGE).contains(&message.len()) {
        return Err(ControlError::Length(message.len()));
    }
    let length = u16::try_from(message.len()).expect("a message has at most 1024 bytes");
    Ok([&length.to_be_bytes(), message].concat())
}

/// The payload of message 1, 4 bytes: version, MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// The inner MTU that the node would like, in bytes.
    pub mtu: u16,
}

impl Wish {
    /// A wish of this version.
    pub fn of_mtu(mtu: u16) -> Self {
        Self { version: PROTOCOL_VERSION, mtu }
    }

    /// The bytes that travel.
    pub fn encode(&self) -> Vec<u8> {
        [self.version.to_be_bytes(), self.mtu.to_be_bytes()].concat()
    }

    /// Reads a payload. The version comes first and is told apart in whatever follows it.
    pub fn decode(payload: &[u8]) -> Result<Self, ControlError> {
        let version = payload.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        if let Some(version) = version.filter(|version| *version != PROTOCOL_VERSION) {
            return Err(ControlError::Version(version));
        }
        let Ok(bytes) = <[u8; 4]>::try_from(payload) else { return Err(ControlError::Payload("length")) };
        let [_, _, high, low] = bytes;
        Ok(Self { version: PROTOCOL_VERSION, mtu: u16::from_be_bytes([high, low]) })
    }

    /// The inner MTU that the hub gives: as wished, within what the protocol lets, in bytes.
    pub fn granted_mtu(&self) -> u16 {
        self.mtu.clamp(LEAST_INNER_MTU, INNER_MTU)
    }
}

/// The payload of message 2, 31 bytes in this order, big-endian: address 4, control prefix 4 and its length 1,
/// MTU 2, keepalive 4 in milliseconds, generation 8, revision 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The node's own address.
    pub address: Ipv4Addr,
    /// The range of which it is one.
    pub control_prefix: Prefix,
    /// The inner MTU, in bytes.
    pub mtu: u16,
    /// How often the node sends at least.
    pub keepalive: Duration,
    /// Generation of the authority whose network this is.
    pub generation: u64,
    /// The network's revision under it.
    pub revision: u64,
}

/// Bytes of an encoded [`Grant`].
const GRANT: usize = 31;

impl Grant {
    /// The bytes that travel.
    pub fn encode(&self) -> Vec<u8> {
        let keepalive = u32::try_from(self.keepalive.as_millis()).unwrap_or(u32::MAX);
        let mut payload = Vec::with_capacity(GRANT);
        payload.extend(self.address.octets());
        payload.extend(self.control_prefix.address.octets());
        payload.push(self.control_prefix.length);
        payload.extend(self.mtu.to_be_bytes());
        payload.extend(keepalive.to_be_bytes());
        payload.extend(self.generation.to_be_bytes());
        payload.extend(self.revision.to_be_bytes());
        payload
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Result<Self, ControlError> {
        let Ok(bytes) = <[u8; GRANT]>::try_from(payload) else { return Err(ControlError::Payload("length")) };
        let (address, rest) = taken::<4>(&bytes);
        let (network, rest) = taken::<4>(rest);
        let ([length], rest) = taken::<1>(rest);
        let (mtu, rest) = taken::<2>(rest);
        let (keepalive, rest) = taken::<4>(rest);
        let (generation, rest) = taken::<8>(rest);
        let (revision, _) = taken::<8>(rest);
        let grant = Self {
            address: address.into(),
            control_prefix: Prefix { address: network.into(), length },
            mtu: u16::from_be_bytes(mtu),
            keepalive: Duration::from_millis(u32::from_be_bytes(keepalive).into()),
            generation: u64::from_be_bytes(generation),
            revision: u64::from_be_bytes(revision),
        };
        grant.checked()
    }

    fn checked(self) -> Result<Self, ControlError> {
        let Some(hosts) = hosts(self.control_prefix) else { return Err(ControlError::Payload("prefix")) };
        let within = u32::from(self.address).checked_sub(self.control_prefix.address.into());
        // The first two addresses and the last are the network's, the hub's and the broadcast's.
        if !within.is_some_and(|within| (2..hosts).contains(&within)) {
            return Err(ControlError::Payload("address"));
        }
        if self.mtu < LEAST_INNER_MTU {
            return Err(ControlError::Payload("MTU"));
        }
        if self.keepalive.is_zero() {
            return Err(ControlError::Payload("keepalive"));
        }
        Ok(self)
    }

    /// The hub's own address, in whose name it sends ICMP: the one after the prefix's.
    pub fn hub_address(&self) -> Ipv4Addr {
        hub_address(self.control_prefix)
    }
}

/// The hub's own address in a control prefix: the one after the prefix's.
pub fn hub_address(control_prefix: Prefix) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(control_prefix.address).wrapping_add(1))
}

/// The broadcast address of a prefix, counted from its first; none if it is no prefix, or has no host.
fn hosts(prefix: Prefix) -> Option<u32> {
    if !CONTROL_PREFIX_BITS.contains(&prefix.length) {
        return None;
    }
    let hosts = u32::MAX >> prefix.length;
    (u32::from(prefix.address) & hosts == 0).then_some(hosts)
}

fn taken<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    let (taken, rest) = bytes.split_first_chunk().expect("the lengths add up to the payload's");
    (*taken, rest)
}

#[cfg(test)]
mod tests;
