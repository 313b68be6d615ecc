//! TLS as the table says: the certificate by the host that a client names, then its bytes to the host's
//! first destination.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

#[derive(Clone)]
struct Host {
    destination: SocketAddr,
    certified: Arc<CertifiedKey>,
}

/// What is applied.
#[derive(Default)]
struct Applied {
    revision: Option<u64>,
    hosts: BTreeMap<String, Host>,
}

#[derive(Default)]
struct Hosts {
    applied: Mutex<Applied>,
}

impl Hosts {
    fn applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Option<Host> {
        let applied = self.applied();
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        applied.hosts.get(name).or_else(|| applied.hosts.get(&wildcard?)).cloned()
    }
}

/// The table holds keys.
impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hosts of a route table")
    }
}

impl ResolvesServerCert for Hosts {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(hello.server_name()?)?.certified)
    }
}

/// The running listener.
pub(super) struct Termination {
    hosts: Arc<Hosts>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Termination {
    pub(super) async fn start() -> Self {
        let hosts = Arc::new(Hosts::default());
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring serves the default protocol versions")
                .with_no_client_auth()
                .with_cert_resolver(hosts.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the system has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let serving = hosts.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(forward(acceptor.clone(), serving.clone(), stream));
            }
        });
        Self { hosts, address, task }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn revision(&self) -> Option<u64> {
        self.hosts.applied().revision
    }

    /// Serves this table from the next handshake on; `null` serves nothing.
    pub(super) fn apply(&self, table: &Value) {
        let hosts = table["routes"].as_array().into_iter().flatten().filter_map(|route| host(table, route));
        let applied = Applied { revision: table["revision"].as_u64(), hosts: hosts.collect() };
        *self.hosts.applied() = applied;
    }
}

impl Drop for Termination {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A host that has a certificate, and its first destination.
fn host(table: &Value, route: &Value) -> Option<(String, Host)> {
    let certificates = table["certificates"].as_array()?;
    let certificate = certificates.iter().find(|certificate| certificate["id"] == route["certificateId"])?;
    let chain = CertificateDer::pem_slice_iter(certificate["publicKey"].as_str()?.as_bytes());
    let chain: Vec<CertificateDer<'static>> = chain.collect::<Result<_, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(certificate["privateKey"].as_str()?.as_bytes()).ok()?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).ok()?;
    let destination = &route["destinations"][0];
    let address: IpAddr = destination["address"].as_str()?.parse().ok()?;
    let port = u16::try_from(destination["port"].as_u64()?).ok()?;
    let certified = Arc::new(CertifiedKey::new(chain, key));
    let host = Host { destination: SocketAddr::from((address, port)), certified };
    Some((route["hostName"].as_str()?.to_owned(), host))
}

async fn forward(acceptor: TlsAcceptor, hosts: Arc<Hosts>, stream: TcpStream) {
    let Ok(mut client) = acceptor.accept(stream).await else { return };
    let Some(host) = client.get_ref().1.server_name().and_then(|name| hosts.find(name)) else { return };
    let Ok(mut service) = TcpStream::connect(host.destination).await else { return };
    drop(tokio::io::copy_bidirectional(&mut client, &mut service).await);
}
