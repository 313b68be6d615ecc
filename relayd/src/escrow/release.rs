//! Offering what is due while the relay has no session, one renewal at a time to a node, and what the
//! node says to it (ESC-25 – ESC-38).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Answer, Outcome, PeerError},
};

use super::{Action, Carried, Dropped, Escrow, Failure, Note, run::Step};
use crate::{
    constants::PUSH_BUDGET,
    contract::{
        renewal::binders::{bind_apply_renewal_request, binds_apply_renewal_response},
        values::{Generation, Id},
    },
    forwarder::Socket,
    pending::{Due, Ended},
    routes::RENEWAL,
};

/// Whom a renewal was offered to, and which of its run.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) node: Id,
    /// [`super::Held::number`]: the offers of a run are found among however many others.
    pub(super) run: u64,
    pub(super) socket: Socket,
    index: usize,
}

impl Escrow {
    /// Looks at every run.
    pub(super) fn release_all(&mut self, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        let nodes: Vec<Id> = self.runs.keys().cloned().collect();
        nodes.iter().for_each(|node| self.release(node, now, carried, actions));
    }

    /// Looks at a node's run: it is dropped if its last window has ended (ESC-57); what is due is offered
    /// while there is no session, to a node that is carried (ESC-25, ESC-32).
    pub(super) fn release(&mut self, node: &Id, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        if self.session {
            return;
        }
        let Some(held) = self.runs.get_mut(node) else { return };
        if held.has_ended(now.wall) {
            return self.drop_run(node, Dropped::Ended, actions);
        }
        let carrier = carried.carried(node);
        if carrier.is_some_and(|(binding, _)| *binding != held.binding) {
            return self.drop_run(node, Dropped::OtherSession, actions);
        }
        if let Some((binding, socket)) = carrier {
            match held.step(now) {
                Step::Offer(index) => {
                    if held.in_flight.take().is_some() {
                        // A later window has opened: the node is asked about that one alone.
                        self.offers.end_of(held.number);
                    }
                    let body = bind_apply_renewal_request(binding, &held.run.renewals[index])
                        .expect("a run is held only for a session that has it in its scope");
                    let offer = Offer { node: node.clone(), run: held.number, socket, index };
                    let frame = self.offers.open(RENEWAL.to_owned(), body, now.mono + PUSH_BUDGET, offer);
                    held.in_flight = Some(index);
                    self.counts.offered += 1;
                    actions.push(Action::SendDown { socket, frame });
                }
                Step::RepeatsEnded(index) => {
                    let sequence = held.run.renewals[index].sequence;
                    actions.push(Action::Note(Note::RepeatsEnded { node: node.clone(), sequence }));
                }
                Step::Wait => {}
            }
        }
        self.agenda.set(node, held.next_opening(now.wall), held.next_repeat(now));
    }

    /// An answer counts only from the socket that the renewal was offered to, and only bound to the offer
    /// (ESC-33).
    pub(super) fn answered(&mut self, socket: Socket, answer: Answer, now: Now, actions: &mut Vec<Action>) {
        let answered = self.offers.answered(answer, now, |offer| offer.socket == socket);
        let Some((Ended { purpose: offer, .. }, outcome)) = answered else { return };
        let Some(held) = self.runs.get_mut(&offer.node) else { return };
        let sequence = held.run.renewals[offer.index].sequence;
        let failure = match outcome {
            Outcome::Response(body) => {
                if binds_apply_renewal_response(&body, &held.binding, &held.run.projection, sequence) {
                    held.acknowledged(offer.index);
                    self.counts.acknowledged += 1;
                    return actions.push(Action::Note(Note::Acknowledged { node: offer.node, sequence }));
                }
                Failure::Unbound
            }
            Outcome::Error(error) => Failure::refused(&PeerError::of(&error)),
        };
        self.failed(&offer, failure, now, actions);
    }

    /// The delivery is logged and made anew later (ESC-34).
    pub(super) fn failed(&mut self, offer: &Offer, why: Failure, now: Now, actions: &mut Vec<Action>) {
        let Some(held) = self.runs.get_mut(&offer.node) else { return };
        let repeat = held.failed(offer.index, now);
        let sequence: Generation = held.run.renewals[offer.index].sequence;
        actions.push(Action::Note(Note::Failed { node: offer.node.clone(), sequence, why }));
        self.agenda.set_repeat(&offer.node, repeat);
    }

    /// Offers without an answer in time, and those that the node asked to be made again.
    pub(super) fn expire_offers(&mut self, now: Now, carried: &impl Carried, actions: &mut Vec<Action>) {
        while let Some(due) = self.offers.due(now) {
            match due {
                Due::Expired(ended) => self.failed(&ended.purpose, Failure::Timeout, now, actions),
                Due::Resend { purpose: offer, frame } => {
                    let due = self.runs.get(&offer.node).and_then(|held| held.due(now.wall));
                    if due == Some(offer.index) {
                        actions.push(Action::SendDown { socket: offer.socket, frame });
                        continue;
                    }
                    // Its window has ended, or another one has opened, since it was offered.
                    self.offers.end_of(offer.run);
                    if let Some(held) = self.runs.get_mut(&offer.node) {
                        held.in_flight = None;
                    }
                    self.release(&offer.node, now, carried, actions);
                }
            }
        }
    }
}
