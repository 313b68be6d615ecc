//! The Corestore half of the loopback Cloudly (TST-03), asked over its socket by a plain client: what the
//! requirement list says of Cloudly there, the double does. Its other half is proved by the relay's own tests.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coreflow_tests::authority::Authority;
use coreflow_tests::carrier::{Carrier, Event};
use coreflow_tests::cloudly::{
    CHUNK, Capability, Cloudly, Frame, FrameBody, NodeCorestore, PROGRESS_TIMEOUT_MS, PlatformBinding,
    PublicationFault, REVOKED_KEPT, Replication, Settings, StreamName, mutation_id, sha256,
};
use coreflow_tests::corestore::answer::digest;
use coreflow_tests::dial::{Target, websocket};
use coreflow_tests::envelope::{Ids, Message, Refusal, answer, request};
use coreflow_tests::https::https_request;
use coreflow_tests::sealed::{KeyPair, digest_of, seal};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio_tungstenite::tungstenite::protocol::Role;

const WAIT: Duration = Duration::from_secs(10);
const PUBLISH: &str = "publishCorestoreCredentialMaterial";
const DESIRED: &str = "getClusterPlatformDesiredState";

struct Stage {
    authority: Authority,
    cloudly: Cloudly,
}

/// A connection with a verified session.
struct Relay {
    carrier: Carrier,
    events: Receiver<Event>,
    sequence: u64,
}

fn offer() -> Value {
    json!({"release": "33.1.0", "oldestAcceptedPeerRelease": "32.0.0"})
}

impl Stage {
    async fn new() -> Self {
        let authority = Authority::new();
        let cloudly = Cloudly::start(&authority, Settings::default()).await;
        Self { authority, cloudly }
    }

    async fn session(&self) -> Relay {
        let target = Target {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.cloudly.port())),
            server_name: "localhost".to_owned(),
            tls: self.authority.client_config(&["http/1.1"]),
        };
        let bearer = self.cloudly.change(|settings| settings.bearer.clone());
        let text = request("getIdentityByToken", &json!({"token": bearer}).to_string(), &Ids::fresh());
        let done = https_request(&target, "POST", "/typedrequest", &[], &text).await.unwrap();
        let answer = Message::parse(std::str::from_utf8(&done.body).unwrap()).unwrap();
        let exchanged: Value = serde_json::from_str(answer.outcome().unwrap().get()).unwrap();
        let (carrier, events) = Carrier::start(websocket(&target, "/", &[]).await.unwrap(), Role::Client);
        let relay = Relay { carrier, events, sequence: 0 };
        let session =
            json!({"identity": exchanged["identity"], "clientType": "coreflow", "protocol": offer()});
        relay.ask("registerCloudlyClientSession", &session).await.unwrap();
        relay
    }

    /// A relay that stands for the cluster.
    async fn relay(&self) -> Relay {
        let mut relay = self.session().await;
        relay.register().await;
        relay
    }

    /// Desires a database of `service-1` on `node-1`, which is reached.
    fn desire_database(&self) {
        self.cloudly.add_service("service-1", "organization-1");
        self.cloudly.publish_corestore("node-1", reached("db.test"));
        let binding = PlatformBinding::new("d1", "service-1", Some("node-1"), Capability::Database);
        self.cloudly.desire(binding);
    }
}

impl Relay {
    async fn register(&mut self) {
        let relay =
            json!({"version": "1", "nodeId": "relay-node", "listenAddress": "127.0.0.1", "listenPort": 8443});
        let body = json!({"protocol": offer(), "registrationSequence": self.sequence, "relay": relay});
        self.sequence += 1;
        self.ask("registerClusterRelay", &body).await.unwrap();
    }

    async fn ask(&self, method: &str, body: &Value) -> Result<Value, Refusal> {
        let answer = self.carrier.call(method, &body.to_string(), WAIT).await.unwrap();
        answer.outcome().map(|body| serde_json::from_str(body.get()).unwrap())
    }

    /// What a refusal states as its code.
    async fn refused(&self, method: &str, body: &Value) -> String {
        self.ask(method, body).await.unwrap_err().data["code"].as_str().unwrap().to_owned()
    }

    /// The cluster document.
    async fn config(&self, cloudly: &Cloudly) -> Value {
        let identity = cloudly.calls_of("registerCloudlyClientSession")[0].body_json()["identity"].clone();
        self.ask("getClusterConfig", &json!({"identity": identity})).await.unwrap()
    }

