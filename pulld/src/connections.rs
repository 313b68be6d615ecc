//! Connections to the registry: those that are kept for the next pull, those that several pulls share, and
//! new ones (PULL-01).
//!
//! HTTP/1.1 is offered first and alone: with a connection for each exchange no pull shares another's flow
//! control. A registry that refuses it is spoken to in HTTP/2 from then on ([`Dials::protocol`]).

use std::{
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll},
};

use bytes::Bytes;
use coreflow_ipc::messages::pulls::RegistryFailure;
use http::{Response, response};
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, sleep};

use crate::{
    constants::{KEPT_CONNECTIONS, KEPT_FOR, KEPT_SWEEP},
    dials::Dials,
    failure,
    registry::{GreetError, Protocol, Registry},
    request::Asked,
};
use http1::Http1;
use http2::{Lease, Shared, SharedConnections};

mod http1;
mod http2;

/// The connections to one registry.
pub(crate) struct Connections {
    /// The registry.
    pub(crate) registry: Registry,
    dials: Arc<Dials>,
    kept: Mutex<Kept>,
    shared: SharedConnections,
}

/// Connections that nobody uses, the latest used last.
#[derive(Default)]
struct Kept {
    connections: Vec<(Box<Http1>, Instant)>,
    swept: bool,
}

/// A connection for one exchange.
pub(crate) struct Connection {
    kind: Kind,
    /// It was made for another exchange, and may have been closed by the registry since.
    reused: bool,
}

enum Kind {
    Own(Box<Http1>),
    Shared(Lease),
}

/// Why an exchange got no answer on its connection.
pub(crate) struct Unanswered {
    failure: RegistryFailure,
    /// The connection had served before and nothing of an answer came: it may be tried on a newer one. For a
    /// shared one its number.
    stale: Option<Option<u64>>,
}

impl Connections {
    pub(crate) fn new(registry: Registry, dials: Arc<Dials>) -> Arc<Self> {
        Arc::new(Self { registry, dials, kept: Mutex::default(), shared: SharedConnections::default() })
    }

    /// The registry's answer to `asked`. A connection that served before and that the registry closed meanwhile
    /// costs a second try, on a newer one: GET and HEAD are all that is asked, and nothing was answered yet.
    ///
    /// # Errors
    /// The class of the failure.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        asked: &Asked,
    ) -> Result<(response::Parts, RegistryBody), RegistryFailure> {
        let connection = match self.reuse() {
            Some(connection) => connection,
            None => self.open(None).await?,
        };
        let newer_than = match connection.ask(asked, &self.registry).await {
            Ok(answer) => return Ok(answer),
            Err(Unanswered { stale: Some(number), .. }) => number,
            Err(Unanswered { failure, stale: None }) => return Err(failure),
        };
        let connection = self.open(newer_than).await?;
        connection.ask(asked, &self.registry).await.map_err(|unanswered| unanswered.failure)
    }

    /// One that is open: of those that are kept the latest used, which the registry has least cause to close.
    fn reuse(&self) -> Option<Connection> {
        let mut kept = self.kept();
        while let Some((mut connection, since)) = kept.connections.pop() {
            if since.elapsed() < KEPT_FOR && connection.is_open() {
                return Some(Connection { kind: Kind::Own(connection), reused: true });
            }
        }
        drop(kept);
        let lease = self.shared.lease(None)?;
        Some(Connection { kind: Kind::Shared(lease), reused: true })
    }

    /// A new one, or of those that are shared one with a higher number than `newer_than`.
    async fn open(self: &Arc<Self>, newer_than: Option<u64>) -> Result<Connection, RegistryFailure> {
        let offered = self.dials.protocol();
        match self.open_with(offered, newer_than).await {
            Ok(connection) => Ok(connection),
            Err(GreetError::Failed(failure)) => Err(failure),
            Err(GreetError::OtherProtocol) => {
                self.dials.not_spoken(offered);
                let other = match offered {
                    Protocol::Http1 => Protocol::Http2,
                    Protocol::Http2 => Protocol::Http1,
                };
                self.open_with(other, newer_than).await.map_err(|error| match error {
                    GreetError::Failed(failure) => failure,
                    GreetError::OtherProtocol => RegistryFailure::Tls,
                })
            }
        }
    }

    async fn open_with(
        self: &Arc<Self>,
        offered: Protocol,
        newer_than: Option<u64>,
    ) -> Result<Connection, GreetError> {
        // Who would share a connection waits for the one that is being made.
        let _opening = match offered {
            Protocol::Http1 => None,
            Protocol::Http2 => Some(self.shared.opening().await),
        };
        if offered == Protocol::Http2
            && let Some(lease) = self.shared.lease(newer_than)
        {
            return Ok(Connection { kind: Kind::Shared(lease), reused: true });
        }
        let (socket, open) = self.dials.dial().await.map_err(GreetError::Failed)?;
        let (stream, spoken) = self.registry.greet(socket, offered).await?;
        let stream = stream.counted(open);
        let opened = match spoken {
            Protocol::Http1 => Http1::open(stream).await.map(|own| Kind::Own(Box::new(own))),
            Protocol::Http2 => Shared::open(stream).await.map(|shared| self.share(shared)),
        };
        let kind = opened.map_err(|error| GreetError::Failed(failure::of_http(&error)))?;
        Ok(Connection { kind, reused: false })
    }

    /// The first exchange's part in a connection that is open from here on.
    fn share(self: &Arc<Self>, shared: Shared) -> Kind {
        let lease = self.shared.add(shared);
        self.sweep_from_now(&mut self.kept());
        Kind::Shared(lease)
    }

    /// Takes back the connection of a body that came to its end.
    pub(crate) fn done(self: &Arc<Self>, body: RegistryBody) {
        let Kind::Own(mut connection) = body.kind else { return };
        if !connection.is_settled() {
            return;
        }
        let mut kept = self.kept();
        if kept.connections.len() >= KEPT_CONNECTIONS {
            kept.connections.remove(0);
        }
        kept.connections.push((connection, Instant::now()));
        self.sweep_from_now(&mut kept);
    }

    fn sweep_from_now(self: &Arc<Self>, kept: &mut Kept) {
        if !std::mem::replace(&mut kept.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no holder of the connections panics")
    }
}

