//! What the clients dial: the relay, or, with no relay between, the registry's own origin.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::client::Endpoint;
use super::relayed::Relayed;
use super::stock::Stock;
use super::{Failure, Options};
use crate::authority::{Authority, server_config};
use crate::free_port::free_port;

/// The nodes that pull.
pub(super) const NODES: [&str; 2] = ["node-1", "node-2"];

/// A way to the registry.
pub(super) enum Way {
    /// TLS in front of its origin.
    Direct(Direct),
    /// The relay, and Cloudly in front of its origin.
    Relayed(Box<Relayed>),
}

impl Way {
    /// Starts the registry below `folder` and what leads to it.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn start(folder: &Path, options: &Options) -> Result<(Self, Stock), Failure> {
        if options.direct {
            let (direct, registry) = Direct::start(folder).await?;
            return Ok((Self::Direct(direct), registry));
        }
        let (relayed, registry) = Relayed::start(folder, options.binaries.as_deref()).await?;
        Ok((Self::Relayed(Box::new(relayed)), registry))
    }

    /// Where a node pulls from, with the credential that it was issued.
    pub(super) fn endpoint(&self, node: &str) -> Endpoint {
        match self {
            Self::Direct(direct) => direct.endpoint(node),
            Self::Relayed(relayed) => relayed.endpoint(node),
        }
    }
}

/// TLS in front of the registry's origin.
pub(super) struct Direct {
    published: String,
    authority: Authority,
    secrets: Vec<(String, String)>,
    task: JoinHandle<()>,
}

impl Direct {
    async fn start(folder: &Path) -> Result<(Self, Stock), Failure> {
        let authority = Authority::new();
        let port = free_port();
        let published = format!("localhost:{port}");
        let registry = Stock::start(folder, &format!("https://{published}")).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.map_err(|error| Failure::new(format!("the registry's port: {error}")))?;
        let acceptor = TlsAcceptor::from(server_config(&authority.issue(&["localhost"]), &["http/1.1"]));
        let task = tokio::spawn(listen(listener, acceptor, registry.origin.address()));
        let secrets = NODES.map(|node| (node.to_owned(), registry.origin.issue(node))).to_vec();
        Ok((Self { published, authority, secrets, task }, registry))
    }

    fn endpoint(&self, node: &str) -> Endpoint {
        let secret = self.secrets.iter().find(|(of, _)| of == node).map(|(_, secret)| secret.clone());
        Endpoint {
            authority: self.published.clone(),
            root_pem: self.authority.ca_pem().to_owned(),
            node: node.to_owned(),
            secret: secret.unwrap_or_default(),
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(listener: TcpListener, acceptor: TlsAcceptor, origin: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                drop(connections.spawn(carry(stream, acceptor.clone(), origin)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(stream: TcpStream, acceptor: TlsAcceptor, origin: SocketAddr) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let mut behind = TcpStream::connect(origin).await?;
    behind.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut stream, &mut behind).await?;
    Ok(())
}
