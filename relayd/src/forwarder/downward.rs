//! Pushes of Cloudly on their way to a node, and what the node answers: acknowledgements are the node's alone
//! (FWD-20, FWD-23, FWD-32).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Answer, Outcome, Request, write_answer},
};

use super::{Action, Down, Forwarder, Socket};
use crate::{
    constants::PUSH_BUDGET,
    contract::{renewal::binders::bind_projection_acknowledgement, runtime::Addressed, values::Id},
    pending::Ended,
    refusals::node_not_connected,
    routes::PROJECTION,
    session::Connection,
};

impl Forwarder {
    pub(super) fn push(
        &mut self,
        connection: Connection,
        request: Request,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let addressed = request.body.read::<Addressed>();
        let node = addressed.map(|addressed| addressed.session.node_id);
        let socket = node.as_ref().ok().and_then(|node| self.roster.socket(node));
        let (Ok(node), Some(socket)) = (&node, socket) else {
            self.counts.pushes_refused += 1;
            let refusal = node_not_connected(node.as_ref().map_or("without an id", Id::as_str));
            let frame = write_answer(&request.method, &request.ids, &refusal);
            actions.push(Action::AnswerUp { connection, frame });
            return;
        };
        self.counts.pushes += 1;
        let down = Down { socket, node: node.clone(), connection, ids: request.ids };
        let frame = self.down.open(request.method, request.body, now.mono + PUSH_BUDGET, down);
        actions.push(Action::SendDown { socket, frame });
    }

    pub(super) fn node_answered(
        &mut self,
        socket: Socket,
        answer: Answer,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        // A push is answered by the socket that it was sent to, and by no other.
        let answered = self.down.answered(answer, now, |down| down.socket == socket);
        let Some((ended, outcome)) = answered else { return };
        if ended.method == PROJECTION
            && let Outcome::Response(answer) = &outcome
            && let Some((session, projection)) = bind_projection_acknowledgement(&ended.body, answer)
        {
            actions.push(Action::Acknowledged { session, projection });
        }
        actions.push(answer_cloudly(&ended, &outcome));
    }
}

pub(super) fn answer_cloudly(ended: &Ended<Down>, outcome: &Outcome) -> Action {
    let frame = write_answer(&ended.method, &ended.purpose.ids, outcome);
    Action::AnswerUp { connection: ended.purpose.connection, frame }
}
