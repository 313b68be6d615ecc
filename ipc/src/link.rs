//! A link: framed messages over one Unix socket of a pair, with descriptors beside those messages
//! that announce them (ARC-10, ARC-13).
//!
//! Any frame that is malformed, oversized or followed by descriptors nobody announced ends the link;
//! the error says how, and the peer is then treated as failed.

use std::{
    collections::VecDeque,
    io,
    marker::PhantomData,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use tokio::{io::Interest, net::UnixStream};

use crate::{
    codec::CodecError,
    frame::{FrameError, FrameReader, HEADER},
    messages::Message,
    sys,
};

/// Most descriptors that may wait for the message that announces them.
const WAITING_DESCRIPTORS: usize = 4;
/// Largest room of a row that is kept for the next one, in bytes.
const KEPT_FRAMES: usize = 256 << 10;
/// Bytes read at once.
const READ_CHUNK: usize = 16 << 10;

/// Whether an end of a link takes descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptors {
    /// None is ever installed: a peer that sends some cannot fill our table.
    Refused,
    /// Those that a message announces.
    Accepted,
}

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkError {
    /// The peer closed its end.
    Closed,
    /// The bytes are no frames.
    Frame(FrameError),
    /// A frame is no message of this link.
    Codec(CodecError),
    /// Descriptors came that no message announced, or fewer than one did.
    Descriptors,
    /// The socket failed.
    Io(io::ErrorKind),
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("ipc-link-closed"),
            Self::Frame(error) => error.fmt(f),
            Self::Codec(error) => error.fmt(f),
            Self::Descriptors => f.write_str("ipc-descriptors-unannounced"),
            Self::Io(kind) => write!(f, "ipc-link-failed: {kind}"),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            kind => Self::Io(kind),
        }
    }
}

/// Opens one end of a socket pair as a link that sends `Out` and receives `In`. Must be called
/// inside a runtime.
pub fn open<Out: Message, In: Message>(
    end: OwnedFd,
    descriptors: Descriptors,
) -> io::Result<(LinkSender<Out>, LinkReceiver<In>)> {
    if descriptors == Descriptors::Refused {
        // Where the kernel knows the option the sender is told; a plain read drops them anyway.
        let _ = sys::refuse_descriptors(end.as_fd());
    }
    let end = std::os::unix::net::UnixStream::from(end);
    end.set_nonblocking(true)?;
    let stream = Arc::new(UnixStream::from_std(end)?);
    Ok((
        LinkSender { stream: Arc::clone(&stream), frames: Vec::new(), kind: PhantomData },
        LinkReceiver {
            stream,
            descriptors,
            frames: FrameReader::new(In::LIMIT),
            chunk: vec![0; READ_CHUNK].into_boxed_slice(),
            waiting: VecDeque::new(),
            kind: PhantomData,
        },
    ))
}

/// The sending half of a link; held by one task.
pub struct LinkSender<Out> {
    stream: Arc<UnixStream>,
    /// Room for the next row.
    frames: Vec<u8>,
    kind: PhantomData<fn(Out)>,
}

impl<Out: Message> LinkSender<Out> {
    /// Sends `message` and, beside its first byte, `descriptors`.
    ///
    /// Not to be cancelled half-way: a cut frame ends the link at the peer.
    pub async fn send(&mut self, message: &Out, descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        self.send_counted(message, descriptors).await.map(drop)
    }

