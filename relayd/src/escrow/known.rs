//! What is known of a node's projections in the session that it has, beside the run that is held: which one it
//! acknowledged, and for which one Cloudly gave custody up. No run of an earlier generation is taken for it any
//! more (ESC-19, ESC-22, ESC-48, FWD-33). It lasts as long as the node is carried in that session.

use std::collections::BTreeMap;

use super::precedence::{self, Order};
use crate::contract::{renewal::Projection, runtime::Binding, values::Id};

/// Of one session.
struct Projections {
    session: Binding,
    acknowledged: Option<Projection>,
    given_up: Option<Projection>,
}

/// Of every carried node.
#[derive(Default)]
pub(super) struct Known(BTreeMap<Id, Projections>);

impl Known {
    /// The node acknowledged the projection.
    pub(super) fn acknowledges(&mut self, session: Binding, projection: Projection) {
        advance(&mut self.of(session).acknowledged, projection);
    }

    /// Cloudly gave custody up for the projection, with an empty run.
    pub(super) fn gives_up(&mut self, session: Binding, projection: Projection) {
        advance(&mut self.of(session).given_up, projection);
    }

    /// How a new run of `projection` stands to it. Custody that was given up leaves any other projection to be held.
    pub(super) fn order(&self, session: &Binding, projection: &Projection) -> Order {
        let Some(known) = self.0.get(&session.node_id).filter(|known| known.session == *session) else {
            return Order::Replaces;
        };
        let order = |known: &Projection| precedence::order_projections(projection, known);
        let acknowledged = known.acknowledged.as_ref().map_or(Order::Replaces, order);
        let given_up = known.given_up.as_ref().filter(|given_up| given_up.id == projection.id);
        acknowledged.max(given_up.map_or(Order::Replaces, order))
    }

    /// The node is gone.
    pub(super) fn forget(&mut self, node: &Id) {
        self.0.remove(node);
    }

    /// Of how many nodes something is known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What is known of the session; of another session of the node nothing is any more.
    fn of(&mut self, session: Binding) -> &mut Projections {
        let fresh = |session: Binding| Projections { session, acknowledged: None, given_up: None };
        let known = self.0.entry(session.node_id.clone()).or_insert_with(|| fresh(session.clone()));
        if known.session != session {
            *known = fresh(session);
        }
        known
    }
}

/// A projection goes forward only: what arrives late of an earlier generation changes nothing.
fn advance(known: &mut Option<Projection>, projection: Projection) {
    if !known.as_ref().is_some_and(|known| precedence::is_earlier(&projection, known)) {
        *known = Some(projection);
    }
}
