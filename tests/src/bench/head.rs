//! The head of an HTTP/1.1 message, as far as an upgrade and the identity exchange need it read.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Largest head, in bytes.
const LIMIT: usize = 16 << 10;
const END: &[u8] = b"\r\n\r\n";

/// A head.
pub struct Head {
    /// The request line or the status line.
    pub line: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// Reads one head off `stream`; what was read beyond it stays in `arrived`. `None` when the peer closed
    /// before one began.
    ///
    /// # Errors
    /// The connection's, and a head that is no HTTP or ends early.
    pub async fn read(
        stream: &mut (impl AsyncRead + Unpin),
        arrived: &mut BytesMut,
    ) -> io::Result<Option<Self>> {
        loop {
            if let Some(end) = arrived.windows(END.len()).position(|window| window == END) {
                let head = Self::parse(&arrived[..end]);
                arrived.advance(end + END.len());
                return head
                    .map(Some)
                    .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no HTTP head"));
            }
            if arrived.len() > LIMIT {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a head over the limit"));
            }
            if stream.read_buf(arrived).await? == 0 {
                return if arrived.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    fn parse(head: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
        let line = lines.next()?.to_owned();
        let field = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Some(Self { line, fields: lines.map(field).collect::<Option<_>>()? })
    }

    /// The value of a field by its lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head that comes in pieces is read whole, and what follows it is kept.
    #[tokio::test]
    async fn a_head_is_read_and_no_more() {
        let mut stream = tokio_test_pieces(&[b"GET / HTTP/1.1\r\nHo", b"st: a:1\r\n\r", b"\nrest"]);
        let mut arrived = BytesMut::new();
        let head = Head::read(&mut stream, &mut arrived).await.unwrap().unwrap();
        assert_eq!((head.line.as_str(), head.field("host")), ("GET / HTTP/1.1", Some("a:1")));
        assert_eq!(&arrived[..], b"rest");
        assert!(Head::read(&mut &b""[..], &mut BytesMut::new()).await.unwrap().is_none());
        assert!(Head::read(&mut &b"GET /"[..], &mut BytesMut::new()).await.is_err());
    }

    fn tokio_test_pieces(pieces: &[&'static [u8]]) -> impl AsyncRead + Unpin + use<> {
        let mut whole: Box<dyn AsyncRead + Unpin> = Box::new(&b""[..]);
        for piece in pieces {
            whole = Box::new(whole.chain(*piece));
        }
        whole
    }
}
