//! The Cloudly session: one connection at a time, authenticated, renewed, and dialled again with a
//! bounded backoff (SES-01, SES-08, SES-09, SES-13, SES-14, SES-15, SES-20).
//!
//! The machine decides; its driver asks the supervisor, dials, and sends. `controlPlaneReady` of the
//! specification is [`Session::dispatchable`] (SES-18).

use std::time::Duration;

use coreflow_ipc::{backoff::Backoff, messages::standing::SessionStanding, now::Now};

use crate::constants::{
    RECONNECT_FIRST, RECONNECT_LONGEST, REFUSED_OFFER_RETRY, RENEWAL_LEAD, RENEWAL_SHORTEST, SESSION_PROVEN,
};

pub mod dial;

/// Numbers the dials of this process; an event of an older one is stale.
pub type Connection = u64;

/// What `registerCloudlyClientSession` led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announced {
    /// Cloudly accepted, in a contract that this build serves.
    Accepted,
    /// The offers disagree, or the answer is not the contract's: made again at the contract's pace.
    NotServed,
    /// Cloudly refused otherwise, or the call failed: a fresh identity is needed.
    Failed,
}

/// What happens to the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The relay starts.
    Started,
    /// The supervisor got an identity that ends at `expires_at` (Unix milliseconds).
    IdentityGranted {
        /// The identity's end.
        expires_at: u64,
    },
    /// The supervisor got none.
    IdentityDenied,
    /// The dial led to an open WebSocket.
    Connected {
        /// Which dial.
        connection: Connection,
    },
    /// The dial failed, or the socket ended.
    Closed {
        /// Which dial.
        connection: Connection,
    },
    /// The announcement was answered.
    Announced {
        /// On which connection.
        connection: Connection,
        /// How.
        announced: Announced,
    },
    /// The relay parks (REG-57).
    Park,
    /// The relay stops.
    Stop,
    /// A deadline passed, or may have.
    Tick,
}

/// What the driver does for the session, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the supervisor for an identity (ARC-08).
    AskIdentity,
    /// Dial Cloudly.
    Dial {
        /// The number of the dial.
        connection: Connection,
    },
    /// Send `registerCloudlyClientSession` with the latest identity.
    Announce {
        /// Where to send it.
        connection: Connection,
    },
    /// Close the socket.
    Hangup {
        /// Which.
        connection: Connection,
    },
    /// The session is registered and dispatchable.
    Registered {
        /// How many connections the session was registered on (OUT-02).
        count: u64,
        /// An identity was renewed on the unbroken socket: the count is unchanged (OUT-03).
        renewed: bool,
    },
    /// The session is no longer dispatchable.
    Lost,
}

/// When the identity of the session is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    wall: u64,
    mono: Duration,
    /// The identity's end, in Unix milliseconds.
    ends: u64,
}

impl Due {
    /// A quarter of the life before the end, five minutes at most. On both clocks: whichever says so
    /// first, since a jump of the wall clock makes only one of them wrong.
    fn of(expires_at: u64, now: Now) -> Self {
        let life = Duration::from_millis(expires_at.saturating_sub(now.wall));
        let wait = (life - RENEWAL_LEAD.min(life / 4)).max(RENEWAL_SHORTEST);
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self { wall: now.wall.saturating_add(wait_ms), mono: now.mono.saturating_add(wait), ends: expires_at }
    }

    fn passed(self, now: Now) -> bool {
        now.wall >= self.wall || now.mono >= self.mono
    }

    fn deadline(self, now: Now) -> Duration {
        self.mono.min(now.mono + Duration::from_millis(self.wall.saturating_sub(now.wall)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    Due(Due),
    Waiting { until: Duration },
    Asking,
    Announcing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting { until: Duration },
    Asking,
    Dialing { connection: Connection, due: Due },
    Announcing { connection: Connection, due: Due },
    Refused { connection: Connection, again: Duration },
    Standing { connection: Connection, since: Duration, renewal: Renewal },
    Parked { registered: Option<Connection>, open: Option<Connection> },
    Stopped,
}

/// The session's state.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    identity: Option<Due>,
    /// An identity was asked for and neither granted nor denied yet: there is one ask at a time.
    asking: bool,
    dials: Connection,
    count: u64,
    backoff: Backoff,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            identity: None,
            asking: false,
            dials: 0,
            count: 0,
            backoff: Backoff::new(RECONNECT_FIRST, RECONNECT_LONGEST),
        }
    }
}

impl Session {
    /// The session of a relayd that begins; one that resumes parked asks for nothing (SES-14).
    pub fn resume(parked: bool) -> Self {
        let phase = if parked { Phase::Parked { registered: None, open: None } } else { Phase::Idle };
        Self { phase, ..Self::default() }
    }

