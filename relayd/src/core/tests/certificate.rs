//! The renewal of the listener's certificate among the other machines.

use std::sync::LazyLock;

use rcgen::{CertificateParams, KeyPair};
use zeroize::Zeroizing;

use super::*;
use crate::contract::cluster::Certificate;

const FETCH: &str = "getCertificateForDomain";
/// The first certificate's time, from 1970 on, in seconds; its last third is the lead.
const TIME: u64 = 90 * 86_400;

/// A certificate of `name`, valid for `seconds` from 1970 on, as Cloudly answers with it.
struct Issued {
    chain: String,
    key: String,
    ends: u64,
}

impl Issued {
    fn new(name: &str, seconds: u64) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(1970, 1, 1);
        params.not_after = params.not_before + Duration::from_secs(seconds);
        let chain = params.self_signed(&key).unwrap().pem();
        Self { chain, key: key.serialize_pem(), ends: seconds * 1000 }
    }

    fn answer(&self) -> Outcome {
        let certificate = serde_json::json!({
            "id": "certificate", "domainName": "relay.test", "created": 0, "validUntil": self.ends,
            "privateKey": self.key, "publicKey": self.chain, "csr": "",
        });
        ok(&serde_json::json!({ "certificate": certificate }).to_string())
    }

    fn loaded(&self) -> Loaded {
        let certificate = Certificate {
            id: "certificate".to_owned(),
            domain_name: "relay.test".to_owned(),
            created: 0,
            valid_until: self.ends,
            private_key: Zeroizing::new(self.key.clone()),
            public_key: self.chain.clone(),
            csr: String::new(),
        };
        Loaded::check(&certificate, "relay.test", 1_000).unwrap_or_else(|refused| panic!("{refused}"))
    }
}

static FIRST: LazyLock<Issued> = LazyLock::new(|| Issued::new("relay.test", TIME));

/// The certificate that a script's listener begins with.
pub(super) fn first() -> Loaded {
    FIRST.loaded()
}

