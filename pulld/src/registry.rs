//! The one registry: its origin, how it is greeted, and the relay's origin that stands for it (PULL-02).

use std::{io, sync::Arc};

use coreflow_ipc::messages::{pulld::PulldStart, pulls::RegistryFailure};
use http::{HeaderValue, uri::Authority};
use rustls::{AlertDescription, ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;

use crate::{origin::Origin, registry_stream::RegistryStream};

/// How a registry is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Why a registry's connection is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GreetError {
    /// The registry does not speak the protocol that was offered.
    OtherProtocol,
    /// The handshake failed.
    Failed(RegistryFailure),
}

/// What [`PulldStart`] says.
pub struct Registry {
    /// Its origin.
    pub origin: Origin,
    /// The relay's own origin, as a challenge names it.
    pub relay: String,
    /// What HTTP/1.1 states as `Host`.
    pub host: HeaderValue,
    /// The same for HTTP/2.
    pub authority: Authority,
    tls: Option<Tls>,
}

struct Tls {
    name: ServerName<'static>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Registry {
    /// `None` if an origin of `start` is none, which the supervisor does not send.
    pub fn new(start: PulldStart) -> Option<Self> {
        let origin = Origin::parse(&start.registry_origin)?;
        Origin::parse(&start.relay_origin)?;
        let authority = origin.authority();
        let tls = if origin.tls() { Some(Tls::new(&origin, &start.trust_anchors)?) } else { None };
        Some(Self {
            relay: start.relay_origin,
            host: HeaderValue::try_from(&authority).ok()?,
            authority: Authority::try_from(authority).ok()?,
            origin,
            tls,
        })
    }

    /// Greets the registry on `socket` and offers `protocol` alone; without TLS, or where the registry
    /// answers to no offer, HTTP/1.1 is spoken.
    pub(crate) async fn greet(
        &self,
        socket: TcpStream,
        protocol: Protocol,
    ) -> Result<(RegistryStream, Protocol), GreetError> {
        let Some(tls) = &self.tls else { return Ok((RegistryStream::plain(socket), Protocol::Http1)) };
        let config = match protocol {
            Protocol::Http1 => &tls.http1,
            Protocol::Http2 => &tls.http2,
        };
        let stream = RegistryStream::tls(socket, Arc::clone(config), tls.name.clone()).await;
        let stream = stream.map_err(|error| refused(&error))?;
        let spoken = if stream.protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
        Ok((stream, spoken))
    }
}

impl Tls {
    fn new(origin: &Origin, anchors: &[Vec<u8>]) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(anchors.iter().map(|der| CertificateDer::from(der.as_slice())));
        let mut http1 = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites of both versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http2 = http1.clone();
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        http2.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(origin.host().to_owned()).ok()?;
        Some(Self { name, http1: Arc::new(http1), http2: Arc::new(http2) })
    }
}

fn refused(error: &io::Error) -> GreetError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if tls == Some(&rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) {
        return GreetError::OtherProtocol;
    }
    GreetError::Failed(RegistryFailure::Tls)
}
