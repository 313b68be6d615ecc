//! Requests of nodes on their way to Cloudly: judged before anything is forwarded, waiting for a session where
//! they may, and answered with what Cloudly said (FWD-07, FWD-12 – FWD-16, PROT-12).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Answer, Body, Outcome, Request, UNKNOWN_METHOD, plain_refusal, write_answer},
};

use super::{Action, Forwarder, Note, Socket, Up, Waiting, in_flight::Share};
use crate::{
    constants::REGISTRATION_WAIT,
    contract::runtime::{Bound, Offered},
    protocol::{Kind, judge},
    refusals::{ESCROW_CLOUDLY_ONLY, Foreign, TOO_MANY_IN_FLIGHT, session_unavailable},
    routes::{NodeMethod, node_method},
};

impl Forwarder {
    pub(super) fn request(&mut self, socket: Socket, request: Request, now: Now, actions: &mut Vec<Action>) {
        let refusal = match node_method(&request.method) {
            None => plain_refusal(UNKNOWN_METHOD),
            Some(NodeMethod::Hold) => plain_refusal(ESCROW_CLOUDLY_ONLY),
            Some(kind) => match self.admit(socket, kind, &request, actions) {
                Ok(()) => return self.forward(socket, kind, request, now, actions),
                Err(refusal) => refusal,
            },
        };
        self.counts.requests_refused += 1;
        actions
            .push(Action::SendDown { socket, frame: write_answer(&request.method, &request.ids, &refusal) });
    }

    /// Judges the offer of a registration, or the session of any other request (PROT-12, FWD-12 –
    /// FWD-16), before anything is forwarded.
    fn admit(
        &self,
        socket: Socket,
        kind: NodeMethod,
        request: &Request,
        actions: &mut Vec<Action>,
    ) -> Result<(), Outcome> {
        if kind == NodeMethod::Register {
            let offered: Option<Offered<'_>> = request.body.read().ok();
            match judge(Kind::PalletRuntime, offered.and_then(|offered| offered.protocol)) {
                Ok(_) => actions.push(Action::OfferServed),
                Err(disagreement) => {
                    actions.push(Action::OfferRefused(disagreement));
                    return Err(disagreement.refusal());
                }
            }
        } else {
            let bound = request.body.read::<Bound>().map_err(|_| Foreign::Session);
            let checked = bound.and_then(|bound| self.roster.check(socket, &bound.session, self.session));
            if let Err(which) = checked {
                actions.push(Action::Note(Note::Foreign { method: request.method.clone(), which }));
                return Err(which.refusal());
            }
            if self.session.is_none() {
                return Err(session_unavailable(0));
            }
        }
        if !self.uplink_full && self.in_flight.admits(socket, request.body.len(), self.share(socket)) {
            Ok(())
        } else {
            Err(plain_refusal(TOO_MANY_IN_FLIGHT))
        }
    }

    fn share(&self, socket: Socket) -> Share {
        if self.carries(socket) { Share::Node } else { Share::Stranger }
    }

    fn forward(
        &mut self,
        socket: Socket,
        kind: NodeMethod,
        request: Request,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let bytes = request.body.len();
        let share = self.share(socket);
        self.turned_away.remove(&socket);
        self.in_flight.take(socket, bytes, share);
        let up = Up { socket, kind, ids: request.ids, arrived: now.mono, bytes, share, handed: false };
        let waiting = Waiting { method: request.method, body: request.body, up };
        if self.session.is_some() { self.send_up(waiting, actions) } else { self.wait(waiting) }
    }

    pub(super) fn wait(&mut self, waiting: Waiting) {
        self.waits += 1;
        let until = waiting.up.arrived + REGISTRATION_WAIT;
        self.waiting_of.insert((waiting.up.socket, until, self.waits));
        self.waiting.insert((until, self.waits), waiting);
    }

    pub(super) fn send_up(&mut self, mut waiting: Waiting, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut waiting.up.handed, true) {
            self.counts.requests += 1;
        }
        let deadline = waiting.up.arrived + waiting.up.kind.budget();
        actions.push(Action::SendUp(self.up.open(waiting.method, waiting.body, deadline, waiting.up)));
    }

    pub(super) fn answered(&mut self, answer: Answer, now: Now, actions: &mut Vec<Action>) {
        let Some((ended, outcome)) = self.up.answered(answer, now, |_| true) else { return };
        if ended.purpose.kind == NodeMethod::Register
            && let Outcome::Response(body) = &outcome
        {
            self.bind(ended.purpose.socket, body, actions);
        }
        self.answer_node(&ended.method, &ended.purpose, &outcome, actions);
    }

    /// The relay answers a request itself.
    pub(super) fn refuse_node(
        &mut self,
        method: &str,
        up: &Up,
        refusal: &Outcome,
        actions: &mut Vec<Action>,
    ) {
        self.counts.requests_refused += 1;
        self.answer_node(method, up, refusal, actions);
    }

    /// There was no session to register on (FWD-10). The node may not try again on this socket by itself.
    pub(super) fn turn_away(&mut self, method: &str, up: &Up, actions: &mut Vec<Action>) {
        self.turned_away.insert(up.socket);
        self.refuse_node(method, up, &session_unavailable(REGISTRATION_WAIT.as_millis()), actions);
    }

    fn answer_node(&mut self, method: &str, up: &Up, outcome: &Outcome, actions: &mut Vec<Action>) {
        self.in_flight.give_back(up.socket, up.bytes, up.share);
        actions.push(Action::SendDown { socket: up.socket, frame: write_answer(method, &up.ids, outcome) });
    }

    /// The binding that Cloudly issued ties the node to this socket; an older one is superseded.
    fn bind(&mut self, socket: Socket, body: &Body, actions: &mut Vec<Action>) {
        let Some(count) = self.session else { return };
        match body.read::<Bound>() {
            Ok(bound) => {
                self.counts.registrations += 1;
                let node = bound.session.node_id.clone();
                if let Some(tied) = self.roster.register(socket, bound.session, count) {
                    self.turned_away.remove(&socket);
                    actions.extend(tied.replaced.map(|node| Action::Note(Note::Gone { node })));
                    actions.extend(tied.superseded.map(Action::Superseded));
                    actions.push(Action::Note(Note::Registered { node }));
                }
            }
            Err(_) => actions.push(Action::Note(Note::Unbound)),
        }
    }
}
