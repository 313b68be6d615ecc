//! The relay's one server: TLS on the socket that the supervisor bound, HTTP/1.1 and h2, one kind of
//! upgrade and the pulls; everything else is refused by name (LIS-01, LIS-03, LIS-05, LIS-06).

use std::{io, sync::Arc, time::Duration};

use coreflow_ipc::sys::{self, Errno};
use rustls::ServerConfig;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use line_budget::LineBudget;

mod admission;
mod connection;
mod http;
mod line_budget;
mod node;
mod places;

pub use http::refuse_head;
pub use node::{FromListener, Sockets};

/// A wait after `accept` failed for want of something, so that this costs no CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop` says so. Who gets no place is closed at once, so that nobody waits in the backlog
/// behind those who hold places.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    events: mpsc::Sender<FromListener>,
    mut stop: watch::Receiver<bool>,
) {
    let descriptors = sys::most_descriptors();
    let capacity = places::Capacity::under(usize::try_from(descriptors).unwrap_or(usize::MAX));
    let places::Capacity { handshakes, pulls, nodes } = capacity;
    info!(handshakes, pulls, nodes, "the listener has places under a limit of {descriptors} open files");
    let listening = Arc::new(connection::Listening {
        tls: TlsAcceptor::from(tls),
        gates: places::Gates::new(capacity),
        sockets: Arc::new(Sockets::new(events)),
    });
    let failures = LineBudget::default();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let source = admission::Source::from(address.ip());
                if let Ok(place) = listening.gates.handshakes.take(source) {
                    tokio::spawn(connection::serve(stream, source, place, Arc::clone(&listening)));
                }
            }
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
