//! A service of the cluster: a port that answers every HTTP request with one page.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// The running service. Dropping it ends its listener and its connections.
pub struct Destination {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Destination {
    /// Serves `page` on a port of 127.0.0.1 from the system.
    ///
    /// # Panics
    /// When no port can be bound.
    pub async fn start(page: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the system has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(move |_| async move {
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(page.as_bytes()))))
                });
                connections.spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.task.abort();
    }
}