    /// `controlPlaneReady`: whether requests can be sent to Cloudly (SES-18).
    pub fn dispatchable(&self) -> bool {
        match self.phase {
            Phase::Standing { .. } => true,
            Phase::Parked { registered, .. } => registered.is_some(),
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Asking
            | Phase::Dialing { .. }
            | Phase::Announcing { .. }
            | Phase::Refused { .. }
            | Phase::Stopped => false,
        }
    }

    /// How many connections the session was registered on (OUT-02).
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The connection that is open or being opened.
    pub fn connection(&self) -> Option<Connection> {
        match self.phase {
            Phase::Dialing { connection, .. }
            | Phase::Announcing { connection, .. }
            | Phase::Refused { connection, .. }
            | Phase::Standing { connection, .. } => Some(connection),
            Phase::Parked { open, .. } => open,
            Phase::Idle | Phase::Waiting { .. } | Phase::Asking | Phase::Stopped => None,
        }
    }

    /// Whether the relay is parked (SES-14).
    pub fn parked(&self) -> bool {
        matches!(self.phase, Phase::Parked { .. })
    }

    /// How the session stands.
    pub fn standing(&self) -> SessionStanding {
        SessionStanding {
            dispatchable: self.dispatchable(),
            connections: self.count,
            identity_ends_at: self.identity.map(|due| due.ends),
        }
    }

