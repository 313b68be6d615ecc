//! The listener's certificate: checked before a socket is opened, held in memory only (LIS-12 –
//! LIS-18). A failure names the domain and the reason and quotes no material.

use std::sync::Arc;

use rustls::{ServerConfig, crypto::ring, sign::CertifiedKey, version};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{contract::cluster::Certificate, refusals::CERTIFICATE_REFUSED};

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

/// Checks `certificate` for `domain` at `wall` (Unix milliseconds) and builds what TLS serves.
///
/// ALPN offers h2 and HTTP/1.1; TLS 1.3 and 1.2.
pub fn server_config(
    certificate: &Certificate,
    domain: &str,
    wall: u64,
) -> Result<Arc<ServerConfig>, Refused> {
    let refuse = |reason| Refused { domain: domain.to_owned(), reason };
    let key = certified(certificate, domain, wall).map_err(refuse)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(|_| refuse(Reason::NotLoadable))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Single(Arc::new(key))));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The one certificate, whatever name a client asks for: the listener has one origin (LIS-06).
#[derive(Debug)]
struct Single(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for Single {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn certified(certificate: &Certificate, domain: &str, wall: u64) -> Result<CertifiedKey, Reason> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificate.public_key.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| Reason::Incomplete)?;
    let key =
        PrivateKeyDer::from_pem_slice(certificate.private_key.as_bytes()).map_err(|_| Reason::Incomplete)?;
    check_chain(&chain, domain, wall)?;
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
    Ok(key)
}

fn check_chain(chain: &[CertificateDer<'_>], domain: &str, wall: u64) -> Result<(), Reason> {
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
    let seconds = i64::try_from(wall / 1000).unwrap_or(i64::MAX);
    for certificate in &parsed {
        if certificate.validity().not_after.timestamp() <= seconds {
            return Err(Reason::Expired);
        }
        if certificate.validity().not_before.timestamp() > seconds {
            return Err(Reason::NotYetValid);
        }
    }
    // Each is named as issuer by the one before it, and signed it.
    let ordered = parsed.windows(2).all(|pair| {
        pair[0].issuer() == pair[1].subject() && pair[0].verify_signature(Some(pair[1].public_key())).is_ok()
    });
    if ordered { Ok(()) } else { Err(Reason::ChainOutOfOrder) }
}

#[cfg(test)]
mod tests;
