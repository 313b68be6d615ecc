use std::{
    io::Write,
    os::{fd::AsRawFd, unix::net::UnixStream as StdStream},
};

use bincode::{Decode, Encode};
use proptest::prelude::*;

use super::*;
use crate::frame::framed;
use crate::messages::{
    message,
    peers::{RelaydToVpnd, VpndToRelayd},
    pulld::{FromPulld, ToPulld},
    pulls::{PulldToRelayd, RelaydToPulld},
    relayd::{CloudlyEndpoint, FromRelayd, Kept, RelaydStart, ToRelayd},
    vpnd::{FromVpnd, ToVpnd},
};

#[derive(Debug, PartialEq, Eq, Encode, Decode)]
enum Probe {
    Text(String),
    WithOne,
}

message!(Probe, 256, |probe| match probe {
    Probe::Text(_) => 0,
    Probe::WithOne => 1,
});

fn pair() -> (StdStream, OwnedFd) {
    let (hostile, ours) = StdStream::pair().unwrap();
    (hostile, ours.into())
}

async fn heard(bytes: &[u8]) -> Result<Received<Probe>, LinkError> {
    let (mut hostile, ours) = pair();
    let (_sender, mut receiver) = open::<Probe, Probe>(ours, Descriptors::Refused).unwrap();
    hostile.write_all(bytes).unwrap();
    drop(hostile);
    receiver.receive().await
}

/// The message without the header of its frame.
fn bytes_of(message: &impl Message) -> Vec<u8> {
    let mut frame = Vec::new();
    message.append(&mut frame).unwrap();
    frame.split_off(crate::frame::HEADER)
}

fn frame(probe: &Probe) -> Vec<u8> {
    framed(&bytes_of(probe))
}

/// ARC-10: messages and the descriptors that they announce cross a socket pair.
#[tokio::test]
async fn messages_and_announced_descriptors_cross() {
    let (one, other) = pair();
    let (mut sender, _) = open::<Probe, Probe>(one.into(), Descriptors::Refused).unwrap();
    let (_, mut receiver) = open::<Probe, Probe>(other, Descriptors::Accepted).unwrap();
    let (mut carried, kept) = StdStream::pair().unwrap();
    sender.send(&Probe::Text("first".into()), &[]).await.unwrap();
    sender.send(&Probe::WithOne, &[kept.as_fd()]).await.unwrap();
    sender.send(&Probe::Text("last".into()), &[]).await.unwrap();
    assert_eq!(receiver.receive().await.unwrap().message, Probe::Text("first".into()));
    let with = receiver.receive().await.unwrap();
    assert_eq!((with.message, with.descriptors.len()), (Probe::WithOne, 1));
    assert_eq!(receiver.receive().await.unwrap().message, Probe::Text("last".into()));
    let mut arrived = StdStream::from(with.descriptors.into_iter().next().unwrap());
    arrived.write_all(b"x").unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(&mut carried, &mut byte).unwrap();
    drop(sender);
    assert_eq!(receiver.receive().await.err(), Some(LinkError::Closed));
}

/// ARC-13: a hostile peer's frame ends the link by name.
#[tokio::test]
async fn a_hostile_frame_ends_the_link_by_name() {
    let empty = heard(&[0, 0, 0, 0]).await.err();
    assert_eq!(empty, Some(LinkError::Frame(FrameError::Empty)));
    let oversized = heard(&[0xff, 0xff, 0xff, 0xff, 1]).await.err();
    assert_eq!(oversized, Some(LinkError::Frame(FrameError::TooLong { stated: 0xffff_ffff, limit: 256 })));
    let truncated = heard(&frame(&Probe::Text("cut".into()))[..6]).await.err();
    assert_eq!(truncated, Some(LinkError::Closed));
    let unknown = heard(&framed(&[250])).await.err();
    assert_eq!(unknown, Some(LinkError::Codec(CodecError::Malformed)));
    let mut trailing = bytes_of(&Probe::Text("t".into()));
    trailing.push(0);
    let trailing = heard(&framed(&trailing)).await.err();
    assert_eq!(trailing, Some(LinkError::Codec(CodecError::TrailingBytes)));
    // A message that announces a descriptor which did not come.
    assert_eq!(heard(&frame(&Probe::WithOne)).await.err(), Some(LinkError::Descriptors));
}

