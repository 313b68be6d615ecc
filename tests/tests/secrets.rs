//! Nothing that is secret is in anything that a process of the relay writes: its log, what it tells the
//! service manager, its refusals (LOG-01, LOG-14). Every secret is marked, the log is at its most verbose,
//! and the search is shown to find what is written.
#![expect(clippy::unwrap_used, reason = "a test fails by it, and its shared steps are parts of tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use coreflow_tests::authority::Authority;
use coreflow_tests::carrier::{Carrier, Event};
use coreflow_tests::cloudly::{Cloudly, Step};
use coreflow_tests::dial::websocket;
use coreflow_tests::disclosure::Marks;
use coreflow_tests::envelope::{Ids, Refusal, random_hex, request};
use coreflow_tests::https::https_request;
use coreflow_tests::pallet::{PalletNode, Reaction, Setup};
use coreflow_tests::registry::Registry;
use coreflow_tests::relay::{Relay, RelaySetup};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio_tungstenite::tungstenite::protocol::Role;

const REGISTER: &str = "registerPalletRuntimeSession";
const APPLY: &str = "applyRuntimeAssignment";
const REPORT: &str = "reportRuntimeNetworkProtection";
/// A node's requests, each with the secret that its body or its answer holds.
const REQUESTS: [(&str, &str); 9] = [
    ("getRuntimeManagedVpnCredential", "managed VPN credential"),
    ("getRuntimeRegistryCredential", "registry credential"),
    (REPORT, "report"),
    ("reportRuntimeAssignmentObservation", "observation"),
    ("reportRuntimeAssignmentTerminalReceipt", "receipt"),
    ("getRuntimeSecretRecipientState", "recipient state"),
    ("beginRuntimeSecretRecipientEnrollment", "possession challenge"),
    ("completeRuntimeSecretRecipientEnrollment", "proof of possession"),
    ("getRuntimeSecretMaterial", "assignment secret material"),
];
const PUSHES: [&str; 4] = [
    APPLY,
    "applyRuntimeNetworkSigningAuthority",
    "applyRuntimeNetworkProjection",
    "applyRuntimeNetworkDnsLeaseRenewal",
];
/// What else Cloudly may ask with a secret in it, whether this relay serves it or not.
const OF_CLOUDLY: [(&str, &str); 10] = [
    ("pushClusterRouteTable", "route table"),
    ("holdRuntimeNetworkDnsLeaseRenewals", "renewal"),
    ("applyClusterVpnNetwork", "VPN network"),
    ("prepareIsolatedRestoreOnNode", "isolated-restore control"),
    ("stageIsolatedRestoreArchive", "isolated-restore chunk"),
    ("executeIsolatedRestoreOnNode", "isolated-restore grant"),
    ("backupClusterService", "backup"),
    ("pushContainerUpdate", "retired request"),
    ("triggerServerAction", "retired action"),
    ("noSuchMethod", "unknown request"),
];
const STOP: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(12);

/// Cloudly, the relay, and what was marked; `answers` are texts that the relay gave a peer of its own.
struct Stage {
    marks: Marks,
    cloudly: Cloudly,
    setup: RelaySetup,
    relay: Relay,
    answers: Vec<String>,
}

/// What a relay with marked secrets wrote so far, one text for each line, notification and own answer.
fn written(relay: &Relay, answers: &[String]) -> Vec<String> {
    let lines = relay.lines().into_iter().map(|line| line.text);
    let told = relay.notify().map(|notify| notify.messages()).unwrap_or_default();
    lines.chain(told).chain(answers.iter().cloned()).collect()
}

#[track_caller]
fn assert_undisclosed(marks: &Marks, written: &[String]) {
    for text in written {
        assert_eq!(marks.found_in(text), BTreeSet::new(), "{text}");
    }
}

