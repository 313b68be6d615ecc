//! Connections that the supervisor makes on pulld's asking (ARC-15): how many are asked for at once, who
//! waits for which, and which protocol the registry was found to speak.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coreflow_ipc::{
    asks::{AskId, Asks},
    messages::{pulld::CONNECTION_ASKS, pulls::RegistryFailure},
};
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
};

use crate::{
    counts::{Open, OpenCount},
    registry::Protocol,
};

type Answer = Result<OwnedFd, RegistryFailure>;

/// The asks of this process.
pub(crate) struct Dials {
    asking: mpsc::Sender<AskId>,
    places: Arc<Semaphore>,
    /// An ask has its place until it is answered, also when nobody waits for it any more.
    open: Mutex<Asks<(oneshot::Sender<Answer>, OwnedSemaphorePermit)>>,
    connections: OpenCount,
    http2: AtomicBool,
}

impl Dials {
    /// The asks, and the numbers of those that are to be put to the supervisor.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<AskId>) {
        let (asking, asked) = mpsc::channel(CONNECTION_ASKS);
        let dials = Self {
            asking,
            places: Arc::new(Semaphore::new(CONNECTION_ASKS)),
            open: Mutex::default(),
            connections: OpenCount::default(),
            http2: AtomicBool::new(false),
        };
        (Arc::new(dials), asked)
    }

    /// A connected socket, and what counts it. Who asks first is served first; the wait is bounded by who waits.
    ///
    /// # Errors
    /// Why the supervisor made none.
    pub(crate) async fn dial(&self) -> Result<(TcpStream, Open), RegistryFailure> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.expect("the places are never closed");
        let (sender, answer) = oneshot::channel();
        // The supervisor answers each ask within its own bounds, or its end is this process's.
        let id = self.open().open(Duration::MAX, (sender, place));
        self.asking.try_send(id).map_err(|_| RegistryFailure::Connect)?;
        let socket = std::net::TcpStream::from(answer.await.map_err(|_| RegistryFailure::Connect)??);
        socket.set_nonblocking(true).map_err(|_| RegistryFailure::Connect)?;
        let socket = TcpStream::from_std(socket).map_err(|_| RegistryFailure::Connect)?;
        Ok((socket, self.connections.one()))
    }

    /// Asks that the supervisor has not answered.
    pub(crate) fn asks(&self) -> u32 {
        let asks = CONNECTION_ASKS - self.places.available_permits();
        u32::try_from(asks).expect("the constant is small")
    }

    /// Connections that were made and are not closed.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.get()
    }

    /// The supervisor answered ask `id`. An answer that nobody waits for closes its socket; `false` if it
    /// was not asked for at all.
    pub(crate) fn answered(&self, id: AskId, answer: Answer) -> bool {
        let waiting = self.open().settle(id);
        waiting.map(|(sender, _place)| sender.send(answer)).is_some()
    }

    /// The protocol to offer: HTTP/1.1, unless this registry was found not to speak it. With a connection
    /// for each exchange no pull shares another's flow control, and a slow node holds up nobody.
    pub(crate) fn protocol(&self) -> Protocol {
        if self.http2.load(Ordering::Relaxed) { Protocol::Http2 } else { Protocol::Http1 }
    }

    /// The registry does not speak `protocol`: the other is offered from here on.
    pub(crate) fn not_spoken(&self, protocol: Protocol) {
        self.http2.store(protocol == Protocol::Http1, Ordering::Relaxed);
    }

    fn open(&self) -> MutexGuard<'_, Asks<(oneshot::Sender<Answer>, OwnedSemaphorePermit)>> {
        self.open.lock().expect("no holder of the asks panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ARC-15: no more asks are open than the supervisor takes, the rest wait in their order, and one that
    /// nobody waits for any more has its place until it is answered.
    #[tokio::test]
    async fn asks_are_bounded_and_in_order() {
        let (dials, mut asked) = Dials::new();
        let mut waiting = Vec::new();
        for _ in 0..CONNECTION_ASKS + 2 {
            let dials = Arc::clone(&dials);
            waiting.push(tokio::spawn(async move { dials.dial().await.err() }));
        }
        let mut ids = Vec::new();
        for _ in 0..CONNECTION_ASKS {
            ids.push(asked.recv().await.unwrap());
        }
        assert_eq!((dials.asks(), dials.connections()), (u32::try_from(CONNECTION_ASKS).unwrap(), 0));
        waiting[0].abort();
        tokio::task::yield_now().await;
        assert!(asked.try_recv().is_err());

        assert!(dials.answered(ids[0], Err(RegistryFailure::Dns)));
        assert!(!dials.answered(ids[0], Err(RegistryFailure::Dns)));
        let next = asked.recv().await.unwrap();
        assert!(asked.try_recv().is_err());
        assert!(dials.answered(next, Err(RegistryFailure::Timeout)));
        let last = asked.recv().await.unwrap();
        assert!(dials.answered(last, Err(RegistryFailure::Connect)));
        let mut ends = waiting.split_off(CONNECTION_ASKS).into_iter();
        assert_eq!(ends.next().unwrap().await.unwrap(), Some(RegistryFailure::Timeout));
        assert_eq!(ends.next().unwrap().await.unwrap(), Some(RegistryFailure::Connect));
        assert!(!dials.answered(u64::MAX, Err(RegistryFailure::Dns)));
        for id in &ids[1..] {
            assert!(dials.answered(*id, Err(RegistryFailure::Dns)));
        }
        assert_eq!((dials.asks(), dials.connections()), (0, 0));
    }

    #[tokio::test]
    async fn the_protocol_that_is_refused_gives_way_to_the_other() {
        let (dials, _asked) = Dials::new();
        assert_eq!(dials.protocol(), Protocol::Http1);
        for (refused, other) in [(Protocol::Http1, Protocol::Http2), (Protocol::Http2, Protocol::Http1)] {
            // Several may find it out at once.
            dials.not_spoken(refused);
            dials.not_spoken(refused);
            assert_eq!(dials.protocol(), other);
        }
    }
}
