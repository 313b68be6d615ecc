//! A throw-away certificate authority: a root, one intermediate, and server certificates with
//! or without a flaw. Nothing of it leaves the test process unless a test writes it down.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What is wrong with an issued certificate (LIS-13 to LIS-16). A certificate for other names is
/// no flaw: issue it for those names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Its validity ended in 2021.
    Expired,
    /// Its validity begins in 2090.
    NotYetValid,
    /// The private key belongs to another certificate.
    ForeignKey,
    /// The chain begins with the intermediate, the server's own certificate comes second.
    ChainOutOfOrder,
    /// The chain lacks the intermediate.
    IntermediateMissing,
}

/// A certificate with its key, as PEM text.
#[derive(Clone)]
pub struct Issued {
    /// The server's certificate followed by the intermediate, PEM.
    pub chain_pem: String,
    /// The private key (ECDSA P-256, PKCS #8), PEM.
    pub key_pem: String,
    /// Begin of the validity, Unix milliseconds.
    pub created: u64,
    /// End of the validity, Unix milliseconds.
    pub valid_until: u64,
}

/// The authority. Cheap to clone; clones are the same authority.
#[derive(Clone)]
pub struct Authority {
    keys: Arc<Keys>,
}

struct Keys {
    root_pem: String,
    intermediate_pem: String,
    intermediate: Issuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A fresh root and intermediate, valid from yesterday for a month.
    pub fn new() -> Self {
        let root_key = key_pair();
        let root_params = authority_params("Coreflow test root");
        let root = root_params.self_signed(&root_key).expect("the root's parameters are complete");
        let root_issuer = Issuer::new(root_params, root_key);
        let key = key_pair();
        let params = authority_params("Coreflow test intermediate");
        let intermediate =
            params.signed_by(&key, &root_issuer).expect("the intermediate's parameters are complete");
        Self {
            keys: Arc::new(Keys {
                root_pem: root.pem(),
                intermediate_pem: intermediate.pem(),
                intermediate: Issuer::new(params, key),
            }),
        }
    }

    /// A sound server certificate for `names`.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.certificate(names, None)
    }

    /// A server certificate for `names` with one thing wrong.
    pub fn issue_flawed(&self, names: &[&str], flaw: Flaw) -> Issued {
        self.certificate(names, Some(flaw))
    }

    /// A sound server certificate for `names` that ends `left` from now, counted in whole seconds.
    pub fn issue_ending_in(&self, names: &[&str], left: Duration) -> Issued {
        let mut params = server_params(names);
        params.not_after = date_time_ymd(1970, 1, 1) + (now() + left);
        self.sign(params, None)
    }

    /// A server certificate for `names` that is valid from `from_now` to `until`, each in seconds from
    /// now and negative for a time that has passed.
    pub fn issue_between(&self, names: &[&str], from_now: i64, until: i64) -> Issued {
        let at = |seconds: i64| {
            let past = if seconds < 0 { seconds.unsigned_abs() } else { 0 };
            let ahead = if seconds < 0 { 0 } else { seconds.unsigned_abs() };
            date_time_ymd(1970, 1, 1) + (now() + Duration::from_secs(ahead) - Duration::from_secs(past))
        };
        let mut params = server_params(names);
        (params.not_before, params.not_after) = (at(from_now), at(until));
        self.sign(params, None)
    }

    fn certificate(&self, names: &[&str], flaw: Option<Flaw>) -> Issued {
        self.sign(server_params(names), flaw)
    }

    fn sign(&self, mut params: CertificateParams, flaw: Option<Flaw>) -> Issued {
        match flaw {
            Some(Flaw::Expired) => {
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2021, 1, 1);
            }
            Some(Flaw::NotYetValid) => {
                params.not_before = date_time_ymd(2090, 1, 1);
                params.not_after = date_time_ymd(2091, 1, 1);
            }
            Some(Flaw::ForeignKey | Flaw::ChainOutOfOrder | Flaw::IntermediateMissing) | None => {}
        }
        let key = key_pair();
        let leaf =
            params.signed_by(&key, &self.keys.intermediate).expect("the parameters are complete").pem();
        let above = &self.keys.intermediate_pem;
        let chain_pem = match flaw {
            Some(Flaw::ChainOutOfOrder) => format!("{above}{leaf}"),
            Some(Flaw::IntermediateMissing) => leaf,
            Some(Flaw::Expired | Flaw::NotYetValid | Flaw::ForeignKey) | None => format!("{leaf}{above}"),
        };
        let key_pem = match flaw {
            Some(Flaw::ForeignKey) => key_pair().serialize_pem(),
            Some(_) | None => key.serialize_pem(),
        };
        Issued {
            chain_pem,
            key_pem,
            created: unix_ms(params.not_before.unix_timestamp()),
            valid_until: unix_ms(params.not_after.unix_timestamp()),
        }
    }

    /// The root certificate, PEM: what a peer has to trust.
    pub fn ca_pem(&self) -> &str {
        &self.keys.root_pem
    }

    /// Writes [`Authority::ca_pem`] into `path`, for `SSL_CERT_FILE`.
    ///
    /// # Errors
    /// The file system's.
    pub fn write_ca(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.ca_pem())
    }

    /// A client that trusts this authority alone and offers the protocols of `alpn`, in order.
    pub fn client_config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.ca_pem().as_bytes()).expect("the root is PEM");
        roots.add(root).expect("the root is a certificate");
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring serves the default protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A TLS server with `issued`, offering the protocols of `alpn`, in order.
///
/// # Panics
/// When the certificate cannot be served, as with [`Flaw::ForeignKey`].
pub fn server_config(issued: &Issued, alpn: &[&str]) -> Arc<ServerConfig> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(issued.chain_pem.as_bytes())
        .collect::<Result<_, _>>()
        .expect("an issued chain is PEM");
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).expect("an issued key is PEM");
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring serves the default protocol versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the certificate has this key");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn key_pair() -> KeyPair {
    KeyPair::generate().expect("the system has randomness")
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names is a valid list of names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params);
    params
}

