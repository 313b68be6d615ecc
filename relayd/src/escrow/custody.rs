//! Who may hold what: the checks of a hold in their order, and whether anything is held at all (ESC-08 –
//! ESC-15, ESC-53, ESC-54).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Body, Ids, Outcome, plain_refusal, write_answer},
};

use super::{Action, Carried, Escrow, RegistrationRefusal, precedence, precedence::Order};
use crate::{
    contract::{
        renewal::{Hold, Invalid, binders::in_scope, validate_hold},
        runtime::Binding,
        values::Id,
    },
    refusals::{
        ESCROW_NODE_NOT_CARRIED, ESCROW_RUN_FOREIGN_SESSION, ESCROW_RUN_INVALID, ESCROW_RUN_STALE,
        ESCROW_RUN_UNORDERED,
    },
    session::Connection,
};

/// A hold that waits for its validation.
pub(super) struct Arrived {
    pub(super) connection: Connection,
    pub(super) method: String,
    pub(super) ids: Ids,
    pub(super) body: Body,
    /// The session of the node that it names, as it was when the hold arrived.
    pub(super) binding: Option<Binding>,
}

impl Arrived {
    pub(super) fn answer(&self, outcome: &Outcome) -> Action {
        Action::AnswerUp {
            connection: self.connection,
            frame: write_answer(&self.method, &self.ids, outcome),
        }
    }
}

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

    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Invalid(path) => plain_refusal(&format!("{ESCROW_RUN_INVALID}: {path}")),
            Self::Ended(_) | Self::NotCarried | Self::ForeignSession | Self::Stale | Self::Unordered => {
                plain_refusal(self.name())
            }
        }
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

impl Escrow {
    /// Validity, custody, carried, session, precedence: the first that fails names the refusal. `Err` also
    /// states the node, where the hold is valid.
    pub(super) fn judge(
        &self,
        arrived: &Arrived,
        now: Now,
        carried: &impl Carried,
    ) -> Result<Hold, (Refused, Option<Id>)> {
        let hold = validate_hold(&arrived.body, now.wall).map_err(|path| (Refused::Invalid(path), None))?;
        let node = &hold.session.node_id;
        let second = carried.carried(node).map(|(binding, _)| binding);
        match self.custody.refused().map_or_else(|| self.permit(&hold, arrived, second), Err) {
            Ok(()) => Ok(hold),
            Err(refused) => Err((refused, Some(node.clone()))),
        }
    }

    /// `second` is the node's session at the end of the validation; it has to be the one that the hold
    /// names and the one that stood when it arrived (ESC-12 – ESC-15).
    fn permit(&self, hold: &Hold, arrived: &Arrived, second: Option<&Binding>) -> Result<(), Refused> {
        let (Some(first), Some(second)) = (&arrived.binding, second) else {
            return Err(Refused::NotCarried);
        };
        let same = first == second && hold.session == *second;
        if !same || !hold.run.renewals.iter().all(|renewal| in_scope(second, renewal)) {
            return Err(Refused::ForeignSession);
        }
        let node = &hold.session.node_id;
        let held =
            self.runs.get(node).map_or(Order::Replaces, |held| precedence::order(&hold.run, &held.run));
        let known = self
            .known(node, second)
            .map_or(Order::Replaces, |known| precedence::order_projections(&hold.run.projection, known));
        match (held, known) {
            (Order::Unordered, _) | (_, Order::Unordered) => Err(Refused::Unordered),
            (Order::Stale, _) | (_, Order::Stale) => Err(Refused::Stale),
            (Order::Replaces, Order::Replaces) => Ok(()),
        }
    }
}
