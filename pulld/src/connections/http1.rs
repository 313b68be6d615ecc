//! A connection of HTTP/1.1: one exchange at a time. It has no task of its own: whoever waits for something
//! of it drives it, and nobody reads the registry for a body that is not read.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;

use crate::{
    constants::{ANSWER_HEAD, ANSWER_HEADERS},
    registry_stream::{Heard, RegistryStream},
};

/// Polls that a connection needs at most to be ready for the next exchange after a body's end.
const SETTLING: usize = 4;

/// The connection.
pub(super) struct Http1 {
    sender: SendRequest<Empty<Bytes>>,
    connection: http1::Connection<TokioIo<RegistryStream>, Empty<Bytes>>,
    ended: bool,
    heard: Heard,
}

impl Http1 {
    /// Takes over `stream`; nothing is sent yet.
    pub(super) async fn open(stream: RegistryStream) -> hyper::Result<Self> {
        let heard = stream.heard();
        let mut builder = http1::Builder::new();
        builder.max_buf_size(ANSWER_HEAD).max_headers(ANSWER_HEADERS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, connection, ended: false, heard })
    }

    /// The head of the registry's answer.
    pub(super) async fn ask(&mut self, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.heard.reset();
        let mut answer = pin!(self.sender.send_request(request));
        let (connection, ended) = (&mut self.connection, &mut self.ended);
        poll_fn(|cx| {
            // A connection that ends has said so to the answer.
            *ended = *ended || Pin::new(&mut *connection).poll(cx).is_ready();
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Whether anything was heard since the last request.
    pub(super) fn heard_anything(&self) -> bool {
        self.heard.anything()
    }

    /// Reads and writes what there is.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        self.ended = self.ended || Pin::new(&mut self.connection).poll(cx).is_ready();
    }

    /// Whether the connection takes another request, after the end of an exchange. Looked at by nobody, so
    /// that the exchange that ends here is not what it would wake.
    pub(super) fn is_settled(&mut self) -> bool {
        for _ in 0..SETTLING {
            if self.is_open() {
                return true;
            }
            if self.ended || self.sender.is_closed() {
                return false;
            }
        }
        false
    }

    /// Whether the registry has not closed it, as far as that has been noticed.
    pub(super) fn is_open(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }
}
