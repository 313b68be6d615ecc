//! The connections of image pulls: the supervisor connects to the one origin that it knows and hands the
//! socket to pulld, which can make none and so reaches nobody else (ARC-15, PULL-02).

use std::os::fd::OwnedFd;

use coreflow_ipc::messages::pulls::RegistryFailure;

use crate::{
    configuration::CloudlyUrl,
    constants::REGISTRY_CONNECT_BOUND,
    exchange::{self, ExchangeError, ResolveError, TransportClass},
};

/// A TCP connection to the registry, non-blocking and without delay.
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
    let handed = stream.set_nodelay(true).and_then(|()| stream.into_std());
    handed.map(OwnedFd::from).map_err(|_| RegistryFailure::Connect)
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    fn url(text: &str) -> CloudlyUrl {
        CloudlyUrl::parse(text).unwrap()
    }

    /// PULL-02, ARC-15: the socket leads to the origin of `CLOUDLY_URL`.
    #[tokio::test]
    async fn the_socket_is_one_to_the_origin() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = dial(&url(&format!("https://127.0.0.1:{port}"))).await.unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let socket = std::net::TcpStream::from(socket);
        assert_eq!(socket.peer_addr().unwrap().port(), port);
        assert!(socket.nodelay().unwrap());
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
