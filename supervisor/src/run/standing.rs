//! What workers are asked for somebody who looks at the relay, and what becomes of the look: it is answered when
//! each worker has answered, has died, or did not answer in time. A look never fails by a worker that does not
//! answer, and a worker is asked only when somebody looks.

use std::collections::{BTreeMap, BTreeSet};

use coreflow_ipc::{
    asks::AskId,
    hello::Role,
    messages::{
        pulld::ToPulld,
        relayd::ToRelayd,
        standing::{NodePage, PulldStanding, RelaydStanding},
    },
};
use tokio::sync::oneshot;
use tracing::debug;

use super::Supervisor;
use crate::{
    constants::WORKER_ANSWER_BOUND,
    control::{
        protocol::{Answer, Refused},
        serving::Reply,
    },
    metrics,
    permitted::Phase,
    status::{WorkerState, bounded_page, bounded_standing},
    worker_asks::{AskKind, LookId},
};

/// What a worker answered.
pub(super) enum Answered {
    Relayd(Box<RelaydStanding>),
    Pulld(PulldStanding),
    Nodes(NodePage),
}

impl Answered {
    fn kind(&self) -> AskKind {
        match self {
            Self::Relayd(_) | Self::Pulld(_) => AskKind::Standing,
            Self::Nodes(_) => AskKind::Nodes,
        }
    }
}

/// What somebody looks for.
pub(super) enum Purpose {
    Status,
    Metrics,
    Nodes { after: Option<String> },
}

/// What the workers have answered to one look.
#[derive(Default)]
pub(super) struct Stood {
    pub(super) relayd: Option<RelaydStanding>,
    pub(super) pulld: Option<PulldStanding>,
    /// Who was asked and did not answer.
    pub(super) unanswered: BTreeSet<Role>,
    nodes: Option<NodePage>,
}

struct Look {
    purpose: Purpose,
    answer: oneshot::Sender<Reply>,
    waits: BTreeSet<Role>,
    stood: Stood,
}

/// The looks that wait for workers: one for each connection of the control socket at most.
#[derive(Default)]
pub(super) struct Looks {
    next: LookId,
    open: BTreeMap<LookId, Look>,
}

impl Supervisor {
    /// Asks the workers that a look needs, and answers it at once where none of them can be asked.
    pub(super) fn look(&mut self, purpose: Purpose, answer: oneshot::Sender<Reply>) {
        let look = self.looks.next;
        self.looks.next += 1;
        let asked: &[Role] = match &purpose {
            Purpose::Status | Purpose::Metrics => &[Role::Relayd, Role::Pulld],
            Purpose::Nodes { .. } => &[Role::Relayd],
        };
        let after = match &purpose {
            Purpose::Nodes { after } => Some(after.clone()),
            Purpose::Status | Purpose::Metrics => None,
        };
        let (mut waits, mut stood) = (BTreeSet::new(), Stood::default());
        for role in asked.iter().copied() {
            if !self.can_be_asked(role) {
                continue;
            }
            let asked = if self.ask(role, look, after.clone()) { &mut waits } else { &mut stood.unanswered };
            asked.insert(role);
        }
        self.looks.open.insert(look, Look { purpose, answer, waits, stood });
        self.finish(look);
    }

    /// Whether the worker is greeted and confined, and not on its way out.
    fn can_be_asked(&self, role: Role) -> bool {
        let worker = &self.workers[&role];
        let phase = worker.process.as_ref().map(|process| process.gate.phase());
        worker.supervision.state() == WorkerState::Running
            && phase.is_some_and(|phase| (Phase::Confined..Phase::Stopped).contains(&phase))
    }

