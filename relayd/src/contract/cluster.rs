//! `getClusterConfig`, `pushClusterConfig` and `getCertificateForDomain`.
//!
//! `Cluster` is Cloudly's document and wider than what is read here, so unknown members are admitted;
//! the relay block itself is exact-key.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::values::object;

/// The part of `ConfigState` that decides whether the cluster has a relay. The block's own text is
/// kept, to be read exactly (LIS-09).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigState<'a> {
    /// The cluster document.
    #[serde(borrow)]
    pub config_data: Cluster<'a>,
}

/// `Cluster`, as far as it is read.
#[derive(Deserialize)]
pub struct Cluster<'a> {
    /// The cluster's members.
    #[serde(borrow)]
    pub data: ClusterData<'a>,
}

/// `Cluster.data`, as far as it is read.
#[derive(Deserialize)]
pub struct ClusterData<'a> {
    /// The relay block, if the cluster has one.
    #[serde(borrow, default)]
    pub relay: Option<&'a RawValue>,
}

/// The relay block, exact-key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayBlock {
    /// Where the cluster's nodes dial their relay.
    pub origin: String,
}

/// The request for the listener's certificate.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GetCertificate<'a> {
    /// The identity document.
    pub identity: &'a RawValue,
    /// The origin's host.
    pub domain_name: &'a str,
    /// Always `ssl`.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// The answer with the certificate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateAnswer {
    /// The certificate.
    #[serde(deserialize_with = "object")]
    pub certificate: Certificate,
}

/// `Cert`, exact-key. Holds the private key: no Debug, wiped when dropped (LIS-17).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Certificate {
    /// Cloudly's id of it.
    pub id: String,
    /// The domain that it was issued for.
    pub domain_name: String,
    /// Unix milliseconds of its issue.
    pub created: u64,
    /// Unix milliseconds of its end.
    pub valid_until: u64,
    /// PEM of the private key.
    pub private_key: Zeroizing<String>,
    /// PEM of the chain, the leaf first.
    pub public_key: String,
    /// PEM of the signing request.
    pub csr: String,
}
