//! The cluster document, as far as it decides whether and where the relay listens (LIS-07 – LIS-11,
//! LIS-19, LIS-20).

use coreflow_ipc::typedrequest::Body;
use url::{Host, Url};

use crate::{
    contract::{
        cluster::{ConfigState, RelayBlock},
        values::{from_object, is_dns_name},
    },
    refusals::{BLOCK_CHANGED, ORIGIN_PORT_FOREIGN},
};

/// The origin of a relay block: `https`, a DNS host name, and a port if it names one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    text: String,
    host: String,
    port: Option<u16>,
}

impl Origin {
    /// `validateClusterRelay`'s rule for an origin; the error is a reason without the value.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix("https://").ok_or("scheme is not https")?;
        let url = Url::parse(text).map_err(|_| "not a URL")?;
        let Some(Host::Domain(host)) = url.host() else { return Err("host is not a DNS name") };
        if !url.username().is_empty() || url.password().is_some() || rest.contains('@') {
            return Err("user info is not admitted");
        }
        if rest.contains(['/', '?', '#', '\\']) {
            return Err("path, query and fragment are not admitted");
        }
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => {
                let plain = !port.is_empty() && !port.starts_with('0');
                let digits = plain && port.bytes().all(|byte| byte.is_ascii_digit());
                let port = digits.then(|| port.parse::<u16>().ok()).flatten();
                (name, Some(port.ok_or("port is not between 1 and 65535")?))
            }
            None => (rest, None),
        };
        if name != host || !is_dns_name(name) {
            return Err("host is not a lower-case DNS name");
        }
        Ok(Self { text: text.to_owned(), host: host.to_owned(), port })
    }

    /// The host, whose certificate the listener serves.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Refuses a bind port that differs from the port that the origin names (CFG-22, LIS-11).
    pub fn check_port(&self, bind_port: u16) -> Result<(), String> {
        match self.port {
            Some(port) if port != bind_port => Err(format!(
                "{ORIGIN_PORT_FOREIGN}: the cluster's relay origin {} names port {port}, but \
                 COREFLOW_RELAY_BIND_PORT is {bind_port}; set it to {port}",
                self.text
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the origin names a port at all (open question 19).
    pub fn names_port(&self) -> bool {
        self.port.is_some()
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether Cloudly publishes a relay for the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// No relay block: the cluster's nodes dial Cloudly directly (LIS-08).
    Nothing,
    /// A valid block.
    Relay(Origin),
    /// A block that `validateClusterRelay` refuses; the reason, by path (LIS-09, LIS-10).
    Invalid(String),
}

/// Reads a `ConfigState`; an error names where it is no cluster document.
pub fn read(config: &Body) -> Result<Published, String> {
    let state: ConfigState<'_> =
        config.read().map_err(|error| format!("cluster config is not readable: {error}"))?;
    let Some(block) = state.config_data.data.relay else { return Ok(Published::Nothing) };
    let Some(block) = from_object::<RelayBlock>(block) else {
        return Ok(Published::Invalid("relay: not an object of exactly the member origin".to_owned()));
    };
    Ok(match Origin::parse(&block.origin) {
        Ok(origin) => Published::Relay(origin),
        Err(reason) => Published::Invalid(format!("relay.origin: {reason}")),
    })
}

/// What the relay started with, compared with every later document.
#[derive(Debug)]
pub struct Served {
    started_with: Published,
    latest: Published,
}

impl Served {
    /// The relay starts with `published`.
    pub fn new(published: Published) -> Self {
        Self { latest: published.clone(), started_with: published }
    }

    /// Takes a later document; a change is reported once and never adopted (LIS-19, LIS-20).
    pub fn observe(&mut self, published: Published) -> Option<String> {
        if published == self.latest {
            return None;
        }
        self.latest = published;
        if self.latest == self.started_with {
            return None;
        }
        let block = |published: &Published| match published {
            Published::Nothing => "no relay block".to_owned(),
            Published::Relay(origin) => format!("origin {origin}"),
            Published::Invalid(reason) => format!("an invalid relay block ({reason})"),
        };
        Some(format!(
            "{BLOCK_CHANGED}: Cloudly publishes {}, this relay started with {} and keeps serving it; \
             a restart adopts the change",
            block(&self.latest),
            block(&self.started_with)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(data: &str) -> Published {
        let config = format!(
            r#"{{"configData":{{"id":"c","data":{data},"more":1}},"services":[],"corestorePublicationGrants":[]}}"#
        );
        read(&Body::from_json(config)).unwrap()
    }

    fn origin(text: &str) -> Published {
        Published::Relay(Origin::parse(text).unwrap())
    }

    /// LIS-07, LIS-08, LIS-09, LIS-10: an invalid block is never an absent one.
    #[test]
    fn a_relay_block_is_absent_valid_or_invalid() {
        assert_eq!(published(r#"{"name":"n","nodes":[]}"#), Published::Nothing);
        assert_eq!(
            published(r#"{"relay":{"origin":"https://relay.test:8443"}}"#),
            origin("https://relay.test:8443")
        );
        for invalid in
            ["{}", r#"{"origin":1}"#, r#"{"origin":"https://a.b","x":1}"#, r#""https://a.b""#, "[]"]
        {
            let published = published(&format!(r#"{{"relay":{invalid}}}"#));
            assert!(matches!(published, Published::Invalid(_)), "{invalid}");
        }
        assert!(read(&Body::from_json(r#"{"configData":{}}"#.into())).is_err());
    }

    /// A JSON null is no block, as an absent member is.
    #[test]
    fn a_null_block_is_no_block() {
        assert_eq!(published(r#"{"relay":null}"#), Published::Nothing);
    }

    #[test]
    fn an_origin_is_https_with_a_dns_name_and_nothing_behind_it() {
        for valid in ["https://relay.example.com", "https://a.b:8443", "https://relay"] {
            assert!(Origin::parse(valid).is_ok(), "{valid}");
        }
        for invalid in [
            "http://relay.test",
            "https://192.0.2.1",
            "https://[::1]:8443",
            "https://user@relay.test",
            "https://relay.test/",
            "https://relay.test?x",
            "https://relay.test#x",
            "https://Relay.test",
            "https://relay.test:0",
            "https://relay.test:65536",
            "https://relay.test:",
            "https://relay..test",
            "https://-relay.test",
            "relay.test",
            "",
        ] {
            assert!(Origin::parse(invalid).is_err(), "{invalid}");
        }
    }

    /// CFG-22, LIS-11: the origin's port must be the bound one; without a port any will do.
    #[test]
    fn the_origin_s_port_is_the_bound_one() {
        let origin = Origin::parse("https://relay.test:8443").unwrap();
        assert!(origin.check_port(8443).is_ok());
        assert!(origin.check_port(9443).unwrap_err().starts_with("relay-origin-port-foreign: "));
        let origin = Origin::parse("https://relay.test").unwrap();
        assert!(!origin.names_port() && origin.check_port(9443).is_ok());
    }

    /// LIS-19, LIS-20: a change or a vanished block is reported once, and not adopted.
    #[test]
    fn a_changed_block_is_reported_once() {
        let mut served = Served::new(origin("https://a.test"));
        assert_eq!(served.observe(origin("https://a.test")), None);
        let line = served.observe(origin("https://b.test")).unwrap();
        assert!(line.contains("https://b.test") && line.contains("keeps serving"), "{line}");
        assert_eq!(served.observe(origin("https://b.test")), None);
        assert!(served.observe(Published::Nothing).unwrap().contains("no relay block"));
        assert_eq!(served.observe(origin("https://a.test")), None, "back to what is served");
    }
}
