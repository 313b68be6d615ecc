//! IPv4 packets of a test's own making, true or forged.

use std::net::{Ipv4Addr, SocketAddrV4};

/// UDP's number.
const UDP: u8 = 17;
/// ICMP's number.
const ICMP: u8 = 1;
/// Bytes of a header without options.
const HEADER: usize = 20;

/// A UDP packet with this payload; don't-fragment is set.
///
/// # Panics
/// When the payload is too long for any packet.
pub fn udp(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).expect("a payload that a packet carries");
    let mut datagram = Vec::with_capacity(8 + payload.len());
    for word in [from.port(), to.port(), length, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(payload);
    let mut pseudo = Vec::with_capacity(12 + datagram.len());
    pseudo.extend(from.ip().octets());
    pseudo.extend(to.ip().octets());
    pseudo.extend([0, UDP]);
    pseudo.extend(length.to_be_bytes());
    pseudo.extend(&datagram);
    let sum = checksum(&pseudo);
    // Zero says that there is no checksum.
    datagram[6..8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    ipv4(*from.ip(), *to.ip(), UDP, &datagram)
}

/// An ICMP error, "port unreachable", that quotes the whole of `quoted`.
pub fn unreachable(from: Ipv4Addr, to: Ipv4Addr, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(quoted);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4(from, to, ICMP, &message)
}

/// A packet of any protocol.
///
/// # Panics
/// When the body is too long for any packet.
pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER + body.len()).expect("a body that a packet carries");
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("the carries are folded in")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0xff]), 0x00ff);
    }

    /// A header that sums up to nothing is whole.
    #[test]
    fn a_packet_carries_its_checksums() {
        let (from, to) =
            (SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 5), SocketAddrV4::new(Ipv4Addr::BROADCAST, 6));
        let packet = udp(from, to, b"odd");
        assert_eq!(checksum(&packet[..HEADER]), 0);
        assert_eq!(packet.len(), HEADER + 8 + 3);
    }
}
