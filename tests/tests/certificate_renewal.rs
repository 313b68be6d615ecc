//! The listener's certificate is renewed while the relay serves: what new handshakes get, what standing
//! connections notice, and what is left of the former key (XTR-08 to XTR-13).

use std::time::Duration;

use coreflow_tests::authority::{Authority, Issued};
use coreflow_tests::binaries::binaries;
use coreflow_tests::cloudly::{Cloudly, Gate, Step};
use coreflow_tests::dial::{Target, tls};
use coreflow_tests::memory::search;
use coreflow_tests::waiting::BOUND;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

#[path = "scene/scene.rs"]
#[expect(dead_code, reason = "these tests wait for fewer things than others")]
mod scene;

use scene::Scene;

const FETCH: &str = "getCertificateForDomain";
const HOST: &str = "relay.localhost.test";
const CREDENTIAL: &str = "getRuntimeRegistryCredential";
/// So near its end that the relay asks for another one after its shortest wait.
const NEAR: Duration = Duration::from_secs(38);

fn give(cloudly: &Cloudly, issued: &Issued) {
    cloudly.change(|settings| settings.certificates.insert(HOST.to_owned(), issued.clone()));
}

/// The leaf that a new handshake gets.
async fn served(target: &Target) -> Vec<u8> {
    let stream = tls(target).await.expect("a TLS connection");
    stream.get_ref().1.peer_certificates().expect("a server has a certificate")[0].to_vec()
}

fn leaf(issued: &Issued) -> Vec<u8> {
    CertificateDer::from_pem_slice(issued.chain_pem.as_bytes()).expect("an issued chain is PEM").to_vec()
}

/// What of an issued key is secret and no other key's: the base64 of its scalar, which begins behind 36
/// bytes that every P-256 key in PKCS #8 has, on either side of the line's end.
fn private_part(issued: &Issued) -> [String; 2] {
    let lines: Vec<&str> = issued.key_pem.lines().collect();
    [lines[1][48..].to_owned(), lines[2][..26].to_owned()]
}

/// A relay whose first certificate is near its end, and what Cloudly gives out instead.
async fn near_the_end() -> (Scene, Issued, Issued) {
    // What has to be built first would use up the certificate's time.
    binaries();
    let authority = Authority::new();
    let (former, next) = (authority.issue_ending_in(&[HOST], NEAR), authority.issue(&[HOST]));
    let scene = Scene::start_with(&authority, |cloudly, setup| {
        give(cloudly, &former);
        setup
    })
    .await;
    scene.relay.wait_open().await.expect("the relay opens");
    scene.cloudly.wait_accepted(1).await.expect("Cloudly accepts the relay");
    (scene, former, next)
}

/// XTR-08, XTR-10, LIS-17: new handshakes get the new certificate; the node's socket stays, its request in
/// flight is answered, and nothing of the former private key is left in relayd's memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_drops_no_socket_and_no_request() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test reads the memory of another process: run it as root"
    );
    let (scene, former, next) = near_the_end().await;
    let target = scene.setup.target();
    assert_eq!(served(&target).await, leaf(&former));
    let node = scene.node("node-1").await;
    let (fetching, answering) = (Gate::default(), Gate::default());
    let before = scene.cloudly.calls_of(FETCH).len();
    scene.cloudly.once(FETCH, Step::When(fetching.clone(), Box::new(Step::Ordinary)));
    give(&scene.cloudly, &next);
    scene.cloudly.wait_for(FETCH, before + 1).await.unwrap();
    scene.cloudly.once(CREDENTIAL, Step::When(answering.clone(), Box::new(Step::Ordinary)));
    let body = format!(r#"{{"session":{}}}"#, node.binding().unwrap());
    let carrier = node.carrier().unwrap();
    let request = tokio::spawn(async move { carrier.call(CREDENTIAL, &body, BOUND).await });
    scene.cloudly.wait_for(CREDENTIAL, 1).await.unwrap();
    fetching.open();
    scene.relay.wait_line("the listener's certificate is renewed").await.unwrap();
    answering.open();
    request.await.unwrap().unwrap().outcome().expect("Cloudly's answer to the request in flight");
    assert_eq!(served(&target).await, leaf(&next));
    scene.assert_carried(&node).await;
    assert_eq!((node.registrations().len(), node.closes().len()), (1, 0));

    let relayd = scene.relay.workers()["relayd"];
    let found = |secret: &str| search(relayd, secret.as_bytes()).unwrap().found;
    for secret in private_part(&former) {
        assert_eq!(found(&secret), [], "a part of the former private key is left");
    }
    let jwts = scene.cloudly.issued_jwts();
    assert!(jwts.iter().any(|jwt| !found(jwt).is_empty()), "the search does not even find the identity");
}

/// XTR-09, XTR-11, XTR-12, LIS-18: a certificate for another domain is not served, the line names domain and
/// reason, the former one stays, and the next attempt, with a sound one, succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_renewal_keeps_the_serving_certificate() {
    let (scene, former, next) = near_the_end().await;
    let other = Authority::new().issue(&["other.localhost.test"]);
    give(&scene.cloudly, &other);
    let line = format!("relay-certificate-refused: {HOST}: it does not name exactly this domain");
    let said = scene.relay.wait_line(&line).await.unwrap().text;
    assert!(said.contains("the former one stays"), "{said}");
    let target = scene.setup.target();
    assert_eq!(served(&target).await, leaf(&former));
    give(&scene.cloudly, &next);
    scene.relay.wait_line("the listener's certificate is renewed").await.unwrap();
    assert_eq!(served(&target).await, leaf(&next));
}