    /// Asks for a page of the roster after `nodes`, or else how the worker stands; `false` of one that has answered
    /// none of so many asks before.
    fn ask(&mut self, role: Role, look: LookId, nodes: Option<Option<String>>) -> bool {
        let deadline = self.mono() + WORKER_ANSWER_BOUND;
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        let kind = if nodes.is_some() { AskKind::Nodes } else { AskKind::Standing };
        let Some(id) = worker.asks.open(kind, look, deadline) else { return false };
        match (role, nodes) {
            (Role::Relayd, Some(after)) => self.tell_relayd(ToRelayd::AskNodes { id, after }, Vec::new()),
            (Role::Relayd, None) => self.tell_relayd(ToRelayd::AskStanding { id }, Vec::new()),
            (Role::Pulld, _) => self.tell_pulld(ToPulld::AskStanding { id }, Vec::new()),
            (Role::Supervisor | Role::Vpnd, _) => unreachable!("relayd and pulld alone are asked"),
        }
        true
    }

    /// A worker answered an ask of ours, or something that it takes for one.
    pub(super) fn answered_look(&mut self, role: Role, id: AskId, answered: Answered) {
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        let look = match worker.asks.settle(id, answered.kind()) {
            Ok(Some(look)) => look,
            Ok(None) => return debug!(worker = role.name(), "an answer came late and is dropped"),
            Err(_) => return self.fail(role, "it answers what nobody asked"),
        };
        let Some(open) = self.looks.open.get_mut(&look) else { return };
        match answered {
            Answered::Relayd(standing) => open.stood.relayd = Some(bounded_standing(*standing)),
            Answered::Pulld(standing) => open.stood.pulld = Some(standing),
            Answered::Nodes(page) => {
                let after = match &open.purpose {
                    Purpose::Nodes { after } => after.as_deref(),
                    Purpose::Status | Purpose::Metrics => None,
                };
                let page = bounded_page(page, after);
                if page.is_none() {
                    self.fail(role, "its page of the roster does not go on from the one before");
                    return self.unanswered(role, look);
                }
                open.stood.nodes = page;
            }
        }
        open.waits.remove(&role);
        self.finish(look);
    }

    /// The asks of a worker that were not answered in time.
    pub(super) fn give_up_asks(&mut self, role: Role) {
        let mono = self.mono();
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        for look in worker.asks.expire(mono) {
            self.unanswered(role, look);
        }
    }

    /// A worker ended, and answers nothing any more.
    pub(super) fn lose_asks(&mut self, role: Role) {
        let worker = self.workers.get_mut(&role).expect("each role has its worker");
        for look in worker.asks.ended() {
            self.unanswered(role, look);
        }
    }

    fn unanswered(&mut self, role: Role, look: LookId) {
        let Some(open) = self.looks.open.get_mut(&look) else { return };
        open.waits.remove(&role);
        open.stood.unanswered.insert(role);
        self.finish(look);
    }

    /// Answers a look that waits for nobody any more; whoever asked may be gone.
    fn finish(&mut self, look: LookId) {
        if self.looks.open.get(&look).is_none_or(|open| !open.waits.is_empty()) {
            return;
        }
        let Some(Look { purpose, answer, stood, .. }) = self.looks.open.remove(&look) else { return };
        let silent = stood.unanswered.contains(&Role::Relayd);
        let reply = match (purpose, stood) {
            (Purpose::Status, stood) => Answer::Status(Box::new(self.status(stood))),
            (Purpose::Metrics, stood) => {
                let late = self.workers.values().map(|worker| worker.asks.late()).sum();
                let counters = metrics::Counters { answers_late: late, ..self.counters };
                Answer::Metrics(metrics::render(&self.status(stood), &counters))
            }
            (Purpose::Nodes { .. }, Stood { nodes: Some(page), .. }) => Answer::Nodes(page),
            (Purpose::Nodes { .. }, _) if silent => Refused::Unanswered(Role::Relayd).into(),
            (Purpose::Nodes { .. }, _) => Refused::Absent(Role::Relayd).into(),
        };
        let _ = answer.send(Reply::Answer(reply));
    }
}
