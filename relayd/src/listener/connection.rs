//! One connection of the listener, to its end or to the socket that it becomes. What it is decides how
//! long it may stay: until it has asked for something it has ten seconds in all, a pull has as long as
//! something moves.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use coreflow_ipc::messages::pulls::{PullAnswer, PullRequest};
use hyper::{
    body::{Body, Frame, SizeHint},
    server::conn,
    service::service_fn,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::debug;

use super::{
    Counts, Sockets,
    admission::{Scarce, Source},
    body_clock::{self, BodyClock, Streams},
    http::answer,
    places::{Gates, Place},
    wire::{Transport, Wire},
};
use crate::{
    constants::{CONNECTION_BUDGET, HEAD_BUDGET, PULL_IDLE, PULL_LOOK, PULL_STALL},
    pulls::{Cut, PullBody, PullFailure, Pulls},
};

/// Largest request head in bytes, and most headers of it: more than cross to the registry, so that a pull
/// beyond those is refused by name.
const HEAD_BYTES: usize = 48 << 10;
const HEADERS: usize = 128;
/// Requests that one h2 connection may have open.
const H2_STREAMS: u32 = 64;
/// Bytes of a body that are read at once for a stream of h2, and that wait for its node's window.
const H2_PART: usize = 32 << 10;

/// What the connections of one listener share.
pub(super) struct Listening {
    pub(super) tls: TlsAcceptor,
    pub(super) gates: Gates,
    pub(super) sockets: Arc<Sockets>,
    pub(super) pulls: Arc<Pulls>,
    pub(super) counts: Arc<Counts>,
}

/// What a connection has become.
enum Stage {
    /// It has not asked for anything that it gets.
    UnderWay,
    /// It pulls.
    Pulling,
    /// It asked to become a node's socket.
    Upgrading(OnUpgrade),
}

struct Held {
    stage: Stage,
    /// Its place among those of its stage.
    place: Place,
}

/// One connection as its requests see it.
pub(super) struct Connection {
    source: Source,
    listening: Arc<Listening>,
    /// When it ends unless it asked for something by then.
    due: Instant,
    held: Mutex<Option<Held>>,
    /// It holds another place than before.
    changed: Notify,
    moved: Mutex<Instant>,
    /// How far writing has come.
    written: Arc<AtomicU64>,
    /// The body on its way over HTTP/1.1, where there is one at a time.
    body: Arc<BodyClock>,
}

impl Connection {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().expect("no holder of the stage panics")
    }

    /// Something moved: a request came, or a part of an answer went.
    fn moves(&self) {
        *self.moved.lock().expect("no holder of the time panics") = Instant::now();
    }

    /// What happens is counted here.
    pub(super) fn counts(&self) -> &Counts {
        &self.listening.counts
    }

    /// It asks for an image: from here on it counts among the pulls.
    pub(super) fn pulls(&self) -> Result<(), Scarce> {
        let mut held = self.held();
        if held.as_ref().is_some_and(|held| matches!(held.stage, Stage::UnderWay)) {
            let place = self.listening.gates.pulls.take(self.source)?;
            *held = Some(Held { stage: Stage::Pulling, place });
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Asks the registry, in the place that [`Connection::pulls`] gave.
    pub(super) async fn exchange(&self, pull: PullRequest) -> Result<(PullAnswer, PullBody), PullFailure> {
        let answered = self.listening.pulls.exchange(pull, self.source).await;
        self.moves();
        answered
    }

    /// It asks to become a node's socket.
    pub(super) fn upgrades(&self, upgrade: OnUpgrade) -> Result<(), Scarce> {
        let place = self.listening.gates.nodes.take(self.source);
        let place = place.inspect_err(|_| self.counts().refuse())?;
        *self.held() = Some(Held { stage: Stage::Upgrading(upgrade), place });
        self.changed.notify_one();
        Ok(())
    }

    /// Ends when the place that the connection holds, whichever that is by then, is given to another.
    async fn lost(&self) {
        loop {
            let lost = self.held().as_ref().map(|held| held.place.lost());
            let lost = async {
                match lost {
                    Some(lost) => lost.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = lost => return,
                () = self.changed.notified() => {}
            }
        }
    }

    /// Ends when the connection has stayed too long for what it is. A pull's goes on while its node takes
    /// something; below some 4 KiB a second the kernel shows it too seldom.
    async fn overdue(&self) {
        loop {
            let pulls = self.held().as_ref().is_some_and(|held| matches!(held.stage, Stage::Pulling));
            let moved = *self.moved.lock().expect("no holder of the time panics");
            let now = Instant::now();
            let (due, look) = match (pulls, self.body.last()) {
                (true, Some(last)) => (last + PULL_STALL, now + PULL_LOOK),
                (true, None) => (moved + PULL_IDLE, moved + PULL_IDLE),
                (false, _) => (self.due, self.due),
            };
            if due <= now {
                return;
            }
            let written = self.written.load(Ordering::Relaxed);
            sleep_until(due.min(look)).await;
            if self.written.load(Ordering::Relaxed) != written {
                self.moves();
                if self.body.last().is_some() {
                    self.body.moves();
                }
            }
        }
    }
}

/// Serves an accepted connection, if there is a place for it; if not, it ends here.
pub(super) fn take(stream: TcpStream, source: Source, listening: &Arc<Listening>) {
    match listening.gates.handshakes.take(source) {
        Ok(place) => {
            tokio::spawn(serve(stream, source, place, Arc::clone(listening)));
        }
        Err(_) => listening.counts.refuse(),
    }
}

async fn serve(stream: TcpStream, source: Source, place: Place, listening: Arc<Listening>) {
    let due = Instant::now() + CONNECTION_BUDGET;
    let _ = stream.set_nodelay(true);
    let shaken = tokio::select! {
        shaken = timeout_at(due, shake(stream, &listening.tls)) => Some(shaken),
        () = place.lost() => None,
    };
    if let Some(Ok(Ok(stream))) = shaken {
        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        return exchange(stream, h2, source, place, due, listening).await;
    }
    listening.counts.refuse();
    match shaken {
        Some(Ok(Ok(_))) => {}
        Some(Ok(Err(error))) => debug!(class = %error.kind(), "a TLS handshake failed"),
        Some(Err(_)) => debug!("a TLS handshake did not end in time"),
        None => debug!("a connection in its TLS handshake made room for another"),
    }
}

/// TLS state is made once there is something to read: a connection that says nothing costs a descriptor.
async fn shake(stream: TcpStream, tls: &TlsAcceptor) -> std::io::Result<TlsStream<Wire>> {
    stream.readable().await?;
    tls.accept(Wire::new(stream)).await
}

/// Speaks HTTP on `stream` until `due`, for as long as a pull goes on, or until it becomes a socket.
async fn exchange<S: Transport>(
    stream: S,
    h2: bool,
    source: Source,
    place: Place,
    due: Instant,
    listening: Arc<Listening>,
) {
    let connection = Arc::new(Connection {
        written: stream.written(),
        body: Arc::default(),
        source,
        listening,
        due,
        held: Mutex::new(Some(Held { stage: Stage::UnderWay, place })),
        changed: Notify::new(),
        moved: Mutex::new(Instant::now()),
    });
    let asked = Arc::clone(&connection);
    let service = service_fn(move |request| {
        let asked = Arc::clone(&asked);
        async move {
            asked.moves();
            let answer = answer(request, &asked).await;
            Ok::<_, Infallible>(answer.map(|body| Moving::new(body, asked, h2)))
        }
    });
    let io = TokioIo::new(stream);
    let served = async {
        if h2 {
            // No pings: an answer to one waits behind all that a slow node has not taken yet.
            conn::http2::Builder::new(Streams)
                .timer(TokioTimer::new())
                .max_concurrent_streams(H2_STREAMS)
                .max_header_list_size(u32::try_from(HEAD_BYTES).expect("the constant is small"))
                .max_send_buf_size(H2_PART)
                .serve_connection(io, service)
                .await
        } else {
            conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_BUDGET)
                .max_buf_size(HEAD_BYTES)
                .max_headers(HEADERS)
                .serve_connection(io, service)
                .with_upgrades()
                .await
        }
    };
    tokio::select! {
        ended = served => if ended.is_err() {
            debug!("a connection of the listener ended with an error");
        },
        () = connection.lost() => return debug!("a connection made room for another"),
        () = connection.overdue() => return debug!("a connection was idle for too long"),
    }
    let held = connection.held().take();
    if let Some(Held { stage: Stage::Upgrading(upgrade), place }) = held {
        become_socket::<S>(upgrade, place, &connection).await;
    }
}

/// The connection's task ends here, and with it all that a handshake and a request needed: a socket is a
/// task of its own.
async fn become_socket<S: Transport>(upgrade: OnUpgrade, place: Place, connection: &Connection) {
    let upgraded = tokio::select! {
        upgraded = timeout_at(connection.due, upgrade) => upgraded,
        () = place.lost() => return debug!("an upgrade made room for another"),
    };
    let Ok(Ok(upgraded)) = upgraded else { return debug!("an upgrade did not complete") };
    let parts = upgraded.downcast::<TokioIo<S>>().expect("the connection was served on this transport");
    // Boxed, so that moving it from stage to stage of the socket's task takes no room in each.
    connection.listening.sockets.open(Box::new(parts.io.into_inner()), parts.read_buf, place);
}

/// An answer's body, of which each part that goes counts as a sign of life.
struct Moving {
    body: PullBody,
    connection: Arc<Connection>,
    clock: Arc<BodyClock>,
}

impl Moving {
    fn new(mut body: PullBody, connection: Arc<Connection>, h2: bool) -> Self {
        if h2 {
            body.in_parts_of(H2_PART);
        }
        let clock = body_clock::of_this_stream().unwrap_or_else(|| Arc::clone(&connection.body));
        clock.moves();
        Self { body, connection, clock }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.clock.ends();
    }
}

impl Body for Moving {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let part = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.connection.moves();
        self.clock.moves();
        Poll::Ready(part)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