impl Stage {
    /// A relay at its most verbose level from before its first exchange on.
    async fn open(shown: &str) -> Self {
        let mut marks = Marks::default();
        let authority = Authority::new();
        let setup = RelaySetup::new(&authority).notified();
        let mut settings = setup.cloudly_settings();
        settings.bearer = marks.secret("bearer");
        settings.identity_lifetime = Duration::from_secs(4);
        settings.credential_id = format!("credential-{shown}");
        for node in ["node-1", shown] {
            settings.nodes.insert(node.to_owned(), marks.secret("node bearer"));
        }
        settings.cluster_members.insert("corestoreToken".to_owned(), json!(marks.secret("Corestore token")));
        settings.config = Some(document(&settings.config_text(), &mut marks));
        let cloudly = Cloudly::start(&authority, settings).await;
        cloudly.pulls_from(&Registry::default());
        let setup = setup.facing(&cloudly);
        cloudly.always("getClusterRouteTable", Step::Answer(route_table(&authority, &mut marks)));
        // An acceptance with a member too many is none; the next renewal's is one.
        let token = marks.secret("unreadable acceptance");
        cloudly
            .once("registerClusterRelay", Step::Answer(json!({"origin": token, "token": token}).to_string()));
        cloudly.go_away().await;
        let relay = setup.start();
        relay.wait_line("no identity").await.unwrap();
        relay.signal(Signal::SIGUSR1);
        relay.wait_line("the log level is TRACE").await.unwrap();
        cloudly.come_back().await.unwrap();
        relay.wait_open().await.unwrap();
        cloudly.wait_accepted(1).await.unwrap();
        cloudly.change(|settings| settings.identity_lifetime = Duration::from_secs(3600));
        Self { marks, cloudly, setup, relay, answers: Vec::new() }
    }

    async fn node(&mut self, id: &str) -> PalletNode {
        let bearer = self.cloudly.change(|settings| settings.nodes[id].clone());
        let nonce = self.marks.secret("node instance nonce");
        let setup = Setup { bearer, nonce, ..Setup::new(self.setup.target(), id) };
        let node = PalletNode::start(setup);
        node.wait_registered(1).await.unwrap();
        node
    }

    async fn socket(&self) -> (Carrier, Receiver<Event>) {
        let socket = websocket(&self.setup.target(), "/", &[]).await.unwrap();
        Carrier::start(socket, Role::Client)
    }

