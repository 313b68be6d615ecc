//! Which of two runs stands: the projection's generation decides first, and what cannot be ordered is
//! refused rather than guessed (ESC-16, ESC-18 – ESC-24).

use crate::contract::renewal::{Projection, Run};

/// How a new run stands to what is known; of two things that are known the greater decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// It takes the other's place.
    Replaces,
    /// It is older.
    Stale,
    /// The two cannot be ordered.
    Unordered,
}

/// Orders a new run against the held one of the same node.
pub(super) fn order(new: &Run, held: &Run) -> Order {
    let projections = order_projections(&new.projection, &held.projection);
    if projections != Order::Replaces || new.projection != held.projection {
        return projections;
    }
    match (new.renewals.last(), held.renewals.last()) {
        (Some(new), Some(held)) if new.sequence < held.sequence => Order::Stale,
        (Some(_) | None, Some(_) | None) => Order::Replaces,
    }
}

/// Orders the projection of a new run against one that is held or that the node acknowledged.
pub(super) fn order_projections(new: &Projection, known: &Projection) -> Order {
    if new.id != known.id || (new.generation == known.generation && new.digest != known.digest) {
        Order::Unordered
    } else if new.generation < known.generation {
        Order::Stale
    } else {
        Order::Replaces
    }
}

/// Whether `projection` is an earlier generation of `other`.
pub(super) fn is_earlier(projection: &Projection, other: &Projection) -> bool {
    projection.id == other.id && projection.generation < other.generation
}

/// Whether a run of `run` can still be admitted by a node that has `acknowledged`: it is the run's
/// projection, or one that the node will leave forward (ESC-48, ESC-49).
pub(super) fn renews(run: &Projection, acknowledged: &Projection) -> bool {
    run == acknowledged || is_earlier(acknowledged, run)
}
