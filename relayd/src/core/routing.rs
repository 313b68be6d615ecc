//! The router of the Cloudly session: what Cloudly may ask, and whose answer it brings (SES-21, LIS-02).

use coreflow_ipc::typedrequest::{
    Answer, Body, Envelope, Outcome, Request, UNKNOWN_METHOD, plain_refusal, write_answer,
};
use tracing::warn;

use super::{Core, Effect, Turn};
use crate::{
    cluster, escrow, forwarder, hub, ingress, retired,
    routes::{APPLY_NETWORK, HOLD, ingress_dispatch, is_push},
    session::Connection,
};

impl Core {
    pub(super) fn cloudly_sent(&mut self, connection: Connection, envelope: Envelope, turn: &mut Turn) {
        if self.session.connection() != Some(connection) {
            return;
        }
        match envelope {
            Envelope::Request(request) => self.request_of_cloudly(connection, request, turn),
            Envelope::Answer(answer) => self.answer_of_cloudly(answer, turn),
        }
    }

    /// The Cloudly router (SES-21, LIS-02). Pushes, holds and what is the ingress's
    /// or the hub's are served while the listener runs (FWD-18, FWD-19, ESC-05).
    fn request_of_cloudly(&mut self, connection: Connection, request: Request, turn: &mut Turn) {
        if self.endpoint.is_some() && !self.stopping {
            if is_push(&request.method) {
                return self.forward(forwarder::Event::Push { connection, request }, turn);
            }
            if request.method == HOLD {
                return self.escrow(escrow::Event::Hold { connection, request }, turn);
            }
            if request.method == APPLY_NETWORK {
                return self.hub(hub::Event::Dispatch { connection, request }, turn);
            }
            if ingress_dispatch(&request.method).is_some() {
                return self.ingress(ingress::Event::Dispatch { connection, request }, turn);
            }
        }
        let outcome = if request.method == "pushClusterConfig" {
            self.observe(&request.body);
            Outcome::Response(Body::empty())
        } else {
            retired::refusal(&request.method).unwrap_or_else(|| plain_refusal(UNKNOWN_METHOD))
        };
        let frame = write_answer(&request.method, &request.ids, &outcome);
        turn.effects.push(Effect::ToCloudly { connection, frame });
    }

    pub(super) fn observe(&mut self, config: &Body) {
        let Some(served) = &mut self.served else { return };
        match cluster::read(config) {
            Ok(published) => {
                if let Some(line) = served.observe(published) {
                    warn!("{line}");
                }
            }
            Err(line) => warn!("{line}"),
        }
    }

    fn answer_of_cloudly(&mut self, answer: Answer, turn: &mut Turn) {
        if self.calls.made(&answer) {
            if let Some((ended, outcome)) = self.calls.answered(answer, turn.now, |_| true) {
                self.ended(ended, Ok(outcome), turn);
            }
        } else if self.ingress.asked_cloudly(&answer) {
            let actions = self.ingress.cloudly_answered(answer, turn.now);
            self.ingress_actions(actions.unwrap_or_default(), turn);
        } else if self.hub.asked_cloudly(&answer) {
            let actions = self.hub.cloudly_answered(answer, turn.now);
            self.hub_actions(actions.unwrap_or_default(), turn);
        } else {
            self.forward(forwarder::Event::Answered(answer), turn);
        }
    }
}
