//! The upgraded sockets of the listener: each has a number, a queue and a task, and reports to the
//! core.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use coreflow_ipc::{
    line_budget::LineBudget,
    typedrequest::{Envelope, Malformed},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};
use tracing::{debug, warn};

use super::{places::Place, wire::Transport};
use crate::{
    constants::{
        NODE_FRAME, NODE_INBOUND_BYTES, NODE_MESSAGE_LIMIT, NODE_PING, NODE_QUEUE, NODE_QUEUE_BYTES,
        UNPROVEN_MESSAGE_LIMIT, UNREGISTERED,
    },
    forwarder::Socket,
    websocket::{self, Limits, Outlet, Receiver},
};

const LIMITS: Limits = Limits {
    message: NODE_MESSAGE_LIMIT,
    queue: NODE_QUEUE,
    queue_bytes: NODE_QUEUE_BYTES,
    silence: NODE_PING,
    frame: NODE_FRAME,
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
    dispatchable: watch::Receiver<bool>,
    malformed: LineBudget,
    runtime: Handle,
}

impl Sockets {
    /// Sockets that report to `events` and live in the runtime that this is called in; `dispatchable` tells
    /// whether the relay has a session on which nodes can register.
    pub fn new(events: mpsc::Sender<FromListener>, dispatchable: watch::Receiver<bool>) -> Self {
        Self {
            runtime: Handle::current(),
            next: AtomicU64::new(0),
            events,
            inbound: Arc::new(Semaphore::new(NODE_INBOUND_BYTES >> 10)),
            dispatchable,
            malformed: LineBudget::default(),
        }
    }

    /// Runs the socket on `stream`, of which `read` was read already, in its `place`, in the runtime of
    /// sockets.
    pub(super) fn open<S: Transport>(self: &Arc<Self>, mut stream: S, read: Bytes, place: Place) {
        if stream.park().is_ok() {
            self.runtime.spawn(run(Arc::clone(self), stream, read, place));
        }
    }
}

async fn run<S: Transport>(sockets: Arc<Sockets>, mut stream: S, read: Bytes, mut place: Place) {
    if stream.resume().is_err() {
        return debug!("a socket could not be moved to its runtime");
    }
    let socket = sockets.next.fetch_add(1, Ordering::Relaxed);
    let (outlet, inlet) = websocket::queue(LIMITS);
    let proven = inlet.proven();
    let mut lost = pin!(place.lost());
    let opened = tokio::select! {
        opened = sockets.events.send(FromListener::Opened { socket, outlet }) => opened.is_ok(),
        () = &mut lost => false,
    };
    if !opened {
        return;
    }
    // Copied, since what is empty here may still hold the buffer of the request's head.
    let stream = inlet.bounded(stream, Bytes::copy_from_slice(&read), UNPROVEN_MESSAGE_LIMIT);
    drop(read);
    let stream = WebSocketStream::from_raw_socket(stream, Role::Server, Some(LIMITS.config())).await;
    let receiver = FromNode { socket, sockets: Arc::clone(&sockets) };
    let unregistered = async {
        let overdue = unregistered(sockets.dispatchable.clone());
        tokio::select! {
            () = proven => {}
            () = overdue => return,
        }
        place.prove();
        std::future::pending::<()>().await;
    };
    let class = tokio::select! {
        ended = websocket::run(stream, inlet, LIMITS, receiver) => ended.class(),
        () = unregistered => "unregistered",
        () = lost => "made-room",
    };
    debug!(socket, class, "a node's socket ended");
    let _ = sockets.events.send(FromListener::Closed { socket }).await;
}

/// Ends when nodes could register for [`UNREGISTERED`] without a break. While they cannot, a socket waits for
/// the session (OUT-09, OUT-11).
async fn unregistered(mut dispatchable: watch::Receiver<bool>) {
    // The relay is about to end once nobody tells.
    while dispatchable.wait_for(|dispatchable| *dispatchable).await.is_ok() {
        if timeout(UNREGISTERED, dispatchable.wait_for(|dispatchable| !*dispatchable)).await.is_err() {
            return;
        }
    }
    std::future::pending().await
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
        if let Some(suppressed) = self.sockets.malformed.admit() {
            warn!(socket = self.socket, class = %malformed, suppressed, "a node sent what is no request; it got no answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::listener::{
        admission::Source,
        places::{Capacity, Gates},
    };

    /// Ten thousand sockets are idle most of the time: what each costs beside its buffers is bounded.
    #[tokio::test]
    async fn the_task_of_a_socket_is_small() {
        let gates = Gates::new(Capacity { handshakes: 1, pulls: 1, nodes: 1 });
        let place = gates.nodes.take(Source::from(IpAddr::from([192, 0, 2, 1]))).unwrap();
        let (events, _received) = mpsc::channel(1);
        let stream: Box<DuplexStream> = Box::new(duplex(1).0);
        let sockets = Sockets::new(events, watch::channel(true).1);
        let task = run(Arc::new(sockets), stream, Bytes::new(), place);
        let size = size_of_val(&task);
        assert!(size <= 4 << 10, "{size} bytes");
    }
}
