//! `VpnNetwork`: who may reach whom through the hub, and `validateClusterVpnNetwork` (VPN-05, VPN-07, VPN-14,
//! VPN-32).
//!
//! A network is exact-key, so that a private key in it makes it none; what is wrong with it is named by a
//! path, never by a value. It is held in the contract's form: expiry in Unix milliseconds and membership by
//! presence. The order of members, prefixes and grants means nothing, and a network is kept in an order of
//! its own, so that two of the same content are equal.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    ops::RangeInclusive,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use coreflow_ipc::messages::vpn_network::{Grants, MOST_GRANTS, MOST_MEMBERS, MOST_PREFIXES, Prefix};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    exact::{each, members},
    values::{Generation, Id, from_object},
};

mod addresses;

use addresses::{Occupied, first, last, parse_prefix};

/// Bits of a control prefix: at least the one that a node is told, at most such that beside the network's address,
/// the hub's and the broadcast's there is one of a member.
const CONTROL_PREFIX_BITS: RangeInclusive<u8> = 1..=30;

/// A valid network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VpnNetwork {
    /// Id of the authority that compiled it.
    pub authority: Id,
    /// Generation of that authority.
    pub generation: Generation,
    /// The network's revision under it.
    pub revision: Generation,
    /// Where the members' addresses lie.
    pub control_prefix: Prefix,
    /// By node id.
    pub members: Vec<Member>,
    /// Among the members, by their places here.
    pub grants: Grants,
}

/// A member; one that is not in the network is none (VPN-15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node_id: Id,
    /// Its X25519 public key.
    pub public_key: [u8; 32],
    /// Its address in the control prefix.
    pub address: Ipv4Addr,
    /// The ranges behind it, in order.
    pub prefixes: Vec<Prefix>,
    /// Unix milliseconds.
    pub expires_at: u64,
}

/// The body of `applyClusterVpnNetwork`, and of Cloudly's answer to `getClusterVpnNetwork`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarriedNetwork<'a> {
    /// The network as it was written, or `null`.
    #[serde(borrow)]
    pub network: &'a RawValue,
}

/// The answer to `applyClusterVpnNetwork`.
#[derive(Serialize)]
pub struct NetworkApplied<'a> {
    /// What became of it.
    pub state: NetworkState,
    /// The revision that is held afterwards.
    pub revision: Option<u64>,
    /// Why it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

/// What became of a pushed network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkState {
    /// It is served.
    Applied,
    /// It is the held one already.
    Replayed,
    /// It is not served, though nothing is wrong with it.
    Failed,
}

/// The first thing that makes a network invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidNetwork {
    /// Where it is: the contract's member names and positions, such as `members[3].address`. A member that the
    /// contract does not know is named only where its name looks like one.
    pub path: String,
}

impl InvalidNetwork {
    /// What stands at `path` is invalid.
    pub fn at(path: &str) -> Self {
        Self { path: path.to_owned() }
    }
}

/// `validateClusterVpnNetwork`: the network, or the first reason why it is none. Its members are looked at in the
/// contract's order.
///
/// # Errors
/// [`InvalidNetwork`].
pub fn validate_cluster_vpn_network(network: &RawValue) -> Result<VpnNetwork, InvalidNetwork> {
    let names = ["authority", "revision", "controlPrefix", "members", "grants"];
    let [authority, revision, control_prefix, written_members, written_grants] =
        members(network, names).map_err(|wrong| InvalidNetwork { path: wrong.below("network", "") })?;
    let (authority, generation) = read_authority(authority)?;
    let revision = parse(revision).ok_or_else(|| InvalidNetwork::at("revision"))?;
    let control_prefix = parse_text(control_prefix, parse_prefix)
        .filter(|prefix| CONTROL_PREFIX_BITS.contains(&prefix.length))
        .ok_or_else(|| InvalidNetwork::at("controlPrefix"))?;
    let read_members = read_members(written_members, control_prefix)?;
    let grants = read_grants(written_grants, &read_members)?;
    Ok(VpnNetwork { authority, generation, revision, control_prefix, members: read_members, grants })
}

fn read_authority(authority: &RawValue) -> Result<(Id, Generation), InvalidNetwork> {
    let [id, generation] = members(authority, ["id", "generation"])
        .map_err(|wrong| InvalidNetwork { path: wrong.below("authority", ".") })?;
    let id = parse(id).ok_or_else(|| InvalidNetwork::at("authority.id"))?;
    let generation = parse(generation).ok_or_else(|| InvalidNetwork::at("authority.generation"))?;
    Ok((id, generation))
}

/// What was seen of the members so far; each has to be of one.
#[derive(Default)]
struct Seen {
    nodes: BTreeSet<Id>,
    keys: BTreeSet<[u8; 32]>,
    addresses: BTreeSet<Ipv4Addr>,
    occupied: Occupied,
    prefixes: usize,
}

