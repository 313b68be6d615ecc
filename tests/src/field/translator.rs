//! The NAT between a node and the hub: a forwarder of datagrams whose outer socket can be another one from one
//! datagram to the next, as when a router forgets a binding, and which keeps what passed.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

use super::HUB;
use super::namespace::Namespace;

/// After this time without a datagram a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// What each socket asks the kernel to buffer.
const BUFFER: usize = 4 << 20;
/// Bytes of a datagram at most.
const LARGEST: usize = 2048;
/// Datagrams that are kept at most.
const KEPT: usize = 4096;

/// The forwarder. Dropping it ends it.
pub struct Translator {
    near: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    near: UdpSocket,
    /// What stands between the two sides at present.
    binding: Mutex<Arc<UdpSocket>>,
    /// Who dialled last.
    node: Mutex<Option<SocketAddr>>,
    /// What went to the hub, while it is kept.
    kept: Mutex<Vec<Vec<u8>>>,
    keeps: AtomicBool,
    ended: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that panicked left behind is whole: each holds one assignment.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn socket(ground: &Namespace, at: Ipv4Addr) -> UdpSocket {
    let socket = ground.udp(SocketAddrV4::new(at, 0));
    socket.set_read_timeout(Some(LOOK)).expect("a timeout of a socket");
    let buffered = SockRef::from(&socket);
    buffered.set_recv_buffer_size(BUFFER).expect("a buffer of a socket");
    buffered.set_send_buffer_size(BUFFER).expect("a buffer of a socket");
    socket
}

impl Translator {
    /// A forwarder in `ground` that reaches the hub from `outside`.
    pub fn in_front(ground: &Namespace, outside: Ipv4Addr) -> Self {
        let near = socket(ground, Ipv4Addr::LOCALHOST);
        let address = near.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            near,
            binding: Mutex::new(Arc::new(socket(ground, outside))),
            node: Mutex::new(None),
            kept: Mutex::new(Vec::new()),
            keeps: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let threads = [Shared::outwards, Shared::inwards].map(|forward| {
            let shared = shared.clone();
            std::thread::spawn(move || forward(&shared))
        });
        Self { near: address, shared, threads: threads.into() }
    }

    /// Where a node of its namespace dials.
    pub fn near(&self) -> SocketAddr {
        self.near
    }

    /// What the hub sees.
    ///
    /// # Panics
    /// Never: its socket is bound.
    pub fn outside(&self) -> SocketAddr {
        lock(&self.shared.binding).local_addr().expect("a bound socket has an address")
    }

    /// Forgets the binding: from here on the hub sees another port of `outside`, and what it sends to the old one
    /// is lost.
    pub fn rebind(&self, ground: &Namespace, outside: Ipv4Addr) {
        *lock(&self.shared.binding) = Arc::new(socket(ground, outside));
    }

    /// Keeps what goes to the hub from here on, at most 4,096 datagrams.
    pub fn keep(&self) {
        self.shared.keeps.store(true, Ordering::SeqCst);
    }

    /// What was kept.
    pub fn kept(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.kept).clone()
    }
}

impl Shared {
    fn outwards(&self) {
        let mut buffer = [0; LARGEST];
        while !self.ended.load(Ordering::SeqCst) {
            let Ok((length, from)) = self.near.recv_from(&mut buffer) else { continue };
            *lock(&self.node) = Some(from);
            if self.keeps.load(Ordering::SeqCst) {
                let mut kept = lock(&self.kept);
                if kept.len() < KEPT {
                    kept.push(buffer[..length].to_vec());
                }
            }
            let binding = lock(&self.binding).clone();
            // A datagram that the way does not take is lost, as on any.
            drop(binding.send_to(&buffer[..length], HUB));
        }
    }

    fn inwards(&self) {
        let mut buffer = [0; LARGEST];
        while !self.ended.load(Ordering::SeqCst) {
            let binding = lock(&self.binding).clone();
            let Ok((length, _)) = binding.recv_from(&mut buffer) else { continue };
            let Some(node) = *lock(&self.node) else { continue };
            drop(self.near.send_to(&buffer[..length], node));
        }
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}
