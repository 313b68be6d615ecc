//! The certificates that Cloudly's chain may end in: of `SSL_CERT_FILE` and `SSL_CERT_DIR`, else of the
//! system's store, else those compiled in. The supervisor dials with them and hands them to relayd, which can
//! open no file (ARC-05).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use crate::configuration::Environment;

/// Where Linux distributions keep the system's bundle; the first that holds a usable certificate is taken.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
];
/// Where they keep one file for each certificate.
const SYSTEM_DIRECTORY: &str = "/etc/ssl/certs";

/// Trust anchors that parse, at least one.
pub struct TrustAnchors {
    /// The certificates in DER.
    pub certificates: Vec<Vec<u8>>,
    /// Whether they are the ones compiled in, because the host has none.
    pub bundled: bool,
}

/// `SSL_CERT_FILE` or `SSL_CERT_DIR` is set and names no usable certificate; no other store takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTrustAnchors;

impl TrustAnchors {
    /// Loads the anchors that this environment and this host name.
    ///
    /// # Errors
    /// The environment names a store that holds no usable certificate.
    pub fn load(environment: &Environment) -> Result<Self, NoTrustAnchors> {
        let named =
            Named { file: environment.certificate_file(), directory: environment.certificate_directory() };
        Self::load_from(&named, &SYSTEM_BUNDLES.map(Path::new), Path::new(SYSTEM_DIRECTORY))
    }

    fn load_from(
        named: &Named,
        system_bundles: &[&Path],
        system_directory: &Path,
    ) -> Result<Self, NoTrustAnchors> {
        if named.file.is_some() || named.directory.is_some() {
            let certificates = usable(load(named.file.as_deref(), named.directory.as_deref()));
            let anchors = Self { certificates, bundled: false };
            return if anchors.certificates.is_empty() { Err(NoTrustAnchors) } else { Ok(anchors) };
        }
        let bundles = system_bundles.iter().map(|bundle| (Some(*bundle), None));
        for (file, directory) in bundles.chain([(None, Some(system_directory))]) {
            let certificates = usable(load(file, directory));
            if !certificates.is_empty() {
                return Ok(Self { certificates, bundled: false });
            }
        }
        let certificates = usable(webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec());
        Ok(Self { certificates, bundled: true })
    }

    /// The configuration of a TLS client that trusts these anchors: ring's cryptography, HTTP/1.1, nothing
    /// kept between connections.
    #[must_use]
    pub fn client_config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates.iter().map(|der| CertificateDer::from_slice(der)));
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring serves TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }
}

/// What the environment names.
#[derive(Default)]
struct Named {
    file: Option<PathBuf>,
    directory: Option<PathBuf>,
}

/// Certificates of PEM files; what cannot be read is passed over.
fn load(file: Option<&Path>, directory: Option<&Path>) -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_certs_from_paths(file, directory).certs
}

/// Those that can be a trust anchor.
fn usable(certificates: Vec<CertificateDer<'static>>) -> Vec<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    certificates
        .into_iter()
        .filter(|certificate| roots.add(certificate.clone()).is_ok())
        .map(|certificate| certificate.to_vec())
        .collect()
}

impl std::error::Error for NoTrustAnchors {}

impl fmt::Display for NoTrustAnchors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SSL_CERT_FILE or SSL_CERT_DIR names no usable PEM certificate; mend it or unset it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(name: &str) -> (String, Vec<u8>) {
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        (certificate.pem(), certificate.der().to_vec())
    }

    #[test]
    fn a_named_store_is_the_only_one_and_has_to_hold_a_certificate() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("anchors.pem");
        let named = Named { file: Some(path.clone()), directory: None };
        let load = || TrustAnchors::load_from(&named, &[], root.path());
        assert_eq!(load().err(), Some(NoTrustAnchors));
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert_eq!(load().err(), Some(NoTrustAnchors));
        let (pem, der) = authority("named");
        std::fs::write(&path, pem).unwrap();
        let anchors = load().ok().unwrap();
        assert_eq!((anchors.certificates, anchors.bundled), (vec![der], false));
    }

    #[test]
    fn a_named_directory_is_read_through_the_snapshot() {
        let root = tempfile::tempdir().unwrap();
        let (pem, der) = authority("named");
        std::fs::write(root.path().join("5ed36f99.0"), pem).unwrap();
        let environment = Environment::snapshot(|name| (name == "SSL_CERT_DIR").then(|| root.path().into()));
        let anchors = TrustAnchors::load(&environment).ok().unwrap();
        assert_eq!((anchors.certificates, anchors.bundled), (vec![der], false));
    }

    #[test]
    fn the_system_store_comes_next_and_the_compiled_in_certificates_last() {
        let root = tempfile::tempdir().unwrap();
        let [absent, empty, bundle] = ["absent", "empty", "bundle"].map(|name| root.path().join(name));
        let directory = root.path().join("directory");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(&empty, "").unwrap();
        let load = || {
            let bundles = [absent.as_path(), &empty, &bundle];
            TrustAnchors::load_from(&Named::default(), &bundles, &directory).ok().unwrap()
        };

        let anchors = load();
        assert!(anchors.bundled && anchors.certificates.len() > 50, "{}", anchors.certificates.len());

        let (pem, in_directory) = authority("directory");
        std::fs::write(directory.join("5ed36f99.0"), pem).unwrap();
        let anchors = load();
        assert_eq!((anchors.certificates, anchors.bundled), (vec![in_directory], false));

        let (pem, in_bundle) = authority("bundle");
        std::fs::write(&bundle, pem).unwrap();
        let anchors = load();
        assert_eq!((anchors.certificates, anchors.bundled), (vec![in_bundle], false));
    }

    #[test]
    fn the_client_speaks_http_1_1() {
        let anchors = TrustAnchors { certificates: vec![authority("one").1], bundled: false };
        assert_eq!(anchors.client_config().alpn_protocols, [b"http/1.1".to_vec()]);
    }
}