    async fn enroll(&self, number: usize) -> (String, KeyPair) {
        let key_id = format!("relay-corestore-control:00000000-0000-4000-8000-{number:012}");
        let keys = KeyPair::generate();
        let begin = json!({"capability": "corestore-control", "recipientKeyId": key_id,
            "publicKey": keys.public()});
        let begun = self.ask("beginClusterSecretRecipientEnrollment", &begin).await.unwrap();
        let context = json!({"purpose": "cluster-secret-recipient-challenge", "clusterId": "cluster-1",
            "recipientKeyId": key_id});
        let proof = STANDARD.encode(keys.open(&begun["challenge"], &context).unwrap());
        let complete = json!({"recipientKeyId": key_id, "proof": proof});
        let active = self.ask("completeClusterSecretRecipientEnrollment", &complete).await.unwrap();
        assert_eq!(active, json!({"active": {"recipientKeyId": key_id}}));
        (key_id, keys)
    }

    /// The publication of `material` under the grant in force for `d1`, sealed anew.
    async fn publication(&self, cloudly: &Cloudly, material: &Value) -> Value {
        let grant = cloudly.publication_grant("d1").unwrap();
        let recipient = self.ask("getSecretIngressRecipient", &json!({})).await.unwrap()["recipient"].clone();
        let mutation = mutation_id(&grant["operation"]);
        let context = json!({
            "purpose": "publish-corestore-credential-material", "mutationId": mutation,
            "organizationId": "organization-1", "clusterId": "cluster-1", "serviceId": "service-1",
            "bindingId": "d1", "operation": grant["operation"], "requestDigest": grant["requestDigest"],
            "recipientKeyId": recipient["recipientKeyId"],
        });
        let (key_id, key) = (&recipient["recipientKeyId"], &recipient["publicKey"]);
        let plaintext = material.to_string();
        let envelope =
            seal(key_id.as_str().unwrap(), key.as_str().unwrap(), &context, plaintext.as_bytes()).unwrap();
        json!({"mutationId": mutation, "operation": grant["operation"], "bindingId": "d1",
            "serviceId": "service-1", "envelope": envelope})
    }

    /// The next event, which has to be a binary frame.
    async fn frame(&mut self) -> Frame {
        match tokio::time::timeout(WAIT, self.events.recv()).await {
            Ok(Some(Event::Stream(bytes))) => Frame::parse(&bytes).unwrap(),
            other => panic!("no frame but {other:?}"),
        }
    }

    async fn send(&self, stream: StreamName, body: FrameBody) {
        self.carrier.send_binary(Frame { stream, body }.bytes()).await;
    }
}

fn reached(host: &str) -> NodeCorestore {
    NodeCorestore {
        endpoint: Some("http://corestore.test:3000".to_owned()),
        database: Some((host.to_owned(), 27017)),
    }
}

fn material() -> Value {
    json!({"capability": "database", "uri": "mongodb://u:p@db.test:27017/d", "databaseName": "d",
        "endpoint": {"host": "db.test", "port": 27017}})
}

/// CST-22: a new enrolment retires the previous recipient, which is given no credential any more, and of the
/// revoked ones the oldest are dropped. The credential opens with the active one's key.
#[tokio::test]
async fn a_new_enrolment_retires_the_previous_recipient() {
    let stage = Stage::new().await;
    let relay = stage.relay().await;
    let state = json!({"capability": "corestore-control"});
    let none = relay.ask("getClusterSecretRecipientState", &state).await.unwrap();
    assert_eq!(none, json!({"active": null}));
    let mut former = Vec::new();
    for number in 0..REVOKED_KEPT + 3 {
        former.push(relay.enroll(number).await);
    }
    let (active, keys) = former.pop().unwrap();
    let stated = relay.ask("getClusterSecretRecipientState", &state).await.unwrap();
    assert_eq!(stated, json!({"active": {"recipientKeyId": active}}));
    let kept: Vec<&String> = former[former.len() - REVOKED_KEPT..].iter().map(|(key_id, _)| key_id).collect();
    assert!(kept.len() < former.len(), "some were dropped");
    assert_eq!(stage.cloudly.revoked_recipients().iter().collect::<Vec<_>>(), kept);

    const READ: &str = "getCorestoreControlCredentialMaterial";
    let previous = json!({"recipientKeyId": former.last().unwrap().0});
    assert_eq!(relay.refused(READ, &previous).await, "RECIPIENT_NOT_ACTIVE");
    let sealed = relay.ask(READ, &json!({"recipientKeyId": active})).await.unwrap();
    let context = json!({"purpose": "corestore-control-credential", "clusterId": "cluster-1",
        "recipientKeyId": active, "credential": sealed["credential"]});
    let opened: Value = serde_json::from_slice(&keys.open(&sealed["envelope"], &context).unwrap()).unwrap();
    assert_eq!(opened, json!({"token": stage.cloudly.control_token()}));
    assert!(former.last().unwrap().1.open(&sealed["envelope"], &context).is_none());
}

