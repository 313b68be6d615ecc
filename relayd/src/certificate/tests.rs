//! Certificates that are served and certificates that are not, made for each case.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, date_time_ymd,
};
use zeroize::Zeroizing;

use super::*;

const DOMAIN: &str = "relay.test";
/// 2030-01-01 in Unix milliseconds.
const NOW: u64 = 1_893_456_000_000;
const DAY: u64 = 86_400_000;

/// An authority of its own and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (date_time_ymd(2029, 1, 1), date_time_ymd(2039, 1, 1));
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The leaf's PEM, valid for the whole of December 2029 and January 2030.
    fn sign(&self, names: &[&str], key: &KeyPair) -> String {
        self.sign_for(names, key, (2029, 12), (2030, 2))
    }

    fn sign_for(&self, names: &[&str], key: &KeyPair, from: (i32, u8), until: (i32, u8)) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, DOMAIN);
        params.not_before = date_time_ymd(from.0, from.1, 1);
        params.not_after = date_time_ymd(until.0, until.1, 1);
        params.signed_by(key, &self.issuer).unwrap().pem()
    }
}

/// What Cloudly answers with: the leaf before its authority, and the leaf's key.
fn right() -> Certificate {
    let authority = Authority::new("authority");
    let key = KeyPair::generate().unwrap();
    let leaf = authority.sign(&[DOMAIN], &key);
    answered(leaf + &authority.pem, &key)
}

fn answered(public_key: String, key: &KeyPair) -> Certificate {
    Certificate {
        id: "certificate".to_owned(),
        domain_name: DOMAIN.to_owned(),
        created: NOW - DAY,
        valid_until: NOW + DAY,
        private_key: Zeroizing::new(key.serialize_pem()),
        public_key,
        csr: String::new(),
    }
}

/// A leaf of the right authority with these names.
fn named(names: &[&str]) -> Certificate {
    let authority = Authority::new("authority");
    let key = KeyPair::generate().unwrap();
    answered(authority.sign(names, &key) + &authority.pem, &key)
}

/// The reason, after what LIS-18 asks of the error's text: the domain, the reason, and no material.
fn reason(certificate: &Certificate) -> Reason {
    reason_at(certificate, NOW)
}

fn reason_at(certificate: &Certificate, wall: u64) -> Reason {
    let Err(refused) = Loaded::check(certificate, DOMAIN, wall) else { panic!("the certificate is refused") };
    let text = format!("{refused} {refused:?}");
    assert!(text.contains(DOMAIN) && text.contains(refused.reason.words()), "{text}");
    assert!(text.starts_with("relay-certificate-refused: "), "{text}");
    let material = certificate.public_key.lines().chain(certificate.private_key.lines());
    for line in material.map(str::trim).filter(|line| line.len() >= 4) {
        assert!(!text.contains(line), "material in {text}");
    }
    refused.reason
}

fn served(certificate: &Certificate, wall: u64) -> Loaded {
    Loaded::check(certificate, DOMAIN, wall).unwrap_or_else(|refused| panic!("{refused}"))
}

