//! The network file of the stand: the contract's form of a network (contract, section 6), as Cloudly would
//! push it, and the snapshot that relayd would make of it for the daemon (VPN-31).

use std::net::Ipv4Addr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coreflow_ipc::messages::vpn_network::{Grants, Held, Prefix, SNAPSHOT_SCHEMA, Snapshot, SnapshotMember};
use serde_json::{Value, json};
use time::OffsetDateTime;

/// A network as Cloudly compiles it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Id of the authority.
    pub authority: String,
    /// Its generation.
    pub generation: u64,
    /// The network's revision.
    pub revision: u64,
    /// The range of the members' own addresses.
    pub control_prefix: Prefix,
    /// Who may have a session.
    pub members: Vec<Member>,
    /// Who may open traffic to whom, by node id.
    pub grants: Vec<(String, String)>,
}

/// A member of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node_id: String,
    /// Its X25519 key.
    pub public_key: [u8; 32],
    /// Its address in the control prefix.
    pub address: Ipv4Addr,
    /// The ranges behind it.
    pub prefixes: Vec<Prefix>,
    /// Unix milliseconds at which its membership ends.
    pub expires_at: u64,
}

/// Reads `a.b.c.d/n`.
///
/// # Errors
/// The text, when it is no prefix.
pub fn prefix(text: &str) -> Result<Prefix, String> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let (address, length) = (address.parse().ok()?, length.parse().ok()?);
        (length <= 32).then_some(Prefix { address, length })
    });
    parsed.ok_or_else(|| format!("{text:?} is no IPv4 prefix"))
}

impl Network {
    /// The file's text.
    pub fn text(&self) -> String {
        let member = |member: &Member| {
            let prefixes: Vec<String> = member.prefixes.iter().map(Prefix::to_string).collect();
            json!({
                "nodeId": member.node_id,
                "publicKey": STANDARD.encode(member.public_key),
                "address": member.address.to_string(),
                "prefixes": prefixes,
                "expiresAt": member.expires_at,
            })
        };
        let grant = |(from, to): &(String, String)| json!({ "from": from, "to": to });
        let network = json!({
            "authority": { "id": self.authority, "generation": self.generation },
            "revision": self.revision,
            "controlPrefix": self.control_prefix.to_string(),
            "members": self.members.iter().map(member).collect::<Vec<_>>(),
            "grants": self.grants.iter().map(grant).collect::<Vec<_>>(),
        });
        format!("{network:#}\n")
    }

    /// Reads what [`Network::text`] wrote.
    ///
    /// # Errors
    /// Which member is missing or says nothing.
    pub fn read(text: &str) -> Result<Self, String> {
        let network: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let members = list(&network, "members")?.iter().map(read_member).collect::<Result<_, _>>()?;
        let grant = |grant: &Value| Ok((string(grant, "from")?, string(grant, "to")?));
        Ok(Self {
            authority: string(&network["authority"], "id")?,
            generation: number(&network["authority"], "generation")?,
            revision: number(&network, "revision")?,
            control_prefix: prefix(&string(&network, "controlPrefix")?)?,
            members,
            grants: list(&network, "grants")?.iter().map(grant).collect::<Result<_, String>>()?,
        })
    }

    /// What the daemon is told.
    ///
    /// # Errors
    /// A grant that names no member, or a time that no calendar has.
    pub fn snapshot(&self) -> Result<Snapshot, String> {
        let place = |node: &str| {
            let found = self.members.iter().position(|member| member.node_id == node);
            found.ok_or_else(|| format!("a grant names {node:?}, which is no member"))
        };
        let mut grants = Grants::none(self.members.len());
        for (from, to) in &self.grants {
            grants.grant(place(from)?, place(to)?);
        }
        let member = |member: &Member| {
            Ok(SnapshotMember {
                node_id: member.node_id.clone(),
                public_key: member.public_key,
                address: member.address,
                prefixes: member.prefixes.clone(),
                enabled: true,
                expires_at: iso(member.expires_at)?,
            })
        };
        let digest = ring::digest::digest(&ring::digest::SHA256, self.text().as_bytes());
        Ok(Snapshot {
            schema_version: SNAPSHOT_SCHEMA,
            network: Held {
                authority: self.authority.clone(),
                generation: self.generation,
                revision: self.revision,
                control_prefix: self.control_prefix,
                digest: digest.as_ref().try_into().expect("SHA-256 has 32 bytes"),
            },
            members: self.members.iter().map(member).collect::<Result<_, String>>()?,
            grants,
        })
    }
}

fn read_member(member: &Value) -> Result<Member, String> {
    let address = string(member, "address")?;
    let prefixes = list(member, "prefixes")?.iter();
    Ok(Member {
        node_id: string(member, "nodeId")?,
        public_key: super::keys::decode(&string(member, "publicKey")?)?,
        address: address.parse().map_err(|_| format!("{address:?} is no IPv4 address"))?,
        prefixes: prefixes.map(|text| prefix(text.as_str().unwrap_or_default())).collect::<Result<_, _>>()?,
        expires_at: number(member, "expiresAt")?,
    })
}

fn string(of: &Value, name: &str) -> Result<String, String> {
    of[name].as_str().map(str::to_owned).ok_or_else(|| format!("{name} is no text"))
}

fn number(of: &Value, name: &str) -> Result<u64, String> {
    of[name].as_u64().ok_or_else(|| format!("{name} is no whole number"))
}

fn list<'a>(of: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    of[name].as_array().ok_or_else(|| format!("{name} is no list"))
}

/// ISO-8601 in UTC with milliseconds, of Unix milliseconds.
fn iso(milliseconds: u64) -> Result<String, String> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(milliseconds) * 1_000_000)
        .map_err(|_| format!("{milliseconds} is in no calendar"))?;
    Ok(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        let member = |node_id: &str, last: u8| Member {
            node_id: node_id.to_owned(),
            public_key: [last; 32],
            address: Ipv4Addr::new(10, 99, 0, last),
            prefixes: vec![prefix(&format!("10.1.{last}.0/24")).unwrap()],
            expires_at: 1_769_817_600_007,
        };
        Network {
            authority: "authority".to_owned(),
            generation: 3,
            revision: 9,
            control_prefix: prefix("10.99.0.0/24").unwrap(),
            members: vec![member("a", 2), member("b", 3)],
            grants: vec![("b".to_owned(), "a".to_owned())],
        }
    }

    /// What is written is read, and the daemon's own words appear in the snapshot alone.
    #[test]
    fn a_network_comes_back_and_makes_a_snapshot() {
        let network = network();
        let text = network.text();
        assert_eq!(Network::read(&text), Ok(network.clone()));
        for word in ["schemaVersion", "enabled", "2026-01-31"] {
            assert!(!text.contains(word), "{text}");
        }
        let snapshot = network.snapshot().unwrap();
        assert_eq!(snapshot.members[0].expires_at, "2026-01-31T00:00:00.007Z");
        assert!(snapshot.grants.granted(1, 0) && !snapshot.grants.granted(0, 1));
    }

    /// What is no network, and a grant to a stranger, are refused by name.
    #[test]
    fn what_is_no_network_is_refused() {
        let whole = network().text();
        for (from, to) in [("\"revision\": 9", "\"revision\": \"9\""), ("/24", "/33"), ("members", "member")]
        {
            assert!(Network::read(&whole.replace(from, to)).is_err(), "{from} as {to}");
        }
        let mut network = network();
        network.grants.push(("a".to_owned(), "c".to_owned()));
        assert!(network.snapshot().unwrap_err().contains("\"c\""));
    }
}
