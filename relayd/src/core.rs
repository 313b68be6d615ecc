//! Relayd's core: the machines side by side, and what each event of one means to the others.
//!
//! It owns no socket, task, timer or clock; [`crate::wiring`] performs its effects in order.

use std::time::Duration;

use coreflow_ipc::{
    asks::AskId,
    messages::{
        relayd::{Identity, Kept, VpnFacts},
        vpn_network::Snapshot,
    },
    now::Now,
    typedrequest::{Body, Envelope, Outcome, PeerError},
};
use tracing::warn;

use crate::{
    certificate::{Chain, Loaded, renewal::Renewal},
    cluster::{Origin, Served},
    constants::CALL_BUDGET,
    continuity::Continuity,
    contract::identity::{Identified, SessionRegistered},
    escrow::{self, Escrow},
    forwarder::{self, Forwarder, Socket},
    hub::{self, Hub},
    ingress::{self, Ingress},
    pending::{Due, Ended, Pending},
    protocol::{Kind, compatible, refused_by_cloudly},
    readiness::{Readiness, Refusal},
    refusals::PROTOCOL_REFUSED,
    registration::{self, Answered, Registration},
    session::{self, Connection, Session},
};

mod announcing;
mod calls;
mod carrying;
mod certificate;
mod connecting;
mod notes;
mod routing;

mod standing;
mod stated;
mod superseded;
mod vpn;

use calls::Purpose;
pub use calls::{CallFailure, OwnCall, Read};
pub use notes::Statement;
pub use standing::Beside;
use stated::Stated;
use superseded::Superseded;

/// What the relay serves, once its listener is open.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `COREFLOW_NODE_ID`.
    pub node_id: String,
    /// The address that was bound, as it is reported (REG-16).
    pub listen_address: String,
    /// The port that was bound.
    pub listen_port: u16,
    /// The origin that the listener terminates.
    pub origin: Origin,
    /// The certificate that it began with.
    pub certificate: Chain,
    /// The configured hub, if there is one.
    pub vpn: Option<VpnFacts>,
}

/// What happens to relayd.
pub enum Event {
    /// The session's own events.
    Session(session::Event),
    /// The supervisor got an identity.
    Identity(Identity),
    /// Cloudly sent something.
    FromCloudly {
        /// Which dial it came by.
        connection: Connection,
        /// What.
        envelope: Envelope,
    },
    /// A node sent something.
    FromNode {
        /// Which socket it came by.
        socket: Socket,
        /// What.
        envelope: Envelope,
    },
    /// A node's socket ended.
    NodeClosed {
        /// Which.
        socket: Socket,
    },
    /// The start reads something of Cloudly.
    Read(Read),
    /// The start read the cluster's document.
    Started(Served),
    /// The listener is open.
    Listening(Box<Endpoint>),
    /// The listener accepts nothing more and the relay ends.
    Stop,
    /// Something happened on a link to vpnd.
    Vpnd(hub::Told),
    /// A network was validated beside the core.
    NetworkValidated {
        /// Of [`Effect::ValidateNetwork`].
        job: hub::Job,
        /// What came of it.
        carried: hub::Carried,
    },
    /// A deadline passed, or may have.
    Tick,
}

/// What the wiring does, in this order.
pub enum Effect {
    /// An action of the session.
    AskIdentity,
    /// Dial Cloudly.
    Dial(Connection),
    /// Close the connection to Cloudly.
    Hangup(Connection),
    /// Send to Cloudly.
    ToCloudly {
        /// On which connection.
        connection: Connection,
        /// What.
        frame: String,
    },
    /// Send to a node.
    ToNode {
        /// To whom.
        socket: Socket,
        /// What.
        frame: String,
    },
    /// Close a node's socket.
    CloseNode(Socket),
    /// Answer a read of the start.
    Answer {
        /// The read.
        read: Read,
        /// Its body, or why there is none.
        result: Result<Body, CallFailure>,
    },
    /// Whether the session is dispatchable, for who waits for it.
    Dispatchable(bool),
    /// What the start waits for, when it changed.
    Waiting(String),
    /// Hand the supervisor what outlives this process.
    Keep(Kept),
    /// Say what was kept: once it is said, a restart of this process does not undo it.
    State(Statement),
    /// Validate the network of a body on another thread, by [`hub::read_carried`]; one at a time.
    ValidateNetwork {
        /// Copied into [`Event::NetworkValidated`].
        job: hub::Job,
        /// What carries it.
        body: Body,
    },
    /// Have vpnd serve a network.
    ApplyNetwork {
        /// On which link.
        link: hub::Link,
        /// Copied into the answer.
        id: AskId,
        /// What.
        snapshot: Box<Snapshot>,
    },
    /// Serve another certificate from the next handshake on (XTR-08).
    Serve(Loaded),
    /// What blocks the hops changed.
    Readiness(Vec<Refusal>),
    /// Nothing is in flight any more: the relay may end.
    Drained,
}

