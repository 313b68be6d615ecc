//! The upgraded sockets of the listener: each has a number, a queue and a task, and reports to the
//! core.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use coreflow_ipc::{
    record::Budget,
    typedrequest::{Envelope, Malformed},
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};
use tracing::{debug, warn};

use crate::{
    constants::{
        HEAD_BUDGET, NODE_INBOUND_BYTES, NODE_MESSAGE_LIMIT, NODE_PING, NODE_QUEUE, NODE_QUEUE_BYTES,
    },
    forwarder::Socket,
    websocket::{self, Limits, Outlet, Receiver},
};

const LIMITS: Limits = Limits {
    message: NODE_MESSAGE_LIMIT,
    queue: NODE_QUEUE,
    queue_bytes: NODE_QUEUE_BYTES,
    silence: NODE_PING,
};

/// What a socket of the listener reports.
pub enum FromListener {
    /// It is open.
    Opened {
        /// Its number.
        socket: Socket,
        /// Its sending end.
        outlet: Outlet,
    },
    /// It sent an envelope.
    Envelope {
        /// Its number.
        socket: Socket,
        /// What it sent.
        envelope: Envelope,
        /// Its share of [`NODE_INBOUND_BYTES`], free again once the core takes the envelope.
        room: OwnedSemaphorePermit,
    },
    /// It ended.
    Closed {
        /// Its number.
        socket: Socket,
    },
}

/// Gives sockets their numbers and tasks.
pub struct Sockets {
    next: AtomicU64,
    events: mpsc::Sender<FromListener>,
    inbound: Arc<Semaphore>,
    malformed: Mutex<Budget>,
    started: Instant,
}

impl Sockets {
    /// Sockets that report to `events`.
    pub fn new(events: mpsc::Sender<FromListener>) -> Self {
        // One line at once and one more every ten seconds would do; a second is the bucket's grain.
        Self {
            next: AtomicU64::new(0),
            events,
            inbound: Arc::new(Semaphore::new(NODE_INBOUND_BYTES >> 10)),
            malformed: Mutex::new(Budget::new(5, 1)),
            started: Instant::now(),
        }
    }

    /// Runs the socket that `upgrade` becomes, which keeps its `place` among the connections.
    pub(super) fn open(self: &Arc<Self>, upgrade: OnUpgrade, place: Arc<OwnedSemaphorePermit>) {
        let sockets = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(Ok(upgraded)) = timeout(HEAD_BUDGET, upgrade).await else {
                return debug!("an upgrade did not complete");
            };
            let socket = sockets.next.fetch_add(1, Ordering::Relaxed);
            let (outlet, inlet) = websocket::queue(LIMITS);
            if sockets.events.send(FromListener::Opened { socket, outlet }).await.is_err() {
                return;
            }
            let stream =
                WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(LIMITS.config()))
                    .await;
            let receiver = FromNode { socket, sockets: Arc::clone(&sockets) };
            let ended = websocket::run(stream, inlet, LIMITS, receiver).await;
            debug!(socket, class = ended.class(), "a node's socket ended");
            let _ = sockets.events.send(FromListener::Closed { socket }).await;
            drop(place);
        });
    }
}

struct FromNode {
    socket: Socket,
    sockets: Arc<Sockets>,
}

impl Receiver for FromNode {
    async fn envelope(&mut self, envelope: Envelope, bytes: usize) -> bool {
        let kibibytes = u32::try_from(bytes.div_ceil(1 << 10)).expect("a message is at most 16 MiB");
        let room = Arc::clone(&self.sockets.inbound).acquire_many_owned(kibibytes).await;
        let room = room.expect("the semaphore is never closed");
        let event = FromListener::Envelope { socket: self.socket, envelope, room };
        self.sockets.events.send(event).await.is_ok()
    }

    fn malformed(&mut self, malformed: Malformed) {
        let mut budget = self.sockets.malformed.lock().expect("no holder of the budget panics");
        if budget.admit(self.sockets.started.elapsed()) {
            let suppressed = budget.take_suppressed();
            warn!(socket = self.socket, class = %malformed, suppressed, "a node sent what is no request; it got no answer");
        }
    }
}
