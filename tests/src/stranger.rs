//! Somebody who dials the relay from a loopback address of its own, and goes no further than a test says:
//! to TCP, to TLS, or to a socket that registers nobody.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error as SocketError;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::dial::Target;

/// The stranger.
#[derive(Clone)]
pub struct Stranger {
    target: Target,
    from: Ipv4Addr,
}

impl Stranger {
    /// One at 127.0.0.`last` who dials `target`. Nodes of the tests dial from 127.0.0.1.
    pub fn new(target: Target, last: u8) -> Self {
        Self { target, from: Ipv4Addr::new(127, 0, 0, last) }
    }

    /// A TCP connection.
    ///
    /// # Errors
    /// The system's.
    pub async fn tcp(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((IpAddr::V4(self.from), 0)))?;
        socket.connect(self.target.address).await
    }

    /// A connection on which TLS is done.
    ///
    /// # Errors
    /// The system's, or the library's of TLS.
    pub async fn tls(&self) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.target.server_name.clone()).map_err(io::Error::other)?;
        TlsConnector::from(self.target.tls.clone()).connect(name, self.tcp().await?).await
    }

    /// A WebSocket at `/`; for a refused one, the status that the upgrade was answered with.
    ///
    /// # Errors
    /// As [`Stranger::tls`], or the library's of the WebSocket.
    pub async fn socket(&self) -> io::Result<Result<WebSocketStream<TlsStream<TcpStream>>, u16>> {
        let stream = self.tls().await?;
        let address = format!("wss://{}:{}/", self.target.server_name, self.target.address.port());
        let request = address.into_client_request().map_err(io::Error::other)?;
        match client_async(request, stream).await {
            Ok((socket, _)) => Ok(Ok(socket)),
            Err(SocketError::Http(response)) => Ok(Err(response.status().as_u16())),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