/// PLT-20: the desired state is for the socket whose registration was accepted: not for one without, and not for
/// one that another took the place of.
#[tokio::test]
async fn the_desired_state_is_for_the_accepted_socket_alone() {
    let stage = Stage::new().await;
    stage.desire_database();
    let mut first = stage.session().await;
    let name = |refused: Result<Value, Refusal>| refused.unwrap_err().name().to_owned();
    assert_eq!(name(first.ask(DESIRED, &json!({})).await), "relay-not-connected");
    let ingress = "getSecretIngressRecipient";
    assert_eq!(name(first.ask(ingress, &json!({})).await), "relay-not-connected", "nor is any of this half");
    first.register().await;
    let state = first.ask(DESIRED, &json!({})).await.unwrap();
    let binding = json!({"id": "d1", "serviceId": "service-1", "capability": "database", "name": "d1",
        "status": "provisioning", "statusReason": null, "endpoints": []});
    assert_eq!(state, json!({"bindings": [{"nodeId": "node-1", "binding": binding}]}));
    let second = stage.relay().await;
    assert_eq!(name(first.ask(DESIRED, &json!({})).await), "relay-ambiguous");
    assert_eq!(second.ask(DESIRED, &json!({})).await, Ok(state.clone()));
    first.register().await;
    assert_eq!(first.ask(DESIRED, &json!({})).await, Ok(state));
    assert_eq!(name(second.ask(DESIRED, &json!({})).await), "relay-ambiguous");
}