/// Lets time pass deadline by deadline, with the session's renewals answered, until the certificate is
/// asked for or `bound` is over.
fn until_fetched(script: &mut Script, bound: Duration) -> Option<Vec<Did>> {
    let end = script.now.mono + bound;
    while let Some(due) = script.core.next_deadline(script.now).filter(|due| *due <= end) {
        let done = script.pass(due.saturating_sub(script.now.mono));
        if served(&done, FETCH) {
            return Some(done);
        }
        if done.contains(&Did::AskIdentity) {
            let announced = script.identity();
            let registered = script.answer(&announced, ok(&format!(r#"{{"protocol":{OFFER}}}"#)));
            if served(&registered, REGISTER) {
                script.accept(&registered);
            }
        }
    }
    None
}

impl Script {
    /// Accepts the registration among `done`, at the next generation of its record.
    fn accept(&mut self, done: &[Did]) {
        let generation = self.now.wall;
        let read = self.answer(done, acceptance("https://relay.test", 1, generation));
        let published = config(r#","relay":{"origin":"https://relay.test"}"#);
        self.answer(&read, ok(&published));
    }
}

const LEAD: Duration = Duration::from_secs(TIME / 3);

/// XTR-08, XTR-09, XTR-12: ahead of its end the certificate of the same domain is asked for, the checked
/// one is served from then on, and nothing that is carried is touched.
#[test]
fn a_certificate_is_renewed_ahead_of_its_end() {
    let mut script = Script::registered();
    script.carry(1, "n");
    let fetch = until_fetched(&mut script, Duration::from_secs(TIME)).expect("it is asked for");
    let left = Duration::from_millis(FIRST.ends - script.now.wall);
    assert!((LEAD * 8 / 10..=LEAD).contains(&left), "{left:?} left");
    let body = format!(r#"{{"identity":{IDENTITY},"domainName":"relay.test","type":"ssl"}}"#);
    assert_eq!(request(&fetch), out(FETCH, &body));
    let next = Issued::new("relay.test", 2 * TIME);
    let (lines, done) = logged(|| script.answer(&fetch, next.answer()));
    assert_eq!(done, [Did::Serve(next.loaded().chain())]);
    assert!(lines.iter().any(|line| line.contains("is renewed") && line.contains("relay.test")), "{lines:?}");
    script.assert_carried(1, "n");
    let again = until_fetched(&mut script, Duration::from_secs(TIME / 3)).is_some();
    assert!(!again, "the schedule is that of the new certificate");
}

/// XTR-09, XTR-11, XTR-12, LIS-18: whatever fails, the serving certificate stays, the line names the domain
/// and the reason and no material, and the attempt is made again.
#[test]
fn what_fails_leaves_the_serving_certificate() {
    let mut script = Script::registered();
    let expired = Issued::new("relay.test", 86_400);
    for (outcome, reason) in [
        (Some(plain_refusal("certificate-not-available")), "refused: certificate-not-available"),
        (Some(ok(r#"{"certificate":{}}"#)), "unusable"),
        (Some(Issued::new("other.test", 2 * TIME).answer()), "it does not name exactly this domain"),
        (Some(expired.answer()), "it has expired"),
        (None, "failed: timeout"),
    ] {
        let fetch = until_fetched(&mut script, Duration::from_secs(TIME)).expect("it is asked for");
        let (mut lines, mut done) = logged(|| match outcome {
            Some(outcome) => script.answer(&fetch, outcome),
            None => script.pass(10_000 * MS),
        });
        // The script answers no read of the route table, which is made again.
        done.retain(|did| !served(std::slice::from_ref(did), TABLE));
        lines.retain(|line| !line.contains("getClusterRouteTable"));
        assert_eq!(done, [], "{reason}");
        let [line] = warnings(&lines)[..] else { panic!("{lines:?}") };
        assert!(line.contains(reason) && line.contains("relay.test"), "{line}");
        for material in expired.chain.lines().chain(expired.key.lines()).filter(|line| line.len() > 8) {
            assert!(!line.contains(material));
        }
    }
    let fetch = until_fetched(&mut script, Duration::from_secs(TIME)).expect("it is asked for");
    let (lines, done) = logged(|| script.answer(&fetch, FIRST.answer()));
    assert_eq!((done, warnings(&lines).len()), (vec![], 0), "the same certificate is no failure");
    let fetch = until_fetched(&mut script, Duration::from_secs(TIME)).expect("it is asked for again");
    let next = Issued::new("relay.test", 3 * TIME);
    assert_eq!(script.answer(&fetch, next.answer()), [Did::Serve(next.loaded().chain())]);
}

/// XTR-13: without a session no renewal starts; one that is due begins once the session is back.
#[test]
fn without_a_session_no_renewal_starts() {
    let mut script = Script::registered();
    until_fetched(&mut script, Duration::from_secs(TIME)).expect("it is asked for");
    let (lines, _) = logged(|| script.session(session::Event::Closed { connection: 1 }));
    assert!(warnings(&lines).iter().any(|line| line.contains("failed: closed")), "{lines:?}");
    for _ in 0..200 {
        assert!(!served(&script.pass(600_000 * MS), FETCH), "without a session");
    }

    let mut script = Script::registered();
    script.session(session::Event::Closed { connection: 1 });
    script.connection += 1;
    assert_eq!(script.pass(500 * MS), [Did::Dial(2)]);
    script.now.wall = FIRST.ends - 1_000_000;
    script.now.mono += Duration::from_secs(TIME);
    assert!(!served(&script.on(Event::Tick), FETCH), "nothing is registered yet");
    let registered = script.connect();
    script.accept(&registered);
    assert!(served(&script.on(Event::Tick), FETCH), "the session is back and it is due");
}

/// XTR-13: a parked relay renews no certificate, and neither does one that stops.
#[test]
fn a_parked_or_stopping_relay_renews_nothing() {
    let mut script = Script::standing();
    let sent = script.listen();
    let parked = script.answer(&sent, plain_refusal("relay-credential-generation-stale"));
    assert!(parked.iter().any(|did| matches!(did, Did::Readiness(_))), "{parked:?}");
    assert!(script.core.session.dispatchable(), "the socket of a parked relay stays open");
    assert!(until_fetched(&mut script, Duration::from_secs(2 * TIME)).is_none());
    let mut script = Script::registered();
    script.carry(1, "n");
    script.cloudly(asked("p", APPLY, &of("n")));
    script.on(Event::Stop);
    assert_eq!(script.core.certificate_deadline(script.now), None);
}