    /// Everything that a carried node and Cloudly say to one another, with a secret in each body.
    async fn carry(&mut self, node: &PalletNode) {
        let binding = node.binding().unwrap();
        for (method, name) in REQUESTS {
            let (sent, answered) = (self.marks.secret(name), self.marks.secret(name));
            self.cloudly.once(method, Step::Answer(json!({"material": answered}).to_string()));
            let body = format!(r#"{{"session":{binding},"material":{{"{sent}":"{sent}"}}}}"#);
            let answer = node.request(method, &body).await.unwrap();
            assert!(answer.outcome().unwrap().get().contains(&answered), "{method}");
        }
        let (sent, refused) = (self.marks.secret("refused request"), self.marks.secret("Cloudly's refusal"));
        let refusal = Refusal { text: format!("some-name: {refused}"), data: json!({"token": refused}) };
        self.cloudly.once(REPORT, Step::Refuse(refusal));
        let body = format!(r#"{{"session":{binding},"sent":"{sent}"}}"#);
        assert!(node.request(REPORT, &body).await.unwrap().outcome().unwrap_err().text.contains(&refused));
        for method in PUSHES {
            let (sent, answered) = (self.marks.secret("push"), self.marks.secret("acknowledgement"));
            node.react(method, Reaction::Answer(json!({ "token": answered }).to_string()));
            let body = format!(
                r#"{{"session":{binding},"assignment":"{sent}","renewal":{{"signature":"{sent}"}}}}"#
            );
            let answer = self.cloudly.push(method, &body).await.unwrap();
            assert!(answer.response().contains(&answered), "{method}");
        }
        let (sent, refused) = (self.marks.secret("refused push"), self.marks.secret("node's refusal"));
        node.react(APPLY, Reaction::Refuse(Refusal::new(format!("some-name: {refused}"))));
        let body = format!(r#"{{"session":{binding},"assignment":"{sent}"}}"#);
        assert!(
            self.cloudly.push(APPLY, &body).await.unwrap().outcome().unwrap_err().text.contains(&refused)
        );
    }

    /// A request that nobody answers in time.
    async fn forget(&mut self, node: &PalletNode) {
        let (up, down) = (self.marks.secret("forgotten request"), self.marks.secret("forgotten push"));
        self.cloudly.once(REPORT, Step::Never);
        node.react(APPLY, Reaction::Never);
        let session = node.binding().unwrap();
        let up = format!(r#"{{"session":{session},"sent":"{up}"}}"#);
        let down = format!(r#"{{"session":{session},"assignment":"{down}"}}"#);
        let (up, down) = tokio::join!(node.request(REPORT, &up), self.cloudly.push(APPLY, &down));
        for answer in [up.unwrap(), down.unwrap()] {
            assert_eq!(answer.outcome().unwrap_err().name(), "relay-forward-timeout");
            self.answers.push(answer.text);
        }
    }

    /// What the relay refuses a node, or does not even answer.
    async fn refuse_nodes(&mut self, node: &PalletNode) {
        let (stranger, _events) = self.socket().await;
        let binding = node.binding().unwrap();
        let secret = self.marks.secret("refused body");
        let offer = json!({"release": secret, "oldestAcceptedPeerRelease": "32.0.0"});
        let registration = json!({"protocol": offer, "authorization": secret, "nodeId": secret}).to_string();
        for (method, body) in [
            (REPORT, format!(r#"{{"session":{binding},"sent":"{secret}"}}"#)),
            (REPORT, json!({"session": {"sessionId": secret}}).to_string()),
            (REGISTER, registration),
            ("holdRuntimeNetworkDnsLeaseRenewals", json!({ "renewals": secret }).to_string()),
            ("noSuchMethod", json!({ "sent": secret }).to_string()),
        ] {
            let answer = stranger.call(method, &body, WAIT).await.unwrap();
            assert!(answer.outcome().is_err(), "{method}");
            self.answers.push(answer.text);
        }
        let phase = json!({"method": REPORT, "request": {}, "correlation": {"id": "x", "phase": secret}});
        for text in [secret.clone(), format!(r#"{{"token":"{secret}"}}"#), phase.to_string()] {
            stranger.send_text(text).await;
        }
        stranger.send_binary([secret.as_bytes(), b"\xff"].concat()).await;
        self.relay.wait_line("a node sent what is no request").await.unwrap();
        // Cloudly does not know this node's bearer: its refusal is passed on.
        let mut wrong = Setup::new(self.setup.target(), "node-2");
        wrong.bearer = self.marks.secret("wrong node bearer");
        PalletNode::start(wrong).wait_denied().await.unwrap();
    }

    /// What Cloudly asks beside pushes to nodes, and frames of it that are none.
    async fn ask_as_cloudly(&mut self) {
        let authority = Authority::new();
        for (method, name) in OF_CLOUDLY {
            let secret = self.marks.secret(name);
            let body = json!({
                "nodeId": "node-1",
                "session": {"nodeId": "absent"},
                "control": {"grant": secret, "body": {"chunk": secret}},
                "routeTable": {"routes": secret, "certificates": [{"privateKey": secret}]},
                "network": {"members": [{"publicKey": secret}]},
                "renewals": [{"signature": secret}],
            });
            self.answers.push(self.cloudly.push(method, &body.to_string()).await.unwrap().text);
        }
        let table = route_table(&authority, &mut self.marks);
        self.answers.push(self.cloudly.push("pushClusterRouteTable", &table).await.unwrap().text);
        let secret = self.marks.secret("push for an absent node");
        let body = json!({"session": {"nodeId": "absent"}, "assignment": secret});
        self.answers.push(self.cloudly.push(APPLY, &body.to_string()).await.unwrap().text);
        let mut config: Value = serde_json::from_str(&self.cloudly.config()).unwrap();
        for block in [json!({"origin": self.marks.secret("invalid relay block")}), json!(null)] {
            config["configData"]["data"]["relay"] = block;
            let config = document(&config.to_string(), &mut self.marks);
            self.answers.push(self.cloudly.push("pushClusterConfig", &config).await.unwrap().text);
        }
        let unreadable = json!({"configData": self.marks.secret("unreadable cluster config")}).to_string();
        self.answers.push(self.cloudly.push("pushClusterConfig", &unreadable).await.unwrap().text);
        let secret = self.marks.secret("Cloudly's malformed frame");
        let carrier = self.cloudly.carrier().unwrap();
        carrier.send_text(secret.clone()).await;
        carrier.send_text(request(APPLY, &format!(r#"["{secret}"]"#), &Ids::fresh())).await;
    }

    /// Pulls and other HTTP requests over both protocols, with credentials in their heads (LOG-04).
    async fn ask_by_http(&mut self) {
        for alpn in ["http/1.1", "h2"] {
            let target = self.setup.target_offering(&[alpn]);
            let path = |marks: &mut Marks, prefix: &str, name: &str| {
                let part = marks.secret(name).replace(['/', '+', '='], "-");
                marks.add(name, &part);
                format!("{prefix}{part}/manifests/{part}?token={part}")
            };
            for (method, prefix, status) in
                [("GET", "/v2/", 200), ("HEAD", "/v2/", 200), ("PUT", "/v2/", 405), ("GET", "/", 404)]
            {
                let path = path(&mut self.marks, prefix, "pull path");
                let authorization = format!("Basic {}", self.marks.secret("pull authorization"));
                let cookie = self.marks.secret("pull cookie");
                let headers = [("authorization", authorization.as_str()), ("cookie", &cookie)];
                let sent = self.marks.secret("request content");
                let sent = if method == "PUT" { sent.as_str() } else { "" };
                let answer = https_request(&target, method, &path, &headers, sent).await.unwrap();
                assert_eq!(answer.status, status, "{method} {path}");
                let heads = format!("{:?}", answer.headers);
                self.answers.extend([heads, String::from_utf8_lossy(&answer.body).into_owned()]);
            }
        }
        let target = self.setup.target();
        let protocol = self.marks.secret("upgrade header");
        let heads = [("authorization", protocol.as_str()), ("sec-websocket-key", &protocol)];
        assert!(websocket(&target, "/", &heads).await.is_err(), "a key that is none");
        let mut plain = TcpStream::connect(target.address).await.unwrap();
        let secret = self.marks.secret("request without TLS");
        plain
            .write_all(format!("GET /v2/ HTTP/1.1\r\nauthorization: {secret}\r\n\r\n").as_bytes())
            .await
            .unwrap();
    }

    /// The relay's identities and the listener's key are Cloudly's to make; they are marked at the end.
    fn mark_what_cloudly_made(&mut self) {
        let jwts = self.cloudly.issued_jwts();
        assert!(jwts.len() >= 3, "a start, a renewal and a restart took an identity each");
        jwts.iter().for_each(|jwt| self.marks.add("identity", jwt));
        let key =
            self.cloudly.change(|settings| settings.certificates[&self.setup.host_name].key_pem.clone());
        mark_key(&mut self.marks, "the listener's private key", &key);
    }
}

/// Marks each line of a PEM key that is long enough to tell.
fn mark_key(marks: &mut Marks, name: &str, pem: &str) {
    let lines: Vec<&str> = pem.lines().filter(|line| line.len() > 30 && !line.contains("-----")).collect();
    assert!(!lines.is_empty(), "the key has lines");
    lines.iter().for_each(|line| marks.add(name, line));
}

/// A valid route table with a key in it.
fn route_table(authority: &Authority, marks: &mut Marks) -> String {
    let issued = authority.issue(&["web.test"]);
    mark_key(marks, "route table", &issued.key_pem);
    json!({"routeTable": {
        "clusterId": "cluster-1",
        "revision": 7,
        "routes": [{"hostName": "web.test", "destinations": [{"address": "192.0.2.7", "port": 80}], "certificateId": "c-1"}],
        "certificates": [
            {"id": "c-1", "domainNames": ["web.test"], "publicKey": issued.chain_pem, "privateKey": issued.key_pem},
        ],
    }})
    .to_string()
}

/// The cluster document with a secret wherever it may hold one.
fn document(config: &str, marks: &mut Marks) -> String {
    let mut config: Value = serde_json::from_str(config).unwrap();
    let mut secret = |name: &str| json!(marks.secret(name));
    config["configData"]["data"]["isolatedRestoreControl"] =
        json!({"grant": secret("isolated-restore control")});
    config["configData"]["data"]["nodes"][0]["data"]["corestore"] =
        json!({"endpoint": "https://192.0.2.9:3000", "token": secret("Corestore token")});
    config["services"] =
        json!([{"id": "s-1", "data": {"name": "web", "environment": secret("service secret")}}]);
    config["corestorePublicationGrants"] = json!([{"bindingId": "b-1", "requestDigest": secret("Corestore grant"), "retention": secret("Corestore grant")}]);
    config.to_string()
}

/// LOG-01, LOG-04, LOG-06, LOG-07, LOG-08, LOG-09, LOG-10, LOG-12, LOG-14, FWD-28, FWD-30, LIS-17, LIS-18:
/// late start, renewal, registrations, every forward and push, every refusal, pulls, a restart of relayd, a
/// rotated credential with what a parked relay still does, and a stop; and no secret is in anything written.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_secret_is_written_in_a_whole_life() {
    let shown = format!("node-{}", random_hex::<16>());
    let mut stage = Stage::open(&shown).await;
    let node = stage.node(&shown).await;
    stage.carry(&node).await;
    stage.refuse_nodes(&node).await;
    stage.ask_as_cloudly().await;
    stage.ask_by_http().await;
    stage.forget(&node).await;

    let killed = stage.relay.kill_worker("relayd");
    stage.relay.wait_worker("relayd", killed).await.unwrap();
    node.wait_registered(2).await.unwrap();
    stage.carry(&node).await;

    let rotated = stage.marks.secret("rotated bearer");
    stage.cloudly.rotate_credential(&rotated);
    stage.cloudly.drop_connections();
    stage.relay.wait_line("relay-credential-generation-stale: this relay is bound").await.unwrap();
    node.wait_registered(3).await.unwrap();
    stage.carry(&node).await;
    stage.ask_as_cloudly().await;

    stage.relay.signal(Signal::SIGTERM);
    assert_eq!(stage.relay.wait_exit(STOP).await, Ok(0));
    stage.relay.wait_line("the relay stopped").await.unwrap();
    stage.mark_what_cloudly_made();

    let mut written = written(&stage.relay, &stage.answers);
    assert!(stage.marks.count() > 30, "{} kinds of secrets", stage.marks.count());
    assert_undisclosed(&stage.marks, &written);

    // What is public is written, and the same search finds it; so it would a secret.
    let verbose = |part: &str| written.iter().any(|line| line.starts_with("DEBUG") && line.contains(part));
    assert!(["relayd", "pulld", "vpnd"].iter().filter(|role| verbose(role)).count() >= 2, "{written:#?}");
    let mut public = Marks::default();
    public.add("node", &shown);
    public.add("credential", &format!("credential-{shown}"));
    public.add("method", REPORT);
    let found: BTreeSet<String> =
        written.iter().flat_map(|text| public.found_in(text)).map(|(name, _)| name).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(written.iter().any(|text| text.starts_with("STATUS=") || text.contains("\nSTATUS=")));
    written.push(format!("INFO relayd: planted value={rotated}"));
    assert_eq!(stage.marks.found_in(written.last().unwrap()).len(), 1);
}

/// What of a start that must fail holds a secret.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    Bearer,
    Identity,
    RelayBlock,
    CertificateKey,
    CertificateMembers,
}

/// LOG-01, LOG-09, LOG-14, LIS-17, LIS-18: a start that fails over what it was given names it by its path or
/// its domain and says nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_writes_nothing_secret() {
    for (wrong, cause) in [
        (Wrong::Bearer, "identity-token-refused"),
        (Wrong::Identity, "is unusable"),
        (Wrong::RelayBlock, "relay-block-invalid"),
        (Wrong::CertificateKey, "relay-certificate-refused: relay.localhost.test"),
        (Wrong::CertificateMembers, "a read of the start was unusable"),
    ] {
        let mut marks = Marks::default();
        let authority = Authority::new();
        let setup = RelaySetup::new(&authority).notified();
        let mut settings = setup.cloudly_settings();
        settings.bearer = marks.secret("bearer");
        let cloudly = Cloudly::start(&authority, settings).await;
        let mut setup = setup.facing(&cloudly);
        let issued = authority.issue(&[&setup.host_name]);
        let secret = marks.secret(&format!("{wrong:?}"));
        match wrong {
            Wrong::Bearer => setup.bearer = secret,
            Wrong::Identity => {
                let identity = json!({"identity": {"name": secret, "userId": secret, "type": secret,
                    "role": secret, "expiresAt": secret, "jwt": secret}});
                cloudly.always("getIdentityByToken", Step::Answer(identity.to_string()));
            }
            Wrong::RelayBlock => {
                let block = json!({"origin": setup.origin(), "token": secret});
                cloudly.change(|settings| settings.relay_block = Some(block));
            }
            Wrong::CertificateKey => {
                mark_key(&mut marks, "key", &issued.key_pem);
                let (head, rest) = issued.key_pem.split_once('\n').unwrap();
                let broken = coreflow_tests::authority::Issued {
                    key_pem: format!("{head}\n{secret}{rest}"),
                    ..issued
                };
                cloudly.change(|settings| settings.certificates.insert(setup.host_name.clone(), broken));
            }
            Wrong::CertificateMembers => {
                mark_key(&mut marks, "key", &issued.key_pem);
                let certificate = json!({"certificate": {"id": secret, "domainName": setup.host_name,
                    "created": secret, "privateKey": issued.key_pem, "publicKey": issued.chain_pem, "csr": secret}});
                cloudly.always("getCertificateForDomain", Step::Answer(certificate.to_string()));
            }
        }
        let mut relay = setup.start();
        let line = relay.wait_line(cause).await.unwrap();
        // An answer that is none is waited over; Cloudly may yet give one.
        if !matches!(wrong, Wrong::Identity | Wrong::CertificateMembers) {
            assert_eq!(relay.wait_exit(STOP).await, Ok(1), "{line:?}");
        }
        cloudly.issued_jwts().iter().for_each(|jwt| marks.add("identity", jwt));
        let written = written(&relay, &[]);
        assert!(written.len() > 3, "{written:?}");
        assert_undisclosed(&marks, &written);
    }
}