/// PLT-41: a database endpoint that moves brings another grant, of another operation, whose digest is the changed
/// request's; material under the old one is refused. A report of the binding is taken over.
#[tokio::test]
async fn a_moved_endpoint_is_granted_anew() {
    let stage = Stage::new().await;
    stage.desire_database();
    let relay = stage.relay().await;
    let covered = async || {
        let config = relay.config(&stage.cloudly).await;
        let grants = config["corestorePublicationGrants"].as_array().unwrap();
        let nodes = config["configData"]["data"]["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["id"] == "node-1").unwrap();
        let [grant] = &grants[..] else { panic!("one grant") };
        let request = json!({
            "operation": grant["operation"], "bindingId": "d1", "serviceId": "service-1",
            "clusterId": "cluster-1", "nodeId": "node-1", "capability": "database",
            "endpoint": node["data"]["corestoreDatabase"],
        });
        assert_eq!(grant["requestDigest"], digest_of(&request));
        grant.clone()
    };
    let before = covered().await;
    let stale = relay.publication(&stage.cloudly, &material()).await;
    stage.cloudly.publish_corestore("node-1", reached("moved.test"));
    let after = covered().await;
    assert_ne!(before["operation"], after["operation"]);
    assert_ne!(before["requestDigest"], after["requestDigest"]);
    assert_eq!(relay.refused(PUBLISH, &stale).await, "GRANT_UNKNOWN");
    let old_address = relay.publication(&stage.cloudly, &material()).await;
    assert_eq!(relay.refused(PUBLISH, &old_address).await, "MATERIAL_INVALID");

    let endpoint = json!({"name": "d1", "capability": "database", "protocol": "mongodb",
        "networkAlias": "moved.test", "port": 27017});
    let report = json!({"bindingId": "d1", "status": "failed", "statusReason": "legacy-adoption-conflict",
        "endpoints": [endpoint]});
    relay.ask("reportClusterPlatformBinding", &report).await.unwrap();
    let held = stage.cloudly.platform_binding("d1").unwrap();
    assert_eq!((held.status.as_str(), held.endpoints.len()), ("failed", 1));
    assert_eq!(held.status_reason.as_deref(), Some("legacy-adoption-conflict"));
}

/// PUB-04: Secrets, binding and grant change together, or none of them does.
#[tokio::test]
async fn a_publication_is_one_transaction() {
    let stage = Stage::new().await;
    stage.desire_database();
    let (relay, cloudly) = (stage.relay().await, &stage.cloudly);
    let status = || cloudly.platform_binding("d1").unwrap().status;
    let publication = relay.publication(cloudly, &material()).await;
    cloudly.fail_publication(PublicationFault::Transaction);
    assert_eq!(relay.refused(PUBLISH, &publication).await, "INTERNAL_ERROR");
    assert_eq!(cloudly.service_secret("service-1", "d1"), None);
    assert_eq!((status().as_str(), cloudly.publication_grant("d1").is_some()), ("provisioning", true));

    relay.ask(PUBLISH, &publication).await.unwrap();
    assert_eq!(cloudly.service_secret("service-1", "d1"), Some(material()));
    assert_eq!((status().as_str(), cloudly.publication_grant("d1")), ("ready", None));
    assert_eq!(relay.config(cloudly).await["corestorePublicationGrants"], json!([]));
}

/// PUB-28: the answer is `INTERNAL_ERROR` also where the commit stands and the push after it failed; the identical
/// request then gets the receipt.
#[tokio::test]
async fn an_internal_error_may_hide_a_commit() {
    let stage = Stage::new().await;
    stage.desire_database();
    let (relay, cloudly) = (stage.relay().await, &stage.cloudly);
    let publication = relay.publication(cloudly, &material()).await;
    cloudly.fail_publication(PublicationFault::ConfigPush);
    assert_eq!(relay.refused(PUBLISH, &publication).await, "INTERNAL_ERROR");
    assert_eq!(cloudly.service_secret("service-1", "d1"), Some(material()));
    assert_eq!(cloudly.platform_binding("d1").unwrap().status, "ready");
    assert_eq!(cloudly.publication_grant("d1"), None);
    let receipt = relay.ask(PUBLISH, &publication).await.unwrap();
    assert_eq!(receipt["receipt"]["envelopeDigest"], digest_of(&publication["envelope"]));
}

/// PUB-29: a receipt is bound to the digest of the envelope: the identical request gets the same one, and the same
/// material sealed once more is `REPLAY_CONFLICT`.
#[tokio::test]
async fn a_receipt_is_bound_to_its_envelope() {
    let stage = Stage::new().await;
    stage.desire_database();
    let (relay, cloudly) = (stage.relay().await, &stage.cloudly);
    let publication = relay.publication(cloudly, &material()).await;
    let sealed_anew = relay.publication(cloudly, &material()).await;
    assert_ne!(publication["envelope"], sealed_anew["envelope"]);
    let mut receipt = relay.ask(PUBLISH, &publication).await.unwrap();
    assert_eq!(relay.ask(PUBLISH, &publication).await, Ok(receipt.clone()));
    assert_eq!(relay.refused(PUBLISH, &sealed_anew).await, "REPLAY_CONFLICT");
    assert!(receipt["receipt"]["committedAt"].take().is_u64());
    let expected = json!({
        "mutationId": publication["mutationId"], "organizationId": "organization-1", "clusterId": "cluster-1",
        "serviceId": "service-1", "bindingId": "d1", "operation": publication["operation"],
        "envelopeDigest": digest_of(&publication["envelope"]), "committedAt": null,
    });
    assert_eq!(receipt["receipt"], expected);
}

/// What a publication is refused for, by its code, and that a refusal commits nothing.
#[tokio::test]
async fn a_publication_is_judged_before_it_is_taken_in() {
    let stage = Stage::new().await;
    stage.desire_database();
    let (relay, cloudly) = (stage.relay().await, &stage.cloudly);
    let publication = relay.publication(cloudly, &material()).await;
    let mut relabelled = publication.clone();
    relabelled["envelope"]["context"]["organizationId"] = json!("organization-2");
    assert_eq!(relay.refused(PUBLISH, &relabelled).await, "CONTEXT_MISMATCH");
    let mut changed = publication.clone();
    changed["envelope"]["ciphertext"] = json!(STANDARD.encode([0; 64]));
    assert_eq!(relay.refused(PUBLISH, &changed).await, "ENVELOPE_UNREADABLE");
    let mut other = publication.clone();
    other["mutationId"] = json!("corestore-publication:other");
    assert_eq!(relay.refused(PUBLISH, &other).await, "MUTATION_ID_MISMATCH");
    cloudly.change(|settings| settings.clock_ahead_ms = 3_600_000);
    assert_eq!(relay.refused(PUBLISH, &publication).await, "GRANT_EXPIRED");
    cloudly.change(|settings| settings.clock_ahead_ms = 0);
    cloudly.rotate_ingress_recipient();
    assert_eq!(relay.refused(PUBLISH, &publication).await, "RECIPIENT_NOT_ACTIVE");
    assert_eq!(cloudly.service_secret("service-1", "d1"), None);
    let anew = relay.publication(cloudly, &material()).await;
    relay.ask(PUBLISH, &anew).await.unwrap();
}

/// What the relay sends of a closure in the backup `name`, and its answer to the backup.
async fn back_up(
    stage: &Stage,
    relay: &mut Relay,
    name: &str,
    closure: Option<(&[u8], bool)>,
) -> Replication {
    let body = json!({"nodeId": "node-1", "serviceId": "service-1", "backupId": name, "volumes": [],
        "database": {"bindingId": "d1", "name": "d"}, "objectStorage": null, "replication": {"enabled": true}});
    let serve = async {
        let Some(Event::Request(asked, false)) = relay.events.recv().await else { panic!("no request") };
        assert_eq!(asked.method, "backupClusterService");
        if let Some((bytes, sound)) = closure {
            send_closure(relay, name, bytes, sound).await;
        }
        relay.carrier.send_text(answer(&asked.method, r#"{"snapshots":[]}"#, &asked.ids)).await;
    };
    let (answered, ()) = tokio::join!(stage.cloudly.back_up(&body), serve);
    answered.unwrap().outcome().unwrap();
    stage.cloudly.replication(name, "service-1").unwrap()
}

/// Gets leave to send a closure.
async fn begin_closure(relay: &Relay, name: &str, bytes: &[u8]) -> StreamName {
    let (stream_id, stated) = (format!("stream-of-{name}"), digest(bytes));
    let body = json!({"backupId": name, "serviceId": "service-1", "nodeId": "node-1", "receipt": "receipt-1",
        "stream": {"_isVirtualStream": true, "protocol": "virtual-stream-v1", "streamId": stream_id,
            "creatorDirection": "send", "contentType": "application/octet-stream",
            "integrity": {"algorithm": "sha256", "byteLength": bytes.len(),
                "digest": stated},
            "transport": {"kind": "binary-frames-v1"}}});
    let permitted = relay.ask("backupServiceDatabaseClosure", &body).await.unwrap();
    assert_eq!(permitted, json!({"permitted": true}));
    StreamName::of(&stream_id)
}

/// Sends a closure within its credit, until its receipt.
async fn send_closure(relay: &mut Relay, name: &str, bytes: &[u8], sound: bool) {
    let (stream, mut credit) = (begin_closure(relay, name, bytes).await, 0);
    for (place, part) in bytes.chunks(CHUNK).enumerate() {
        let offset = (place * CHUNK) as u64;
        while credit < offset + part.len() as u64 {
            let FrameBody::Credit(upto) = relay.frame().await.body else { panic!("no credit") };
            credit = upto;
        }
        let mut part = part.to_vec();
        part[0] ^= u8::from(!sound);
        relay.send(stream, FrameBody::Chunk { offset, bytes: part }).await;
    }
    relay.send(stream, FrameBody::End { length: bytes.len() as u64, digest: sha256(bytes) }).await;
    let receipt = loop {
        match relay.frame().await.body {
            FrameBody::Credit(_) => {}
            other => break other,
        }
    };
    let text = if sound { "receipt-1" } else { "closure-digest-mismatch" };
    assert_eq!(receipt, FrameBody::Receipt { accepted: sound, text: text.to_owned() });
}

/// BAK-14: the replication record is that of the closure that was accepted; one that was asked for and never arrived,
/// or not as it was stated, is a failed replication, whatever the backup was answered. What was accepted is given
/// back byte for byte.
#[tokio::test]
async fn a_replication_is_recorded_from_the_closure_that_was_accepted() {
    let stage = Stage::new().await;
    let mut relay = stage.relay().await;
    let bytes: Vec<u8> =
        (0..9_000_001_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let absent = back_up(&stage, &mut relay, "b0", None).await;
    assert_eq!(absent, Replication::Failed("closure-never-arrived".to_owned()));
    let spoilt = back_up(&stage, &mut relay, "b1", Some((&bytes, false))).await;
    assert_eq!(spoilt, Replication::Failed("closure-digest-mismatch".to_owned()));
    assert_eq!(stage.cloudly.stored_closure("b1", "service-1"), None);
    let stated = digest(&bytes);
    let accepted = Replication::Accepted {
        byte_length: bytes.len() as u64,
        digest: stated.clone(),
        receipt: "receipt-1".to_owned(),
    };
    assert_eq!(back_up(&stage, &mut relay, "b2", Some((&bytes, true))).await, accepted);
    assert!(stage.cloudly.stored_closure("b2", "service-1").is_some_and(|stored| stored == bytes));

    let wanted = json!({"backupId": "b2", "serviceId": "service-1", "nodeId": "node-1"});
    let offered = relay.ask("restoreServiceDatabaseClosure", &wanted).await.unwrap();
    assert_eq!(
        (&offered["receipt"], &offered["stream"]["integrity"]["digest"]),
        (&json!("receipt-1"), &json!(stated))
    );
    let stream = StreamName::of(offered["stream"]["streamId"].as_str().unwrap());
    let mut restored = Vec::new();
    relay.send(stream, FrameBody::Credit(1)).await;
    loop {
        match relay.frame().await.body {
            FrameBody::Chunk { offset, bytes } => {
                assert_eq!(offset, restored.len() as u64);
                restored.extend(bytes);
                relay.send(stream, FrameBody::Credit(restored.len() as u64 + CHUNK as u64)).await;
            }
            FrameBody::End { length, .. } => break assert_eq!(length, bytes.len() as u64),
            other => panic!("{other:?}"),
        }
    }
    assert!(restored == bytes, "byte for byte");
    relay.send(stream, FrameBody::Receipt { accepted: true, text: "receipt-1".to_owned() }).await;
    let answered = stage.cloudly.wait_restored("b2", "service-1").await.unwrap();
    assert_eq!(answered, (true, "receipt-1".to_owned()));
}

/// Once Cloudly's clock says that a closure got on by no byte for 30 s, the relay is told which side went quiet, and the
/// transfer is over: the node where it could have sent, Cloudly where it did not.
#[tokio::test]
async fn a_closure_that_stands_still_is_aborted_by_name() {
    let stage = Stage::new().await;
    let (mut relay, cloudly) = (stage.relay().await, &stage.cloudly);
    let later = |times: u64| {
        let ahead = i64::try_from(times * PROGRESS_TIMEOUT_MS).unwrap();
        cloudly.change(|settings| settings.clock_ahead_ms = ahead);
    };
    let bytes = vec![7; 3 * CHUNK];
    let part = CHUNK as u64;
    for (times, bound, silent) in
        [(1, None, "closure-stalled: node"), (2, Some(part), "closure-stalled: cloudly")]
    {
        cloudly.take_closures_up_to(bound).await;
        let name = format!("b{times}");
        let stream = begin_closure(&relay, &name, &bytes).await;
        let FrameBody::Credit(credit) = relay.frame().await.body else { panic!("no credit") };
        assert!(bound.is_none_or(|bound| bound == credit), "no further than the bound");
        relay.send(stream, FrameBody::Chunk { offset: 0, bytes: bytes[..CHUNK].to_vec() }).await;
        // Answered in order of arrival: by now the chunk was taken.
        relay.ask(DESIRED, &json!({})).await.unwrap();
        later(times);
        cloudly.end_stalled_closures().await;
        assert_eq!(relay.frame().await, Frame { stream, body: FrameBody::Abort(silent.to_owned()) });
        assert_eq!(cloudly.replication(&name, "service-1"), Some(Replication::Failed(silent.to_owned())));
    }

    cloudly.store_closure("b3", "service-1", bytes.clone(), "receipt-1");
    cloudly.give_closures_up_to(Some(part));
    let wanted = json!({"backupId": "b3", "serviceId": "service-1", "nodeId": "node-1"});
    let offered = relay.ask("restoreServiceDatabaseClosure", &wanted).await.unwrap();
    let stream = StreamName::of(offered["stream"]["streamId"].as_str().unwrap());
    relay.send(stream, FrameBody::Credit(bytes.len() as u64)).await;
    assert!(matches!(relay.frame().await.body, FrameBody::Chunk { offset: 0, .. }));
    later(3);
    cloudly.end_stalled_closures().await;
    assert_eq!(relay.frame().await.body, FrameBody::Abort("closure-stalled: cloudly".to_owned()));
    assert!(!cloudly.wait_restored("b3", "service-1").await.unwrap().0);
}
