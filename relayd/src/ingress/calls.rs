//! Calls to the bound ingress, each bounded: the hint at a newer table, and the traffic statistics that
//! Cloudly asks for (ING-17, ING-18, ING-20, ING-21, ING-29, ING-30).

use coreflow_ipc::{
    now::Now,
    typedrequest::{Answer, Body, Ids, Outcome, Request, plain_refusal, write_answer},
};

use super::{Action, Ingress, Note, Socket};
use crate::{
    constants::{INGRESS_CALL_BUDGET, INGRESS_QUESTIONS},
    contract::{ingress::StatedRevision, values::Generation},
    pending::{Due, Ended},
    refusals::{INGRESS_NOT_BOUND, TOO_MANY_IN_FLIGHT, forward_timeout, refusal_name},
    session::Connection,
};

/// Why the ingress was called.
#[derive(Clone)]
pub(super) enum Down {
    /// It is hinted at a newer table.
    Hint { socket: Socket, revision: Generation },
    /// Cloudly asks for its traffic statistics.
    Statistics { socket: Socket, connection: Connection, ids: Ids },
}

impl Down {
    pub(super) fn socket(&self) -> Socket {
        match self {
            Self::Hint { socket, .. } | Self::Statistics { socket, .. } => *socket,
        }
    }

    pub(super) fn is_hint(&self) -> bool {
        match self {
            Self::Hint { .. } => true,
            Self::Statistics { .. } => false,
        }
    }
}

impl Ingress {
    /// Takes an answer of a socket; `None` when it answers nothing that was sent to that socket from here.
    pub fn socket_answered(&mut self, socket: Socket, answer: Answer, now: Now) -> Option<Vec<Action>> {
        let (ended, outcome) = self.down.answered(answer, now, |down| down.socket() == socket)?;
        let mut actions = Vec::new();
        match ended.purpose {
            Down::Hint { revision, .. } => {
                let class = match &outcome {
                    Outcome::Response(body) if body.text() != "null" => None,
                    Outcome::Response(_) => Some("unreadable".to_owned()),
                    Outcome::Error(error) => Some(refusal_name(error)),
                };
                actions.extend(class.map(|class| hint_failed(revision, class)));
            }
            Down::Statistics { connection, ids, .. } => {
                self.answer_statistics(&ended.method, connection, &ids, &outcome, &mut actions);
            }
        }
        self.check_invariants();
        Some(actions)
    }

    /// One hint is under way at a time, the latest: a former one has nothing left to tell.
    pub(super) fn hint(&mut self, revision: Generation, now: Now, actions: &mut Vec<Action>) {
        let Some(socket) = self.bound() else { return };
        self.forget_hint();
        let (method, body) =
            ("pushClusterIngressRouteTableChanged".to_owned(), Body::of(&StatedRevision { revision }));
        let hint = Down::Hint { socket, revision };
        let frame = self.down.open(method, body, now.mono + INGRESS_CALL_BUDGET, hint);
        actions.push(Action::SendDown { socket, frame });
    }

    pub(super) fn forget_hint(&mut self) {
        self.down.end_where(Down::is_hint);
    }

    pub(super) fn ask_statistics(
        &mut self,
        connection: Connection,
        request: &Request,
        now: Now,
    ) -> Result<Action, Outcome> {
        let socket = self.bound().ok_or_else(|| plain_refusal(INGRESS_NOT_BOUND))?;
        if self.statistics >= INGRESS_QUESTIONS {
            return Err(plain_refusal(TOO_MANY_IN_FLIGHT));
        }
        self.statistics += 1;
        let asked = Down::Statistics { socket, connection, ids: request.ids.clone() };
        let deadline = now.mono + INGRESS_CALL_BUDGET;
        let frame = self.down.open(request.method.clone(), request.body.clone(), deadline, asked);
        Ok(Action::SendDown { socket, frame })
    }

    fn answer_statistics(
        &mut self,
        method: &str,
        connection: Connection,
        ids: &Ids,
        outcome: &Outcome,
        actions: &mut Vec<Action>,
    ) {
        self.statistics -= 1;
        actions.push(Action::AnswerUp { connection, frame: write_answer(method, ids, outcome) });
    }

    /// Nobody answers any more on a connection that ended.
    pub(super) fn callee_closed(&mut self, socket: Socket, actions: &mut Vec<Action>) {
        for ended in self.down.end_where(|down| down.socket() == socket) {
            self.not_answered(ended, &plain_refusal(INGRESS_NOT_BOUND), "closed", actions);
        }
    }

    pub(super) fn calls_due(&mut self, now: Now, actions: &mut Vec<Action>) {
        while let Some(due) = self.down.due(now) {
            match due {
                Due::Resend { purpose, frame } => {
                    actions.push(Action::SendDown { socket: purpose.socket(), frame });
                }
                Due::Expired(ended) => {
                    if !ended.purpose.is_hint() {
                        actions.push(Action::Note(Note::StatisticsTimeout));
                    }
                    let refusal = forward_timeout(&ended.method, INGRESS_CALL_BUDGET.as_millis());
                    self.not_answered(ended, &refusal, "timeout", actions);
                }
            }
        }
    }

    /// The ingress did not answer.
    fn not_answered(
        &mut self,
        ended: Ended<Down>,
        refusal: &Outcome,
        class: &str,
        actions: &mut Vec<Action>,
    ) {
        match ended.purpose {
            Down::Hint { revision, .. } => actions.push(hint_failed(revision, class.to_owned())),
            Down::Statistics { connection, ids, .. } => {
                self.answer_statistics(&ended.method, connection, &ids, refusal, actions);
            }
        }
    }
}

fn hint_failed(revision: Generation, class: String) -> Action {
    Action::Note(Note::HintFailed { revision: revision.get(), class })
}
