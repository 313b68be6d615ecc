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
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use quinn::{AsyncUdpSocket, UdpPoller};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;
use tracing::{debug, warn};

use crate::constants::{MOST_SEGMENTS, MOST_UDP_PAYLOAD, SOCKET_BUFFER};

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
        Ok(Arc::new(Self { socket: tokio::net::UdpSocket::from_std(socket)?, own }))
    }

    /// A state is not tied to a socket: it knows the kernel, and notes what the kernel refuses.
    fn state(&self) -> &UdpSocketState {
        PROBED.get().and_then(Option::as_ref).unwrap_or(&self.own)
    }
}

/// Asks for buffers that hold a burst. The kernel gives no more than `net.core.rmem_max` and `wmem_max`, and
/// says of what it gave twice the size, as it counts its own part.
fn enlarge(state: &UdpSocketState, socket: &UdpSocket) {
    let refused = state.set_recv_buffer_size(socket.into(), SOCKET_BUFFER).is_err()
        | state.set_send_buffer_size(socket.into(), SOCKET_BUFFER).is_err();
    let given = [state.recv_buffer_size(socket.into()), state.send_buffer_size(socket.into())];
    let [receive, send] = given.map(|size| size.map_or(0, |size| size / 2));
    if refused || receive < SOCKET_BUFFER || send < SOCKET_BUFFER {
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
            ready!(self.socket.poll_recv_ready(context))?;
            let received = self
                .socket
                .try_io(Interest::READABLE, || self.state().recv((&self.socket).into(), buffers, meta));
            match received {
                Err(again) if again.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
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
