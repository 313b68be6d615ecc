//! Does what the machine decides: dials, watches the session, tells the host.

use std::{
    future::pending,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use coreflow_ipc::now::Clock;
use tokio::{
    sync::{mpsc, watch},
    time::{sleep_until, timeout},
};
use tracing::{debug, info};

use super::{
    NodeEvent, Why,
    dialing::{Action, Dial, Dialing, Event},
    session::{Dialer, Session},
};
use crate::{
    constants::NODE_STOP_BUDGET,
    protocol::{close::Close, closing},
};

/// What a host tells a node's driver; that it holds none of the other end any more means to stop.
pub(super) enum Order {
    /// The local address changed.
    Moved,
}

type Attempt = Pin<Box<dyn Future<Output = Result<Session, Why>> + Send>>;

pub(super) struct Driver {
    dialer: Arc<Dialer>,
    sessions: watch::Sender<Option<Arc<Session>>>,
    events: mpsc::Sender<NodeEvent>,
    orders: mpsc::Receiver<Order>,
    attempts: Arc<AtomicU64>,
    clock: Clock,
    machine: Dialing,
    attempt: Option<(Dial, Attempt)>,
    session: Option<(Dial, Arc<Session>)>,
}

impl Driver {
    pub(super) fn new(
        dialer: Arc<Dialer>,
        sessions: watch::Sender<Option<Arc<Session>>>,
        events: mpsc::Sender<NodeEvent>,
        orders: mpsc::Receiver<Order>,
        attempts: Arc<AtomicU64>,
    ) -> Self {
        Self {
            dialer,
            sessions,
            events,
            orders,
            attempts,
            clock: Clock::start(),
            machine: Dialing::default(),
            attempt: None,
            session: None,
        }
    }

    pub(super) async fn run(mut self) {
        self.take(Event::Started);
        loop {
            let event = self.next().await;
            let stop = event == Event::Stop;
            self.take(event);
            if stop {
                break;
            }
        }
        let Some(endpoint) = self.dialer.local.endpoint() else { return };
        endpoint.close(Close::Ended.code(), &[]);
        let _ = timeout(NODE_STOP_BUDGET, endpoint.wait_idle()).await;
    }

    /// The host first, since it may want to stop; a deadline last, since what it was for may have happened.
    async fn next(&mut self) -> Event {
        let deadline = self.machine.next_deadline().map(|mono| self.clock.instant(mono));
        tokio::select! {
            biased;
            order = self.orders.recv() => order.map_or(Event::Stop, |Order::Moved| Event::Moved),
            (dial, result) = attempted(&mut self.attempt) => self.attempted(dial, result),
            (dial, why) = ended(self.session.as_ref()) => Event::Ended(dial, why),
            () = async { match deadline { Some(at) => sleep_until(at.into()).await, None => pending().await } } => {
                Event::Tick
            }
        }
    }

    fn attempted(&mut self, dial: Dial, result: Result<Session, Why>) -> Event {
        self.attempt = None;
        match result {
            Ok(session) => {
                self.session = Some((dial, Arc::new(session)));
                Event::Admitted(dial)
            }
            Err(why) => Event::Ended(dial, why),
        }
    }

    fn take(&mut self, event: Event) {
        // Without random numbers nothing is dialled anyway; the waits are then in step, and no worse.
        let random = getrandom::u32().unwrap_or(0);
        for action in self.machine.handle(event, self.clock.now().mono, random) {
            self.perform(action);
        }
        self.attempts.store(self.machine.attempts(), Ordering::Relaxed);
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Dial(dial) => {
                let dialer = Arc::clone(&self.dialer);
                self.attempt = Some((dial, Box::pin(async move { dialer.dial().await })));
            }
            Action::Abandon(_) => self.attempt = None,
            Action::Hangup(_) => {
                if let Some((_, session)) = self.session.take() {
                    closing::close(&session.connection, Close::Ended);
                }
                self.sessions.send_replace(None);
            }
            Action::TellUp(_) => {
                let (_, session) = self.session.as_ref().expect("an admitted dial led to a session");
                info!(address = %session.grant.address, revision = session.grant.revision, "the tunnel is up");
                self.sessions.send_replace(Some(Arc::clone(session)));
                self.tell(NodeEvent::Up(session.grant));
            }
            Action::TellDown(why) => {
                debug!("the tunnel is down: {why}");
                self.session = None;
                self.sessions.send_replace(None);
                self.tell(NodeEvent::Down(why));
            }
        }
    }

    /// A host that does not listen loses events, and never the tunnel.
    fn tell(&self, event: NodeEvent) {
        let _ = self.events.try_send(event);
    }
}

async fn attempted(attempt: &mut Option<(Dial, Attempt)>) -> (Dial, Result<Session, Why>) {
    match attempt {
        Some((dial, attempt)) => (*dial, attempt.await),
        None => pending().await,
    }
}

async fn ended(session: Option<&(Dial, Arc<Session>)>) -> (Dial, Why) {
    match session {
        Some((dial, session)) => (*dial, Why::of(&session.connection.closed().await)),
        None => pending().await,
    }
}