/// Relayd's state.
pub struct Core {
    session: Session,
    registration: Registration,
    forwarder: Forwarder,
    escrow: Escrow,
    ingress: Ingress,
    hub: Hub,
    /// The hub's key in the registration that was sent last.
    advertised: Option<[u8; 32]>,
    continuity: Continuity,
    readiness: Readiness,
    /// What this process stated of it; a relayd that resumes parked states that first (PROT-33).
    stated: Stated,
    superseded: Superseded,
    calls: Pending<Purpose>,
    identity: Option<Identity>,
    served: Option<Served>,
    endpoint: Option<Endpoint>,
    renewal: Renewal,
    stopping: bool,
    drained: bool,
}

impl Core {
    /// Goes on from what an earlier relayd of this service left.
    pub fn resume(kept: Kept) -> Self {
        let mut readiness = Readiness::default();
        if let Some(line) = &kept.parked {
            readiness.park(line.clone());
        }
        let escrow = Escrow::resume(kept.parked.is_some());
        Self {
            session: Session::resume(kept.parked.is_some()),
            registration: Registration::resume(kept),
            forwarder: Forwarder::default(),
            escrow,
            ingress: Ingress::default(),
            hub: Hub::default(),
            advertised: None,
            continuity: Continuity::default(),
            readiness,
            stated: Stated::default(),
            superseded: Superseded::default(),
            calls: Pending::default(),
            identity: None,
            served: None,
            endpoint: None,
            renewal: Renewal::default(),
            stopping: false,
            drained: false,
        }
    }

