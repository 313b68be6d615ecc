//! Connections of HTTP/2, for a registry that speaks nothing else. Exchanges share them, with room for all
//! their windows, so that a body that is not read leaves the others theirs (PULL-30).

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::Instant;

use crate::{
    constants::{ANSWER_HEAD, KEPT_FOR, SHARED_BY, SHARED_PING, STREAM_WINDOW},
    registry_stream::RegistryStream,
};

/// Those that are open.
#[derive(Default)]
pub(super) struct SharedConnections {
    open: Mutex<Open>,
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Open {
    connections: Vec<Shared>,
    numbered: u64,
}

/// One connection.
pub(super) struct Shared {
    number: u64,
    sender: SendRequest<Empty<Bytes>>,
    load: Arc<Load>,
    used: Instant,
}

#[derive(Default)]
struct Load {
    exchanges: AtomicUsize,
    /// As many the registry admits.
    admitted: AtomicUsize,
    retired: AtomicBool,
}

/// The part of one exchange in a connection.
pub(super) struct Lease {
    number: u64,
    sender: SendRequest<Empty<Bytes>>,
    load: Arc<Load>,
}

impl SharedConnections {
    /// Held by who makes a connection.
    pub(super) async fn opening(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.opening.lock().await
    }

    /// A part in a connection that has room and a higher number than `newer_than`.
    pub(super) fn lease(&self, newer_than: Option<u64>) -> Option<Lease> {
        let mut open = self.open();
        open.drop_closed();
        let newer = |shared: &&mut Shared| newer_than.is_none_or(|number| shared.number > number);
        open.connections.iter_mut().filter(newer).find(|shared| shared.has_room()).map(Shared::lease)
    }

    /// One more is open; a part in it.
    pub(super) fn add(&self, mut shared: Shared) -> Lease {
        let mut open = self.open();
        open.numbered += 1;
        shared.number = open.numbered;
        let lease = shared.lease();
        open.connections.push(shared);
        lease
    }

    /// Closes those that nobody used for long; whether there are others.
    pub(super) fn sweep(&self) -> bool {
        let mut open = self.open();
        open.drop_closed();
        open.connections.retain(|shared| {
            shared.load.exchanges.load(Ordering::Relaxed) > 0 || shared.used.elapsed() < KEPT_FOR
        });
        !open.connections.is_empty()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no holder of the connections panics")
    }
}

impl Open {
    fn drop_closed(&mut self) {
        self.connections
            .retain(|shared| !shared.sender.is_closed() && !shared.load.retired.load(Ordering::Relaxed));
    }
}

impl Shared {
    /// Greets the registry over `stream`.
    pub(super) async fn open(stream: RegistryStream) -> hyper::Result<Self> {
        let sharing = u32::try_from(SHARED_BY).expect("few share a connection");
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW * sharing)
            .max_header_list_size(u32::try_from(ANSWER_HEAD).expect("a head is small"))
            .timer(TokioTimer::new())
            .keep_alive_interval(SHARED_PING)
            .keep_alive_timeout(SHARED_PING);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let load = Arc::<Load>::default();
        load.admitted.store(SHARED_BY, Ordering::Relaxed);
        let told = Arc::clone(&load);
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            // Its end is seen by its exchanges.
            let _ = poll_fn(|cx| {
                let polled = connection.as_mut().poll(cx);
                if polled.is_pending() {
                    let admitted = connection.current_max_send_streams().clamp(1, SHARED_BY);
                    told.admitted.store(admitted, Ordering::Relaxed);
                }
                polled
            })
            .await;
        });
        Ok(Self { number: 0, sender, load, used: Instant::now() })
    }

    fn has_room(&self) -> bool {
        self.load.exchanges.load(Ordering::Relaxed) < self.load.admitted.load(Ordering::Relaxed)
    }

    fn lease(&mut self) -> Lease {
        self.used = Instant::now();
        self.load.exchanges.fetch_add(1, Ordering::Relaxed);
        Lease { number: self.number, sender: self.sender.clone(), load: Arc::clone(&self.load) }
    }
}

impl Lease {
    /// The head of the registry's answer.
    pub(super) async fn ask(&mut self, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.sender.send_request(request).await
    }

    /// No further exchange uses this connection; its number.
    pub(super) fn retire(&self) -> u64 {
        self.load.retired.store(true, Ordering::Relaxed);
        self.number
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.load.exchanges.fetch_sub(1, Ordering::Relaxed);
    }
}