/// Closes what is old or was closed by the registry, as long as something is kept or shared.
async fn sweep(connections: Weak<Connections>) {
    loop {
        sleep(KEPT_SWEEP).await;
        let Some(connections) = connections.upgrade() else { return };
        let mut kept = connections.kept();
        kept.connections.retain_mut(|(connection, since)| since.elapsed() < KEPT_FOR && connection.is_open());
        // With `kept` held: what is shared from here on finds whether it is still swept.
        let shared = connections.shared.sweep();
        if kept.connections.is_empty() && !shared {
            kept.swept = false;
            return;
        }
    }
}

impl Connection {
    async fn ask(
        mut self,
        asked: &Asked,
        registry: &Registry,
    ) -> Result<(response::Parts, RegistryBody), Unanswered> {
        let answer = match &mut self.kind {
            Kind::Own(connection) => connection.ask(asked.http1(registry)).await,
            Kind::Shared(lease) => lease.ask(asked.http2(registry)).await,
        };
        match answer {
            Ok(answer) => {
                let (parts, incoming) = Response::into_parts(answer);
                Ok((parts, RegistryBody { incoming, kind: self.kind }))
            }
            Err(error) => {
                let number = match &self.kind {
                    Kind::Own(connection) if connection.heard_anything() => None,
                    Kind::Own(_) => Some(None),
                    Kind::Shared(lease) => Some(Some(lease.retire())),
                };
                Err(Unanswered { failure: failure::of_http(&error), stale: number.filter(|_| self.reused) })
            }
        }
    }
}

/// A body as it comes, with the connection that it comes over. Dropped before its end it ends the exchange:
/// over HTTP/1.1 its connection is closed, over HTTP/2 its stream is reset.
pub(crate) struct RegistryBody {
    incoming: Incoming,
    kind: Kind,
}

impl RegistryBody {
    /// Whether nothing is left of it.
    pub(crate) fn is_ended(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Whether the end that came is none of the body's: a stream that the registry resets without an error looks
    /// like one at its end to whoever reads it, short of END_STREAM (PULL-18).
    fn broke_off(&self) -> bool {
        match self.kind {
            Kind::Own(_) => false,
            Kind::Shared(_) => !self.is_ended(),
        }
    }

    /// The next bytes. The registry is read only where this is polled, so that who carries the bytes paces
    /// who sends them (PULL-30).
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RegistryFailure>>> {
        loop {
            let polled = match std::pin::Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Pending => {
                    // The connection reads what the body has just asked for.
                    if let Kind::Own(connection) = &mut self.kind {
                        connection.drive(cx);
                    }
                    std::pin::Pin::new(&mut self.incoming).poll_frame(cx)
                }
                ready @ Poll::Ready(_) => ready,
            };
            let frame = match std::task::ready!(polled) {
                None => return Poll::Ready(self.broke_off().then_some(Err(RegistryFailure::Closed))),
                Some(Err(error)) => return Poll::Ready(Some(Err(failure::of_http(&error)))),
                Some(Ok(frame)) => frame,
            };
            // Trailers are no part of what crosses.
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }
}
