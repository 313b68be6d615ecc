//! What both ends read of an IPv4 packet (RFC 791), strictly: whoever is forwarded by it was looked at
//! whole.

use std::{fmt, net::Ipv4Addr};

/// Length of a header without options, in bytes.
pub const SHORTEST_HEADER: usize = 20;
/// Length of the longest packet, in bytes: what a total length can state.
pub const LONGEST_PACKET: usize = u16::MAX as usize;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;

/// The parts of a header that a tunnel goes by. The checksum is the receiving host's to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whom it says it is from.
    pub source: Ipv4Addr,
    /// Whom it is for.
    pub destination: Ipv4Addr,
    /// Bytes of the header with its options, 20 to 60.
    pub header_length: usize,
    /// Bytes of the packet, the header counted; what follows them in a datagram is no part of it.
    pub total_length: usize,
    /// It may not be taken apart.
    pub dont_fragment: bool,
    /// It is a fragment, and not the last one.
    pub more_fragments: bool,
    /// Where its bytes stand in the whole, in units of 8 bytes.
    pub fragment_offset: u16,
    /// The protocol of what it carries.
    pub protocol: u8,
}

/// Why bytes are no IPv4 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than a header has.
    Short,
    /// Another version of the protocol.
    Version,
    /// A header length below 20 bytes or beyond the total length.
    HeaderLength,
    /// A total length beyond the bytes there are.
    TotalLength,
    /// A fragment that ends beyond the longest packet there can be.
    FragmentOffset,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "shorter than an IPv4 header",
            Self::Version => "not of IP version 4",
            Self::HeaderLength => "an impossible header length",
            Self::TotalLength => "a total length beyond its bytes",
            Self::FragmentOffset => "a fragment that ends beyond the longest packet",
        })
    }
}

impl std::error::Error for Malformed {}

impl Header {
    /// Reads the header that `packet` begins with.
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let Some(fixed) = packet.first_chunk::<SHORTEST_HEADER>() else { return Err(Malformed::Short) };
        if fixed[0] >> 4 != 4 {
            return Err(Malformed::Version);
        }
        let header_length = usize::from(fixed[0] & 0x0f) * 4;
        let total_length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if header_length < SHORTEST_HEADER || header_length > total_length {
            return Err(Malformed::HeaderLength);
        }
        if total_length > packet.len() {
            return Err(Malformed::TotalLength);
        }
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
        let fragment_offset = fragment & 0x1fff;
        // The header of the whole counts too: a host that put it together could not state its length.
        if usize::from(fragment_offset) * 8 + total_length > LONGEST_PACKET {
            return Err(Malformed::FragmentOffset);
        }
        Ok(Self {
            source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
            destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]),
            header_length,
            total_length,
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset,
            protocol: fixed[9],
        })
    }
}

/// Whether an address can be one host's: not of 0/8, loopback, multicast, reserved or broadcast.
pub fn is_unicast(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

/// The Internet checksum (RFC 1071); over bytes that hold their right checksum it is zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum += odd.first().map_or(0, |last| u64::from(*last) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("a folded sum has 16 bits")
}

/// Writes the header's own checksum into it; `header` is a header and no more.
pub(super) fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of RFC 1071, section 3, and a header from a real capture.
    #[test]
    fn the_checksum_is_the_internet_checksum() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
            0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0);
        let mut torn = header;
        torn[10..12].fill(0xff);
        seal(&mut torn);
        assert_eq!(torn, header);
        assert_eq!(checksum(&[0x12]), !0x1200, "an odd byte counts as the high one");
    }

    #[test]
    fn a_header_is_read_as_it_stands() {
        let mut packet = [0_u8; 64];
        packet[..20]
            .copy_from_slice(&[0x46, 0, 0, 60, 0, 1, 0x60, 5, 64, 17, 0, 0, 10, 1, 2, 3, 10, 4, 5, 6]);
        let header = Header::parse(&packet).unwrap();
        assert_eq!(header.source, Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(header.destination, Ipv4Addr::new(10, 4, 5, 6));
        assert_eq!((header.header_length, header.total_length), (24, 60));
        assert!(header.dont_fragment && header.more_fragments);
        assert_eq!((header.fragment_offset, header.protocol), (5, 17));
    }

    #[test]
    fn what_is_no_packet_is_named() {
        let mut packet = [0_u8; 20];
        packet[0] = 0x45;
        packet[3] = 20;
        assert!(Header::parse(&packet).is_ok());
        assert_eq!(Header::parse(&packet[..19]), Err(Malformed::Short));
        assert_eq!(Header::parse(&[]), Err(Malformed::Short));
        for (at, byte, why) in [
            (0, 0x65, Malformed::Version),
            (0, 0x44, Malformed::HeaderLength),
            (0, 0x46, Malformed::HeaderLength),
            (3, 19, Malformed::HeaderLength),
            (3, 21, Malformed::TotalLength),
        ] {
            let mut wrong = packet;
            wrong[at] = byte;
            assert_eq!(Header::parse(&wrong), Err(why), "{at} {byte:#x}");
        }
    }

    /// The last offset of a fragment is the one whose end a whole packet's length can still state.
    #[test]
    fn a_fragment_beyond_the_longest_packet_is_none() {
        for (offset, payload, fits) in
            [(8189, 3, true), (8189, 4, false), (8188, 11, true), (8188, 12, false), (8190, 0, false)]
        {
            for more in [0, 0x2000_u16] {
                let mut packet = vec![0_u8; 20 + payload];
                packet[0] = 0x45;
                packet[3] = u8::try_from(20 + payload).unwrap();
                packet[6..8].copy_from_slice(&(offset | more).to_be_bytes());
                let read = Header::parse(&packet);
                assert_eq!(read.err(), (!fits).then_some(Malformed::FragmentOffset), "{offset} {payload}");
            }
        }
    }

    #[test]
    fn addresses_of_no_single_host_are_told() {
        for address in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"] {
            assert!(!is_unicast(address.parse().unwrap()), "{address}");
        }
        for address in ["1.0.0.1", "10.0.0.1", "126.255.255.255", "128.0.0.1", "223.255.255.255"] {
            assert!(is_unicast(address.parse().unwrap()), "{address}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            // By itself chance makes few headers.
            if let [first, _, high, low, ..] = &mut bytes[..] && *low >= 20 {
                (*first, *high) = (0x45, 0);
            }
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert!((SHORTEST_HEADER..=60).contains(&header.header_length));
                prop_assert!(header.header_length <= header.total_length && header.total_length <= bytes.len());
                let end = usize::from(header.fragment_offset) * 8 + header.total_length;
                prop_assert!(end <= LONGEST_PACKET);
            }
        }
    }
}
