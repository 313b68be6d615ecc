//! The relay's own calls on its session: why each is made, and what an answer to an announcement
//! means.

use coreflow_ipc::{
    messages::relayd::Identity,
    typedrequest::{Body, UNKNOWN_METHOD},
};
use serde_json::value::RawValue;

use super::{Connection, Kind, PROTOCOL_REFUSED, SessionRegistered, compatible, refused_by_cloudly};
use crate::{contract::cluster::GetCertificate, protocol::Disagreement, registration::Answered};

/// A read that the start makes of Cloudly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnCall {
    /// `getClusterConfig` (SES-11).
    ClusterConfig,
    /// `getCertificateForDomain` (LIS-12).
    Certificate {
        /// The origin's host.
        domain: String,
    },
}

impl OwnCall {
    /// The method that is called.
    pub fn method(&self) -> &'static str {
        match self {
            Self::ClusterConfig => "getClusterConfig",
            Self::Certificate { .. } => "getCertificateForDomain",
        }
    }
}

/// A read and the number that its reader knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The reader's number.
    pub number: u64,
    /// What is read.
    pub call: OwnCall,
}

/// Why a read has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// Cloudly's own words (LOG-11).
    Refused(String),
    /// Class and code of a call that failed (SES-16).
    Failed(String),
}

impl std::fmt::Display for CallFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(text) => write!(f, "refused: {text}"),
            Self::Failed(class) => write!(f, "failed: {class}"),
        }
    }
}

/// Why a call was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    Announce(Connection),
    Register,
    RenewCertificate,
    Observe,
    Read(Read),
}

/// Why an announcement did not register the session.
pub(super) enum NotAnnounced {
    /// The offers disagree.
    Offer(Disagreement),
    /// The answer is not the contract's.
    Unusable(String),
    /// Another refusal, or a call that failed.
    Failed(String),
}

/// The identity as Cloudly wrote it, to be sent back verbatim.
pub(super) fn document(identity: &Identity) -> Box<RawValue> {
    RawValue::from_string(identity.document.expose().to_owned())
        .expect("the supervisor hands over an identity that it parsed")
}

/// The request for the certificate of `domain`.
pub(super) fn get_certificate(identity: &Identity, domain: &str) -> Body {
    Body::of(&GetCertificate { identity: &document(identity), domain_name: domain, kind: "ssl" })
}

/// Reads an answer to `registerCloudlyClientSession` (PROT-06).
pub(super) fn announced(answered: &Answered) -> Result<(), NotAnnounced> {
    match answered {
        Answered::Response(body) => {
            let own = Kind::CloudlyClient.own_offer();
            let Ok(SessionRegistered { protocol: peer }) = body.read() else {
                let line = "registerCloudlyClientSession was answered without a valid protocol".to_owned();
                return Err(NotAnnounced::Unusable(line));
            };
            if compatible(&own, &peer) {
                return Ok(());
            }
            Err(NotAnnounced::Offer(Disagreement { kind: Kind::CloudlyClient, own, peer: Some(peer) }))
        }
        Answered::Refused(error) if error.name() == PROTOCOL_REFUSED => {
            Err(NotAnnounced::Offer(refused_by_cloudly(&error.data)))
        }
        // A Cloudly of another age does not know the method: it states no offer (OPS-02).
        Answered::Refused(error) if error.text == UNKNOWN_METHOD => {
            let own = Kind::CloudlyClient.own_offer();
            Err(NotAnnounced::Offer(Disagreement { kind: Kind::CloudlyClient, own, peer: None }))
        }
        Answered::Refused(error) => Err(NotAnnounced::Failed(error.text.clone())),
        Answered::Failed(class) => Err(NotAnnounced::Failed(class.clone())),
    }
}
