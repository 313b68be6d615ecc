//! `RouteTable`: which host is served where and with which key, and `validateClusterRouteTable`
//! (ING-03, ING-04, ING-05, ING-09, ING-10).
//!
//! The table holds private keys. It is kept as the JSON text that arrived, in memory that is wiped; it is
//! validated without copying a key, and what is wrong with it is named by a path, never by material.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::{
    exact::{each, members},
    values::{Generation, Id, is_dns_name},
};

/// A valid table. It has no `Debug`, `Display` or `Serialize` and cannot be cloned; its text has one exit,
/// [`RouteTable::json_for_the_bound_ingress`].
pub struct RouteTable {
    text: Zeroizing<String>,
    revision: Generation,
    routes: usize,
    certificates: usize,
}

impl RouteTable {
    /// `revision`: the one thing that decides whether a table is newer (ING-08).
    pub fn revision(&self) -> Generation {
        self.revision
    }

    /// How many routes it holds.
    pub fn routes(&self) -> usize {
        self.routes
    }

    /// How many certificates it holds.
    pub fn certificates(&self) -> usize {
        self.certificates
    }

    /// The table as Cloudly wrote it, keys and all: for the answer to the bound ingress and nothing else.
    pub fn json_for_the_bound_ingress(&self) -> &str {
        &self.text
    }
}

/// The first thing that makes a table invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTable {
    /// Where it is: the contract's member names and positions, such as `routes[3].certificateId`. A member
    /// that the contract does not know is named only where its name looks like one.
    pub path: String,
}

impl InvalidTable {
    /// What stands at `path` is invalid.
    pub fn at(path: &str) -> Self {
        Self { path: path.to_owned() }
    }

    fn in_list(list: &str, index: usize, member: &str) -> Self {
        Self { path: format!("{list}[{index}]{}{member}", if member.is_empty() { "" } else { "." }) }
    }
}

/// `validateClusterRouteTable`: the table, or the first reason why it is none. Its members are looked at in
/// the contract's order, the routes' certificates last.
pub fn validate_cluster_route_table(table: &RawValue) -> Result<RouteTable, InvalidTable> {
    let names = ["clusterId", "revision", "routes", "certificates"];
    let [cluster_id, revision, routes, certificates] =
        members(table, names).map_err(|wrong| InvalidTable { path: wrong.below("routeTable", "") })?;
    parse::<Id>(cluster_id).ok_or_else(|| InvalidTable::at("clusterId"))?;
    let revision = parse::<Generation>(revision).ok_or_else(|| InvalidTable::at("revision"))?;
    let read_routes = read_routes(routes)?;
    let read_certificates = read_certificates(certificates)?;
    for (index, (host, certificate)) in read_routes.iter().enumerate() {
        let Some(id) = certificate else { continue };
        let covered = read_certificates.get(id).is_some_and(|domains| covers(domains, host));
        if !covered {
            return Err(InvalidTable::in_list("routes", index, "certificateId"));
        }
    }
    Ok(RouteTable {
        text: Zeroizing::new(table.get().to_owned()),
        revision,
        routes: read_routes.len(),
        certificates: read_certificates.len(),
    })
}