    /// As [`LinkSender::send`]; gives the bytes of the frame.
    pub async fn send_counted(
        &mut self,
        message: &Out,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<usize, LinkError> {
        if message.descriptors() != descriptors.len() {
            return Err(LinkError::Descriptors);
        }
        let mut frame = Vec::new();
        message.append(&mut frame).map_err(LinkError::Codec)?;
        self.write(&frame, descriptors).await?;
        Ok(frame.len())
    }

    /// Sends a row of messages, each with the descriptor that it announces, if any, in as few system
    /// calls as that takes. Not to be cancelled, like [`LinkSender::send`].
    pub async fn send_row(&mut self, row: &[(Out, Option<OwnedFd>)]) -> Result<(), LinkError> {
        let mut frames = std::mem::take(&mut self.frames);
        let mut beside = None;
        for (message, descriptor) in row {
            if message.descriptors() != usize::from(descriptor.is_some()) {
                return Err(LinkError::Descriptors);
            }
            // Descriptors go beside the first byte of what is written.
            if let Some(descriptor) = descriptor {
                self.write(&frames, beside.as_slice()).await?;
                frames.clear();
                beside = Some(descriptor.as_fd());
            }
            message.append(&mut frames).map_err(LinkError::Codec)?;
        }
        self.write(&frames, beside.as_slice()).await?;
        if frames.capacity() <= KEPT_FRAMES {
            frames.clear();
            self.frames = frames;
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let mut sent = 0;
        while sent < bytes.len() {
            let beside = if sent == 0 { descriptors } else { &[] };
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || {
                    Ok(sys::send_with_descriptors(self.stream.as_fd(), &bytes[sent..], beside)?)
                })
                .await?;
        }
        Ok(())
    }
}

/// A message and what came beside it.
pub struct Received<In> {
    /// The message.
    pub message: In,
    /// As many descriptors as the message announces.
    pub descriptors: Vec<OwnedFd>,
    /// Bytes of its frame.
    pub bytes: usize,
}

/// The receiving half of a link; held by one task.
pub struct LinkReceiver<In> {
    stream: Arc<UnixStream>,
    descriptors: Descriptors,
    frames: FrameReader,
    chunk: Box<[u8]>,
    waiting: VecDeque<OwnedFd>,
    kind: PhantomData<fn() -> In>,
}

impl<In: Message> LinkReceiver<In> {
    /// The next message. May be cancelled between messages without losing any.
    pub async fn receive(&mut self) -> Result<Received<In>, LinkError> {
        loop {
            if let Some(received) = self.take()? {
                return Ok(received);
            }
            let (stream, chunk) = (&self.stream, &mut *self.chunk);
            let (count, came) = stream
                .async_io(Interest::READABLE, || match self.descriptors {
                    Descriptors::Refused => nix::unistd::read(stream.as_fd(), chunk)
                        .map(|count| (count, Vec::new()))
                        .map_err(io::Error::from),
                    Descriptors::Accepted => {
                        Ok(sys::receive_with_descriptors(stream.as_fd(), chunk, WAITING_DESCRIPTORS)?)
                    }
                })
                .await?;
            if count == 0 {
                return Err(LinkError::Closed);
            }
            // A stream that gave less than there was room for is empty, unless the read ended at descriptors:
            // to wait for more needs no read that finds nothing.
            if count < chunk.len() && came.is_empty() {
                let _ = stream.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            }
            self.waiting.extend(came);
            if self.waiting.len() > WAITING_DESCRIPTORS {
                return Err(LinkError::Descriptors);
            }
            self.frames.push(&self.chunk[..count]);
        }
    }

    fn take(&mut self) -> Result<Option<Received<In>>, LinkError> {
        let Some(payload) = self.frames.next_frame().map_err(LinkError::Frame)? else {
            // Descriptors belong to a frame whose first byte came with them.
            return if self.frames.is_empty() && !self.waiting.is_empty() {
                Err(LinkError::Descriptors)
            } else {
                Ok(None)
            };
        };
        let message = In::of_bytes(&payload).map_err(LinkError::Codec)?;
        let announced = message.descriptors();
        if self.waiting.len() < announced {
            return Err(LinkError::Descriptors);
        }
        let descriptors = self.waiting.drain(..announced).collect();
        Ok(Some(Received { message, descriptors, bytes: HEADER + payload.len() }))
    }
}

#[cfg(test)]
mod tests;
