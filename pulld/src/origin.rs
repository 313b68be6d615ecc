//! Origins of URLs, compared as such and not as texts: scheme, host and port (PULL-10, PULL-13).

use std::net::Ipv6Addr;

/// Scheme, host and port of an `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    tls: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// The origin that `text` begins with as a URL, and the length of that beginning. `None` for what is no
    /// `http` or `https` URL, or names a user: of that nobody says here whom it leads to.
    pub fn of_url(text: &[u8]) -> Option<(Self, usize)> {
        let colon = text.iter().position(|byte| *byte == b':')?;
        let tls = match &text[..colon] {
            scheme if scheme.eq_ignore_ascii_case(b"https") => true,
            scheme if scheme.eq_ignore_ascii_case(b"http") => false,
            _ => return None,
        };
        let start = colon + 3;
        if text.get(colon + 1..start)? != b"//" {
            return None;
        }
        let length = text[start..].iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
        let end = length.map_or(text.len(), |length| start + length);
        let authority = std::str::from_utf8(&text[start..end]).ok()?;
        let (host, port) = split(authority)?;
        let port = match port {
            "" if tls => 443,
            "" => 80,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
            _ => return None,
        };
        Some((Self { tls, host: host.to_ascii_lowercase(), port }, end))
    }

    /// The origin that `text` is, with nothing behind it.
    pub fn parse(text: &str) -> Option<Self> {
        let (origin, end) = Self::of_url(text.as_bytes())?;
        (end == text.len()).then_some(origin)
    }

    /// Whether it is reached over TLS.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// A DNS name or an IP literal; an IPv6 literal has no brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Host and, unless it is the scheme's own, port: what a `Host` header states.
    pub fn authority(&self) -> String {
        let own = if self.tls { 443 } else { 80 };
        if self.port == own { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority())
    }
}

/// Host and port of an authority; the port is empty if none is named. A user, or any byte that no host has,
/// makes it none.
fn split(authority: &str) -> Option<(String, &str)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (literal, rest) = rest.split_once(']')?;
        let address: Ipv6Addr = literal.parse().ok()?;
        return match rest {
            "" => Some((format!("[{address}]"), "")),
            rest => Some((format!("[{address}]"), rest.strip_prefix(':')?)),
        };
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    // The longest name that DNS has.
    (!host.is_empty() && host.len() <= 253 && host.bytes().all(plain)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Origin> {
        Origin::of_url(text.as_bytes()).map(|(origin, _)| origin)
    }

    /// PULL-10: letter case of scheme and host, and a default port that is named or not, make no difference.
    #[test]
    fn the_same_origin_in_other_words_is_the_same() {
        let own = Origin::parse("https://registry.test").unwrap();
        for same in [
            "https://registry.test/v2/token",
            "HTTPS://Registry.TEST/v2/",
            "https://registry.test:443?x",
            "https://registry.test:#x",
            "https://registry.test:0443",
        ] {
            assert_eq!(of(same).as_ref(), Some(&own), "{same}");
        }
        assert_eq!(Origin::parse("http://[0:0::1]:80"), Origin::parse("http://[::1]"));
        assert_eq!(own.authority(), "registry.test");
        assert_eq!(Origin::parse("http://[::1]:8080").unwrap().authority(), "[::1]:8080");
        assert_eq!(Origin::parse("http://[::1]:8080").unwrap().host(), "::1");
    }

    /// PULL-13: what merely begins like the origin, or names it as a user, is another.
    #[test]
    fn what_only_looks_like_the_origin_is_another() {
        let own = Origin::parse("https://registry.test").unwrap();
        for other in [
            "https://registry.test.evil.test/v2/token",
            "https://registry.test:4430/v2/token",
            "http://registry.test/v2/token",
            "https://registry.test@evil.test/v2/token",
            "https://registry.test:443@evil.test/",
            "https://registry.test\\@evil.test/",
            "https://user@registry.test/",
            "https://registry.test./",
            "https:registry.test/",
            "https:/registry.test/",
            "https:///registry.test/",
            "//registry.test/",
            "ftp://registry.test/",
            "https://registry.test:x/",
            "https://registry.test:65536/",
            "https://",
            "https://[::1",
            "",
        ] {
            assert_ne!(of(other).as_ref(), Some(&own), "{other}");
        }
        assert_eq!(Origin::parse("https://registry.test/"), None);
    }
}
