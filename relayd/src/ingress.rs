//! The cluster ingress: holds the route table that Cloudly computes, binds the one ingress that Cloudly
//! accepted, hints it at a newer table, and gives it the table when it asks (ING).
//!
//! The table is in memory only (ING-03). Ingress and nodes share listener and router; what separates them
//! is which connection is bound (ING-35). Nothing that Cloudly refuses or fails to say, and no loss of its
//! session, takes the table or the binding away (ING-14, ING-36, PROT-20, REG-61).

use std::{collections::BTreeSet, time::Duration};

use coreflow_ipc::{
    messages::standing::IngressStanding,
    now::Now,
    typedrequest::{Answer, Request, UNKNOWN_METHOD, plain_refusal, write_answer},
};

use crate::{
    contract::{
        route_table::RouteTable,
        values::{Generation, Id, Reference},
    },
    forwarder::Socket,
    pending::{Due, Ended, Pending},
    protocol::Disagreement,
    routes::{IngressDispatch, IngressMethod, ingress_dispatch, ingress_method},
    session::Connection,
};

mod calls;
mod custody;
mod note;
mod registration;
mod table;

use calls::Down;
use custody::Custody;
pub use note::Note;
use registration::Registering;

/// What happens to the ingress, its answers apart: those are [`Ingress::cloudly_answered`] and
/// [`Ingress::socket_answered`].
pub enum Event {
    /// A socket of the listener sent one of the methods of [`crate::routes::ingress_method`].
    Request {
        /// Where it came from.
        socket: Socket,
        /// The request.
        request: Request,
    },
    /// Cloudly sent one of the methods of [`crate::routes::ingress_dispatch`].
    Dispatch {
        /// The connection that it came by, and that its answer belongs to.
        connection: Connection,
        /// The request.
        request: Request,
    },
    /// A socket of the listener ended.
    Closed {
        /// Which.
        socket: Socket,
    },
    /// The session is dispatchable on a new connection.
    SessionUp,
    /// The session is not dispatchable any more.
    SessionDown,
    /// Cloudly accepted a registration of this relay, changed or not (ING-11).
    Accepted,
    /// The relay is parked: nothing is read any more, and what is held stays (REG-57, REG-61).
    Parked,
    /// A deadline passed, or may have.
    Tick,
}

/// What the driver does for the ingress.
pub enum Action {
    /// Send a frame to Cloudly on the session that stands.
    SendUp(String),
    /// Send a frame to a socket of the listener.
    SendDown {
        /// To whom.
        socket: Socket,
        /// What.
        frame: String,
    },
    /// Answer Cloudly, if its connection is still the session's.
    AnswerUp {
        /// The connection that the request came by.
        connection: Connection,
        /// What.
        frame: String,
    },
    /// An ingress's offer was refused.
    OfferRefused(Disagreement),
    /// An ingress's offer was one that this relay serves.
    OfferServed,
    /// Another connection is bound in the place of this socket's (ING-25).
    Superseded(Socket),
    /// What the log says; no content (ING-04).
    Note(Note),
}

/// The one connection that Cloudly's acceptance bound.
struct Bound {
    socket: Socket,
    node: Id,
    /// What Cloudly registered, and in which session of this relay.
    ingress: Reference,
    session: u64,
}

/// Why Cloudly was called.
#[derive(Clone)]
enum Up {
    /// The relay reads the table; states [`Custody::stated`] of that time.
    Read { asked: u64 },
    /// An ingress registers.
    Registration(Registering),
}

/// The ingress's state.
#[derive(Default)]
pub struct Ingress {
    session: bool,
    /// Counts the sessions.
    sessions: u64,
    /// Cloudly accepted this relay's registration in this session, so that it answers reads (ING-12, ING-13).
    accepted: bool,
    custody: Custody,
    /// When a failed read is made again.
    again: Option<Duration>,
    bound: Option<Bound>,
    registering: BTreeSet<Socket>,
    up: Pending<Up>,
    down: Pending<Down>,
    statistics: usize,
}

