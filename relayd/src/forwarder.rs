//! Carries runtime sessions: node requests up, controller pushes down, bodies untouched (FWD).
//!
//! The machine answers nothing from memory (FWD-06) and makes no acknowledgement (FWD-23): what it
//! keeps of a message is its ids, its deadline and, until it is answered, its body.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coreflow_ipc::{
    now::Now,
    typedrequest::{Answer, Body, Ids, Request},
};

use crate::{
    constants::{PUSH_BUDGET, REGISTRATION_WAIT},
    contract::{renewal::Projection, runtime::Binding, values::Id},
    escrow::Carried,
    pending::{Due, Ended, Pending},
    protocol::Disagreement,
    refusals::{forward_timeout, node_not_connected, session_unavailable},
    routes::NodeMethod,
    session::Connection,
};

mod downward;
mod in_flight;
mod note;
mod roster;
mod standing;
mod upward;

use downward::answer_cloudly;
use in_flight::{InFlight, Share};
pub use note::Note;
use roster::Roster;
pub use standing::Counts;

/// Numbers the sockets of the listener; never used twice in this process.
pub type Socket = u64;

/// What happens to the forwarder.
pub enum Event {
    /// A node's socket sent a request.
    Request {
        /// Where it came from.
        socket: Socket,
        /// The request.
        request: Request,
    },
    /// Cloudly answered a request that was sent up.
    Answered(Answer),
    /// Cloudly pushed one of the methods of [`crate::routes::is_push`].
    Push {
        /// The connection that it came by, and that its answer belongs to.
        connection: Connection,
        /// The request.
        request: Request,
    },
    /// A node answered something.
    NodeAnswered {
        /// Where it came from.
        socket: Socket,
        /// The answer.
        answer: Answer,
    },
    /// A node's socket ended.
    Closed {
        /// Which.
        socket: Socket,
    },
    /// The session is dispatchable on the connection of this count.
    SessionUp {
        /// [`crate::session::Session::count`].
        count: u64,
    },
    /// The session is not dispatchable any more.
    SessionDown,
    /// A deadline passed, or may have.
    Tick,
}

/// What the driver does for the forwarder.
pub enum Action {
    /// Send a frame to Cloudly on the session that stands.
    SendUp(String),
    /// Send a frame to a node.
    SendDown {
        /// To whom.
        socket: Socket,
        /// What.
        frame: String,
    },
    /// Answer a push, if its connection is still the session's.
    AnswerUp {
        /// The connection that the push came by.
        connection: Connection,
        /// What.
        frame: String,
    },
    /// A node's offer was refused (PROT-13).
    OfferRefused(Disagreement),
    /// A node's offer was one that this relay serves (PROT-31).
    OfferServed,
    /// The socket's node is carried on another one; nothing of it is served any more (FWD-14).
    Superseded(Socket),
    /// A node acknowledged a projection that it was pushed (FWD-32).
    Acknowledged {
        /// The session that it was pushed in.
        session: Binding,
        /// What the node has in it from now on.
        projection: Projection,
    },
    /// What the log says; a method and a node, never a body (FWD-30).
    Note(Note),
}

/// Whom a request of a node is answered to.
#[derive(Clone)]
struct Up {
    socket: Socket,
    kind: NodeMethod,
    ids: Ids,
    arrived: Duration,
    bytes: usize,
    share: Share,
    /// It was handed to Cloudly, and waits again if it waits.
    handed: bool,
}

/// Whom a push of Cloudly is answered to, and who answers it.
#[derive(Clone)]
struct Down {
    socket: Socket,
    node: Id,
    connection: Connection,
    ids: Ids,
}

/// A registration that waits for a session (FWD-07).
struct Waiting {
    method: String,
    body: Body,
    up: Up,
}

/// The forwarder's state.
pub struct Forwarder {
    session: Option<u64>,
    /// The count of the latest session that there was.
    latest: u64,
    uplink_full: bool,
    roster: Roster,
    up: Pending<Up>,
    down: Pending<Down>,
    waiting: BTreeMap<(Duration, u64), Waiting>,
    waiting_of: BTreeSet<(Socket, Duration, u64)>,
    waits: u64,
    in_flight: InFlight,
    counts: Counts,
    /// Open sockets whose registration was refused for want of a session.
    turned_away: BTreeSet<Socket>,
}

impl Default for Forwarder {
    fn default() -> Self {
        Self {
            session: None,
            latest: 0,
            uplink_full: false,
            roster: Roster::default(),
            up: Pending::of_owners(|up| up.socket),
            down: Pending::of_owners(|down| down.socket),
            waiting: BTreeMap::new(),
            waiting_of: BTreeSet::new(),
            waits: 0,
            in_flight: InFlight::default(),
            counts: Counts::default(),
            turned_away: BTreeSet::new(),
        }
    }
}

impl Forwarder {
    /// Says whether what waits to be sent to Cloudly leaves no room for more of the nodes' requests: they are
    /// refused by name until it does.
    pub fn uplink_full(&mut self, full: bool) {
        self.uplink_full = full;
    }

