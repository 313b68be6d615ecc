//! The head of a request as it came to the registry.

use std::fmt;

/// A request's head: method, target and header lines, in order and as they were spelt. Its Debug form has the
/// names of its headers alone, for it holds a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Asked {
    /// The connection it came on, from 1.
    pub connection: u64,
    /// The method.
    pub method: String,
    /// The target, byte for byte.
    pub target: String,
    /// What stands after the target, such as `HTTP/1.1`.
    pub version: String,
    /// The header lines: name and value without the blanks around it. Over HTTP/2 the pseudo headers are left
    /// out, except for `:authority`.
    pub headers: Vec<(String, String)>,
}

impl Asked {
    /// Reads the bytes before the empty line.
    pub(super) fn read(connection: u64, head: &[u8]) -> Self {
        // Any byte is one character, so that nothing is lost.
        let text: String = head.iter().copied().map(char::from).collect();
        let mut lines = text.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let mut part = || first.next().unwrap_or_default();
        let (method, target, version) = (part(), part(), part());
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
        };
        Self { connection, method, target, version, headers: lines.map(header).collect() }
    }

    pub(super) fn is_h2_preface(&self) -> bool {
        (self.method.as_str(), self.target.as_str(), self.version.as_str()) == ("PRI", "*", "HTTP/2.0")
    }

    /// The values of every line of `name`, whatever its case, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = |(own, _): &&(String, String)| own.eq_ignore_ascii_case(name);
        self.headers.iter().filter(named).map(|(_, value)| value.as_str()).collect()
    }

    /// The value of the first line of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// The names of its headers in lower case, in order.
    pub fn names(&self) -> Vec<String> {
        self.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.target.split('?').next().unwrap_or_default();
        write!(f, "{} {path} on connection {} with {:?}", self.method, self.connection, self.names())
    }
}
