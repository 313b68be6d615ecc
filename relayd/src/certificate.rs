//! The listener's certificate: checked before it is served, held in memory only, replaced without a
//! break (LIS-12 – LIS-18, XTR-08 – XTR-11). A failure names the domain and the reason and quotes no
//! material.

use std::sync::{Arc, RwLock};

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{contract::cluster::Certificate, refusals::CERTIFICATE_REFUSED};

pub mod renewal;

/// What is wrong with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The chain or the key is missing or is no PEM (LIS-14).
    Incomplete,
    /// A certificate of the chain cannot be read.
    Unreadable,
    /// It does not name exactly the domain (LIS-13).
    OtherDomain,
    /// Its time is over (LIS-15).
    Expired,
    /// Its time has not begun.
    NotYetValid,
    /// A certificate is not signed by the one after it.
    ChainOutOfOrder,
    /// The key is not the certificate's, or is of a kind that TLS cannot use (LIS-16).
    ForeignKey,
    /// The TLS library refuses the material (LIS-16).
    NotLoadable,
}

impl Reason {
    fn words(self) -> &'static str {
        match self {
            Self::Incomplete => "the material is incomplete",
            Self::Unreadable => "a certificate of the chain cannot be read",
            Self::OtherDomain => "it does not name exactly this domain",
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet",
            Self::ChainOutOfOrder => "a certificate of the chain is not signed by the one after it",
            Self::ForeignKey => "the private key is not the certificate's",
            Self::NotLoadable => "the TLS library cannot load it",
        }
    }
}

/// A certificate that is not served: for which domain, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The origin's host.
    pub domain: String,
    /// Why.
    pub reason: Reason,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{CERTIFICATE_REFUSED}: {}: {}", self.domain, self.reason.words())
    }
}

/// From when to when a whole chain is valid, in Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// The latest begin of its certificates.
    pub begins: u64,
    /// The earliest end, Cloudly's own statement of it among them.
    pub ends: u64,
}

/// The public part of a certificate that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    certificates: Vec<CertificateDer<'static>>,
    /// When it is valid.
    pub term: Term,
}

impl Chain {
    /// Whether it takes the place of `served` at `wall` (Unix milliseconds): another one that was not issued
    /// before it, or any other once that has ended.
    pub fn renews(&self, served: &Self, wall: u64) -> bool {
        let other = self.certificates != served.certificates;
        other && (self.term.begins >= served.term.begins || served.term.ends <= wall)
    }
}

/// A certificate that passed every check and can be served. Holds the private key: no Debug.
pub struct Loaded {
    key: Arc<CertifiedKey>,
    term: Term,
}

impl Loaded {
    /// Checks `certificate` for `domain` at `wall` (Unix milliseconds).
    ///
    /// # Errors
    /// [`Refused`], with what is wrong first.
    pub fn check(certificate: &Certificate, domain: &str, wall: u64) -> Result<Self, Refused> {
        let refuse = |reason| Refused { domain: domain.to_owned(), reason };
        certified(certificate, domain, wall).map_err(refuse)
    }

    /// Its public part.
    pub fn chain(&self) -> Chain {
        Chain { certificates: self.key.cert.clone(), term: self.term }
    }
}

/// The one certificate that new handshakes get, whatever name a client asks for: the listener has one
/// origin (LIS-06). Replacing it touches no connection that stands (XTR-08); the former key is dropped,
/// and wiped by the allocator, with the last handshake that still uses it (XTR-10).
pub struct Serving(RwLock<Arc<CertifiedKey>>);

impl Serving {
    /// Serves `loaded`.
    pub fn new(loaded: &Loaded) -> Self {
        Self(RwLock::new(Arc::clone(&loaded.key)))
    }

    /// Serves `loaded` from the next handshake on.
    pub fn replace(&self, loaded: &Loaded) {
        *self.0.write().expect("no holder of the key panics") = Arc::clone(&loaded.key);
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Serving")
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().expect("no holder of the key panics")))
    }
}

/// What the listener speaks TLS with: TLS 1.3 and 1.2, ALPN offers h2 and HTTP/1.1.
pub fn server_config(serving: Arc<Serving>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .expect("the provider has suites of both versions")
        .with_no_client_auth()
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

fn certified(certificate: &Certificate, domain: &str, wall: u64) -> Result<Loaded, Reason> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificate.public_key.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| Reason::Incomplete)?;
    let key =
        PrivateKeyDer::from_pem_slice(certificate.private_key.as_bytes()).map_err(|_| Reason::Incomplete)?;
    let of_chain = check_chain(&chain, domain, wall)?;
    if certificate.domain_name != domain {
        return Err(Reason::OtherDomain);
    }
    if certificate.valid_until <= wall {
        return Err(Reason::Expired);
    }
    let key = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) | rustls::Error::General(_) => Reason::ForeignKey,
        _ => Reason::NotLoadable,
    })?;
    key.keys_match().map_err(|_| Reason::ForeignKey)?;
    let term = Term { ends: of_chain.ends.min(certificate.valid_until), ..of_chain };
    Ok(Loaded { key: Arc::new(key), term })
}

fn check_chain(chain: &[CertificateDer<'_>], domain: &str, wall: u64) -> Result<Term, Reason> {
    let parsed: Vec<X509Certificate<'_>> = chain
        .iter()
        .map(|der| X509Certificate::from_der(der).map(|(_, certificate)| certificate))
        .collect::<Result<_, _>>()
        .map_err(|_| Reason::Unreadable)?;
    let leaf = parsed.first().ok_or(Reason::Incomplete)?;
    let names =
        leaf.subject_alternative_name().map_err(|_| Reason::Unreadable)?.ok_or(Reason::OtherDomain)?;
    let named = |name: &GeneralName<'_>| matches!(name, GeneralName::DNSName(dns) if dns.eq_ignore_ascii_case(domain));
    if !names.value.general_names.iter().any(named) {
        return Err(Reason::OtherDomain);
    }
    let milliseconds = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
    let mut term = Term { begins: 0, ends: u64::MAX };
    for certificate in &parsed {
        let validity = certificate.validity();
        term.begins = term.begins.max(milliseconds(validity.not_before.timestamp()));
        term.ends = term.ends.min(milliseconds(validity.not_after.timestamp()));
    }
    if term.ends <= wall {
        return Err(Reason::Expired);
    }
    if term.begins > wall {
        return Err(Reason::NotYetValid);
    }
    // Each is named as issuer by the one before it, and signed it.
    let ordered = parsed.windows(2).all(|pair| {
        pair[0].issuer() == pair[1].subject() && pair[0].verify_signature(Some(pair[1].public_key())).is_ok()
    });
    if ordered { Ok(term) } else { Err(Reason::ChainOutOfOrder) }
}

#[cfg(test)]
mod tests;
