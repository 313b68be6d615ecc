//! Reads the answer to `registerClusterRelay`: the offer first, then every member exactly (REG-10,
//! REG-37 – REG-39, REG-45).

use coreflow_ipc::typedrequest::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    contract::{
        registration::RelayRegistered,
        values::{Reference, from_object},
    },
    protocol::{self, Disagreement, Kind},
};

/// Why an answer is no acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAccepted {
    /// It was given in a contract that this build does not serve.
    Offer(Disagreement),
    /// A member is missing, unknown or unreadable; its path.
    Unreadable(&'static str),
}

/// Reads an answer.
pub fn read(body: &Body) -> Result<RelayRegistered, NotAccepted> {
    #[derive(Deserialize)]
    struct Offered<'a> {
        #[serde(borrow, default)]
        protocol: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Members<'a> {
        #[serde(borrow, default)]
        protocol: Option<&'a RawValue>,
        #[serde(borrow, default)]
        origin: Option<&'a RawValue>,
        #[serde(borrow, default)]
        credential: Option<&'a RawValue>,
        #[serde(borrow, default)]
        registration: Option<&'a RawValue>,
    }
    let offered: Offered<'_> = body.read().map_err(|_| NotAccepted::Unreadable("body"))?;
    // An answer without any offer is no statement about a contract; one with a foreign offer is.
    let Some(protocol) = offered.protocol else { return Err(NotAccepted::Unreadable("protocol")) };
    let protocol = protocol::judge(Kind::CloudlyClient, Some(protocol)).map_err(|disagreement| {
        match disagreement.peer {
            Some(_) => NotAccepted::Offer(disagreement),
            None => NotAccepted::Unreadable("protocol"),
        }
    })?;
    let members: Members<'_> = body.read().map_err(|_| NotAccepted::Unreadable("set of members"))?;
    debug_assert!(members.protocol.is_some(), "both readers see the same body");
    Ok(RelayRegistered {
        protocol,
        origin: members
            .origin
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .ok_or(NotAccepted::Unreadable("origin"))?,
        credential: reference(members.credential, "credential")?,
        registration: reference(members.registration, "registration")?,
    })
}

fn reference(raw: Option<&RawValue>, path: &'static str) -> Result<Reference, NotAccepted> {
    raw.and_then(from_object).ok_or(NotAccepted::Unreadable(path))
}
