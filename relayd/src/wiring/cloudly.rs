//! The connection to Cloudly as the loop performs it: the identity that is asked for, the dial, what is sent and
//! what came (SES-16).

use std::sync::Arc;

use coreflow_ipc::typedrequest::{Envelope, Malformed};
use tokio::{sync::mpsc, task::AbortHandle, time::timeout};
use tracing::{debug, info, warn};

use super::Relayd;
use crate::{
    constants::DIAL_BUDGET,
    core::Event,
    session::{
        self, Connection,
        dial::{DialError, LIMITS},
    },
    websocket::{self, Outlet, Receiver},
};

/// What the session's tasks report.
pub(super) enum FromSession {
    Event(Event),
    Opened(Connection, Outlet),
}

/// A connection to Cloudly from its dial to its end.
pub(super) struct Dial {
    pub(super) task: AbortHandle,
    pub(super) opened: bool,
}

impl Relayd {
    pub(super) async fn session_event(&mut self, event: FromSession) {
        match event {
            FromSession::Opened(connection, outlet) if self.core.is_current(connection) => {
                if let Some(dial) = self.dials.get_mut(&connection) {
                    dial.opened = true;
                }
                self.cloudly = Some((connection, outlet));
                self.handle(Event::Session(session::Event::Connected { connection })).await;
            }
            // The session went on without this dial; dropping its outlet closes it.
            FromSession::Opened(..) => {}
            FromSession::Event(event) => {
                if let Event::Session(session::Event::Closed { connection }) = event {
                    self.dials.remove(&connection);
                    self.cloudly.take_if(|(open, _)| *open == connection);
                }
                self.handle(event).await;
            }
        }
    }

    /// A Cloudly that is behind costs what does not fit, which its caller's own budget answers; a session
    /// that is closed for it would cost every node. One that takes nothing at all is closed by its task.
    pub(super) fn send_cloudly(&mut self, connection: Connection, frame: String) {
        let Some((open, outlet)) = &self.cloudly else { return };
        if *open != connection {
            return;
        }
        let behind = !outlet.send(frame) && !outlet.ended();
        if behind && !self.cloudly_behind {
            warn!("Cloudly is behind in taking what it is sent; what does not fit is left out");
        }
        self.cloudly_behind = behind;
    }

    pub(super) fn ask_identity(&self) {
        let (supervisor, events) = (self.supervisor.clone(), self.session.0.clone());
        tokio::spawn(async move {
            let event = match supervisor.ask_identity().await {
                Ok(identity) => Event::Identity(identity),
                Err(denied) => {
                    debug!(?denied, "there is no identity");
                    Event::Session(session::Event::IdentityDenied)
                }
            };
            let _ = events.send(FromSession::Event(event)).await;
        });
    }

    pub(super) fn dial(&self, connection: Connection) -> AbortHandle {
        let (supervisor, dialer, events) =
            (self.supervisor.clone(), Arc::clone(&self.dialer), self.session.0.clone());
        let task = tokio::spawn(async move {
            let dialled = timeout(DIAL_BUDGET, async {
                let addresses = supervisor.ask_addresses().await;
                dialer.dial(&addresses.map_err(|class| DialError::new("dns", class))?).await
            });
            let class = match dialled.await {
                Ok(Ok(stream)) => {
                    let (outlet, inlet) = websocket::queue(LIMITS);
                    let _ = events.send(FromSession::Opened(connection, outlet)).await;
                    let receiver = FromCloudly { connection, events: events.clone() };
                    websocket::run(stream, inlet, LIMITS, receiver).await.class().to_owned()
                }
                Ok(Err(DialError { class, code })) => format!("{class} ({code})"),
                Err(_) => "timeout".to_owned(),
            };
            info!(class, "the connection to Cloudly ended");
            let event = session::Event::Closed { connection };
            let _ = events.send(FromSession::Event(Event::Session(event))).await;
        });
        task.abort_handle()
    }
}

struct FromCloudly {
    connection: Connection,
    events: mpsc::Sender<FromSession>,
}

impl Receiver for FromCloudly {
    async fn envelope(&mut self, envelope: Envelope, _: usize) -> bool {
        let event = Event::FromCloudly { connection: self.connection, envelope };
        self.events.send(FromSession::Event(event)).await.is_ok()
    }

    fn malformed(&mut self, malformed: Malformed) {
        // Cloudly is one authenticated peer; the supervisor's budget bounds these lines.
        warn!(class = %malformed, "Cloudly sent what is no request; it got no answer");
    }
}