    /// When [`Event::Tick`] is due, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        let waiting = self.waiting.keys().next().map(|(at, _)| *at);
        [waiting, self.up.next_deadline(), self.down.next_deadline()].into_iter().flatten().min()
    }

    /// The carried nodes that registered under an older connection of the session (OUT-04).
    pub fn stale(&self) -> Vec<(Id, Socket)> {
        self.session.map(|count| self.roster.older_than(count)).unwrap_or_default()
    }

    /// Whether the node is carried on this very socket and registered under an older connection.
    pub fn is_stale(&self, node: &Id, socket: Socket) -> bool {
        self.session.is_some_and(|count| self.roster.is_older(node, socket, count))
    }

    /// The sockets whose registration was refused for want of a session, and which wait for it ever since (FWD-10,
    /// OUT-11): as many as there are places for sockets at most.
    pub fn turned_away(&self) -> Vec<Socket> {
        self.turned_away.iter().copied().filter(|socket| self.is_turned_away(*socket)).collect()
    }

    /// Whether `socket` is one of those: it neither carries a node nor registers.
    pub fn is_turned_away(&self, socket: Socket) -> bool {
        self.turned_away.contains(&socket) && !self.carries(socket) && !self.in_flight.holds(socket)
    }

    /// Whether a node is carried on `socket`.
    pub fn carries(&self, socket: Socket) -> bool {
        self.roster.node(socket).is_some()
    }

    /// How many nodes are carried.
    pub fn carried(&self) -> usize {
        self.roster.len()
    }

    /// How many pushes of Cloudly are not answered yet (START-24).
    pub fn pushes_in_flight(&self) -> usize {
        self.down.len()
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Request { socket, request } => self.request(socket, request, now, &mut actions),
            Event::Answered(answer) => self.answered(answer, now, &mut actions),
            Event::Push { connection, request } => self.push(connection, request, now, &mut actions),
            Event::NodeAnswered { socket, answer } => self.node_answered(socket, answer, now, &mut actions),
            Event::Closed { socket } => self.closed(socket, &mut actions),
            Event::SessionUp { count } => {
                (self.session, self.latest) = (Some(count), count);
                self.waiting_of.clear();
                for (_, waiting) in std::mem::take(&mut self.waiting) {
                    self.send_up(waiting, &mut actions);
                }
            }
            Event::SessionDown => self.session_down(now, &mut actions),
            Event::Tick => self.tick(now, &mut actions),
        }
        self.check_invariants();
        actions
    }

    /// The socket's requests have nobody left to answer; pushes on their way to it are refused.
    fn closed(&mut self, socket: Socket, actions: &mut Vec<Action>) {
        self.up.end_of(socket);
        let waits = self.waiting_of.range((socket, Duration::ZERO, 0)..=(socket, Duration::MAX, u64::MAX));
        for wait in waits.copied().collect::<Vec<_>>() {
            self.waiting_of.remove(&wait);
            self.waiting.remove(&(wait.1, wait.2));
        }
        self.in_flight.close(socket);
        self.turned_away.remove(&socket);
        for ended in self.down.end_of(socket) {
            self.counts.pushes_refused += 1;
            actions.push(answer_cloudly(&ended, &node_not_connected(ended.purpose.node.as_str())));
        }
        if let Some(node) = self.roster.close(socket) {
            actions.push(Action::Note(Note::Gone { node }));
        }
    }

    /// What was sent on the session will not be answered on it. A registration waits again within its
    /// own wait, so that a node is not refused for a reconnect; anything else is refused by name.
    fn session_down(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.session = None;
        for ended in self.up.end_where(|_| true) {
            let registers = ended.purpose.kind == NodeMethod::Register;
            if registers && now.mono < ended.purpose.arrived + REGISTRATION_WAIT {
                self.wait(Waiting { method: ended.method, body: ended.body, up: ended.purpose });
            } else if registers {
                self.turn_away(&ended.method, &ended.purpose, actions);
            } else {
                self.refuse_node(&ended.method, &ended.purpose, &session_unavailable(0), actions);
            }
        }
    }

    fn tick(&mut self, now: Now, actions: &mut Vec<Action>) {
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.key().0 <= now.mono) {
            let ((until, number), waiting) = entry.remove_entry();
            self.waiting_of.remove(&(waiting.up.socket, until, number));
            self.turn_away(&waiting.method, &waiting.up, actions);
        }
        while let Some(due) = self.up.due(now) {
            match due {
                Due::Resend { frame, .. } => actions.push(Action::SendUp(frame)),
                Due::Expired(Ended { method, purpose, .. }) => {
                    let refusal = forward_timeout(&method, purpose.kind.budget().as_millis());
                    self.refuse_node(&method, &purpose, &refusal, actions);
                    let node = self.roster.node(purpose.socket).cloned();
                    actions.push(Action::Note(Note::Timeout { method, node }));
                }
            }
        }
        while let Some(due) = self.down.due(now) {
            match due {
                Due::Resend { purpose, frame } => {
                    actions.push(Action::SendDown { socket: purpose.socket, frame });
                }
                Due::Expired(ended) => {
                    let refusal = forward_timeout(&ended.method, PUSH_BUDGET.as_millis());
                    self.counts.pushes_refused += 1;
                    actions.push(answer_cloudly(&ended, &refusal));
                    let (method, node) = (ended.method, Some(ended.purpose.node));
                    actions.push(Action::Note(Note::Timeout { method, node }));
                }
            }
        }
    }

    fn check_invariants(&self) {
        let open = self.up.len() + self.waiting.len();
        debug_assert_eq!(self.in_flight.count(), open, "each request is counted once");
        debug_assert_eq!(self.waiting.len(), self.waiting_of.len(), "each wait is found by its socket");
        debug_assert!(
            self.session.is_none() || self.waiting.is_empty(),
            "nothing waits for a session that stands"
        );
        self.roster.check_invariants();
    }
}

impl Carried for Forwarder {
    fn carried(&self, node: &Id) -> Option<(&Binding, Socket)> {
        self.roster.carried(node)
    }
}

#[cfg(test)]
mod tests;
