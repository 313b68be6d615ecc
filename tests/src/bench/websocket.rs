//! A WebSocket with as little work as the protocol allows, so that what stands around the relay costs the
//! measurement least: whole messages in single frames, many of them read and written at once, no copies
//! beyond one. It speaks only what both relays send: text and binary messages, pings and closes.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// The key of this side's masked frames. A key of zeros would spare a peer the unmasking.
const KEY: [u8; 4] = [0x5c, 0x93, 0x2e, 0xd1];

/// Largest frame that is read, in bytes.
const LIMIT: usize = 16 << 20;

/// One end of an upgraded connection.
pub struct WebSocket<S> {
    stream: S,
    arrived: BytesMut,
    leaving: BytesMut,
    client: bool,
    closed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// The end of `stream` whose upgrade is over; `arrived` is what was read beyond it. A client masks.
    pub fn upgraded(stream: S, arrived: BytesMut, client: bool) -> Self {
        Self { stream, arrived, leaving: BytesMut::new(), client, closed: false }
    }

    /// Puts a text message among those that [`WebSocket::flush`] sends.
    pub fn push(&mut self, text: &[u8]) {
        self.frame(TEXT, text);
    }

    /// Sends what was put, in one write where the connection takes it. Cancelled, it goes on from there.
    ///
    /// # Errors
    /// The connection's.
    pub async fn flush(&mut self) -> io::Result<()> {
        while !self.leaving.is_empty() {
            if self.stream.write_buf(&mut self.leaving).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.stream.flush().await
    }

    /// The next message; `None` once the peer has closed. Cancelled, it loses nothing.
    ///
    /// # Errors
    /// The connection's, and a frame that no relay sends.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            if !self.leaving.is_empty() {
                self.flush().await?;
            }
            if self.closed {
                return Ok(None);
            }
            self.arrived.reserve(4096);
            if self.stream.read_buf(&mut self.arrived).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next message that has arrived whole already. Pings and closes before it get their answer put.
    ///
    /// # Errors
    /// A frame that no relay sends.
    pub fn buffered(&mut self) -> io::Result<Option<Bytes>> {
        while let Some((opcode, payload)) = take_frame(&mut self.arrived)? {
            match opcode {
                TEXT | BINARY => return Ok(Some(payload)),
                PING => self.frame(PONG, &payload),
                PONG => {}
                CLOSE => {
                    self.frame(CLOSE, &payload);
                    self.closed = true;
                }
                _ => return Err(unreadable("a frame of an unknown kind")),
            }
        }
        Ok(None)
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) {
        self.leaving.put_u8(0x80 | opcode);
        let mask = if self.client { 0x80 } else { 0 };
        match payload.len() {
            length @ 0..126 => self.leaving.put_u8(mask | u8::try_from(length).expect("it is below 126")),
            length @ 126..=0xffff => {
                self.leaving.put_u8(mask | 126);
                let length = u16::try_from(length).expect("it is at most 0xffff");
                self.leaving.extend_from_slice(&length.to_be_bytes());
            }
            length => {
                self.leaving.put_u8(mask | 127);
                self.leaving.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        if self.client {
            self.leaving.extend_from_slice(&KEY);
        }
        let from = self.leaving.len();
        self.leaving.extend_from_slice(payload);
        if self.client {
            mask_with(KEY, &mut self.leaving[from..]);
        }
    }
}

fn mask_with(key: [u8; 4], bytes: &mut [u8]) {
    for (byte, key) in bytes.iter_mut().zip(key.into_iter().cycle()) {
        *byte ^= key;
    }
}

fn unreadable(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Cuts the first whole frame off: its opcode and its unmasked payload.
fn take_frame(arrived: &mut BytesMut) -> io::Result<Option<(u8, Bytes)>> {
    let [first, second, rest @ ..] = &arrived[..] else { return Ok(None) };
    if first & 0xf0 != 0x80 {
        return Err(unreadable("a fragment, or an extension that was not agreed on"));
    }
    let (opcode, masked) = (first & 0x0f, second & 0x80 != 0);
    let (length, mut head) = match second & 0x7f {
        126 => match rest.first_chunk() {
            Some(length) => (usize::from(u16::from_be_bytes(*length)), 4),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(length) => (usize::try_from(u64::from_be_bytes(*length)).unwrap_or(usize::MAX), 10),
            None => return Ok(None),
        },
        length => (usize::from(length), 2),
    };
    if length > LIMIT {
        return Err(unreadable("a frame over the limit"));
    }
    let key: Option<[u8; 4]> =
        if masked { arrived.get(head..).and_then(|rest| rest.first_chunk().copied()) } else { None };
    if masked {
        head += 4;
    }
    if arrived.len() < head + length {
        arrived.reserve(head + length - arrived.len());
        return Ok(None);
    }
    arrived.advance(head);
    let mut payload = arrived.split_to(length);
    if let Some(key) = key {
        mask_with(key, &mut payload);
    }
    Ok(Some((opcode, payload.freeze())))
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use futures_util::{SinkExt, StreamExt};

    use super::*;

    /// Either end is understood by a complete implementation, at each of the three forms of a length.
    #[tokio::test]
    async fn a_complete_implementation_understands_both_ends() {
        for (client, role) in [(true, Role::Server), (false, Role::Client)] {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let mut ours = WebSocket::upgraded(ours, BytesMut::new(), client);
            let mut theirs = WebSocketStream::from_raw_socket(theirs, role, None).await;
            for length in [0, 125, 126, 65_535, 65_536] {
                let text = "x".repeat(length);
                ours.push(text.as_bytes());
                ours.flush().await.unwrap();
                assert_eq!(theirs.next().await.unwrap().unwrap().into_text().unwrap().as_str(), text);
                theirs.send(Message::text(text.clone())).await.unwrap();
                assert_eq!(ours.next().await.unwrap().unwrap(), text);
            }
        }
    }

    /// A ping between two messages is answered, and a close ends the stream of messages.
    #[tokio::test]
    async fn pings_are_answered_and_a_close_ends_it() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut ours = WebSocket::upgraded(ours, BytesMut::new(), true);
        let mut theirs = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
        theirs.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
        theirs.send(Message::text("one")).await.unwrap();
        theirs.close(None).await.unwrap();
        assert_eq!(ours.next().await.unwrap().unwrap(), "one");
        assert_eq!(ours.next().await.unwrap(), None);
        assert_eq!(theirs.next().await.unwrap().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
    }
}