/// Each route's host name and the certificate that it names.
fn read_routes(routes: &RawValue) -> Result<Vec<(String, Option<Id>)>, InvalidTable> {
    let (mut read, mut hosts) = (Vec::new(), BTreeSet::new());
    each(routes, |index, route| {
        let invalid = |member: &str| InvalidTable::in_list("routes", index, member);
        let names = ["hostName", "destinations", "certificateId"];
        let [host, destinations, certificate] = members(route, names)
            .map_err(|wrong| InvalidTable { path: wrong.below(&format!("routes[{index}]"), ".") })?;
        let host = parse::<String>(host)
            .filter(|host| is_dns_name(host.strip_prefix("*.").unwrap_or(host)))
            .filter(|host| hosts.insert(host.clone()))
            .ok_or_else(|| invalid("hostName"))?;
        let count = each(destinations, |at, destination| {
            let list = format!("routes[{index}].destinations");
            let [address, port] = members(destination, ["address", "port"])
                .map_err(|wrong| InvalidTable { path: wrong.below(&format!("{list}[{at}]"), ".") })?;
            parse::<String>(address)
                .filter(|address| address.parse::<IpAddr>().is_ok())
                .ok_or_else(|| InvalidTable::in_list(&list, at, "address"))?;
            let port = parse::<u16>(port).filter(|port| *port != 0);
            port.map(drop).ok_or_else(|| InvalidTable::in_list(&list, at, "port"))
        })
        .map_err(|inner| inner.unwrap_or_else(|| invalid("destinations")))?;
        if count == 0 {
            return Err(invalid("destinations"));
        }
        let certificate = match certificate.get() {
            "null" => None,
            _ => Some(parse::<Id>(certificate).ok_or_else(|| invalid("certificateId"))?),
        };
        read.push((host, certificate));
        Ok(())
    })
    .map_err(|inner| inner.unwrap_or_else(|| InvalidTable::at("routes")))?;
    Ok(read)
}

/// The domain names of each certificate, in lower case: one certificate may name as many as there are routes. An id that
/// stands twice would leave open which key a route means.
fn read_certificates(certificates: &RawValue) -> Result<BTreeMap<Id, BTreeSet<String>>, InvalidTable> {
    let mut read = BTreeMap::new();
    each(certificates, |index, certificate| {
        let invalid = |member: &str| InvalidTable::in_list("certificates", index, member);
        let names = ["id", "domainNames", "publicKey", "privateKey"];
        let [id, domains, chain, key] = members(certificate, names)
            .map_err(|wrong| InvalidTable { path: wrong.below(&format!("certificates[{index}]"), ".") })?;
        let id = parse::<Id>(id).filter(|id| !read.contains_key(id)).ok_or_else(|| invalid("id"))?;
        let mut names = BTreeSet::new();
        each(domains, |at, domain| {
            let domain = parse::<String>(domain)
                .ok_or_else(|| InvalidTable::at(&format!("certificates[{index}].domainNames[{at}]")))?;
            names.insert(domain.to_ascii_lowercase());
            Ok(())
        })
        .map_err(|inner| inner.unwrap_or_else(|| invalid("domainNames")))?;
        if !holds_pem(chain, "CERTIFICATE") {
            return Err(invalid("publicKey"));
        }
        if !holds_pem(key, "PRIVATE KEY") {
            return Err(invalid("privateKey"));
        }
        read.insert(id, names);
        Ok(())
    })
    .map_err(|inner| inner.unwrap_or_else(|| InvalidTable::at("certificates")))?;
    Ok(read)
}

fn parse<'a, T: serde::Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Whether a text holds a whole PEM section whose label ends with `label`. The JSON text itself is
/// searched: a key that is unescaped would be a second copy of it.
fn holds_pem(raw: &RawValue, label: &str) -> bool {
    let text = raw.get();
    let mut sections = text.split("-----BEGIN ").skip(1).filter_map(|section| section.split_once("-----"));
    let whole = |name: &str, rest: &str| rest.contains(&format!("-----END {name}-----"));
    text.starts_with('"')
        && !escapes_a_surrogate(text)
        && sections.any(|(name, rest)| name.ends_with(label) && whole(name, rest))
}

/// Whether a JSON text escapes a surrogate, of which no PEM text has a use: one that stands alone is no text to whoever
/// reads the table, and would cost the ingress all of it.
fn escapes_a_surrogate(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = &rest[at + 1..];
        if let [b'u', b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F', ..] = rest {
            return true;
        }
        // What is escaped may be a backslash itself.
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

/// Whether a certificate for `domains` serves `host`: the same name, or one label below a wildcard.
fn covers(domains: &BTreeSet<String>, host: &str) -> bool {
    let wildcard = || host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
    domains.contains(host) || wildcard().is_some_and(|wildcard| domains.contains(&wildcard))
}

#[cfg(test)]
mod tests;