    /// When [`Event::Tick`] is due, on the monotonic clock.
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        [
            self.session.next_deadline(now),
            self.registration.next_deadline(),
            self.forwarder.next_deadline(),
            self.continuity.next_deadline(),
            self.calls.next_deadline(),
            self.certificate_deadline(now),
            self.escrow.next_deadline(now),
            self.ingress.next_deadline(),
            self.hub.next_deadline(),
            self.stated.next_deadline(),
            self.superseded_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether `connection` is the session's: one that it is opening or has open.
    pub fn is_current(&self, connection: Connection) -> bool {
        self.session.connection() == Some(connection)
    }

    /// Whether a node is carried on `socket`, or the ingress is bound on it.
    pub fn carries(&self, socket: Socket) -> bool {
        self.forwarder.carries(socket) || self.ingress.bound() == Some(socket)
    }

    /// Says whether what waits to be sent to Cloudly leaves no room for more of the nodes' requests.
    pub fn uplink_full(&mut self, full: bool) {
        self.forwarder.uplink_full(full);
    }

    /// Takes an event; `random` draws the jitter of a backoff.
    pub fn handle(&mut self, event: Event, now: Now, random: u32) -> Vec<Effect> {
        let mut turn = Turn { now, random, effects: Vec::new() };
        match event {
            Event::Session(event) => self.session(&event, &mut turn),
            Event::Identity(identity) => {
                let event = session::Event::IdentityGranted { expires_at: identity.expires_at };
                self.identity = Some(identity);
                self.session(&event, &mut turn);
            }
            Event::FromCloudly { connection, envelope } => self.cloudly_sent(connection, envelope, &mut turn),
            Event::FromNode { socket, envelope } => self.socket_sent(socket, envelope, &mut turn),
            Event::NodeClosed { socket } => self.socket_closed(socket, &mut turn),
            Event::Read(read) => self.read(read, &mut turn),
            Event::Started(served) => self.served = Some(served),
            Event::Listening(endpoint) => {
                self.renewal.serves(endpoint.certificate.term, turn.now, turn.random);
                self.hub(hub::Event::Configured(endpoint.vpn.clone()), &mut turn);
                self.endpoint = Some(*endpoint);
                let awaits_hub = self.hub.lacks_key();
                self.register(registration::Event::Listening { awaits_hub }, &mut turn);
            }
            Event::Stop => {
                self.stopping = true;
                // Nobody is asked to register with a relay that goes.
                self.continuity.session_lost();
                // Before any node's socket is closed (LIS-26).
                self.escrow(escrow::Event::Stop, &mut turn);
            }
            Event::Vpnd(told) => self.vpnd_told(told, &mut turn),
            Event::NetworkValidated { job, carried } => {
                self.hub(hub::Event::Validated { job, carried }, &mut turn);
            }
            Event::Tick => self.tick(&mut turn),
        }
        if let Some(refusals) = self.stated.state(self.readiness.check(), turn.now) {
            turn.effects.push(Effect::Readiness(refusals));
        }
        let in_flight = self.forwarder.pushes_in_flight()
            + self.ingress.questions_in_flight()
            + self.hub.pushes_in_flight();
        if self.stopping && !self.drained && in_flight == 0 {
            // Cloudly's requests are answered; the session goes last (START-22, START-24).
            self.drained = true;
            self.session(&session::Event::Stop, &mut turn);
            turn.effects.push(Effect::Drained);
        }
        turn.effects
    }

    fn call(&mut self, connection: Connection, method: &str, body: Body, purpose: Purpose, turn: &mut Turn) {
        let deadline = turn.now.mono + CALL_BUDGET;
        let frame = self.calls.open(method.to_owned(), body, deadline, purpose);
        turn.effects.push(Effect::ToCloudly { connection, frame });
    }

    fn ended(&mut self, ended: Ended<Purpose>, outcome: Result<Outcome, &'static str>, turn: &mut Turn) {
        let answered = match outcome {
            Ok(Outcome::Response(body)) => Answered::Response(body),
            Ok(Outcome::Error(error)) => Answered::Refused(PeerError::of(&error)),
            Err(class) => Answered::Failed(class.to_owned()),
        };
        match ended.purpose {
            Purpose::Announce(connection) => self.announced(connection, &answered, turn),
            Purpose::Register => self.register(registration::Event::Answered(answered), turn),
            Purpose::RenewCertificate => self.certificate_answered(&answered, turn),
            Purpose::Observe => match answered {
                Answered::Response(body) => self.observe(&body),
                Answered::Refused(error) => {
                    warn!(method = ended.method, "a read was refused: {}", error.text);
                }
                Answered::Failed(class) => warn!(method = ended.method, class, "a read failed"),
            },
            Purpose::Read(read) => {
                let result = match answered {
                    Answered::Response(body) => Ok(body),
                    Answered::Refused(error) => Err(CallFailure::Refused(error.text)),
                    Answered::Failed(class) => Err(CallFailure::Failed(class)),
                };
                turn.effects.push(Effect::Answer { read, result });
            }
        }
    }

    fn read(&mut self, read: Read, turn: &mut Turn) {
        let (Some(identity), Some(connection), true) =
            (&self.identity, self.session.connection(), self.session.dispatchable())
        else {
            let result = Err(CallFailure::Failed("no-session".to_owned()));
            return turn.effects.push(Effect::Answer { read, result });
        };
        let body = match &read.call {
            OwnCall::ClusterConfig => Body::of(&Identified { identity: &calls::document(identity) }),
            OwnCall::Certificate { domain } => calls::get_certificate(identity, domain),
        };
        self.call(connection, read.call.method(), body, Purpose::Read(read), turn);
    }

    fn tick(&mut self, turn: &mut Turn) {
        self.session(&session::Event::Tick, turn);
        self.register(registration::Event::Tick, turn);
        self.forward(forwarder::Event::Tick, turn);
        self.escrow(escrow::Event::Tick, turn);
        self.ingress(ingress::Event::Tick, turn);
        self.hub(hub::Event::Tick, turn);
        self.recarry(turn);
        self.close_superseded(turn);
        self.renew_certificate(turn);
        while let Some(due) = self.calls.due(turn.now) {
            match due {
                Due::Resend { frame, .. } => {
                    if let Some(connection) = self.session.connection() {
                        turn.effects.push(Effect::ToCloudly { connection, frame });
                    }
                }
                Due::Expired(ended) => self.ended(ended, Err("timeout"), turn),
            }
        }
    }
}

struct Turn {
    now: Now,
    random: u32,
    effects: Vec<Effect>,
}

#[cfg(test)]
mod tests;
