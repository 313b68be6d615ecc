//! A hold from its arrival to its answer: one at a time, in the order of arrival, with the node's session
//! read before and after the validation (ESC-04, ESC-11 – ESC-17).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Body, Ids, Outcome, Request, UNKNOWN_METHOD, plain_refusal, write_answer},
};

use super::{
    Action, Carried, Escrow, Note,
    custody::{Custody, Refused},
    precedence::{self, Order},
    run::Held,
};
use crate::{
    constants::{ESCROW_HOLD_BYTES, ESCROW_HOLDS, ESCROWED_RUNS},
    contract::{
        renewal::{Hold, Invalid, binders::in_scope, validate_hold},
        runtime::{Addressed, Binding},
        values::Id,
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

impl Escrow {
    /// Reads the node's session the moment the hold arrives; the rest waits for its turn (ESC-12, ESC-17).
    pub(super) fn arrives(
        &mut self,
        connection: Connection,
        request: Request,
        now: Now,
        carried: &impl Carried,
        actions: &mut Vec<Action>,
    ) {
        let node = request.body.read::<Addressed>().ok().map(|addressed| addressed.session.node_id);
        let binding =
            node.as_ref().and_then(|node| carried.carried(node)).map(|(binding, _)| binding.clone());
        let arrived =
            Arrived { connection, method: request.method, ids: request.ids, body: request.body, binding };
        if self.custody == Custody::Stopped {
            return actions.push(arrived.answer(&plain_refusal(UNKNOWN_METHOD)));
        }
        if arrived.body.len() > ESCROW_HOLD_BYTES {
            let refused = Refused::Invalid(Invalid("renewals".to_owned()));
            return self.refuse(&arrived, refused, node, actions);
        }
        if self.arrived.len() == ESCROW_HOLDS
            && let Some(first) = self.arrived.pop_front()
        {
            self.apply(&first, now, carried, actions);
        }
        self.arrived.push_back(arrived);
    }

    /// Validates a hold, reads the node's session again, and holds the run or refuses it.
    pub(super) fn apply(
        &mut self,
        arrived: &Arrived,
        now: Now,
        carried: &impl Carried,
        actions: &mut Vec<Action>,
    ) {
        let hold = match self.judge(arrived, now, carried) {
            Ok(hold) => hold,
            Err((refused, node)) => return self.refuse(arrived, refused, node, actions),
        };
        let node = hold.session.node_id.clone();
        let held = hold.run.renewals.len();
        actions.push(arrived.answer(&Outcome::Response(Body::of(&serde_json::json!({ "held": held })))));
        actions.push(Action::Note(Note::Held { node: node.clone(), held }));
        self.hold(node, hold, now, carried, actions);
    }

    fn hold(&mut self, node: Id, hold: Hold, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        self.remove(&node);
        let Some(held) = Held::new(hold) else { return };
        if self.runs.len() >= ESCROWED_RUNS {
            self.runs.retain(|node, _| carried.carried(node).is_some());
        }
        self.runs.insert(node.clone(), held);
        self.release(&node, now, carried, actions);
    }

    fn refuse(&self, arrived: &Arrived, refused: Refused, node: Option<Id>, actions: &mut Vec<Action>) {
        actions.push(arrived.answer(&refused.outcome()));
        actions.push(Action::Note(Note::HoldRefused { node, refusal: refused.name() }));
    }

    /// Validity, custody, carried, session, precedence: the first that fails names the refusal. `Err` also
    /// states the node, where the hold is valid.
    fn judge(
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
