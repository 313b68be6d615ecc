//! The connections of image pulls: the supervisor connects to the one origin that it knows and hands the
//! socket to pulld, which can make none and so reaches nobody else (ARC-15, PULL-02).

use std::{io, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use coreflow_ipc::messages::pulls::RegistryFailure;
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::{
    configuration::CloudlyUrl,
    constants::{
        REGISTRY_ADDRESSES_FAILED, REGISTRY_ADDRESSES_KEPT, REGISTRY_CONNECT_BOUND, REGISTRY_UNACKNOWLEDGED,
    },
    dial_pace::DialPace,
    exchange::{self, ExchangeError, ResolveError, TransportClass},
};

/// The dials to the registry: their pace, and the addresses that they have in common.
#[derive(Default)]
pub struct Dials {
    pace: DialPace,
    addresses: Addresses,
}

impl Dials {
    /// A dial that is asked for at `mono` of the monotonic clock and made when the result is awaited: a TCP connection
    /// to the registry, non-blocking, without delay, and that fails with a peer that does not acknowledge.
    ///
    /// # Errors
    /// [`RegistryFailure::Dns`], [`RegistryFailure::Connect`] or [`RegistryFailure::Timeout`]; resolving and
    /// connecting have a bound each.
    pub fn begin(
        &mut self,
        cloudly: &CloudlyUrl,
        mono: Duration,
    ) -> impl Future<Output = Result<OwnedFd, RegistryFailure>> + use<> {
        let (wait, addresses, cloudly) = (self.pace.admit(mono), self.addresses.clone(), cloudly.clone());
        async move {
            if !wait.is_zero() {
                sleep(wait).await;
            }
            dial(&cloudly, &addresses).await
        }
    }
}

async fn dial(cloudly: &CloudlyUrl, addresses: &Addresses) -> Result<OwnedFd, RegistryFailure> {
    let (host, port) = (cloudly.host(), cloudly.port());
    let addresses = match addresses.found(exchange::resolve(&host, port)).await {
        Ok(addresses) => addresses,
        Err(ResolveError::NotFound(_)) => return Err(RegistryFailure::Dns),
        Err(ResolveError::Timeout) => return Err(RegistryFailure::Timeout),
    };
    // Without TLS a node's pull token stays on this host, like the bearer.
    let addresses = exchange::permitted(addresses, cloudly.is_tls());
    let stream = match exchange::connect(&addresses, REGISTRY_CONNECT_BOUND).await {
        Ok(stream) => stream,
        Err(ExchangeError::Transport { class: TransportClass::Timeout, .. }) => {
            return Err(RegistryFailure::Timeout);
        }
        Err(_) => return Err(RegistryFailure::Connect),
    };
    handed(stream).map_err(|_| RegistryFailure::Connect)
}

/// What a lookup gives.
type Found = Result<Vec<SocketAddr>, ResolveError>;

/// The registry's addresses. One lookup is under way at a time, and whoever waits for it uses what it gives, so that
/// a slow resolver costs one thread and not one for each dial.
#[derive(Clone, Default)]
struct Addresses(Arc<Mutex<Option<(Found, Instant)>>>);

impl Addresses {
    /// What was found lately, or what `lookup` finds.
    async fn found(&self, lookup: impl Future<Output = Found>) -> Found {
        let mut latest = self.0.lock().await;
        if let Some((found, until)) = &*latest
            && Instant::now() < *until
        {
            return found.clone();
        }
        let found = lookup.await;
        let kept = if found.is_ok() { REGISTRY_ADDRESSES_KEPT } else { REGISTRY_ADDRESSES_FAILED };
        *latest = Some((found.clone(), Instant::now() + kept));
        found
    }
}

/// The socket as pulld gets it.
fn handed(stream: TcpStream) -> io::Result<OwnedFd> {
    stream.set_nodelay(true)?;
    let unacknowledged = u32::try_from(REGISTRY_UNACKNOWLEDGED.as_millis()).expect("a few seconds");
    setsockopt(&stream, TcpUserTimeout, &unacknowledged)?;
    Ok(stream.into_std()?.into())
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::TcpListener,
        sync::atomic::{AtomicU16, Ordering},
    };

    use nix::sys::socket::getsockopt;
    use tokio::time::advance;

    use super::*;
    use crate::constants::{DIAL_BURST, DIAL_SPACING};

    fn url(text: &str) -> CloudlyUrl {
        CloudlyUrl::parse(text).unwrap()
    }

    /// PULL-02, ARC-15: the socket leads to the origin of `CLOUDLY_URL`. PULL-26: it fails when what is sent over it
    /// is not acknowledged.
    #[tokio::test]
    async fn the_socket_is_one_to_the_origin() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let cloudly = url(&format!("https://127.0.0.1:{port}"));
        let socket = Dials::default().begin(&cloudly, Duration::ZERO).await.unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let socket = std::net::TcpStream::from(socket);
        assert_eq!(socket.peer_addr().unwrap().port(), port);
        assert!(socket.nodelay().unwrap());
        let unacknowledged = getsockopt(&socket, TcpUserTimeout).unwrap();
        assert_eq!(Duration::from_millis(unacknowledged.into()), REGISTRY_UNACKNOWLEDGED);
        drop(socket);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    }

    /// PULL-26: what fails has a class.
    #[tokio::test]
    async fn a_failure_has_its_class() {
        let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        for (text, class) in [
            (format!("https://127.0.0.1:{closed}"), RegistryFailure::Connect),
            ("https://registry.invalid".to_owned(), RegistryFailure::Dns),
        ] {
            let dialled = Dials::default().begin(&url(&text), Duration::ZERO).await;
            assert_eq!(dialled.err(), Some(class), "{text}");
        }
    }

    /// PULL-02: a dial beyond the burst is made later and not refused.
    #[tokio::test(start_paused = true)]
    async fn a_dial_beyond_the_burst_waits() {
        let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let (mut dials, cloudly) = (Dials::default(), url(&format!("https://127.0.0.1:{closed}")));
        let now = Duration::from_secs(9);
        for _ in 0..DIAL_BURST + 4 {
            drop(dials.begin(&cloudly, now));
        }
        let began = Instant::now();
        assert!(dials.begin(&cloudly, now).await.is_err());
        assert!(began.elapsed() >= DIAL_SPACING * 5, "{:?}", began.elapsed());
    }

    /// PULL-01, PULL-26: dials that wait for the same name cause one lookup and have what it gives, a failure too; it
    /// is remembered for a time, that of a failure for a shorter one.
    #[tokio::test(start_paused = true)]
    async fn a_lookup_is_for_all_that_wait() {
        let addresses = Addresses::default();
        let lookups = &AtomicU16::new(0);
        let ask = |fails: bool| {
            addresses.found(async move {
                let number = lookups.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(4)).await;
                let found = SocketAddr::from(([127, 0, 0, 1], number));
                if fails { Err(ResolveError::Timeout) } else { Ok(vec![found]) }
            })
        };
        let number = |found: Found| found.unwrap()[0].port();
        let began = Instant::now();
        let (one, two, three) = tokio::join!(ask(false), ask(false), ask(true));
        assert_eq!([one, two, three].map(number), [0, 0, 0]);
        assert_eq!(began.elapsed(), Duration::from_secs(4));

        advance(REGISTRY_ADDRESSES_KEPT - Duration::from_millis(10)).await;
        assert_eq!(number(ask(true).await), 0);
        advance(Duration::from_millis(10)).await;
        assert_eq!(number(ask(false).await), 1);

        advance(REGISTRY_ADDRESSES_KEPT).await;
        let (one, two) = tokio::join!(ask(true), ask(false));
        assert_eq!([one, two], [Err(ResolveError::Timeout), Err(ResolveError::Timeout)]);
        advance(REGISTRY_ADDRESSES_FAILED).await;
        assert_eq!(number(ask(false).await), 3);
    }
}