/// LIS-06, LIS-12, LIS-16: the right certificate loads, with both protocols of the one port.
#[test]
fn the_right_certificate_is_served() {
    let loaded = served(&right(), NOW);
    let config = server_config(Arc::new(Serving::new(&loaded)));
    assert_eq!(config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
}

/// A leaf without its authority, a further name beside the domain, an upper-case name, and an Ed25519 key
/// are all right.
#[test]
fn what_else_is_served() {
    let authority = Authority::new("authority");
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    for certificate in [
        answered(authority.sign(&[DOMAIN], &key), &key),
        named(&["other.test", DOMAIN]),
        named(&["Relay.Test"]),
    ] {
        served(&certificate, NOW);
    }
}

/// LIS-13: a certificate has to name exactly the domain; a wildcard, a parent and a common name do not.
#[test]
fn a_certificate_for_another_domain_is_refused() {
    for names in [&["other.test"][..], &["*.test"], &["test"], &["www.relay.test"], &["relay.test.evil"], &[]]
    {
        assert_eq!(reason(&named(names)), Reason::OtherDomain, "{names:?}");
    }
    let certificate = Certificate { domain_name: "other.test".to_owned(), ..right() };
    assert_eq!(reason(&certificate), Reason::OtherDomain);
}

/// LIS-15: both ends are judged, Cloudly's statement and the certificate's own.
#[test]
fn an_expired_certificate_is_refused() {
    let certificate = Certificate { valid_until: NOW, ..right() };
    assert_eq!(reason(&certificate), Reason::Expired);
    let certificate = Certificate { valid_until: NOW + 1, ..right() };
    served(&certificate, NOW);
    let authority = Authority::new("authority");
    let key = KeyPair::generate().unwrap();
    let over = authority.sign_for(&[DOMAIN], &key, (2029, 11), (2030, 1));
    let certificate = answered(over, &key);
    assert_eq!(reason(&certificate), Reason::Expired, "at its last second");
    served(&certificate, NOW - 1000);
}

/// LIS-15: a time that has not begun is refused as well; so is an authority whose time is over.
#[test]
fn a_certificate_before_its_time_is_refused() {
    let authority = Authority::new("authority");
    let key = KeyPair::generate().unwrap();
    let certificate = answered(authority.sign_for(&[DOMAIN], &key, (2030, 2), (2030, 3)), &key);
    assert_eq!(reason(&certificate), Reason::NotYetValid);
    let long = authority.sign_for(&[DOMAIN], &key, (2029, 12), (2045, 1));
    let certificate = Certificate { valid_until: u64::MAX, ..answered(long + &authority.pem, &key) };
    assert_eq!(reason_at(&certificate, NOW + 3650 * DAY), Reason::Expired);
}

/// LIS-16: a key that is not the certificate's, of the same or another kind.
#[test]
fn a_foreign_key_is_refused() {
    for key in [KeyPair::generate().unwrap(), KeyPair::generate_for(&PKCS_ED25519).unwrap()] {
        let certificate = Certificate { private_key: Zeroizing::new(key.serialize_pem()), ..right() };
        assert_eq!(reason(&certificate), Reason::ForeignKey);
    }
}

/// A chain is the leaf first, each signed by the next.
#[test]
fn a_chain_out_of_order_is_refused() {
    let authority = Authority::new("authority");
    let stranger = Authority::new("stranger");
    let key = KeyPair::generate().unwrap();
    let leaf = authority.sign(&[DOMAIN], &key);
    let certificate = answered(leaf.clone() + &stranger.pem + &authority.pem, &key);
    assert_eq!(reason(&certificate), Reason::ChainOutOfOrder);
    let certificate = answered(leaf.clone() + &authority.pem + &leaf, &key);
    assert_eq!(reason(&certificate), Reason::ChainOutOfOrder);
    // An authority of the same name with another key did not sign it.
    let namesake = Authority::new("authority");
    assert_eq!(reason(&answered(leaf.clone() + &namesake.pem, &key)), Reason::ChainOutOfOrder);
    // The authority first: it is what would be served, and it does not name the domain.
    assert_eq!(reason(&answered(authority.pem.clone() + &leaf, &key)), Reason::OtherDomain);
}

/// LIS-14: empty, missing, truncated and foreign material, on either side.
#[test]
fn incomplete_material_is_refused() {
    let chain = right().public_key;
    let key = right().private_key;
    let truncated = &chain[..chain.len() / 4];
    for public_key in ["", "garbage", key.as_str(), truncated] {
        let certificate = Certificate { public_key: public_key.to_owned(), ..right() };
        assert_eq!(reason(&certificate), Reason::Incomplete, "{public_key:.40}");
    }
    for private_key in ["", "garbage", chain.as_str(), &key[..key.len() / 2]] {
        let certificate = Certificate { private_key: Zeroizing::new(private_key.to_owned()), ..right() };
        assert_eq!(reason(&certificate), Reason::Incomplete, "{private_key:.40}");
    }
}

/// LIS-14, LIS-16: PEM around what is no certificate, or no key.
#[test]
fn unreadable_material_is_refused() {
    let pem = |label: &str| format!("-----BEGIN {label}-----\nAAECAwQFBgcICQ==\n-----END {label}-----\n");
    let certificate = Certificate { public_key: pem("CERTIFICATE"), ..right() };
    assert_eq!(reason(&certificate), Reason::Unreadable);
    let certificate = Certificate { private_key: Zeroizing::new(pem("PRIVATE KEY")), ..right() };
    assert_eq!(reason(&certificate), Reason::ForeignKey);
}

/// LIS-17: the contract's certificate has no form in which its key could be printed.
#[test]
fn the_contract_s_certificate_is_read_exactly() {
    let answer = r#"{"id":"i","domainName":"d","created":1,"validUntil":2,"privateKey":"k","publicKey":"p","csr":"c"}"#;
    let read = |text: &str| serde_json::from_str::<Certificate>(text);
    assert!(read(answer).is_ok_and(|certificate| certificate.private_key.as_str() == "k"));
    let extra = answer.replace(r#""csr":"c""#, r#""csr":"c","more":1"#);
    let missing = answer.replace(r#","csr":"c""#, "");
    assert!(read(&extra).is_err() && read(&missing).is_err());
}

/// The term is the time in which the whole chain and Cloudly's own statement hold.
#[test]
fn the_term_is_that_of_the_whole_chain() {
    let certificate = Certificate { valid_until: u64::MAX, ..right() };
    let december = 1_890_777_600_000;
    assert_eq!(served(&certificate, NOW).term, Term { begins: december, ends: december + 62 * DAY });
    assert_eq!(served(&right(), NOW).term, Term { begins: december, ends: NOW + DAY });
}

/// XTR-12: a certificate that was issued before the served one renews nothing while that one is valid; one that
/// ends earlier does, since Cloudly decides for how long it issues.
#[test]
fn only_what_was_not_issued_before_renews() {
    let authority = Authority::new("authority");
    let issued = |from, until| {
        let key = KeyPair::generate().unwrap();
        let leaf = authority.sign_for(&[DOMAIN], &key, from, until);
        served(&Certificate { valid_until: u64::MAX, ..answered(leaf, &key) }, NOW).chain()
    };
    let served = issued((2029, 12), (2030, 3));
    assert!(!served.renews(&served, NOW));
    assert!(issued((2030, 1), (2030, 2)).renews(&served, NOW));
    assert!(issued((2029, 12), (2030, 2)).renews(&served, NOW));
    let older = issued((2029, 11), (2030, 4));
    assert!(!older.renews(&served, NOW) && older.renews(&served, served.term.ends));
}

/// XTR-08, XTR-10: what is replaced serves no further handshake, and its key is dropped with the last one
/// that used it.
#[test]
fn a_replaced_key_is_dropped() {
    let (former, next) = (served(&right(), NOW), served(&right(), NOW));
    assert!(former.chain() == former.chain() && former.chain() != next.chain());
    let serving = Serving::new(&former);
    let (of_handshake, watched) = (Arc::clone(&serving.0.read().unwrap()), Arc::downgrade(&former.key));
    serving.replace(&next);
    assert_eq!(serving.0.read().unwrap().cert, next.key.cert);
    drop(former);
    assert!(watched.upgrade().is_some(), "a handshake under way keeps what it began with");
    drop(of_handshake);
    assert!(watched.upgrade().is_none());
    assert_eq!(format!("{serving:?}"), "Serving");
}
