//! Which refusals of this relay's registration end custody (ESC-50 – ESC-56).

use crate::refusals::{
    CLUSTER_NOT_ENABLED, CREDENTIAL_STALE, IDENTITY_UNVERIFIED, NODE_FOREIGN, NODE_UNKNOWN,
    SEQUENCE_NOT_ADVANCING,
};

/// A refusal of a registration, as Cloudly's `ClusterRelayError` words it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationRefusal {
    /// Nobody enabled a relay for the cluster.
    ClusterNotEnabled,
    /// The node belongs to another cluster.
    NodeForeign,
    /// The node is not enrolled.
    NodeUnknown,
    /// The credential was not accepted, or Cloudly could not read its own records (ESC-61).
    IdentityUnverified,
    /// An older registration arrived after a newer one.
    SequenceNotAdvancing,
    /// The credential was rotated away.
    CredentialGenerationStale,
}

impl RegistrationRefusal {
    const ALL: [Self; 6] = [
        Self::ClusterNotEnabled,
        Self::NodeForeign,
        Self::NodeUnknown,
        Self::IdentityUnverified,
        Self::SequenceNotAdvancing,
        Self::CredentialGenerationStale,
    ];

    /// `nameClusterRelayRegistrationRefusal`: the refusal that `error.text` states, as its name alone or
    /// before the first `: `. A text that merely contains a name states none (ESC-51).
    pub fn named(text: &str) -> Option<Self> {
        let name = text.split_once(": ").map_or(text, |(name, _)| name);
        Self::ALL.into_iter().find(|refusal| refusal.name() == name)
    }

    /// `statesThisRelayIsNotDispatchedTo`: whether custody ends with it. What could as well mean that
    /// Cloudly is failing keeps custody, since that is when the runs are needed (ESC-56).
    pub fn ends_custody(self) -> bool {
        match self {
            Self::ClusterNotEnabled
            | Self::NodeForeign
            | Self::NodeUnknown
            | Self::SequenceNotAdvancing
            | Self::CredentialGenerationStale => true,
            Self::IdentityUnverified => false,
        }
    }

    /// The refusal's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterNotEnabled => CLUSTER_NOT_ENABLED,
            Self::NodeForeign => NODE_FOREIGN,
            Self::NodeUnknown => NODE_UNKNOWN,
            Self::IdentityUnverified => IDENTITY_UNVERIFIED,
            Self::SequenceNotAdvancing => SEQUENCE_NOT_ADVANCING,
            Self::CredentialGenerationStale => CREDENTIAL_STALE,
        }
    }
}