/// The members, by node id.
fn read_members(written: &RawValue, control_prefix: Prefix) -> Result<Vec<Member>, InvalidNetwork> {
    let (mut read, mut seen) = (Vec::new(), Seen::default());
    each(written, |index, member| {
        if index == MOST_MEMBERS {
            return Err(InvalidNetwork::at("members"));
        }
        read.push(read_member(member, index, control_prefix, &mut seen)?);
        Ok(())
    })
    .map_err(|inner| inner.unwrap_or_else(|| InvalidNetwork::at("members")))?;
    read.sort_unstable_by(|one: &Member, other: &Member| one.node_id.cmp(&other.node_id));
    Ok(read)
}

fn read_member(
    member: &RawValue,
    index: usize,
    control_prefix: Prefix,
    seen: &mut Seen,
) -> Result<Member, InvalidNetwork> {
    let invalid = |what: &str| InvalidNetwork { path: format!("members[{index}].{what}") };
    let names = ["nodeId", "publicKey", "address", "prefixes", "expiresAt"];
    let [node_id, public_key, address, prefixes, expires_at] = members(member, names)
        .map_err(|wrong| InvalidNetwork { path: wrong.below(&format!("members[{index}]"), ".") })?;
    let node_id = parse::<Id>(node_id)
        .filter(|node| seen.nodes.insert(node.clone()))
        .ok_or_else(|| invalid("nodeId"))?;
    let public_key = parse_text(public_key, parse_key)
        .filter(|key| seen.keys.insert(*key))
        .ok_or_else(|| invalid("publicKey"))?;
    let address = parse_text(address, |text| text.parse::<Ipv4Addr>().ok())
        .filter(|address| is_members(control_prefix, *address))
        .filter(|address| seen.addresses.insert(*address))
        .ok_or_else(|| invalid("address"))?;
    let prefixes = read_prefixes(prefixes, index, control_prefix, seen)?;
    let expires_at = parse::<Generation>(expires_at).ok_or_else(|| invalid("expiresAt"))?.get();
    Ok(Member { node_id, public_key, address, prefixes, expires_at })
}

fn read_prefixes(
    written: &RawValue,
    index: usize,
    control_prefix: Prefix,
    seen: &mut Seen,
) -> Result<Vec<Prefix>, InvalidNetwork> {
    let list = |at: usize| InvalidNetwork { path: format!("members[{index}].prefixes[{at}]") };
    let whole = || InvalidNetwork { path: format!("members[{index}].prefixes") };
    let mut read = Vec::new();
    each(written, |at, prefix| {
        seen.prefixes += 1;
        if seen.prefixes > MOST_PREFIXES {
            return Err(whole());
        }
        let prefix = parse_text(prefix, parse_prefix)
            .filter(|prefix| last(*prefix) < first(control_prefix) || last(control_prefix) < first(*prefix))
            .filter(|prefix| seen.occupied.take(*prefix, index))
            .ok_or_else(|| list(at))?;
        read.push(prefix);
        Ok(())
    })
    .map_err(|inner| inner.unwrap_or_else(whole))?;
    read.sort_unstable();
    read.dedup();
    Ok(read)
}

/// A grant as it is written: there may be a million, so nothing of one is copied.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant<'a> {
    #[serde(borrow)]
    from: Cow<'a, str>,
    #[serde(borrow)]
    to: Cow<'a, str>,
}

/// The grants among members that stand in the order of their node ids.
fn read_grants(written: &RawValue, read_members: &[Member]) -> Result<Grants, InvalidNetwork> {
    let places: BTreeMap<&str, usize> =
        read_members.iter().enumerate().map(|(place, member)| (member.node_id.as_str(), place)).collect();
    let mut grants = Grants::none(read_members.len());
    each(written, |index, grant| {
        if index == MOST_GRANTS {
            return Err(InvalidNetwork::at("grants"));
        }
        if let Some(Grant { from, to }) = from_object(grant)
            && let (Some(from), Some(to)) = (places.get(&*from), places.get(&*to))
        {
            grants.grant(*from, *to);
            return Ok(());
        }
        // What is wrong with it is looked for only where something is.
        let [from, to] = members(grant, ["from", "to"])
            .map_err(|wrong| InvalidNetwork { path: wrong.below(&format!("grants[{index}]"), ".") })?;
        let place = |node, what: &str| {
            parse_text(node, |node| places.get(node).copied())
                .ok_or_else(|| InvalidNetwork { path: format!("grants[{index}].{what}") })
        };
        grants.grant(place(from, "from")?, place(to, "to")?);
        Ok(())
    })
    .map_err(|inner| inner.unwrap_or_else(|| InvalidNetwork::at("grants")))?;
    Ok(grants)
}

/// Whether a member may have this address: the first two of the prefix are the network's and the hub's, the
/// last is the broadcast's.
fn is_members(control_prefix: Prefix, address: Ipv4Addr) -> bool {
    let address = u32::from(address);
    first(control_prefix) + 1 < address && address < last(control_prefix)
}

fn parse_key(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Reads a text, which is copied only where it has escapes.
fn parse_text<T>(raw: &RawValue, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    parse::<Text<'_>>(raw).and_then(|text| read(&text.0))
}

#[cfg(test)]
mod tests;
