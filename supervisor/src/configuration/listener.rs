//! The listener's facts, read only once a relay block is found: the node's id, where the listener binds, and
//! the VPN pair (CFG-17..CFG-29). Whether the port is the relay origin's (CFG-22) is judged where the origin
//! is known.

use std::net::{IpAddr, Ipv4Addr};

use coreflow_ipc::messages::relayd::{ListenerFacts, VpnFacts};

use super::mistake::{ConfigurationError, Mistake, ValueFault};
use super::reader::ConfigurationReader;
use super::variable::Variable;

/// The listener's port where no variable names one (CFG-21).
const DEFAULT_BIND_PORT: u16 = 8443;

impl ConfigurationReader {
    /// Reads the facts of a boot whose cluster has a relay block.
    ///
    /// # Errors
    /// Every missing variable and every mistake at once, also half a VPN pair (CFG-26).
    pub fn listener_facts(&mut self) -> Result<ListenerFacts, ConfigurationError> {
        let mut mistakes = Vec::new();
        let mut missing = Vec::new();

        let node_id = self.parsed(Variable::NodeId, parse_node_id, &mut mistakes);
        let bind_hostname = self.parsed(Variable::RelayBindHostname, parse_bind_hostname, &mut mistakes);
        let bind_port = self.parsed(Variable::RelayBindPort, parse_port, &mut mistakes);
        let vpn_address = self.parsed(Variable::VpnBindHostname, parse_unicast_ipv4, &mut mistakes);
        let quic_port = self.parsed(Variable::VpnQuicPort, parse_port, &mut mistakes);

        for (absent, variable) in [
            (matches!(node_id, Reading::Absent), Variable::NodeId),
            (matches!(bind_hostname, Reading::Absent), Variable::RelayBindHostname),
        ] {
            if absent {
                missing.push(variable);
            }
        }
        let [address, port] = [Variable::VpnBindHostname, Variable::VpnQuicPort];
        match (matches!(vpn_address, Reading::Absent), matches!(quic_port, Reading::Absent)) {
            (true, false) => mistakes.push(Mistake::HalfPair { missing: address, present: port }),
            (false, true) => mistakes.push(Mistake::HalfPair { missing: port, present: address }),
            (true, true) | (false, false) => {}
        }
        if let Some(error) = ConfigurationError::of(missing, mistakes) {
            return Err(error);
        }

        let vpn = vpn_address.value().zip(quic_port.value());
        Ok(ListenerFacts {
            node_id: node_id.value().expect("absent and unusable values are refused above"),
            bind_hostname: bind_hostname.value().expect("absent and unusable values are refused above"),
            bind_port: bind_port.value().unwrap_or(DEFAULT_BIND_PORT),
            vpn: vpn.map(|(address, quic_port)| VpnFacts { address, quic_port, unavailable: None }),
        })
    }

    fn parsed<T>(
        &mut self,
        variable: Variable,
        parse: fn(&str) -> Result<T, ValueFault>,
        mistakes: &mut Vec<Mistake>,
    ) -> Reading<T> {
        let read = self.text(variable).and_then(|found| {
            let Some((text, source)) = found else { return Ok(None) };
            parse(&text).map(Some).map_err(|fault| Mistake::Value { variable, source, fault })
        });
        match read {
            Ok(Some(value)) => Reading::Value(value),
            Ok(None) => Reading::Absent,
            Err(mistake) => {
                mistakes.push(mistake);
                Reading::Unusable
            }
        }
    }
}

/// What reading one variable gave.
enum Reading<T> {
    Value(T),
    Absent,
    Unusable,
}

impl<T> Reading<T> {
    fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Unusable => None,
        }
    }
}

/// The `Id` of the contract file: 1 to 128 characters of `A–Z a–z 0–9 . _ : -`.
fn parse_node_id(text: &str) -> Result<String, ValueFault> {
    let is_id = |c: u8| c.is_ascii_alphanumeric() || b"._:-".contains(&c);
    let valid = (1..=128).contains(&text.len()) && text.bytes().all(is_id);
    if valid { Ok(text.to_owned()) } else { Err(ValueFault::NodeId) }
}

/// An IP literal, or a host name of at most 253 characters whose labels have 1 to 63 letters, digits and
/// inner hyphens.
fn parse_bind_hostname(text: &str) -> Result<String, ValueFault> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let numeric_end = text.rsplit('.').next().is_some_and(|label| label.bytes().all(|c| c.is_ascii_digit()));
    let is_name = text.len() <= 253 && !numeric_end && text.split('.').all(is_label);
    if is_name || text.parse::<IpAddr>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err(ValueFault::BindHostname)
    }
}

