//! The relay's one server: TLS on the socket that the supervisor bound, HTTP/1.1 and h2, one kind of
//! upgrade and the pulls; everything else is refused by name (LIS-01, LIS-03, LIS-05, LIS-06).

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use coreflow_ipc::{
    line_budget::LineBudget,
    sys::{self, Errno},
};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::pulls::Pulls;
pub use admission::Source;

mod admission;
mod body_clock;
mod connection;
mod counts;
mod http;
mod node;
mod places;
mod wire;

pub use counts::Counts;
pub use http::refuse_head;
pub use node::{FromListener, Sockets};

/// A wait after `accept` failed for want of something, so that this costs no CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the listener serves with.
pub struct Parts {
    /// The bound socket.
    pub listener: std::net::TcpListener,
    /// The settings of TLS.
    pub tls: Arc<ServerConfig>,
    /// Where pulls go.
    pub pulls: Arc<Pulls>,
    /// The sockets of nodes.
    pub sockets: Sockets,
    /// Accepting ends once this is true.
    pub stop: watch::Receiver<bool>,
    /// Where what happens is counted.
    pub counts: Arc<Counts>,
}

/// Starts the listener's thread, and answers with its runtime: handshakes and pulls, whose cost is that of
/// their bytes, hold up no session. It runs until the process ends.
///
/// # Errors
/// The runtime or the thread was refused.
pub fn thread() -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let serving = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("listener".to_owned()).spawn(serving)?;
    Ok(handle)
}

/// The task that accepts; its end is an error where the socket was ended, and none where it was told to stop.
pub type Accepting = JoinHandle<Result<(), Ended>>;

/// The listening socket was ended by somebody who has a copy of it; none of its holders can accept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

/// Starts to accept, in the runtime of [`thread`]. What was accepted is served until the process ends.
///
/// # Errors
/// The socket's registration was refused.
pub fn start(runtime: &Handle, parts: Parts) -> io::Result<Accepting> {
    let listener = {
        let _inside = runtime.enter();
        parts.listener.set_nonblocking(true)?;
        TcpListener::from_std(parts.listener)?
    };
    let listening = |capacity| connection::Listening {
        tls: TlsAcceptor::from(parts.tls),
        gates: places::Gates::new(capacity),
        sockets: Arc::new(parts.sockets),
        pulls: parts.pulls,
        counts: parts.counts,
    };
    Ok(runtime.spawn(serve(listener, listening, parts.stop)))
}

/// Accepts until `stop` says so. Who gets no place is closed at once, so that nobody waits in the backlog
/// behind those who hold places.
async fn serve(
    listener: TcpListener,
    listening: impl FnOnce(places::Capacity) -> connection::Listening,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Ended> {
    let descriptors = sys::most_descriptors();
    let capacity = places::Capacity::under(usize::try_from(descriptors).unwrap_or(usize::MAX));
    let places::Capacity { handshakes, pulls: places, nodes } = capacity;
    info!(
        handshakes,
        pulls = places,
        nodes,
        "the listener has places under a limit of {descriptors} open files"
    );
    let listening = Arc::new(listening(capacity));
    listening.pulls.limit(places);
    let take = |stream, source| connection::take(stream, source, &listening);
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => Ok(()),
        Ended = accept(&listener, take) => Err(Ended),
    }
}

/// Where connections come from.
trait Dials {
    type Stream;

    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}

impl Dials for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept().await
    }
}

/// Hands each connection to `take`, until the socket listens no more. What fails for one connection is passed over; what
/// fails for want of something waits, and is tried again.
async fn accept<D: Dials>(dials: &D, take: impl Fn(D::Stream, Source)) -> Ended {
    let failures = LineBudget::default();
    loop {
        match dials.next().await {
            Ok((stream, address)) => take(stream, Source::from(address.ip())),
            // By accept(2): the socket is not listening.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => return Ended,
            Err(error) => {
                if let Some(errno) = wanting(&error) {
                    if let Some(suppressed) = failures.admit() {
                        warn!(suppressed, "listener-accept-failed: {errno}; dials wait, and it tries again");
                    }
                    sleep(ACCEPT_PAUSE).await;
                } else {
                    debug!(class = %error.kind(), "a connection ended before it was accepted");
                }
            }
        }
    }
}

/// What the system lacked for an `accept`; `None` where the one connection failed, as `accept(2)` lists.
fn wanting(error: &io::Error) -> Option<Errno> {
    let errno = Errno::from_raw(error.raw_os_error()?);
    let of_the_connection = [
        Errno::ECONNABORTED,
        Errno::EINTR,
        Errno::ENETDOWN,
        Errno::EPROTO,
        Errno::ENOPROTOOPT,
        Errno::EHOSTDOWN,
        Errno::ENONET,
        Errno::EHOSTUNREACH,
        Errno::EOPNOTSUPP,
        Errno::ENETUNREACH,
    ];
    (!of_the_connection.contains(&errno)).then_some(errno)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::Mutex};

    use tokio::time::{Instant, timeout};

    use super::*;

    /// What happens at a socket, last first; then nothing.
    struct Script(Mutex<Vec<io::Result<(&'static str, SocketAddr)>>>);

    impl Dials for Script {
        type Stream = &'static str;

        async fn next(&self) -> io::Result<(&'static str, SocketAddr)> {
            let next = self.0.lock().unwrap().pop();
            match next {
                Some(next) => next,
                None => std::future::pending().await,
            }
        }
    }

    /// Without descriptors, of this process or of the host, accepting waits and is tried again, for as long
    /// as it takes; a connection that ended in the backlog delays nobody.
    #[tokio::test(start_paused = true)]
    async fn a_full_table_of_descriptors_costs_a_wait_and_nothing_else() {
        let address = SocketAddr::from(([192, 0, 2, 1], 7));
        let failed = |errno: Errno| Err(io::Error::from_raw_os_error(errno as i32));
        let mut script = vec![Ok(("last", address)), failed(Errno::ECONNABORTED), Ok(("first", address))];
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
            script.extend((0..25).map(|_| failed(errno)));
        }
        let script = Script(Mutex::new(script));
        let (begin, taken) = (Instant::now(), RefCell::new(Vec::new()));
        let accepting =
            accept(&script, |name, source| taken.borrow_mut().push((name, source, begin.elapsed())));
        assert!(timeout(Duration::from_secs(60), accepting).await.is_err(), "it never gives up");
        let (source, waited) = (Source::from(address.ip()), 100 * ACCEPT_PAUSE);
        assert_eq!(*taken.borrow(), [("first", source, waited), ("last", source, waited)]);
    }

    /// A socket that was ended by a former holder gives nothing any more, however long one waits.
    #[tokio::test]
    async fn an_ended_socket_ends_the_accepting() {
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let copy = socket.try_clone().unwrap();
        let listener = TcpListener::from_std(socket).unwrap();
        let accepting = accept(&listener, |_, _| ());
        tokio::pin!(accepting);
        assert!(timeout(Duration::ZERO, &mut accepting).await.is_err(), "it listens");
        std::net::TcpStream::from(std::os::fd::OwnedFd::from(copy))
            .shutdown(std::net::Shutdown::Both)
            .unwrap();
        assert_eq!(timeout(Duration::from_secs(30), accepting).await, Ok(Ended));
    }
}
