//! QUIC's datagrams over a UDP socket that was made elsewhere (VPN-10, VPN-37).
//!
//! What the kernel can do for UDP (segments sent and received in batches) is found out by opening sockets,
//! which a confined vpnd cannot. So it is found out before, once, by [`probe`]; a socket that comes later only
//! has its options set.

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use quinn::{AsyncUdpSocket, UdpPoller};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::{
    io::Interest,
    time::{Sleep, sleep},
};
use tracing::{debug, warn};

use crate::constants::{
    MOST_RECEIVE_FAILURES, MOST_SEGMENTS, MOST_UDP_PAYLOAD, RECEIVE_PAUSE, SOCKET_BUFFER,
};

/// A longer batch would be lost without an error.
const _: () = assert!(MOST_SEGMENTS * MOST_UDP_PAYLOAD as usize <= 65_507);

/// What was found out; none if this process could open no socket then either.
static PROBED: OnceLock<Option<UdpSocketState>> = OnceLock::new();

/// Finds out what the kernel can do for UDP; to be called before the process is confined. Later calls do
/// nothing.
pub fn probe() {
    let state = PROBED.get_or_init(|| {
        let throw_away = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        UdpSocketState::new((&throw_away).into()).ok()
    });
    match state {
        Some(state) => {
            debug!(sends = state.max_gso_segments(), receives = state.gro_segments(), "UDP in batches");
        }
        None => warn!("what the kernel can do for UDP was not found out; datagrams go one by one"),
    }
}

/// A UDP socket as QUIC sees it.
pub struct Datagrams {
    socket: tokio::net::UdpSocket,
    /// The socket's own state; by the one that was probed it is sent and received, where there is one.
    own: UdpSocketState,
    failures: Failures,
}

impl Datagrams {
    /// Takes a bound socket over; within a tokio runtime.
    ///
    /// # Errors
    ///
    /// What the system said to its options, or to waiting for it.
    pub fn over(socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let own = UdpSocketState::new((&socket).into())?;
        enlarge(&own, &socket);
        Ok(Arc::new(Self {
            socket: tokio::net::UdpSocket::from_std(socket)?,
            own,
            failures: Failures::default(),
        }))
    }

    /// A state is not tied to a socket: it knows the kernel, and notes what the kernel refuses.
    fn state(&self) -> &UdpSocketState {
        PROBED.get().and_then(Option::as_ref).unwrap_or(&self.own)
    }
}

/// Asks for buffers that hold a burst, unless the socket has them: whoever made it may have had the right to
/// more than `net.core.rmem_max` and `wmem_max`, which an ask of this process would take back. The kernel says
/// of what it gave twice the size, as it counts its own part.
fn enlarge(state: &UdpSocketState, socket: &UdpSocket) {
    let given = || {
        [state.recv_buffer_size(socket.into()), state.send_buffer_size(socket.into())]
            .map(|size| size.map_or(0, |size| size / 2))
    };
    let [receive, send] = given();
    if receive < SOCKET_BUFFER {
        // What was refused shows in what is given.
        let _ = state.set_recv_buffer_size(socket.into(), SOCKET_BUFFER);
    }
    if send < SOCKET_BUFFER {
        let _ = state.set_send_buffer_size(socket.into(), SOCKET_BUFFER);
    }
    let [receive, send] = given();
    if receive < SOCKET_BUFFER || send < SOCKET_BUFFER {
        warn!(
            receive,
            send,
            wanted = SOCKET_BUFFER,
            "small UDP buffers lose bursts: raise net.core.rmem_max and net.core.wmem_max"
        );
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagrams").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for Datagrams {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { datagrams: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_io(Interest::WRITABLE, || self.state().send((&self.socket).into(), transmit))
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.failures.poll_pause(context));
            ready!(self.socket.poll_recv_ready(context))?;
            let received = self
                .socket
                .try_io(Interest::READABLE, || self.state().recv((&self.socket).into(), buffers, meta));
            match received {
                Ok(count) => {
                    self.failures.over();
                    return Poll::Ready(Ok(count));
                }
                Err(again) if again.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => self.failures.another(error)?,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state().max_gso_segments().min(MOST_SEGMENTS)
    }

    fn max_receive_segments(&self) -> usize {
        self.state().gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.own.may_fragment()
    }
}

/// Receives that failed. An endpoint of QUIC ends for good with the first one that it sees, and the kernel may be
/// out of memory for a moment, or hand on an error that a datagram met on its way.
#[derive(Default)]
struct Failures {
    in_a_row: AtomicU32,
    pause: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Failures {
    /// Waits until a receive may be tried.
    fn poll_pause(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.in_a_row.load(Relaxed) == 0 {
            return Poll::Ready(());
        }
        let mut pause = self.pause.lock().expect("no holder of it panics");
        if let Some(waiting) = pause.as_mut() {
            ready!(waiting.as_mut().poll(context));
        }
        *pause = None;
        Poll::Ready(())
    }

    /// A receive failed.
    ///
    /// # Errors
    /// The same, if too many did before it.
    fn another(&self, error: io::Error) -> io::Result<()> {
        let before = self.in_a_row.fetch_add(1, Relaxed);
        if before == 0 {
            warn!("the UDP socket failed to receive: {error}");
        }
        if before + 1 >= MOST_RECEIVE_FAILURES {
            return Err(error);
        }
        *self.pause.lock().expect("no holder of it panics") = Some(Box::pin(sleep(RECEIVE_PAUSE)));
        Ok(())
    }

    /// One worked.
    fn over(&self) {
        if self.in_a_row.load(Relaxed) > 0 {
            self.in_a_row.store(0, Relaxed);
        }
    }
}

type Waiting = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// One task's wait until the socket can be written: each connection has its own.
struct Writable {
    datagrams: Arc<Datagrams>,
    waiting: Option<Waiting>,
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let datagrams = Arc::clone(&self.datagrams);
        let waiting =
            self.waiting.get_or_insert_with(|| Box::pin(async move { datagrams.socket.writable().await }));
        let done = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(done)
    }
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn received(socket: &dyn AsyncUdpSocket) -> io::Result<usize> {
        let mut buffer = vec![0; 1 << 16];
        poll_fn(|context| {
            let mut meta = [RecvMeta::default()];
            socket.poll_recv(context, &mut [IoSliceMut::new(&mut buffer)], &mut meta)
        })
        .await
    }

    /// What the kernel says of a datagram that nobody took is no end of the socket.
    #[tokio::test]
    async fn a_receive_that_fails_is_tried_again() {
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let nobody = peer.local_addr().unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.connect(nobody).unwrap();
        let ours = socket.local_addr().unwrap();
        drop(peer);
        let again = socket.try_clone().unwrap();
        let datagrams = Datagrams::over(socket).unwrap();
        again.send(b"to nobody").unwrap();
        let peer = UdpSocket::bind(nobody).unwrap();
        peer.send_to(b"after all", ours).unwrap();
        assert_eq!(received(&*datagrams).await.unwrap(), 1);
    }

    /// One that fails for good is given up.
    #[tokio::test(start_paused = true)]
    async fn a_socket_that_only_fails_is_given_up() {
        let failures = Failures::default();
        let failed = || io::Error::from(io::ErrorKind::OutOfMemory);
        for row in 0..2 {
            for number in 1..MOST_RECEIVE_FAILURES {
                assert!(failures.another(failed()).is_ok(), "{row} {number}");
                poll_fn(|context| failures.poll_pause(context)).await;
            }
            if row == 0 {
                failures.over();
            }
        }
        assert!(failures.another(failed()).is_err());
    }
}
