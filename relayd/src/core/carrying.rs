//! What is carried between nodes, ingress and Cloudly: the effects of the forwarder, the escrow and the
//! ingress, and what one of them tells the others (FWD-32, FWD-33, ESC-46, LIS-24, PROT-31).

use std::time::Duration;

use coreflow_ipc::typedrequest::{Answer, Envelope};
use tracing::warn;

use super::{Core, Effect, Turn, notes};
use crate::{
    escrow,
    forwarder::{self, Note, Socket},
    ingress,
    protocol::Disagreement,
    readiness::Hop,
    routes::ingress_method,
};

impl Core {
    /// Ingress and nodes share listener and router (ING-35).
    pub(super) fn socket_sent(&mut self, socket: Socket, envelope: Envelope, turn: &mut Turn) {
        match envelope {
            Envelope::Request(request) if ingress_method(&request.method).is_some() => {
                self.ingress(ingress::Event::Request { socket, request }, turn);
            }
            Envelope::Request(request) => self.forward(forwarder::Event::Request { socket, request }, turn),
            Envelope::Answer(answer) => self.socket_answered(socket, answer, turn),
        }
    }

    /// Whoever asked on this socket takes the answer; ids of one are never those of another.
    fn socket_answered(&mut self, socket: Socket, answer: Answer, turn: &mut Turn) {
        if self.ingress.asked_socket(&answer) {
            let actions = self.ingress.socket_answered(socket, answer, turn.now);
            self.ingress_actions(actions.unwrap_or_default(), turn);
        } else if self.escrow.offered(&answer) {
            self.escrow(escrow::Event::NodeAnswered { socket, answer }, turn);
        } else {
            self.forward(forwarder::Event::NodeAnswered { socket, answer }, turn);
        }
    }

    pub(super) fn socket_closed(&mut self, socket: Socket, turn: &mut Turn) {
        self.superseded.ended(socket);
        self.forward(forwarder::Event::Closed { socket }, turn);
        self.ingress(ingress::Event::Closed { socket }, turn);
    }

    pub(super) fn forward(&mut self, event: forwarder::Event, turn: &mut Turn) {
        for action in self.forwarder.handle(event, turn.now) {
            match action {
                forwarder::Action::SendUp(frame) => self.send_up(frame, turn),
                forwarder::Action::SendDown { socket, frame } => {
                    turn.effects.push(Effect::ToNode { socket, frame });
                }
                forwarder::Action::AnswerUp { connection, frame } => {
                    turn.effects.push(Effect::ToCloudly { connection, frame });
                }
                forwarder::Action::OfferRefused(disagreement) => {
                    self.offer_refused(Hop::PalletRuntime, disagreement, turn);
                }
                forwarder::Action::OfferServed => {
                    self.readiness.accept_offer(Hop::PalletRuntime);
                }
                forwarder::Action::Superseded(socket) => {
                    self.superseded.add(socket, turn.now.mono);
                }
                forwarder::Action::Acknowledged { session, projection } => {
                    self.escrow(escrow::Event::Acknowledged { session, projection }, turn);
                }
                forwarder::Action::Note(note) => {
                    match &note {
                        Note::Registered { node } => {
                            self.escrow(escrow::Event::Registered { node: node.clone() }, turn);
                        }
                        Note::Gone { node } => {
                            self.escrow(escrow::Event::Gone { node: node.clone() }, turn);
                        }
                        Note::Unbound | Note::Foreign { .. } | Note::Timeout { .. } => {}
                    }
                    notes::log(note);
                }
            }
        }
    }

    pub(super) fn escrow(&mut self, event: escrow::Event, turn: &mut Turn) {
        for action in self.escrow.handle(event, turn.now, &self.forwarder) {
            match action {
                escrow::Action::AnswerUp { connection, frame } => {
                    turn.effects.push(Effect::ToCloudly { connection, frame });
                }
                escrow::Action::SendDown { socket, frame } => {
                    turn.effects.push(Effect::ToNode { socket, frame });
                }
                escrow::Action::Note(note) => note.log(),
            }
        }
    }

    pub(super) fn ingress(&mut self, event: ingress::Event, turn: &mut Turn) {
        let actions = self.ingress.handle(event, turn.now);
        self.ingress_actions(actions, turn);
    }

    pub(super) fn ingress_actions(&mut self, actions: Vec<ingress::Action>, turn: &mut Turn) {
        for action in actions {
            match action {
                ingress::Action::SendUp(frame) => self.send_up(frame, turn),
                ingress::Action::SendDown { socket, frame } => {
                    turn.effects.push(Effect::ToNode { socket, frame });
                }
                ingress::Action::AnswerUp { connection, frame } => {
                    turn.effects.push(Effect::ToCloudly { connection, frame });
                }
                ingress::Action::OfferRefused(disagreement) => {
                    self.offer_refused(Hop::ClusterIngress, disagreement, turn);
                }
                ingress::Action::OfferServed => {
                    self.readiness.accept_offer(Hop::ClusterIngress);
                }
                ingress::Action::Superseded(socket) => {
                    self.superseded.add(socket, turn.now.mono);
                }
                ingress::Action::Note(note) => note.log(),
            }
        }
    }

    pub(super) fn send_up(&mut self, frame: String, turn: &mut Turn) {
        let connection = self.session.connection().expect("the session stands");
        turn.effects.push(Effect::ToCloudly { connection, frame });
    }

    /// The refused peer was told; the operator is, within bounds: any peer can make offers (PROT-13, PROT-22).
    fn offer_refused(&mut self, hop: Hop, disagreement: Disagreement, turn: &mut Turn) {
        if self.readiness.refuse_offer(hop, disagreement) && self.stated.writes(hop, turn.now) {
            warn!(hop = hop.name(), "{}", disagreement.line());
        }
    }

    /// When a superseded socket is closed. Without a session none is (OUT-09).
    pub(super) fn superseded_deadline(&self) -> Option<Duration> {
        self.superseded.next_deadline().filter(|_| self.session.dispatchable())
    }

    /// A socket that serves nothing any more is closed, so that whoever still holds it registers anew.
    pub(super) fn close_superseded(&mut self, turn: &mut Turn) {
        if self.superseded_deadline().is_none() {
            return;
        }
        for socket in self.superseded.take_due(turn.now.mono) {
            if !self.carries(socket) {
                turn.effects.push(Effect::CloseNode(socket));
            }
        }
    }
}
