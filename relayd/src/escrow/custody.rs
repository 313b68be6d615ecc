//! Why a hold is refused, and whether anything is held at all (ESC-08 – ESC-16, ESC-53, ESC-54, ESC-58).

use coreflow_ipc::typedrequest::{Outcome, plain_refusal};

use super::RegistrationRefusal;
use crate::{
    contract::renewal::Invalid,
    refusals::{
        ESCROW_NODE_NOT_CARRIED, ESCROW_RUN_FOREIGN_SESSION, ESCROW_RUN_INVALID, ESCROW_RUN_STALE,
        ESCROW_RUN_UNORDERED,
    },
};

/// Why a hold is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    Invalid(Invalid),
    /// Cloudly stated that it does not dispatch to this relay (ESC-53, ESC-54).
    Ended(RegistrationRefusal),
    NotCarried,
    ForeignSession,
    Stale,
    Unordered,
}

impl Refused {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Invalid(_) => ESCROW_RUN_INVALID,
            Self::Ended(refusal) => refusal.name(),
            Self::NotCarried => ESCROW_NODE_NOT_CARRIED,
            Self::ForeignSession => ESCROW_RUN_FOREIGN_SESSION,
            Self::Stale => ESCROW_RUN_STALE,
            Self::Unordered => ESCROW_RUN_UNORDERED,
        }
    }

    /// Where an invalid run is invalid; never what stands there.
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Invalid(Invalid(path)) => Some(path),
            Self::Ended(_) | Self::NotCarried | Self::ForeignSession | Self::Stale | Self::Unordered => None,
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let name = self.name();
        self.path().map_or_else(|| plain_refusal(name), |path| plain_refusal(&format!("{name}: {path}")))
    }
}

/// Whether runs are held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Custody {
    #[default]
    Open,
    /// Cloudly refused this relay's registration; what it stated.
    Ended(RegistrationRefusal),
    /// The escrow stopped.
    Stopped,
}

impl Custody {
    /// Ends custody; a stop stands, and so does a superseded credential (ESC-54).
    pub(super) fn end(&mut self, custody: Self) {
        match (*self, custody) {
            (Self::Stopped, _) | (_, Self::Open) => {}
            (Self::Ended(RegistrationRefusal::CredentialGenerationStale), Self::Ended(_)) => {}
            (Self::Open | Self::Ended(_), Self::Ended(_) | Self::Stopped) => *self = custody,
        }
    }

    /// An acceptance of this relay's registration lets it hold runs again (ESC-53).
    pub(super) fn accepted(&mut self) {
        if let Self::Ended(refusal) = self
            && *refusal != RegistrationRefusal::CredentialGenerationStale
        {
            *self = Self::Open;
        }
    }

    /// The refusal of a hold while custody is ended.
    pub(super) fn refused(self) -> Option<Refused> {
        match self {
            Self::Open | Self::Stopped => None,
            Self::Ended(refusal) => Some(Refused::Ended(refusal)),
        }
    }

    /// Why nothing is held, for the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Ended(refusal) => refusal.name(),
            Self::Stopped => "stop",
        }
    }
}