/// ARC-13: descriptors that nobody announced end the link where they are taken at all, and are never
/// installed where they are not.
#[tokio::test]
async fn surplus_descriptors_end_the_link_or_never_arrive() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let many = [null.as_fd(); 3];
    let text = frame(&Probe::Text("plain".into()));

    let (hostile, ours) = pair();
    let (_keep, mut accepting) = open::<Probe, Probe>(ours, Descriptors::Accepted).unwrap();
    sys::send_with_descriptors(hostile.as_fd(), &text, &many).unwrap();
    assert_eq!(accepting.receive().await.unwrap().message, Probe::Text("plain".into()));
    sys::send_with_descriptors(hostile.as_fd(), &text[..1], &[]).unwrap();
    drop(hostile);
    assert_eq!(accepting.receive().await.err(), Some(LinkError::Descriptors));

    let (hostile, ours) = pair();
    let (_keep, mut refusing) = open::<Probe, Probe>(ours, Descriptors::Refused).unwrap();
    let before = open_descriptors();
    for _ in 0..20 {
        // Refused at the sender where the kernel knows the option, dropped at the receiver elsewhere.
        if sys::send_with_descriptors(hostile.as_fd(), &text, &[null.as_fd(); 64]).is_ok() {
            refusing.receive().await.unwrap();
        }
    }
    let after = open_descriptors();
    assert!(after <= before + 8, "{before} descriptors before, {after} after (other tests open some too)");
}

/// ARC-13: what the supervisor says is no message of a worker.
#[test]
fn a_frame_of_the_other_direction_is_refused() {
    let start = ToRelayd::Start(RelaydStart {
        cloudly: CloudlyEndpoint { host: "cloudly.test".into(), port: 443, tls: true },
        trust_anchors: vec![vec![1, 2, 3]],
        kept: Kept::default(),
    });
    let bytes = bytes::Bytes::from(bytes_of(&start));
    assert!(ToRelayd::of_bytes(&bytes).is_ok());
    assert!(FromRelayd::of_bytes(&bytes).is_err());
    assert!(FromPulld::of_bytes(&bytes).is_err());
    assert!(FromVpnd::of_bytes(&bytes).is_err());
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A sender cannot announce what it does not send.
#[tokio::test]
async fn a_message_goes_with_exactly_its_descriptors() {
    let (_hostile, ours) = pair();
    let (mut sender, _receiver) = open::<Probe, Probe>(ours, Descriptors::Accepted).unwrap();
    assert_eq!(sender.send(&Probe::WithOne, &[]).await, Err(LinkError::Descriptors));
    let long = Probe::Text("x".repeat(300));
    assert_eq!(sender.send(&long, &[]).await, Err(LinkError::Codec(CodecError::TooLong)));
    assert!(sender.stream.as_raw_fd() >= 0);
}

/// Feeds bytes to the decoder of every message type of every link.
fn decode_everywhere(bytes: &[u8]) {
    fn decode<M: Message>(bytes: &bytes::Bytes) {
        let _ = M::of_bytes(bytes);
    }
    let bytes = bytes::Bytes::copy_from_slice(bytes);
    decode::<ToRelayd>(&bytes);
    decode::<FromRelayd>(&bytes);
    decode::<ToPulld>(&bytes);
    decode::<FromPulld>(&bytes);
    decode::<ToVpnd>(&bytes);
    decode::<FromVpnd>(&bytes);
    decode::<RelaydToPulld>(&bytes);
    decode::<PulldToRelayd>(&bytes);
    decode::<RelaydToVpnd>(&bytes);
    decode::<VpndToRelayd>(&bytes);
}

proptest! {
    /// ARC-13: no bytes of a worker panic a decoder or make it allocate beyond the link's limit.
    #[test]
    fn random_bytes_are_a_message_or_a_name(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        decode_everywhere(&bytes);
    }

    /// ARC-13: the same for bytes that look like messages: small tags, then a length of any size.
    #[test]
    fn hostile_lengths_are_a_message_or_a_name(
        tags in prop::collection::vec(0_u8..8, 1..6),
        length in prop_oneof![Just(250_u8), Just(251), Just(252), Just(253), Just(254), Just(255)],
        rest in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut bytes = tags;
        bytes.push(length);
        bytes.extend(rest);
        decode_everywhere(&bytes);
    }
}
