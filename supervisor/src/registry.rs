//! The connections of image pulls: the supervisor connects to the one origin that it knows and hands the
//! socket to pulld, which can make none and so reaches nobody else (ARC-15, PULL-02).

use std::{io, os::fd::OwnedFd};

use coreflow_ipc::messages::pulls::RegistryFailure;
use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
use tokio::net::TcpStream;

use crate::{
    configuration::CloudlyUrl,
    constants::{REGISTRY_CONNECT_BOUND, REGISTRY_UNACKNOWLEDGED},
    exchange::{self, ExchangeError, ResolveError, TransportClass},
};

/// A TCP connection to the registry, non-blocking, without delay, and of a bounded patience with a peer that does not
/// acknowledge.
///
/// # Errors
/// [`RegistryFailure::Dns`], [`RegistryFailure::Connect`] or [`RegistryFailure::Timeout`]; resolving and
/// connecting have a bound each.
pub async fn dial(cloudly: &CloudlyUrl) -> Result<OwnedFd, RegistryFailure> {
    let addresses = match exchange::resolve(&cloudly.host(), cloudly.port()).await {
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

/// The socket as pulld gets it.
fn handed(stream: TcpStream) -> io::Result<OwnedFd> {
    stream.set_nodelay(true)?;
    let unacknowledged = u32::try_from(REGISTRY_UNACKNOWLEDGED.as_millis()).expect("a few seconds");
    setsockopt(&stream, TcpUserTimeout, &unacknowledged)?;
    Ok(stream.into_std()?.into())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener, time::Duration};

    use nix::sys::socket::getsockopt;

    use super::*;

    fn url(text: &str) -> CloudlyUrl {
        CloudlyUrl::parse(text).unwrap()
    }

    /// PULL-02, ARC-15: the socket leads to the origin of `CLOUDLY_URL`. PULL-26: it fails when what is sent over it
    /// is not acknowledged.
    #[tokio::test]
    async fn the_socket_is_one_to_the_origin() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = dial(&url(&format!("https://127.0.0.1:{port}"))).await.unwrap();
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
            assert_eq!(dial(&url(&text)).await.err(), Some(class), "{text}");
        }
    }
}
