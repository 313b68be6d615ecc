//! TLS 1.3 of the tunnel, which hides and proves no one.
//!
//! The hub's certificate is made for the run and thrown away with it, and a node does not verify it: who the
//! two are is proven afterwards, by Noise, bound to this very session (`noise`). No tickets and no early data,
//! so nothing of a session outlives it; one application protocol, so no other server or client is mistaken for
//! one.

use std::{fmt, sync::Arc};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    CipherSuite, DigitallySignedStruct, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::NoServerSessionStorage,
    version::TLS13,
};

use super::transport;
use crate::constants::{INCOMING_BUFFER, INCOMING_BUFFERS, MOST_INCOMING, PROTOCOL, SERVER_NAME};

/// Why no configuration was made; there is no input to it.
#[derive(Debug)]
pub enum TlsError {
    /// No certificate: the system has no random numbers.
    Certificate(rcgen::Error),
    /// rustls takes the configuration for impossible.
    Configuration(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(f, "no certificate could be made: {why}"),
            Self::Configuration(why) => write!(f, "TLS cannot be configured: {why}"),
        }
    }
}

impl std::error::Error for TlsError {}

impl From<rustls::Error> for TlsError {
    fn from(why: rustls::Error) -> Self {
        Self::Configuration(why)
    }
}

/// The hub's end, under a certificate of its own for each call.
pub fn hub_config() -> Result<quinn::ServerConfig, TlsError> {
    let throw_away =
        rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).map_err(TlsError::Certificate)?;
    let key = PrivatePkcs8KeyDer::from(throw_away.signing_key.serialize_der());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![throw_away.cert.der().clone()], key.into())?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    let tls =
        QuicServerConfig::try_from(tls).expect("AES-128-GCM, by which QUIC begins, is among the suites");
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config
        .transport_config(transport::hub())
        .migration(true)
        .max_incoming(MOST_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFERS);
    Ok(config)
}

/// A node's end.
pub fn node_config() -> Result<quinn::ClientConfig, TlsError> {
    let provider = provider();
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ProvenByNoise(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    tls.enable_sni = false;
    tls.resumption = Resumption::disabled();
    let tls =
        QuicClientConfig::try_from(tls).expect("AES-128-GCM, by which QUIC begins, is among the suites");
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(transport::node());
    Ok(config)
}

/// ring, with AES-128-GCM first: of the three it costs a packet the least.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

/// Takes any certificate, but a signature that its key did not make is none.
#[derive(Debug)]
struct ProvenByNoise(Arc<CryptoProvider>);

impl ServerCertVerifier for ProvenByNoise {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
