//! A WebSocket client without manners: it sends any frame and shows every frame and close code
//! it gets.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::dial::{DialFailure, Target, websocket};
use crate::waiting::{Late, within};

/// What a raw client reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A text frame.
    Text(String),
    /// A binary frame.
    Binary(Vec<u8>),
    /// A ping; the pong goes out by itself.
    Ping(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
    /// A close frame with its code.
    Close(Option<u16>),
    /// The connection is over.
    Over,
}

/// The client. Dropping it drops the connection without a close frame.
pub struct RawSocket {
    socket: WebSocketStream<TlsStream<TcpStream>>,
}

impl RawSocket {
    /// Connects to `target` at `/`.
    ///
    /// # Errors
    /// [`DialFailure`].
    pub async fn connect(target: &Target) -> Result<Self, DialFailure> {
        Self::connect_at(target, "/", &[]).await
    }

    /// Connects to `target` at `path` with further request headers.
    ///
    /// # Errors
    /// [`DialFailure`].
    pub async fn connect_at(
        target: &Target,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, DialFailure> {
        Ok(Self { socket: websocket(target, path, headers).await? })
    }

    /// A client on a socket that is open.
    pub fn over(socket: WebSocketStream<TlsStream<TcpStream>>) -> Self {
        Self { socket }
    }

    /// Sends a text frame. Whether the peer is still there, the next read tells.
    pub async fn send_text(&mut self, text: impl Into<String>) {
        self.send(Message::text(text.into())).await;
    }

    /// Sends a binary frame.
    pub async fn send_binary(&mut self, bytes: Vec<u8>) {
        self.send(Message::binary(bytes)).await;
    }

    /// Sends one text message in as many frames as there are parts.
    pub async fn send_parts(&mut self, parts: &[&[u8]]) {
        let mut kind = Data::Text;
        for (at, part) in parts.iter().enumerate() {
            let last = at + 1 == parts.len();
            let frame = Frame::message(part.to_vec(), OpCode::Data(kind), last);
            self.send(Message::Frame(frame)).await;
            kind = Data::Continue;
        }
    }

    /// Sends a frame as it is.
    pub async fn send_frame(&mut self, frame: Frame) {
        self.send(Message::Frame(frame)).await;
    }

    /// Sends a ping.
    pub async fn ping(&mut self, payload: &[u8]) {
        self.send(Message::Ping(payload.to_vec().into())).await;
    }

    /// Sends a close frame without a code.
    pub async fn close(&mut self) {
        self.send(Message::Close(None)).await;
    }

    async fn send(&mut self, message: Message) {
        drop(self.socket.send(message).await);
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`Late`] when none comes within `bound`.
    pub async fn next(&mut self, bound: Duration) -> Result<Received, Late> {
        let frame = within(bound, "frame on a raw socket", self.socket.next()).await?;
        Ok(match frame {
            Some(Ok(Message::Text(text))) => Received::Text(text.as_str().to_owned()),
            Some(Ok(Message::Binary(bytes))) => Received::Binary(bytes.to_vec()),
            Some(Ok(Message::Ping(bytes))) => Received::Ping(bytes.to_vec()),
            Some(Ok(Message::Pong(bytes))) => Received::Pong(bytes.to_vec()),
            Some(Ok(Message::Close(frame))) => Received::Close(frame.map(|frame| frame.code.into())),
            Some(Ok(Message::Frame(_)) | Err(_)) | None => Received::Over,
        })
    }

    /// The next close code, past whatever comes before it. `None` stands for a close without a
    /// code and for an end without a close.
    ///
    /// # Errors
    /// [`Late`] when the socket does not end within `bound`.
    pub async fn closed(&mut self, bound: Duration) -> Result<Option<u16>, Late> {
        let end = async {
            loop {
                match self.next(bound).await? {
                    Received::Close(code) => return Ok(code),
                    Received::Over => return Ok(None),
                    Received::Text(_) | Received::Binary(_) | Received::Ping(_) | Received::Pong(_) => {}
                }
            }
        };
        within(bound, "close of a raw socket", end).await?
    }
}
