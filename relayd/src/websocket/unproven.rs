//! What a peer may send before it is proven: no message over a bound of its own, which is judged by the heads
//! of its frames, before anything makes room for what they announce.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use super::{FRAME_HEAD, Standing};

/// A transport of frames that ends with an error where an unproven peer begins too large a message.
pub struct Unproven<S> {
    /// What of it was read before, and is judged like the rest: whoever were given that apart would make room first.
    read: Bytes,
    stream: S,
    /// Gone once the peer is proven.
    bound: Option<Box<Bound>>,
}

struct Bound {
    frames: Frames,
    exceeded: bool,
    standing: watch::Receiver<Standing>,
}

impl<S> Unproven<S> {
    pub(super) fn new(stream: S, read: Bytes, limit: usize, standing: watch::Receiver<Standing>) -> Self {
        let bound = Bound { frames: Frames::new(limit), exceeded: false, standing };
        Self { read, stream, bound: Some(Box::new(bound)) }
    }
}

/// Whether a read ended for the bound.
pub(super) fn refused(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<TooLarge>())
}

#[derive(Debug)]
struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message is too large for a peer that is not proven")
    }
}

impl Error for TooLarge {}

impl<S: AsyncRead + Unpin> AsyncRead for Unproven<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { read, stream, bound } = &mut *self;
        let before = into.filled().len();
        let proven = bound.as_ref().is_some_and(|bound| *bound.standing.borrow() == Standing::Proven);
        if proven {
            *bound = None;
        }
        if bound.as_ref().is_some_and(|bound| bound.exceeded) {
            return Poll::Ready(Err(io::Error::other(TooLarge)));
        }
        if read.is_empty() {
            ready!(Pin::new(stream).poll_read(context, into))?;
        } else {
            into.put_slice(&read.split_to(read.len().min(into.remaining())));
            if read.is_empty() {
                *read = Bytes::new();
            }
        }
        if let Some(bound) = bound {
            bound.exceeded = !bound.frames.follow(&into.filled()[before..]);
            if bound.exceeded {
                // An error brings no bytes.
                into.set_filled(before);
                return Poll::Ready(Err(io::Error::other(TooLarge)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unproven<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Follows the frames of one peer by their heads (RFC 6455, section 5.2).
struct Frames {
    limit: u64,
    head: [u8; FRAME_HEAD],
    head_read: usize,
    /// What is to come of the frame's payload, in bytes.
    rest: u64,
    /// What the message's frames have announced, in bytes.
    message: u64,
}

impl Frames {
    fn new(limit: usize) -> Self {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        Self { limit, head: [0; FRAME_HEAD], head_read: 0, rest: 0, message: 0 }
    }

    /// Goes on with `bytes`; `false` where a frame begins that makes its message too large, or is so itself.
    fn follow(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((first, others)) = bytes.split_first() {
            if self.rest > 0 {
                let skipped = usize::try_from(self.rest).unwrap_or(usize::MAX).min(bytes.len());
                self.rest -= u64::try_from(skipped).expect("it is no more than the rest");
                bytes = &bytes[skipped..];
                continue;
            }
            self.head[self.head_read] = *first;
            self.head_read += 1;
            bytes = others;
            let Some(payload) = payload(&self.head[..self.head_read]) else { continue };
            let (last, control) = (self.head[0] & 0x80 != 0, self.head[0] & 0x08 != 0);
            self.head_read = 0;
            self.rest = payload;
            if payload > self.limit {
                return false;
            }
            if control {
                continue;
            }
            self.message = self.message.saturating_add(payload);
            if self.message > self.limit {
                return false;
            }
            if last {
                self.message = 0;
            }
        }
        true
    }
}

/// The length of a frame's payload, once `head` is whole.
fn payload(head: &[u8]) -> Option<u64> {
    let [_, second, more @ ..] = head else { return None };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let short = second & 0x7f;
    let length = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if more.len() < length + mask {
        return None;
    }
    let stated = more[..length].iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
    Some(if length == 0 { u64::from(short) } else { stated })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;
    use tokio_tungstenite::tungstenite::protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    };

    use super::*;

    fn frame(opcode: OpCode, length: usize, last: bool, mask: bool) -> Vec<u8> {
        bytes_of(Frame::message(vec![b'x'; length], opcode, last), mask)
    }

    fn bytes_of(mut frame: Frame, mask: bool) -> Vec<u8> {
        if mask {
            frame.header_mut().mask = Some([1, 2, 3, 4]);
        }
        let mut bytes = Vec::new();
        frame.format(&mut bytes).unwrap();
        bytes
    }

    /// What was read with the head of the upgrade is judged before anybody else sees it, passes in as many reads as
    /// it takes, and comes before what follows.
    #[tokio::test]
    async fn what_was_read_before_is_judged_like_the_rest() {
        let (small, large) = (
            frame(OpCode::Data(Data::Text), 100, true, true),
            frame(OpCode::Data(Data::Text), 201, true, true),
        );
        for (before, after) in [(&large[..8], &[][..]), (&large[..3], &large[3..8]), (&small, &large[..8])] {
            let (_stands, standing) = watch::channel(Standing::Open);
            let mut stream = Unproven::new(after, Bytes::copy_from_slice(before), 200, standing);
            let mut read = Vec::new();
            let ended = stream.read_to_end(&mut read).await.unwrap_err();
            assert!(refused(&ended), "{ended}");
            assert!(read.is_empty() || read == before, "{read:?}");
        }
        let (_stands, standing) = watch::channel(Standing::Proven);
        let (mut stream, mut part) =
            (Unproven::new(&large[90..], Bytes::from(large[..90].to_vec()), 200, standing), [0; 7]);
        stream.read_exact(&mut part).await.unwrap();
        let mut read = part.to_vec();
        stream.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, large);
    }

    /// The head alone is refused: nothing has made room by then for what it announces.
    #[test]
    fn a_frame_over_the_bound_is_refused_by_its_head() {
        for (length, limit, fits) in
            [(125, 125, true), (126, 125, false), (70_000, 70_000, true), (70_001, 70_000, false)]
        {
            let bytes = frame(OpCode::Data(Data::Text), length, true, true);
            let head = bytes.len() - length;
            assert!(Frames::new(limit).follow(&bytes[..head - 1]), "{length}");
            assert_eq!(Frames::new(limit).follow(&bytes[..head]), fits, "{length}");
        }
        let mut longest = vec![0x81, 0xff];
        longest.extend([0xff; 12]);
        assert!(!Frames::new(usize::MAX >> 1).follow(&longest));
    }

    #[test]
    fn pings_between_the_frames_of_a_message_neither_count_nor_clear_it() {
        let mut frames = Frames::new(1000);
        let ping = bytes_of(Frame::ping(vec![0; 100]), true);
        assert!(frames.follow(&frame(OpCode::Data(Data::Text), 900, false, true)));
        for _ in 0..100 {
            assert!(frames.follow(&ping));
        }
        assert!(frames.follow(&frame(OpCode::Data(Data::Continue), 100, false, true)));
        assert!(!frames.follow(&frame(OpCode::Data(Data::Continue), 1, true, true)));
    }

    proptest! {
        /// However messages are cut into frames, and the frames into reads: each message within the bound
        /// passes, and the first beyond it does not.
        #[test]
        fn messages_are_judged_by_their_sizes(
            messages in prop::collection::vec(prop::collection::vec(0..700usize, 1..5), 1..12),
            mask in any::<bool>(),
            cut in 1..400usize,
        ) {
            const LIMIT: usize = 1000;
            let mut frames = Frames::new(LIMIT);
            for parts in messages {
                let mut bytes = Vec::new();
                for (at, length) in parts.iter().enumerate() {
                    let data = if at == 0 { Data::Text } else { Data::Continue };
                    bytes.extend(frame(OpCode::Data(data), *length, at + 1 == parts.len(), mask));
                }
                let fits = parts.iter().sum::<usize>() <= LIMIT;
                prop_assert_eq!(bytes.chunks(cut).all(|read| frames.follow(read)), fits);
                if !fits {
                    break;
                }
            }
        }
    }
}
