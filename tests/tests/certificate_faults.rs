//! Faults of the listener's certificate at the start, and what the relay makes of each.
//!
//! | fault | test |
//! | --- | --- |
//! | for another domain, for a wildcard; Cloudly's record of another domain | [`a_certificate_with_a_fault_fails_the_start_by_domain_and_reason`] |
//! | expired, not yet valid, both also by an hour; Cloudly's record over | the same |
//! | a key of another certificate, a chain out of order or of strangers | the same |
//! | no chain, no key, no PEM, PEM around something else | the same |
//! | a chain without its intermediate | none: it may be what the nodes trust; relayd's `certificate/tests.rs`: `what_else_is_served` |
//! | an unknown or missing member in Cloudly's answer | [`an_answer_that_is_no_certificate_is_asked_for_again`] |
//! | a refusal, an answer that breaks off, silence | the same, `session.rs`: `answers_that_break_off_delay_the_start_and_do_not_end_it`, `cloudly_faults.rs` |
//! | a clock that is off by an hour | [`a_certificate_is_judged_by_the_relays_clock_to_the_hour`] |
//! | every single check | relayd's `certificate/tests.rs` |
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::path::{Path, PathBuf};

use coreflow_tests::authority::{Authority, Flaw, Issued};
use coreflow_tests::cloudly::{Cloudly, Step};
use coreflow_tests::relay::{Relay, RelaySetup};
use coreflow_tests::waiting::BOUND;
use futures_util::future::join_all;
use serde_json::{Value, json};

const DOMAIN: &str = "relay.localhost.test";
const CERTIFICATE: &str = "getCertificateForDomain";

/// A relay whose Cloudly has this certificate for its domain.
async fn with(issue: impl FnOnce(&Authority) -> Issued) -> (Cloudly, Relay, Issued) {
    let authority = Authority::new();
    let setup = RelaySetup::new(&authority).notified();
    let mut settings = setup.cloudly_settings();
    let issued = issue(&authority);
    settings.certificates.insert(DOMAIN.to_owned(), issued.clone());
    let cloudly = Cloudly::start(&authority, settings).await;
    let relay = setup.facing(&cloudly).start();
    (cloudly, relay, issued)
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else if entry.file_type().unwrap().is_file() {
            found.push(entry.path());
        }
    }
}

/// No line of the material is in the log, and none of the key in a file of the working directory (LIS-17,
/// LIS-18).
fn assert_untold(relay: &Relay, issued: &Issued) {
    let told: Vec<String> = relay.lines().into_iter().map(|line| line.text).collect();
    let mut written = Vec::new();
    files(&relay.home(), &mut written);
    let written: Vec<Vec<u8>> = written.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!written.is_empty(), "the working directory has its files");
    for line in issued.chain_pem.lines().chain(issued.key_pem.lines()).filter(|line| line.len() > 16) {
        assert!(told.iter().all(|told| !told.contains(line)), "{told:?}");
    }
    for line in issued.key_pem.lines().filter(|line| line.len() > 16) {
        let holds = |file: &Vec<u8>| file.windows(line.len()).any(|window| window == line.as_bytes());
        assert!(!written.iter().any(holds), "a file holds the key");
    }
}

/// The start fails with exit 1, before a socket is bound, and names the domain and `reason`.
async fn refused(issue: impl FnOnce(&Authority) -> Issued, reason: &str) {
    let (cloudly, mut relay, issued) = with(issue).await;
    assert_eq!(relay.wait_exit(BOUND).await, Ok(1), "{reason}: {:?}", relay.lines());
    let cause = format!("the start failed: relay-certificate-refused: {DOMAIN}: {reason}");
    let line = relay.wait_line("the start failed: ").await.unwrap();
    assert!(line.stderr && line.text.contains(&cause), "{cause} in {line:?}");
    assert_untold(&relay, &issued);
    assert_eq!(cloudly.calls_of("registerClusterRelay").len(), 0, "{reason}");
    assert!(relay.workers().is_empty(), "{reason}");
}