impl Ingress {
    /// When [`Event::Tick`] is due, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        [self.up.next_deadline(), self.down.next_deadline(), self.again].into_iter().flatten().min()
    }

    /// How many questions of Cloudly the ingress has not answered yet (START-24).
    pub fn questions_in_flight(&self) -> usize {
        self.statistics
    }

    /// How the ingress stands; of the table its revision and its size alone (ING-04, ING-05).
    pub fn standing(&self) -> IngressStanding {
        IngressStanding {
            bound: self.bound.is_some(),
            revision: self.custody.revision().map(Generation::get),
            routes: self.custody.table().map_or(0, |table| short(RouteTable::routes(table))),
        }
    }

    /// The bound connection.
    pub fn bound(&self) -> Option<Socket> {
        self.bound.as_ref().map(|bound| bound.socket)
    }

    /// Whether an answer of Cloudly is to what was sent up from here.
    pub fn asked_cloudly(&self, answer: &Answer) -> bool {
        self.up.made(answer)
    }

    /// Whether an answer of a socket is to what was sent down from here.
    pub fn asked_socket(&self, answer: &Answer) -> bool {
        self.down.made(answer)
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Request { socket, request } => self.request(socket, request, now, &mut actions),
            Event::Dispatch { connection, request } => self.dispatch(connection, request, now, &mut actions),
            Event::Closed { socket } => self.closed(socket, &mut actions),
            Event::SessionUp => {
                self.session = true;
                self.sessions += 1;
            }
            Event::SessionDown => self.session_down(now, &mut actions),
            Event::Accepted => {
                self.accepted = self.session;
                self.read(now, &mut actions);
            }
            Event::Parked => (self.accepted, self.again) = (false, None),
            Event::Tick => self.tick(now, &mut actions),
        }
        self.check_invariants();
        actions
    }

    /// Takes an answer of Cloudly; `None` when it answers nothing that was sent up from here.
    pub fn cloudly_answered(&mut self, answer: Answer, now: Now) -> Option<Vec<Action>> {
        let mut actions = Vec::new();
        let (ended, outcome) = self.up.answered(answer, now, |_| true)?;
        match ended.purpose {
            Up::Read { asked } => self.was_read(asked, &outcome, now, &mut actions),
            Up::Registration(registering) => {
                self.registered(&ended.method, &registering, outcome, &mut actions);
            }
        }
        self.check_invariants();
        Some(actions)
    }

    fn request(&mut self, socket: Socket, request: Request, now: Now, actions: &mut Vec<Action>) {
        let outcome = match ingress_method(&request.method) {
            Some(IngressMethod::Register) => return self.register(socket, request, now, actions),
            Some(IngressMethod::RouteTable) => self.table_for(socket, &request.body, actions),
            None => plain_refusal(UNKNOWN_METHOD),
        };
        let frame = write_answer(&request.method, &request.ids, &outcome);
        actions.push(Action::SendDown { socket, frame });
    }

    fn dispatch(&mut self, connection: Connection, request: Request, now: Now, actions: &mut Vec<Action>) {
        let outcome = match ingress_dispatch(&request.method) {
            Some(IngressDispatch::RouteTable) => self.pushed(&request.body, now, actions),
            Some(IngressDispatch::Statistics) => match self.ask_statistics(connection, &request, now) {
                Ok(action) => return actions.push(action),
                Err(refusal) => refusal,
            },
            None => plain_refusal(UNKNOWN_METHOD),
        };
        let frame = write_answer(&request.method, &request.ids, &outcome);
        actions.push(Action::AnswerUp { connection, frame });
    }

    /// Whoever asked on the socket is gone, and what was asked of it is refused. The binding ends with its
    /// own connection only (ING-26).
    fn closed(&mut self, socket: Socket, actions: &mut Vec<Action>) {
        self.registering.remove(&socket);
        self.up.end_where(|up| up.registers(socket));
        self.callee_closed(socket, actions);
        if let Some(Bound { node, .. }) = self.bound.take_if(|bound| bound.socket == socket) {
            actions.push(Action::Note(Note::Released { node }));
        }
    }

    /// What was sent on the session will not be answered on it (ING-33). Table and binding stay.
    fn session_down(&mut self, now: Now, actions: &mut Vec<Action>) {
        (self.session, self.accepted, self.again) = (false, false, None);
        for Ended { method, purpose, .. } in self.up.end_where(|_| true) {
            self.not_said(&method, purpose, "closed", now, actions);
        }
    }

    fn tick(&mut self, now: Now, actions: &mut Vec<Action>) {
        while let Some(due) = self.up.due(now) {
            match due {
                Due::Resend { frame, .. } => actions.push(Action::SendUp(frame)),
                Due::Expired(Ended { method, purpose, .. }) => {
                    self.not_said(&method, purpose, "timeout", now, actions);
                }
            }
        }
        self.calls_due(now, actions);
        if self.again.is_some_and(|at| at <= now.mono) {
            self.read(now, actions);
        }
    }

    /// Cloudly did not answer.
    fn not_said(&mut self, method: &str, purpose: Up, class: &str, now: Now, actions: &mut Vec<Action>) {
        match purpose {
            Up::Read { asked } => {
                self.not_read(asked, Note::NotRead { class: class.to_owned() }, now, actions)
            }
            Up::Registration(registering) => self.not_carried(method, &registering, class, actions),
        }
    }

    fn check_invariants(&self) {
        let hints = self.down.len() - self.statistics;
        debug_assert!(hints <= 1, "one hint is under way at most");
        let reads = self.up.len() - self.registering.len();
        debug_assert!(reads <= 1, "one read is under way at most");
        debug_assert!(self.session || self.up.is_empty(), "nothing is under way without a session");
        debug_assert!(self.again.is_none() || self.accepted && reads == 0, "a failed read is made again");
    }
}

fn short(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Up {
    fn is_read(&self) -> bool {
        match self {
            Self::Read { .. } => true,
            Self::Registration(_) => false,
        }
    }

    fn registers(&self, socket: Socket) -> bool {
        match self {
            Self::Read { .. } => false,
            Self::Registration(registering) => registering.socket == socket,
        }
    }
}

#[cfg(test)]
mod tests;