/// A decimal number from 1 to 65535 without sign or leading zero.
fn parse_port(text: &str) -> Result<u16, ValueFault> {
    let plain = text.bytes().all(|c| c.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten().ok_or(ValueFault::Port)
}

/// An address that one host can hold: not of 0.0.0.0/8, multicast (224.0.0.0/4) or reserved (240.0.0.0/4).
fn parse_unicast_ipv4(text: &str) -> Result<Ipv4Addr, ValueFault> {
    let address: Ipv4Addr = text.parse().map_err(|_| ValueFault::NotUnicastIpv4)?;
    match address.octets()[0] {
        1..=223 => Ok(address),
        0 | 224..=255 => Err(ValueFault::NotUnicastIpv4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::tests::reader;

    const BASE: [(&str, &str); 2] =
        [("COREFLOW_NODE_ID", "node-a"), ("COREFLOW_RELAY_BIND_HOSTNAME", "192.0.2.15")];

    fn facts(more: &[(&str, &str)]) -> Result<ListenerFacts, ConfigurationError> {
        reader(&[&BASE, more].concat()).listener_facts()
    }

    fn fault(name: &str, value: &str) -> ValueFault {
        let values: Vec<_> = BASE.iter().copied().filter(|(other, _)| *other != name).collect();
        let error = reader(&[&values[..], &[(name, value)]].concat()).listener_facts().unwrap_err();
        let found = error.mistakes.iter().find_map(|mistake| match mistake {
            Mistake::Value { variable, fault, .. } if variable.name() == name => Some(*fault),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("{name}={value} gave {error}"))
    }

    /// CFG-17, CFG-18, CFG-19, CFG-20: neither has a default, and both are named at once.
    #[test]
    fn a_relay_block_needs_a_node_id_and_an_address() {
        let error = reader(&[]).listener_facts().unwrap_err();
        assert_eq!(error.missing, [Variable::NodeId, Variable::RelayBindHostname]);
        assert_eq!(error.mistakes, []);
        let text = error.to_string();
        assert!(text.starts_with("missing COREFLOW_NODE_ID, COREFLOW_RELAY_BIND_HOSTNAME ("), "{text}");
    }

    /// CFG-17, CFG-19, CFG-21, CFG-27.
    #[test]
    fn the_port_defaults_and_no_pair_means_no_hub() {
        let expected = ListenerFacts {
            node_id: "node-a".into(),
            bind_hostname: "192.0.2.15".into(),
            bind_port: 8443,
            vpn: None,
        };
        assert_eq!(facts(&[]), Ok(expected.clone()));
        let given = facts(&[("COREFLOW_RELAY_BIND_PORT", "9443")]);
        assert_eq!(given, Ok(ListenerFacts { bind_port: 9443, ..expected.clone() }));
        let empty = facts(&[("COREFLOW_VPN_BIND_HOSTNAME", ""), ("COREFLOW_VPN_QUIC_PORT", "")]);
        assert_eq!(empty, Ok(expected));
    }

    /// CFG-24, CFG-25: one address for binding and advertising, and one UDP port.
    #[test]
    fn the_pair_configures_a_hub() {
        let pair = [("COREFLOW_VPN_BIND_HOSTNAME", "192.0.2.16"), ("COREFLOW_VPN_QUIC_PORT", "51820")];
        let vpn = VpnFacts { address: Ipv4Addr::new(192, 0, 2, 16), quic_port: 51820, unavailable: None };
        assert_eq!(facts(&pair).unwrap().vpn, Some(vpn));
    }

    /// CFG-26: half a pair is refused by the name of the missing one, also when the present one is unusable.
    #[test]
    fn half_a_pair_names_the_missing_one() {
        let [address, port] = [Variable::VpnBindHostname, Variable::VpnQuicPort];
        let error = facts(&[("COREFLOW_VPN_BIND_HOSTNAME", "192.0.2.16")]).unwrap_err();
        assert_eq!(error.mistakes, [Mistake::HalfPair { missing: port, present: address }]);
        let error = facts(&[("COREFLOW_VPN_QUIC_PORT", "51820")]).unwrap_err();
        assert_eq!(error.mistakes, [Mistake::HalfPair { missing: address, present: port }]);
        assert_eq!(
            error.to_string(),
            "COREFLOW_VPN_BIND_HOSTNAME is missing while COREFLOW_VPN_QUIC_PORT is set; set both or neither"
        );
        let error = facts(&[("COREFLOW_VPN_QUIC_PORT", "0")]).unwrap_err();
        assert_eq!(error.mistakes.len(), 2, "{error}");
    }

    /// CFG-23: a unicast IPv4 literal only.
    #[test]
    fn the_hub_binds_unicast_ipv4_only() {
        for value in [
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::1",
            "2001:db8::1",
            "hub.example.com",
            "192.0.2",
            "192.0.2.016",
            "192.0.2.16:51820",
            " 192.0.2.16",
        ] {
            assert_eq!(fault("COREFLOW_VPN_BIND_HOSTNAME", value), ValueFault::NotUnicastIpv4, "{value}");
        }
        for value in ["1.0.0.0", "10.0.0.1", "127.0.0.1", "223.255.255.255"] {
            assert!(parse_unicast_ipv4(value).is_ok(), "{value}");
        }
    }

    /// CFG-21, CFG-25: a port is a plain decimal from 1 to 65535.
    #[test]
    fn ports_have_one_spelling() {
        for name in ["COREFLOW_RELAY_BIND_PORT", "COREFLOW_VPN_QUIC_PORT"] {
            for value in ["0", "65536", "+8443", "08443", "8443 ", "0x20", "8443.0", "-1", "https"] {
                assert_eq!(fault(name, value), ValueFault::Port, "{name}={value}");
            }
        }
        assert_eq!((parse_port("1"), parse_port("65535")), (Ok(1), Ok(65535)));
    }

    /// CFG-17, CFG-19.
    #[test]
    fn ids_and_addresses_have_their_form() {
        for value in ["node a", "node/a", "knoten-ä", &"a".repeat(129)] {
            assert_eq!(fault("COREFLOW_NODE_ID", value), ValueFault::NodeId, "{value}");
        }
        assert_eq!(fault("COREFLOW_NODE_ID", "node-a\n"), ValueFault::ControlCharacter);
        assert!(parse_node_id(&"aZ0._:-".repeat(18)).is_ok());

        for value in ["[::1]", "192.0.2.15:8443", "a..b", "-a", "a-", "a_b", "256.0.0.1", "192.0.2", "*"] {
            assert_eq!(fault("COREFLOW_RELAY_BIND_HOSTNAME", value), ValueFault::BindHostname, "{value}");
        }
        for value in ["0.0.0.0", "::1", "relay.example.com", "localhost"] {
            assert!(parse_bind_hostname(value).is_ok(), "{value}");
        }
    }
}