/// LIS-12, LIS-13, LIS-14, LIS-15, LIS-16, LIS-17, LIS-18, START-06, START-15, START-16: each fault of the
/// material ends the start by domain and reason; nothing of it is told or written.
#[tokio::test]
async fn a_certificate_with_a_fault_fails_the_start_by_domain_and_reason() {
    const OTHER: &str = "it does not name exactly this domain";
    const INCOMPLETE: &str = "the material is incomplete";
    const UNREADABLE: &str = "a certificate of the chain cannot be read";
    const FOREIGN: &str = "the private key is not the certificate's";
    const ORDER: &str = "a certificate of the chain is not signed by the one after it";
    const EXPIRED: &str = "it has expired";
    const EARLY: &str = "it is not valid yet";
    let flaw = |flaw| move |own: &Authority| own.issue_flawed(&[DOMAIN], flaw);
    let sound = |change: fn(&mut Issued)| {
        move |own: &Authority| {
            let mut issued = own.issue(&[DOMAIN]);
            change(&mut issued);
            issued
        }
    };
    // In turns of a few, so that the host has no more than a few relays at once.
    tokio::join!(
        refused(|own| own.issue(&["other.localhost.test"]), OTHER),
        refused(|own| own.issue(&["*.localhost.test"]), OTHER),
        refused(flaw(Flaw::ChainOutOfOrder), OTHER),
        refused(flaw(Flaw::Expired), EXPIRED),
        refused(flaw(Flaw::NotYetValid), EARLY),
    );
    tokio::join!(
        refused(flaw(Flaw::ForeignKey), FOREIGN),
        refused(sound(|issued| issued.valid_until = 1), EXPIRED),
        refused(sound(|issued| issued.chain_pem.clear()), INCOMPLETE),
        refused(sound(|issued| issued.key_pem.clear()), INCOMPLETE),
        refused(sound(|issued| issued.chain_pem = issued.chain_pem.replace("-----", "#####")), INCOMPLETE),
    );
    tokio::join!(
        refused(sound(|issued| issued.key_pem.truncate(60)), INCOMPLETE),
        refused(
            sound(|issued| issued.chain_pem = issued.key_pem.replace("PRIVATE KEY", "CERTIFICATE")),
            UNREADABLE
        ),
        refused(
            |own| {
                // The leaf before the intermediate of a stranger who has the same name.
                let leaf = own.issue_flawed(&[DOMAIN], Flaw::IntermediateMissing);
                let stranger = Authority::new().issue(&[DOMAIN]).chain_pem;
                let above =
                    stranger.find("-----END CERTIFICATE-----").map(|at| &stranger[at + 26..]).unwrap();
                Issued { chain_pem: format!("{}{above}", leaf.chain_pem), ..leaf }
            },
            ORDER,
        ),
    );
}

/// LIS-15, LIS-12: with a clock that is an hour off against Cloudly's, what begins in an hour or ended an hour
/// ago is refused, and what began an hour ago and ends in an hour is served.
#[tokio::test]
async fn a_certificate_is_judged_by_the_relays_clock_to_the_hour() {
    let serves = async {
        let (cloudly, relay, issued) = with(|own| own.issue_between(&[DOMAIN], -3600, 3600)).await;
        relay.wait_open().await.unwrap();
        cloudly.wait_accepted(1).await.unwrap();
        assert_untold(&relay, &issued);
    };
    tokio::join!(
        refused(|own| own.issue_between(&[DOMAIN], 3600, 30 * 86_400), "it is not valid yet"),
        refused(|own| own.issue_between(&[DOMAIN], -30 * 86_400, -3600), "it has expired"),
        serves,
    );
}

/// LIS-12, LIS-14, LIS-18, SES-16, START-03: an answer that is no certificate of the contract is no reason to
/// end: it is told without its values, nothing is served meanwhile, and the certificate is asked for again.
#[tokio::test]
async fn an_answer_that_is_no_certificate_is_asked_for_again() {
    let changes: [fn(&mut Value); 4] = [
        |answer| answer["certificate"]["more"] = json!("a-private-text"),
        |answer| answer["more"] = json!("a-private-text"),
        |answer| drop(answer["certificate"].as_object_mut().unwrap().remove("privateKey")),
        // The key where a number is expected: a reader that quotes what it met would print it.
        |answer| answer["certificate"]["validUntil"] = answer["certificate"]["privateKey"].take(),
    ];
    let answers = changes.map(|change| {
        move |issued: &Issued| {
            let mut answer = json!({"certificate": {
                "id": "certificate-1", "domainName": DOMAIN, "created": issued.created,
                "validUntil": issued.valid_until, "privateKey": issued.key_pem,
                "publicKey": issued.chain_pem, "csr": "",
            }});
            change(&mut answer);
            Step::Answer(answer.to_string())
        }
    });
    let refusal = |_: &Issued| Step::refuse("certificate-not-issued: a-reason-of-cloudly");
    let ask = async |step: Step, issued: Issued, told: &str| {
        let authority = Authority::new();
        let setup = RelaySetup::new(&authority).notified();
        let cloudly = Cloudly::start(&authority, setup.cloudly_settings()).await;
        cloudly.once(CERTIFICATE, step);
        let relay = setup.facing(&cloudly).start();
        let line = relay.wait_line("a read of the start was ").await.unwrap();
        assert!(line.text.contains(told) && line.text.contains(CERTIFICATE), "{told} in {line:?}");
        relay.wait_open().await.unwrap();
        cloudly.wait_accepted(1).await.unwrap();
        assert_eq!(cloudly.calls_of(CERTIFICATE).len(), 2, "{told}");
        assert!(relay.lines().iter().all(|line| !line.text.contains("a-private-text")), "{told}");
        assert_untold(&relay, &issued);
    };
    let issued = Authority::new().issue(&[DOMAIN]);
    let unusable = answers.map(|answer| ask(answer(&issued), issued.clone(), "unusable: "));
    let refused =
        ask(refusal(&issued), issued.clone(), "refused: certificate-not-issued: a-reason-of-cloudly");
    tokio::join!(join_all(unusable), refused);
}
