//! The relay's one server: TLS on the socket that the supervisor bound, HTTP/1.1 and h2, one kind of
//! upgrade and the pulls; everything else is refused by name (LIS-01, LIS-03, LIS-05, LIS-06).

use std::{sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, watch},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::constants::{HANDSHAKE_BUDGET, HANDSHAKES, NODE_SOCKETS};

mod http;
mod node;

pub use http::refuse_head;
pub use node::{FromListener, Sockets};

/// A wait after `accept` failed, so that a full descriptor table costs no CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop` says so. Handshakes are bounded in number and time; a connection that finds
/// no place waits in the backlog.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    events: mpsc::Sender<FromListener>,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let connections = Arc::new(Semaphore::new(NODE_SOCKETS));
    let sockets = Arc::new(Sockets::new(events));
    loop {
        let places = async {
            let connection = Arc::clone(&connections).acquire_owned().await;
            (connection, Arc::clone(&handshakes).acquire_owned().await)
        };
        let ((Ok(connection), Ok(handshake)), accepted) = (tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = async { (places.await, listener.accept().await) } => accepted,
        }) else {
            return;
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(class = %error.kind(), "the listener cannot accept; it tries again");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, sockets) = (acceptor.clone(), Arc::clone(&sockets));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            match timeout(HANDSHAKE_BUDGET, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    drop(handshake);
                    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    http::serve(stream, h2, sockets, connection).await;
                }
                Ok(Err(error)) => debug!(class = %error.kind(), "a TLS handshake failed"),
                Err(_) => debug!("a TLS handshake did not end in time"),
            }
        });
    }
}

/// What the listener speaks HTTP and WebSocket over.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl Transport for tokio_rustls::server::TlsStream<TcpStream> {}
