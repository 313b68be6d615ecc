//! The registry at Cloudly's origin: what asks Cloudly neither for `/` nor for `/typedrequest` is the
//! registry's, from the first request of a connection on.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::registry::{Duplex, Registry};
use crate::unverified::Unverified;

/// Who serves the connections that are the registry's.
#[derive(Clone)]
pub(super) enum Pulls {
    /// The scripted double.
    Registry(Registry),
    /// A registry that listens at the address, with TLS or without.
    At(SocketAddr, bool),
}

impl Pulls {
    pub(super) async fn serve(self, mut stream: impl Duplex + 'static) {
        match self {
            Self::Registry(registry) => registry.serve(Box::new(stream)).await,
            Self::At(address, tls) => {
                let Ok(mut far) = TcpStream::connect(address).await else { return };
                drop(far.set_nodelay(true));
                if !tls {
                    drop(copy_bidirectional(&mut stream, &mut far).await);
                    return;
                }
                let name = ServerName::IpAddress(address.ip().into());
                if let Ok(mut far) = TlsConnector::from(trusting()).connect(name, far).await {
                    drop(copy_bidirectional(&mut stream, &mut far).await);
                }
            }
        }
    }
}

/// Whether a connection that begins with this line is Cloudly's own.
pub(super) fn is_cloudlys(first_line: &str) -> bool {
    let target = first_line.split(' ').nth(1).unwrap_or_default();
    matches!(target.split('?').next(), Some("/" | "/typedrequest"))
}

/// A client that takes any certificate: the registry is on this host, and what is tested is in front of it.
fn trusting() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring serves the default protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}
