//! `CLOUDLY_URL`, parsed once: the origin that the session, the exchange and the image pulls are sent to
//! (CFG-10, CFG-11).

use std::fmt;

use rustls_pki_types::DnsName;
use url::{Host, Url};

/// Longest `CLOUDLY_URL` in bytes.
const LONGEST: usize = 2048;
/// Longest name that DNS has, in characters.
const LONGEST_NAME: usize = 253;

/// Cloudly's endpoint, reduced to its origin: `https`, or `http` to a loopback host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudlyUrl {
    tls: bool,
    host: Host<String>,
    port: u16,
}

/// Why a text is no usable `CLOUDLY_URL`. Holds nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudlyUrlFault {
    /// It is no absolute URL, or a longer one than 2048 bytes, or names a host that no DNS name can be.
    NotAnUrl,
    /// Its scheme is neither `https` nor `http`.
    Scheme,
    /// It is `http` to a host that is not loopback.
    PlainToRemote,
    /// It has a user or a password.
    UserInfo,
    /// It has a query.
    Query,
    /// It has a fragment.
    Fragment,
    /// Its port is 0.
    Port,
}

impl CloudlyUrl {
    /// Parses an absolute URL. A path is accepted and left out.
    ///
    /// # Errors
    /// What makes the text unusable.
    pub fn parse(text: &str) -> Result<Self, CloudlyUrlFault> {
        // The URL standard drops spaces and line breaks silently; here the value is used as it is (CFG-16).
        if text.len() > LONGEST || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(CloudlyUrlFault::NotAnUrl);
        }
        let url = Url::parse(text).map_err(|_| CloudlyUrlFault::NotAnUrl)?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(CloudlyUrlFault::Scheme),
        };
        if has_user_info(text) {
            return Err(CloudlyUrlFault::UserInfo);
        }
        if url.query().is_some() {
            return Err(CloudlyUrlFault::Query);
        }
        if url.fragment().is_some() {
            return Err(CloudlyUrlFault::Fragment);
        }
        let host = url.host().filter(is_host).ok_or(CloudlyUrlFault::NotAnUrl)?.to_owned();
        let port = url.port_or_known_default().ok_or(CloudlyUrlFault::NotAnUrl)?;
        if port == 0 {
            return Err(CloudlyUrlFault::Port);
        }
        if !tls && !is_loopback(&host) {
            return Err(CloudlyUrlFault::PlainToRemote);
        }
        Ok(Self { tls, host, port })
    }

    /// Scheme, host and, unless it is the scheme's own, port: `https://cloudly.example.com`.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Host and, unless it is the scheme's own, port: what a `Host` header states.
    #[must_use]
    pub fn authority(&self) -> String {
        let own_port = if self.tls { 443 } else { 80 };
        if self.port == own_port { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }

    /// A lower-case DNS name or an IP literal; an IPv6 literal has no brackets.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.host {
            Host::Domain(name) => name.clone(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        }
    }

    /// The TCP port, 1–65535.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the endpoint is reached over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }
}

/// Also finds an empty user, which the parsed form does not keep.
fn has_user_info(text: &str) -> bool {
    let behind_scheme = text.split_once(':').map_or("", |(_, rest)| rest).trim_start_matches(['/', '\\']);
    behind_scheme.split(['/', '\\', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

/// Whether a host is an address or a DNS name that a certificate can be for, which is what pulld takes for the
/// registry's: URLs have more.
fn is_host(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => name.len() <= LONGEST_NAME && DnsName::try_from(*name).is_ok(),
        Host::Ipv4(_) | Host::Ipv6(_) => true,
    }
}

fn is_loopback(host: &Host<String>) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

impl fmt::Display for CloudlyUrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnUrl => {
                "is not an absolute URL; write it as https://<host> without spaces or line breaks"
            }
            Self::Scheme => "has a scheme other than https; write it as https://<host>",
            Self::PlainToRemote => "is http to a host that is not loopback; use https",
            Self::UserInfo => "holds a user or password; leave it out, the bearer is a variable of its own",
            Self::Query => "holds a query; leave it out",
            Self::Fragment => "holds a fragment; leave it out",
            Self::Port => "names port 0; name a port from 1 to 65535 or none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> (String, String, u16, bool) {
        let url = CloudlyUrl::parse(text).unwrap();
        (url.origin(), url.host(), url.port(), url.is_tls())
    }

    /// CFG-10, CFG-11: one origin, whatever path stands behind it.
    #[test]
    fn keeps_the_origin_and_leaves_the_path_out() {
        let expected = ("https://cloudly.example.com".into(), "cloudly.example.com".into(), 443, true);
        for text in [
            "https://cloudly.example.com",
            "https://cloudly.example.com/",
            "HTTPS://Cloudly.Example.com:443/a/b",
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
        assert_eq!(
            shape("https://cloudly.example.com:8443"),
            ("https://cloudly.example.com:8443".into(), "cloudly.example.com".into(), 8443, true)
        );
        assert_eq!(
            shape("https://[2001:db8::1]"),
            ("https://[2001:db8::1]".into(), "2001:db8::1".into(), 443, true)
        );
    }

    #[test]
    fn plain_http_reaches_loopback_only() {
        assert_eq!(shape("http://127.0.0.1:3000").0, "http://127.0.0.1:3000");
        assert_eq!(shape("http://127.9.9.9").2, 80);
        assert_eq!(shape("http://[::1]:3000"), ("http://[::1]:3000".into(), "::1".into(), 3000, false));
        assert!(!shape("http://localhost:3000/").3);
        for text in
            ["http://cloudly.example.com", "http://128.0.0.1", "http://localhost.example.com", "http://[::2]"]
        {
            assert_eq!(CloudlyUrl::parse(text), Err(CloudlyUrlFault::PlainToRemote), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_origin() {
        use CloudlyUrlFault::{Fragment, NotAnUrl, Port, Query, Scheme, UserInfo};
        for (text, fault) in [
            ("cloudly.example.com", NotAnUrl),
            ("https://cloudly.example.com\n", NotAnUrl),
            ("https://cloudly.exa\tmple.com", NotAnUrl),
            ("https://", NotAnUrl),
            ("https://cloudly!.example.com", NotAnUrl),
            ("https://cloudly.example.com,other.test", NotAnUrl),
            ("https://(cloudly)/", NotAnUrl),
            ("https://-cloudly.example.com", NotAnUrl),
            ("https://cloudly-.example.com", NotAnUrl),
            ("https://cloudly..example.com", NotAnUrl),
            ("wss://cloudly.example.com", Scheme),
            ("file:///etc/passwd", Scheme),
            ("https://user@cloudly.example.com", UserInfo),
            ("https://user:word@cloudly.example.com", UserInfo),
            ("https://@cloudly.example.com", UserInfo),
            ("https://cloudly.example.com/?", Query),
            ("https://cloudly.example.com/?a=b", Query),
            ("https://cloudly.example.com/#a", Fragment),
            ("https://cloudly.example.com:0", Port),
        ] {
            assert_eq!(CloudlyUrl::parse(text), Err(fault), "{text}");
        }
        assert_eq!(CloudlyUrl::parse(&format!("https://h/{}", "a".repeat(LONGEST))), Err(NotAnUrl));
        assert!(CloudlyUrl::parse(&format!("https://{}h", "a.".repeat(126))).is_ok());
        assert_eq!(CloudlyUrl::parse(&format!("https://{}hh", "a.".repeat(126))), Err(NotAnUrl));
    }
}
