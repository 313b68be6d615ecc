//! A container client as the wire sees it: over HTTP/1.1 its request goes out as the test wrote it and the
//! answer is read by its own framing, so that a cut, a made-up length or a lost line shows; over HTTP/2 it asks
//! by the book and sees a reset.

mod h2;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::dial::{Target, tls};
use crate::waiting::within;

pub use h2::{H2Node, H2Pull};

/// How long one answer may take, longer than the relay's own patience.
const BOUND: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pulled {
    /// The status; 0 where the connection ended before an answer.
    pub status: u16,
    /// The header lines in order; over HTTP/1.1 as they were spelt.
    pub headers: Vec<(String, String)>,
    /// The body, as far as it came.
    pub body: Vec<u8>,
    /// Whether its end was that of the answer.
    pub complete: bool,
}

impl Pulled {
    /// The values of every line of `name`, whatever its case, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = |(own, _): &&(String, String)| own.eq_ignore_ascii_case(name);
        self.headers.iter().filter(named).map(|(_, value)| value.as_str()).collect()
    }

    /// The value of the first line of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The message of a refusal of the relay's own, `<name>: <reason>`; `None` for any other answer.
    pub fn refusal(&self) -> Option<String> {
        if self.get("content-type") != Some("application/json") {
            return None;
        }
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        let error = &body["errors"][0];
        (error["code"] == "UNSUPPORTED").then(|| error["message"].as_str().map(str::to_owned))?
    }
}

impl std::fmt::Debug for Pulled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = self.text().chars().take(200).collect::<String>();
        write!(f, "{} {:?} ", self.status, self.headers)?;
        write!(f, "{} bytes, complete: {}: {body:?}", self.body.len(), self.complete)
    }
}

/// One request on a connection of its own, over what ALPN settles.
///
/// # Panics
/// When the relay cannot be dialled, or a request cannot be made.
pub async fn pull(target: &Target, method: &str, path: &str, headers: &[(&str, &str)]) -> Pulled {
    // On the heap: two protocols' worth of state would fill a test's stack where pulls are joined.
    Box::pin(exchange(target, method, path, headers, Bytes::new())).await
}

/// [`pull`] with a body of the request, of a stated length.
///
/// # Panics
/// As [`pull`].
pub async fn pull_with_body(target: &Target, method: &str, path: &str, body: &str) -> Pulled {
    let length = body.len().to_string();
    let body = Bytes::copy_from_slice(body.as_bytes());
    Box::pin(exchange(target, method, path, &[("content-length", &length)], body)).await
}

async fn exchange(
    target: &Target,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Pulled {
    let stream = tls(target).await.expect("the relay is reached");
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let pulling = async {
            let mut node = H2Node::over(stream, &host(target), None).await;
            node.ask(method, path, headers, Full::new(body)).await.whole().await
        };
        return within(BOUND, "answer over HTTP/2", pulling).await.expect("in time");
    }
    let mut puller = Puller { stream, read: Vec::new(), host: host(target) };
    puller.ask(method, path, headers).await;
    if !body.is_empty() {
        puller.send(&String::from_utf8_lossy(&body)).await;
    }
    puller.answer(method).await
}

fn host(target: &Target) -> String {
    format!("{}:{}", target.server_name, target.address.port())
}

/// A connection over HTTP/1.1. Dropping it leaves without a word.
pub struct Puller {
    stream: TlsStream<TcpStream>,
    read: Vec<u8>,
    host: String,
}

impl Puller {
    /// Dials the relay.
    ///
    /// # Panics
    /// When it cannot be dialled.
    pub async fn dial(target: &Target) -> Self {
        let stream = tls(target).await.expect("the relay is reached");
        Self { stream, read: Vec::new(), host: host(target) }
    }

    /// Sends a request without a body. A `Host` of the test's takes the place of the own one.
    pub async fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            head += &format!("Host: {}\r\n", self.host);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        self.send(&format!("{head}\r\n")).await;
    }

    /// Sends what the test wrote. A relay that has already gone shows in the answer.
    pub async fn send(&mut self, raw: &str) {
        drop(self.stream.write_all(raw.as_bytes()).await);
        drop(self.stream.flush().await);
    }

    /// Reads once more; false at the end of the connection.
    async fn more(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.read);
        matches!(within(BOUND, "bytes of an answer", read).await.expect("in time"), Ok(1..))
    }

    /// Waits until at least `count` bytes of what follows are there; false if the connection ends before.
    pub async fn wait_bytes(&mut self, count: usize) -> bool {
        while self.read.len() < count {
            if !self.more().await {
                return false;
            }
        }
        true
    }

    /// Reads once and forgets what came, and how much that was; `None` at the end of the connection.
    pub async fn pass_over(&mut self) -> Option<u64> {
        if self.read.is_empty() && !self.more().await {
            return None;
        }
        let length = self.read.len() as u64;
        self.read.clear();
        Some(length)
    }

    /// The bytes that came after the last answer, or after its head.
    pub fn pending(&self) -> &[u8] {
        &self.read
    }

    /// Reads the head of an answer; interim ones are passed over.
    pub async fn head(&mut self) -> Pulled {
        loop {
            let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") else {
                if self.more().await {
                    continue;
                }
                return Pulled::default();
            };
            let head: String = self.read.drain(..end + 4).take(end).map(char::from).collect();
            let mut lines = head.split("\r\n");
            let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
            let header = |line: &str| {
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
            };
            let headers = lines.map(header).collect();
            let status = status.expect("an answer has a status");
            if status >= 200 {
                return Pulled { status, headers, ..Pulled::default() };
            }
        }
    }

    /// Reads a whole answer to `method`.
    pub async fn answer(&mut self, method: &str) -> Pulled {
        let head = self.head().await;
        self.body(method, head).await
    }

    /// Reads the rest of the answer that began with `head`.
    pub async fn body(&mut self, method: &str, mut pulled: Pulled) -> Pulled {
        if pulled.status == 0 {
            return pulled;
        }
        if method == "HEAD" || matches!(pulled.status, 204 | 304) {
            pulled.complete = true;
        } else if pulled.get("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            pulled.complete = self.chunks(&mut pulled.body).await;
        } else if let Some(length) = pulled.get("content-length") {
            let length: usize = length.parse().expect("a length is a number");
            pulled.complete = self.wait_bytes(length).await;
            let there = length.min(self.read.len());
            pulled.body = self.read.drain(..there).collect();
        } else {
            while self.more().await {}
            pulled.body = std::mem::take(&mut self.read);
            // Without an end in TLS this cannot be told from a cut.
            pulled.complete = true;
        }
        pulled
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") else {
                if self.more().await {
                    continue;
                }
                return false;
            };
            let line: String = self.read.drain(..end + 2).take(end).map(char::from).collect();
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.expect("a chunk has a size");
            let whole = self.wait_bytes(size + 2).await;
            let there = size.min(self.read.len());
            body.extend(self.read.drain(..there));
            if !whole {
                return false;
            }
            self.read.drain(..2);
            if size == 0 {
                return true;
            }
        }
    }

    /// Whether the relay has ended the connection, once it has.
    pub async fn ended(&mut self) -> bool {
        while self.more().await {}
        true
    }
}
