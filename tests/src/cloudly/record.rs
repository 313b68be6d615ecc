//! What Cloudly remembers of each request it got, and of each dial.

use std::time::Instant;

use crate::envelope::Message;

/// How far a dial of the relay got at this Cloudly. Each stage is counted once it is reached, before
/// anything is said in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A TCP connection was accepted.
    Tcp,
    /// The TLS handshake is complete.
    Tls,
    /// A WebSocket upgrade was asked for.
    Upgrade,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method.
    pub method: String,
    /// The WebSocket connection it came on, from 1; `None` for the HTTP exchange.
    pub connection: Option<u64>,
    /// The envelope: whole text, ids, and every member as it came.
    pub message: Message,
    /// Whether it came in a binary frame.
    pub binary: bool,
    /// When it arrived.
    pub at: Instant,
}

impl Call {
    /// `request` as it came.
    pub fn body(&self) -> &str {
        self.message.request()
    }

    /// `request`, parsed.
    pub fn body_json(&self) -> serde_json::Value {
        serde_json::from_str(self.body()).expect("a member of a JSON object is JSON")
    }

    /// What the wire notes forbid to send and this request carried all the same.
    pub fn forbidden(&self) -> Vec<&'static str> {
        self.message.forbidden()
    }
}
