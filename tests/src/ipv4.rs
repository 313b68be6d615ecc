//! IPv4 packets with UDP in them, written and read from RFC 791 and RFC 768: what a node's host would hand its
//! tunnel.

use std::net::{Ipv4Addr, SocketAddrV4};

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;

/// A packet from `source` to `destination` with `payload`, of which no router may make fragments.
///
/// # Panics
/// When it would be longer than a packet can be.
pub fn udp(source: SocketAddrV4, destination: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let udp_length = UDP_HEADER + payload.len();
    let length = u16::try_from(IP_HEADER + udp_length).expect("a packet has at most 65,535 bytes");
    let udp_length = u16::try_from(udp_length).expect("shorter than its packet");
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    // No identification, don't fragment, and a time to live of 64.
    packet.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    packet.extend(source.ip().octets());
    packet.extend(destination.ip().octets());
    let header = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());

    let mut datagram = Vec::new();
    datagram.extend(source.port().to_be_bytes());
    datagram.extend(destination.port().to_be_bytes());
    datagram.extend(udp_length.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let sum = match checksum(&[&pseudo(source.ip(), destination.ip(), udp_length), &datagram]) {
        // Zero stands for none.
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    packet.extend(datagram);
    packet
}

/// What a packet says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// From.
    pub source: SocketAddrV4,
    /// To.
    pub destination: SocketAddrV4,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Reads a packet with UDP in it, whose lengths and checksums are right.
pub fn read_udp(packet: &[u8]) -> Option<Datagram> {
    let (header, datagram) = packet.split_at_checked(IP_HEADER)?;
    let two = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let whole = header[0] == 0x45 && usize::from(two(header, 2)) == packet.len() && header[9] == UDP;
    if !whole || checksum(&[header]) != 0 || datagram.len() < UDP_HEADER {
        return None;
    }
    let (from, to, length) = (address(12), address(16), two(datagram, 4));
    if usize::from(length) != datagram.len() || checksum(&[&pseudo(&from, &to, length), datagram]) != 0 {
        return None;
    }
    Some(Datagram {
        source: SocketAddrV4::new(from, two(datagram, 0)),
        destination: SocketAddrV4::new(to, two(datagram, 2)),
        payload: datagram[UDP_HEADER..].to_vec(),
    })
}

/// The header that UDP's checksum counts in.
fn pseudo(source: &Ipv4Addr, destination: &Ipv4Addr, length: u16) -> Vec<u8> {
    [&source.octets()[..], &destination.octets(), &[0, UDP], &length.to_be_bytes()].concat()
}

/// The complement of the one's complement sum; each part but the last has an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 = words
        .map(|word| u64::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or_default()])))
        .sum();
    // One's complement addition is addition modulo 0xffff, in which 0xffff stands for a zero that was added to.
    let folded = if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 };
    !u16::try_from(folded).expect("a remainder is below its divisor")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of RFC 1071's usual example has the checksum that it is known for.
    #[test]
    fn a_checksum_is_the_known_one() {
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(checksum(&[&header]), 0xb861);
    }

    /// What was written is read, and a flipped bit is not.
    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let [from, to] = [2, 3].map(|host| SocketAddrV4::new(Ipv4Addr::new(100, 100, 0, host), 7000));
        for payload in [&b""[..], b"odd", b"even", &[0xff; 1300]] {
            let packet = udp(from, to, payload);
            let read = read_udp(&packet).unwrap();
            assert_eq!((read.source, read.destination, read.payload.as_slice()), (from, to, payload));
            for byte in 0..packet.len() {
                let mut flipped = packet.clone();
                flipped[byte] ^= 1;
                assert_eq!(read_udp(&flipped), None, "byte {byte}");
            }
        }
    }
}