fn server_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("test names are DNS names");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_validity(&mut params);
    params
}

fn set_validity(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(1970, 1, 1) + (now() - DAY);
    params.not_after = date_time_ymd(1970, 1, 1) + (now() + 30 * DAY);
}

/// Time since 1970 in whole seconds, as certificates state it.
fn now() -> Duration {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    Duration::from_secs(since_epoch.as_secs())
}

fn unix_ms(seconds: i64) -> u64 {
    u64::try_from(seconds).expect("test certificates are valid after 1970") * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(authority: &Authority, issued: &Issued, name: &'static str) -> Result<(), rustls::Error> {
        let server_name = rustls::pki_types::ServerName::try_from(name).unwrap();
        let mut client = rustls::ClientConnection::new(authority.client_config(&[]), server_name)?;
        let mut server = rustls::ServerConnection::new(server_config(issued, &[]))?;
        let mut wire = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            wire.clear();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    /// A sound certificate is accepted for its name and for no other.
    #[test]
    fn a_sound_certificate_serves_its_name() {
        let authority = Authority::new();
        let issued = authority.issue(&["relay.localhost.test"]);
        assert!(issued.created < issued.valid_until);
        handshake(&authority, &issued, "relay.localhost.test").unwrap();
        handshake(&authority, &issued, "other.localhost.test").unwrap_err();
        handshake(&Authority::new(), &issued, "relay.localhost.test").unwrap_err();
    }

    /// Each flaw is one that a TLS library refuses.
    #[test]
    fn a_flaw_is_refused() {
        let authority = Authority::new();
        for flaw in [Flaw::Expired, Flaw::NotYetValid, Flaw::IntermediateMissing] {
            let issued = authority.issue_flawed(&["localhost"], flaw);
            assert!(handshake(&authority, &issued, "localhost").is_err(), "{flaw:?} was accepted");
        }
        for flaw in [Flaw::ForeignKey, Flaw::ChainOutOfOrder] {
            let issued = authority.issue_flawed(&["localhost"], flaw);
            let built =
                std::panic::catch_unwind(|| server_config(&issued, &[]).cert_resolver.only_raw_public_keys());
            assert!(built.is_err(), "{flaw:?} was served");
        }
    }
}
