//! `registerCloudlyClientSession`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{offer::Offer, values::object};

/// The request; the identity travels as Cloudly wrote it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisterSession<'a> {
    /// The identity document.
    pub identity: &'a RawValue,
    /// What kind of client this is.
    pub client_type: &'static str,
    /// This build's offer (PROT-04).
    pub protocol: Offer,
}

/// The answer, exact-key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRegistered {
    /// Cloudly's offer (PROT-06).
    #[serde(deserialize_with = "object")]
    pub protocol: Offer,
}

/// A request that names the caller by its identity alone.
#[derive(Serialize)]
pub struct Identified<'a> {
    /// The identity document.
    pub identity: &'a RawValue,
}
