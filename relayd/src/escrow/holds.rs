//! A hold from its arrival to its answer: one at a time, in the order of arrival, with the node's session
//! read before and after the validation (ESC-04, ESC-11 – ESC-17).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Body, Ids, Outcome, Request, UNKNOWN_METHOD, plain_refusal, write_answer},
};

use super::{
    Action, Carried, Dropped, Escrow, Note,
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
    /// The node that it names, where it names one.
    pub(super) node: Option<Id>,
    /// The session of that node, as it was when the hold arrived.
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
        let Request { method, ids, body } = request;
        let arrived = Arrived { connection, method, ids, body, node, binding };
        if self.custody == Custody::Stopped {
            return actions.push(arrived.answer(&plain_refusal(UNKNOWN_METHOD)));
        }
        if arrived.body.len() > ESCROW_HOLD_BYTES {
            let refused = Refused::Invalid(Invalid("renewals".to_owned()));
            return refuse(&arrived, &refused, actions);
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
        let hold = match validate_hold(&arrived.body, now.wall) {
            Ok(hold) => hold,
            Err(path) => return refuse(arrived, &Refused::Invalid(path), actions),
        };
        let node = hold.session.node_id.clone();
        let second = carried.carried(&node).map(|(binding, _)| binding);
        if let Err(refused) = self.permit(&hold, arrived, second) {
            refuse(arrived, &refused, actions);
            if refused == Refused::NotCarried {
                self.give_up_of_absent(&hold, actions);
            }
            return;
        }
        let held = hold.run.renewals.len();
        actions.push(arrived.answer(&Outcome::Response(Body::of(&serde_json::json!({ "held": held })))));
        actions.push(Action::Note(Note::Held { node: node.clone(), held }));
        self.hold(node, hold, now, carried, actions);
    }

    fn hold(&mut self, node: Id, hold: Hold, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        self.remove(&node);
        let (session, projection) = (hold.session.clone(), hold.run.projection.clone());
        self.numbers += 1;
        let Some(held) = Held::new(hold, self.numbers) else {
            return self.known.gives_up(session, projection);
        };
        if self.runs.len() >= ESCROWED_RUNS {
            self.runs.retain(|node, _| carried.carried(node).is_some());
        }
        self.runs.insert(node.clone(), held);
        self.release(&node, now, carried, actions);
    }

    /// Cloudly gives custody up of a run whose node is not here: it is not kept for the node's return.
    fn give_up_of_absent(&mut self, hold: &Hold, actions: &mut Vec<Action>) {
        let node = &hold.session.node_id;
        let given_up = |held: &Held| {
            held.binding == hold.session && precedence::order(&hold.run, &held.run) == Order::Replaces
        };
        if hold.run.renewals.is_empty() && self.runs.get(node).is_some_and(given_up) {
            self.drop_run(node, Dropped::GivenUp, actions);
        }
    }

    /// Custody, carried, session, precedence: the first that fails names the refusal. `second` is the node's session
    /// at the end of the validation; it has to be the one that the hold names and the one that stood when it
    /// arrived (ESC-12 – ESC-15).
    fn permit(&self, hold: &Hold, arrived: &Arrived, second: Option<&Binding>) -> Result<(), Refused> {
        if let Some(refused) = self.custody.refused() {
            return Err(refused);
        }
        let (Some(first), Some(second)) = (&arrived.binding, second) else {
            return Err(Refused::NotCarried);
        };
        let same = first == second && hold.session == *second;
        if !same || !hold.run.renewals.iter().all(|renewal| in_scope(second, renewal)) {
            return Err(Refused::ForeignSession);
        }
        match self.order(hold) {
            Order::Unordered => Err(Refused::Unordered),
            Order::Stale => Err(Refused::Stale),
            Order::Replaces => Ok(()),
        }
    }

    /// The held run decides first; an empty run has nothing else to be ordered against: it holds nothing (ESC-22).
    fn order(&self, hold: &Hold) -> Order {
        let held = self.runs.get(&hold.session.node_id);
        let order = held.map_or(Order::Replaces, |held| precedence::order(&hold.run, &held.run));
        if hold.run.renewals.is_empty() {
            return order;
        }
        order.max(self.known.order(&hold.session, &hold.run.projection))
    }
}

fn refuse(arrived: &Arrived, refused: &Refused, actions: &mut Vec<Action>) {
    let (refusal, path) = (refused.name(), refused.path().map(str::to_owned));
    actions.push(arrived.answer(&refused.outcome()));
    actions.push(Action::Note(Note::HoldRefused { node: arrived.node.clone(), refusal, path }));
}
