//! What one QUIC datagram carries: a packet as it is, or half of one.
//!
//! The first byte tells them apart. A packet begins with its own version, 4, in the upper four bits; a
//! fragment with `0x01`. Everything else belongs to no known version and is dropped by whoever receives it.

use bytes::{BufMut, Bytes, BytesMut};

/// First byte of a fragment.
const FRAGMENT: u8 = 0x01;
/// Bytes before the fragment's own: kind, id, index.
pub const FRAGMENT_HEADER: usize = 4;

/// A datagram, taken apart without a copy.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An IPv4 packet to all appearance: its header is still to be read.
    Packet(&'a Bytes),
    /// Half a packet.
    Fragment(Fragment),
    /// No frame of this version.
    Unknown,
}

/// Half a packet: `01 | id | index | bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The same for both halves; big-endian on the wire.
    pub id: u16,
    /// 0 for the first half, 1 for the second.
    pub index: u8,
    /// At least one byte.
    pub bytes: Bytes,
}

impl<'a> Frame<'a> {
    /// Tells what `datagram` carries.
    pub fn decode(datagram: &'a Bytes) -> Self {
        match datagram[..] {
            [first, ..] if first >> 4 == 4 => Self::Packet(datagram),
            [FRAGMENT, high, low, index @ (0 | 1), _, ..] => Self::Fragment(Fragment {
                id: u16::from_be_bytes([high, low]),
                index,
                bytes: datagram.slice(FRAGMENT_HEADER..),
            }),
            _ => Self::Unknown,
        }
    }
}

impl Fragment {
    /// The datagram that carries half a packet.
    pub fn encode(id: u16, index: u8, bytes: &[u8]) -> Bytes {
        let mut datagram = BytesMut::with_capacity(FRAGMENT_HEADER + bytes.len());
        datagram.put_u8(FRAGMENT);
        datagram.put_u16(id);
        datagram.put_u8(index);
        datagram.put_slice(bytes);
        datagram.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_told_apart_by_their_first_byte() {
        let packet = Bytes::from_static(&[0x45, 0, 0, 20]);
        assert_eq!(Frame::decode(&packet), Frame::Packet(&packet));
        let datagram = Fragment::encode(0x1234, 1, b"half");
        assert_eq!(datagram[..], [0x01, 0x12, 0x34, 0x01, b'h', b'a', b'l', b'f']);
        let fragment = Fragment { id: 0x1234, index: 1, bytes: Bytes::from_static(b"half") };
        assert_eq!(Frame::decode(&datagram), Frame::Fragment(fragment));
    }

    #[test]
    fn what_is_no_frame_is_unknown() {
        for datagram in [
            &[][..],
            &[0x60, 0, 0, 0],
            &[0x00],
            &[0x01],
            &[0x01, 0, 0, 0],
            &[0x01, 0, 0, 2, 9],
            &[0x02, 0, 0, 0, 9],
            &[0x11, 0, 0, 0, 9],
        ] {
            assert_eq!(Frame::decode(&Bytes::copy_from_slice(datagram)), Frame::Unknown, "{datagram:?}");
        }
    }

    proptest! {
        #[test]
        fn any_datagram_is_some_frame(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let datagram = Bytes::from(bytes);
            match Frame::decode(&datagram) {
                Frame::Packet(packet) => prop_assert_eq!(packet, &datagram),
                Frame::Fragment(Fragment { id, index, bytes }) => {
                    prop_assert!(!bytes.is_empty());
                    prop_assert_eq!(Fragment::encode(id, index, &bytes), datagram);
                }
                Frame::Unknown => {}
            }
        }
    }
}
