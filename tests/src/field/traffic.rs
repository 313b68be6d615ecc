//! What nodes say to each other: a TCP echo, and a paced stream of numbered datagrams with the sink that notes
//! which of them came.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::namespace::Namespace;

/// After this time without anything a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// What a sink asks the kernel to buffer.
const BUFFER: usize = 4 << 20;
/// Bytes that go through an echo at a time.
const CHUNK: usize = 64 << 10;
/// Datagrams of a paced stream in a second.
pub const PACKETS_A_SECOND: u32 = 200;
/// Bytes of a numbered datagram: one that crosses any tunnel whole.
const NUMBERED: usize = 200;

/// Sends back what it is sent, on one connection after the other.
pub struct Echo {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Listens at `at` in `ground`.
    ///
    /// # Panics
    /// When the address is none of it.
    pub fn at(ground: &Namespace, at: SocketAddrV4) -> Self {
        let listener = ground.listener(at);
        listener.set_nonblocking(true).expect("a listener that does not block");
        let ended = Arc::new(AtomicBool::new(false));
        let stop = ended.clone();
        let serve = move || {
            while !stop.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => echo(stream, &stop),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        };
        Self { ended, thread: Some(std::thread::spawn(serve)) }
    }
}

fn echo(mut stream: TcpStream, stop: &AtomicBool) {
    if stream.set_nonblocking(false).is_err() || stream.set_read_timeout(Some(LOOK)).is_err() {
        return;
    }
    let mut buffer = vec![0; CHUNK];
    while !stop.load(Ordering::SeqCst) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) if stream.write_all(&buffer[..length]).is_err() => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Sends so many bytes to an echo and reads them back.
///
/// # Panics
/// When they are not the same, or not back within `bound`.
pub fn round_trip(stream: &mut TcpStream, bytes: usize, bound: Duration) {
    let until = Instant::now() + bound;
    let sent: Vec<u8> = (0..CHUNK).map(|at| u8::try_from(at % 251).expect("less than 251")).collect();
    let mut back = vec![0; CHUNK];
    for at in (0..bytes).step_by(CHUNK) {
        let length = CHUNK.min(bytes - at);
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{at} of {bytes} bytes were back after {bound:?}");
        stream.set_read_timeout(Some(left)).expect("a timeout of a socket");
        stream.set_write_timeout(Some(left)).expect("a timeout of a socket");
        let went = stream.write_all(&sent[..length]).and_then(|()| stream.read_exact(&mut back[..length]));
        went.unwrap_or_else(|error| panic!("after {at} of {bytes} bytes, bound {bound:?}: {error}"));
        assert!(sent[..length] == back[..length], "other bytes came back behind {at}");
    }
}

/// Notes the numbers of the datagrams that come.
pub struct Sink {
    numbers: Arc<Mutex<BTreeSet<u32>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Listens on `port` of every address of `ground`.
    ///
    /// # Panics
    /// When the port is taken.
    pub fn at(ground: &Namespace, port: u16) -> Self {
        let socket = ground.udp(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        socket.set_read_timeout(Some(LOOK)).expect("a timeout of a socket");
        SockRef::from(&socket).set_recv_buffer_size(BUFFER).expect("a buffer of a socket");
        let (numbers, ended) = (Arc::<Mutex<BTreeSet<u32>>>::default(), Arc::new(AtomicBool::new(false)));
        let (noted, stop) = (numbers.clone(), ended.clone());
        let note = move || {
            let mut datagram = [0; 2048];
            while !stop.load(Ordering::SeqCst) {
                let Ok(length @ 4..) = socket.recv(&mut datagram) else { continue };
                let number = datagram[..length].first_chunk().map(|number| u32::from_be_bytes(*number));
                lock(&noted).extend(number);
            }
        };
        Self { numbers, ended, thread: Some(std::thread::spawn(note)) }
    }

    /// The numbers that came.
    pub fn numbers(&self) -> BTreeSet<u32> {
        lock(&self.numbers).clone()
    }

    /// Waits until a number of at least `number` has come.
    ///
    /// # Panics
    /// When none does within `bound`.
    pub fn wait(&self, number: u32, bound: Duration) {
        let until = Instant::now() + bound;
        while lock(&self.numbers).last().is_none_or(|last| *last < number) {
            let last = lock(&self.numbers).last().copied();
            assert!(
                Instant::now() < until,
                "number {number} did not come within {bound:?}; the last is {last:?}"
            );
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Sends numbered datagrams at a pace until it is dropped or stopped.
pub struct Stream {
    next: Arc<AtomicU32>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    /// Sends from `ground` to `to`, one datagram in each `pace`; as many as go for a pace of zero.
    ///
    /// # Panics
    /// When the namespace has no socket left.
    pub fn start(ground: &Namespace, to: SocketAddrV4, pace: Duration, bytes: usize) -> Self {
        let socket = ground.udp(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let (next, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (next.clone(), ended.clone());
        let send = move || {
            let began = Instant::now();
            let mut datagram = vec![0; bytes.max(4)];
            for number in 0.. {
                while began + pace * number > Instant::now() {
                    std::thread::sleep(pace.min(LOOK));
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                datagram[..4].copy_from_slice(&number.to_be_bytes());
                // A full queue or a tunnel that is down loses it.
                drop(socket.send_to(&datagram, to));
                count.store(number + 1, Ordering::SeqCst);
            }
        };
        Self { next, ended, thread: Some(std::thread::spawn(send)) }
    }

    /// Small datagrams, [`PACKETS_A_SECOND`] of them.
    pub fn paced(ground: &Namespace, to: SocketAddrV4) -> Self {
        Self::start(ground, to, Duration::from_secs(1) / PACKETS_A_SECOND, NUMBERED)
    }

    /// The number that is sent next; it and the ones below may be under way already.
    pub fn next(&self) -> u32 {
        self.next.load(Ordering::SeqCst)
    }

    /// Ends it; gives how many it sent.
    pub fn stop(mut self) -> u32 {
        self.end();
        self.next()
    }

    fn end(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that panicked left behind is whole: it only ever adds a number.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