    /// When [`Event::Tick`] is due, on the monotonic clock.
    pub fn next_deadline(&self, now: Now) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Refused { again, .. } => Some(again),
            Phase::Standing { renewal: Renewal::Due(due), .. } => Some(due.deadline(now)),
            Phase::Standing { renewal: Renewal::Waiting { until }, .. } => Some(until),
            Phase::Standing { renewal: Renewal::Asking | Renewal::Announcing, .. }
            | Phase::Idle
            | Phase::Asking
            | Phase::Dialing { .. }
            | Phase::Announcing { .. }
            | Phase::Parked { .. }
            | Phase::Stopped => None,
        }
    }

    /// Takes an event; `random` draws the jitter of a backoff.
    pub fn handle(&mut self, event: &Event, now: Now, random: u32) -> Vec<Action> {
        match event {
            Event::Started if self.phase == Phase::Idle => self.connect(now),
            Event::Started => Vec::new(),
            Event::IdentityGranted { expires_at } => self.granted(Due::of(*expires_at, now)),
            Event::IdentityDenied => self.denied(now, random),
            Event::Connected { connection } => self.connected(*connection),
            Event::Closed { connection } => self.closed(*connection, now, random),
            Event::Announced { connection, announced } => self.announced(*connection, announced, now, random),
            Event::Park => self.park(),
            Event::Stop => self.stop(),
            Event::Tick => self.tick(now),
        }
    }

    /// Asks for an identity, or dials with the one that is still good.
    fn connect(&mut self, now: Now) -> Vec<Action> {
        match self.identity.filter(|due| !due.passed(now)) {
            Some(due) => self.dial(due),
            None => {
                self.phase = Phase::Asking;
                self.ask()
            }
        }
    }

    fn ask(&mut self) -> Vec<Action> {
        if std::mem::replace(&mut self.asking, true) { Vec::new() } else { vec![Action::AskIdentity] }
    }

    fn dial(&mut self, due: Due) -> Vec<Action> {
        self.dials += 1;
        self.phase = Phase::Dialing { connection: self.dials, due };
        vec![Action::Dial { connection: self.dials }]
    }

    fn wait(&mut self, now: Now, random: u32) {
        self.phase = Phase::Waiting { until: now.mono + self.backoff.advance_jittered(random) };
    }

    fn granted(&mut self, due: Due) -> Vec<Action> {
        self.identity = Some(due);
        self.asking = false;
        match &mut self.phase {
            Phase::Asking => self.dial(due),
            Phase::Standing { connection, renewal: renewal @ Renewal::Asking, .. } => {
                *renewal = Renewal::Announcing;
                vec![Action::Announce { connection: *connection }]
            }
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Dialing { .. }
            | Phase::Announcing { .. }
            | Phase::Refused { .. }
            | Phase::Standing { .. }
            | Phase::Parked { .. }
            | Phase::Stopped => Vec::new(),
        }
    }

    fn denied(&mut self, now: Now, random: u32) -> Vec<Action> {
        self.asking = false;
        if self.phase == Phase::Asking {
            self.wait(now, random);
        } else if let Phase::Standing { renewal: renewal @ Renewal::Asking, .. } = &mut self.phase {
            *renewal = Renewal::Waiting { until: now.mono + self.backoff.advance_jittered(random) };
        }
        Vec::new()
    }

    fn connected(&mut self, connected: Connection) -> Vec<Action> {
        let Phase::Dialing { connection, due } = self.phase else { return Vec::new() };
        if connection != connected {
            return Vec::new();
        }
        self.phase = Phase::Announcing { connection, due };
        vec![Action::Announce { connection }]
    }

    fn closed(&mut self, closed: Connection, now: Now, random: u32) -> Vec<Action> {
        if self.connection() != Some(closed) {
            return Vec::new();
        }
        let lost = self.dispatchable();
        if let Phase::Standing { since, .. } = self.phase
            && now.mono.saturating_sub(since) >= SESSION_PROVEN
        {
            self.backoff.reset();
        }
        match self.phase {
            Phase::Parked { .. } => self.phase = Phase::Parked { registered: None, open: None },
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Asking
            | Phase::Dialing { .. }
            | Phase::Announcing { .. }
            | Phase::Refused { .. }
            | Phase::Standing { .. }
            | Phase::Stopped => self.wait(now, random),
        }
        if lost { vec![Action::Lost] } else { Vec::new() }
    }

    fn announced(
        &mut self,
        answered: Connection,
        announced: &Announced,
        now: Now,
        random: u32,
    ) -> Vec<Action> {
        match &mut self.phase {
            Phase::Announcing { connection, due } if *connection == answered => {
                let (connection, due) = (*connection, *due);
                match announced {
                    Announced::Accepted => {
                        self.count += 1;
                        self.phase =
                            Phase::Standing { connection, since: now.mono, renewal: Renewal::Due(due) };
                        vec![Action::Registered { count: self.count, renewed: false }]
                    }
                    Announced::NotServed => {
                        self.phase = Phase::Refused { connection, again: now.mono + REFUSED_OFFER_RETRY };
                        Vec::new()
                    }
                    Announced::Failed => {
                        self.identity = None;
                        self.wait(now, random);
                        vec![Action::Hangup { connection }]
                    }
                }
            }
            Phase::Standing { connection, renewal: renewal @ Renewal::Announcing, .. }
                if *connection == answered =>
            {
                match announced {
                    Announced::Accepted => {
                        *renewal = Renewal::Due(self.identity.expect("an announced identity was granted"));
                        vec![Action::Registered { count: self.count, renewed: true }]
                    }
                    Announced::NotServed => {
                        *renewal = Renewal::Waiting { until: now.mono + REFUSED_OFFER_RETRY };
                        Vec::new()
                    }
                    Announced::Failed => {
                        *renewal =
                            Renewal::Waiting { until: now.mono + self.backoff.advance_jittered(random) };
                        Vec::new()
                    }
                }
            }
            Phase::Announcing { .. }
            | Phase::Standing { .. }
            | Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Asking
            | Phase::Dialing { .. }
            | Phase::Refused { .. }
            | Phase::Parked { .. }
            | Phase::Stopped => Vec::new(),
        }
    }

    /// No refresh and no further dial from here on; what is open stays open (SES-14, SES-15).
    fn park(&mut self) -> Vec<Action> {
        if self.phase == Phase::Stopped {
            return Vec::new();
        }
        let open = self.connection();
        self.phase = Phase::Parked { registered: open.filter(|_| self.dispatchable()), open };
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Action> {
        let (open, lost) = (self.connection(), self.dispatchable());
        self.phase = Phase::Stopped;
        let lost = lost.then_some(Action::Lost);
        open.map(|connection| Action::Hangup { connection }).into_iter().chain(lost).collect()
    }

    fn tick(&mut self, now: Now) -> Vec<Action> {
        match &mut self.phase {
            Phase::Waiting { until } if *until <= now.mono => self.connect(now),
            Phase::Refused { connection, again } if *again <= now.mono => {
                let connection = *connection;
                let due = self.identity.expect("an announced identity was granted");
                self.phase = Phase::Announcing { connection, due };
                vec![Action::Announce { connection }]
            }
            Phase::Standing { renewal, .. } => {
                let due = match *renewal {
                    Renewal::Due(due) => due.passed(now),
                    Renewal::Waiting { until } => until <= now.mono,
                    Renewal::Asking | Renewal::Announcing => false,
                };
                if !due {
                    return Vec::new();
                }
                *renewal = Renewal::Asking;
                self.ask()
            }
            Phase::Idle
            | Phase::Waiting { .. }
            | Phase::Asking
            | Phase::Dialing { .. }
            | Phase::Announcing { .. }
            | Phase::Refused { .. }
            | Phase::Parked { .. }
            | Phase::Stopped => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
