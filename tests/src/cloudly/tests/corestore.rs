//! The Corestore half of the loopback Cloudly, against a client that speaks to it as a relay would.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::corestore::answer::digest;
use crate::sealed::{KeyPair, canonical, seal};

/// A client whose relay registration was accepted.
async fn accepted(client: &Client) -> (Carrier, tokio::sync::mpsc::Receiver<Event>) {
    let (carrier, events) = client.session().await;
    ask(&carrier, "registerClusterRelay", &relay(0)).await.unwrap();
    (carrier, events)
}

async fn begin(carrier: &Carrier, key_id: &str, keys: &KeyPair) -> Result<Value, Refusal> {
    let body = json!({
        "capability": "corestore-control", "recipientKeyId": key_id, "publicKey": keys.public(),
    });
    ask(carrier, "beginClusterSecretRecipientEnrollment", &body).await
}

async fn enroll(carrier: &Carrier, key_id: &str, keys: &KeyPair) -> Result<Value, Refusal> {
    let challenge = begin(carrier, key_id, keys).await?["challenge"].clone();
    let context = json!({
        "purpose": "cluster-secret-recipient-challenge", "clusterId": "cluster-1", "recipientKeyId": key_id,
    });
    let proof = STANDARD.encode(keys.open(&challenge, &context).unwrap());
    let body = json!({"recipientKeyId": key_id, "proof": proof});
    ask(carrier, "completeClusterSecretRecipientEnrollment", &body).await
}

fn code(refused: &Refusal) -> &str {
    refused.data["code"].as_str().unwrap()
}

/// CST-22: an enrolment retires the recipient before it, which is sealed nothing any more, and of the revoked ones the
/// oldest are dropped. Only who holds the private key enrols, and no key id twice.
#[tokio::test]
async fn an_enrolment_retires_the_recipient_before_it() {
    let client = Client::new().await;
    client.cloudly.corestore_token("control-token-1");
    let (carrier, _events) = accepted(&client).await;
    let state = "getClusterSecretRecipientState";
    let capability = json!({"capability": "corestore-control"});
    assert_eq!(ask(&carrier, state, &capability).await.unwrap()["active"], Value::Null);
    let keys: Vec<KeyPair> = (0..7).map(|_| KeyPair::generate()).collect();
    let ids: Vec<String> = (0..7).map(|at| format!("relay-corestore-control:{at}")).collect();
    begin(&carrier, "relay-corestore-control:unproven", &keys[0]).await.unwrap();
    let guess =
        json!({"recipientKeyId": "relay-corestore-control:unproven", "proof": STANDARD.encode([0; 32])});
    let refused = ask(&carrier, "completeClusterSecretRecipientEnrollment", &guess).await.unwrap_err();
    assert_eq!(code(&refused), "RECIPIENT_PROOF_INVALID");

    let material = "getCorestoreControlCredentialMaterial";
    for (at, (id, keys)) in ids.iter().zip(&keys).enumerate() {
        assert_eq!(enroll(&carrier, id, keys).await.unwrap()["active"]["recipientKeyId"], *id);
        let got = ask(&carrier, material, &json!({"recipientKeyId": id})).await.unwrap();
        let context = json!({
            "purpose": "corestore-control-credential", "clusterId": "cluster-1", "recipientKeyId": id,
            "credential": got["credential"],
        });
        let opened = keys.open(&got["envelope"], &context).unwrap();
        assert_eq!(opened, br#"{"token":"control-token-1"}"#);
        if at > 0 {
            let former = json!({"recipientKeyId": ids[at - 1]});
            assert_eq!(code(&ask(&carrier, material, &former).await.unwrap_err()), "RECIPIENT_NOT_ACTIVE");
        }
    }
    assert_eq!(client.cloudly.revoked_recipients(), ids[2..6], "{REVOKED_KEPT} of six");
    for id in &ids[2..] {
        let refused = begin(&carrier, id, &keys[0]).await.unwrap_err();
        assert_eq!(code(&refused), "RECIPIENT_KEY_REUSED");
    }
    assert_eq!(ask(&carrier, state, &capability).await.unwrap()["active"]["recipientKeyId"], ids[6]);
}

fn placed(port: u16) -> PlacedBinding {
    PlacedBinding {
        id: "binding-1".to_owned(),
        service: "service-1".to_owned(),
        node: "node-1".to_owned(),
        endpoint: ("10.0.0.4".to_owned(), port),
    }
}

/// PLT-20: the desired state is for the socket whose registration was accepted, and for the one that stands.
#[tokio::test]
async fn the_desired_state_is_the_accepted_relays() {
    let client = Client::new().await;
    client.cloudly.place_binding(placed(27_017));
    let read = "getClusterPlatformDesiredState";
    let (first, _first_events) = client.session().await;
    assert_eq!(ask(&first, read, &json!({})).await.unwrap_err().name(), "relay-not-connected");
    ask(&first, "registerClusterRelay", &relay(0)).await.unwrap();
    let desired = ask(&first, read, &json!({})).await.unwrap();
    assert_eq!(desired["bindings"][0]["nodeId"], "node-1");
    assert_eq!(desired["bindings"][0]["binding"]["status"], "provisioning");
    let (second, _second_events) = accepted(&client).await;
    assert_eq!(ask(&first, read, &json!({})).await.unwrap_err().name(), "relay-ambiguous");
    ask(&second, read, &json!({})).await.unwrap();
    let report =
        json!({"bindingId": "binding-1", "status": "failed", "statusReason": "why", "endpoints": []});
    ask(&second, "reportClusterPlatformBinding", &report).await.unwrap();
    let binding = ask(&second, read, &json!({})).await.unwrap()["bindings"][0]["binding"].clone();
    assert_eq!((&binding["status"], &binding["statusReason"]), (&json!("failed"), &json!("why")));
}

/// PLT-41: a binding whose endpoint moved has another grant, over the request as it is now.
#[tokio::test]
async fn a_moved_endpoint_has_another_grant() {
    let client = Client::new().await;
    let mut covered = Vec::new();
    for port in [27_017, 27_018] {
        client.cloudly.place_binding(placed(port));
        let grant = client.cloudly.publication_grant("binding-1").unwrap();
        let request = placed(port).request("cluster-1", &grant["operation"]);
        assert_eq!(grant["requestDigest"], digest(canonical(&request).as_bytes()));
        let config: Value = serde_json::from_str(&client.cloudly.config()).unwrap();
        assert_eq!(config["corestorePublicationGrants"], json!([grant]));
        covered.push((grant["operation"]["generation"].as_u64().unwrap(), grant["requestDigest"].clone()));
    }
    assert!(covered[0].0 < covered[1].0 && covered[0].1 != covered[1].1, "{covered:?}");
}

/// A publication of `uri` under the grant that stands, sealed as a relay does it.
fn publication(client: &Client, recipient: &Value, uri: &str) -> Value {
    let grant = client.cloudly.publication_grant("binding-1").unwrap();
    let mutation = mutation_id(&grant["operation"]);
    let context = json!({
        "purpose": "publish-corestore-credential-material", "mutationId": mutation,
        "organizationId": "organization-1", "clusterId": "cluster-1", "serviceId": "service-1",
        "bindingId": "binding-1", "operation": grant["operation"], "requestDigest": grant["requestDigest"],
        "recipientKeyId": recipient["recipientKeyId"],
    });
    let material = json!({"capability": "database", "uri": uri});
    let (key_id, public) = (recipient["recipientKeyId"].as_str(), recipient["publicKey"].as_str());
    let secret = material.to_string();
    json!({
        "mutationId": mutation, "operation": grant["operation"], "bindingId": "binding-1",
        "serviceId": "service-1",
        "envelope": seal(key_id.unwrap(), public.unwrap(), &context, secret.as_bytes()).unwrap(),
    })
}

const PUBLISH: &str = "publishCorestoreCredentialMaterial";

/// PUB-04, PUB-29: a publication saves the values, makes the binding ready and uses its grant up, all at once or not at
/// all; its receipt is of that envelope, given again for the same request and for no other.
#[tokio::test]
async fn a_publication_is_one_transaction() {
    let client = Client::new().await;
    client.cloudly.place_binding(placed(27_017));
    let (carrier, _events) = accepted(&client).await;
    let recipient =
        ask(&carrier, "getSecretIngressRecipient", &json!({})).await.unwrap()["recipient"].clone();
    let sound = publication(&client, &recipient, "mongodb://word");
    let mut moved = sound.clone();
    moved["envelope"]["context"]["serviceId"] = json!("service-2");
    let mut foreign = sound.clone();
    foreign["serviceId"] = json!("service-2");
    let mut unknown = sound.clone();
    unknown["operation"]["generation"] = json!(9);
    for (body, why) in
        [(moved, "ENVELOPE_INVALID"), (foreign, "PUBLICATION_INVALID"), (unknown, "GRANT_UNKNOWN")]
    {
        assert_eq!(code(&ask(&carrier, PUBLISH, &body).await.unwrap_err()), why);
        assert_eq!(client.cloudly.published("binding-1"), None);
        assert!(client.cloudly.publication_grant("binding-1").is_some(), "{why}: the grant is left");
    }
    let receipt = ask(&carrier, PUBLISH, &sound).await.unwrap()["receipt"].clone();
    assert_eq!(receipt["envelopeDigest"], digest(canonical(&sound["envelope"]).as_bytes()));
    let published = client.cloudly.published("binding-1").unwrap();
    assert_eq!(published.secrets["uri"], "mongodb://word");
    assert_eq!((published.status.as_str(), published.granted), ("ready", false));
    let config: Value = serde_json::from_str(&client.cloudly.config()).unwrap();
    assert_eq!(config["corestorePublicationGrants"], json!([]));

    assert_eq!(ask(&carrier, PUBLISH, &sound).await.unwrap()["receipt"], receipt);
    let mut another = sound.clone();
    another["envelope"]["ciphertext"] = json!("AAAA");
    assert_eq!(code(&ask(&carrier, PUBLISH, &another).await.unwrap_err()), "REPLAY_CONFLICT");
}

/// PUB-28: `INTERNAL_ERROR` is also the answer of a publication that was committed; the same request has its receipt.
#[tokio::test]
async fn an_internal_error_may_follow_the_commit() {
    let client = Client::new().await;
    client.cloudly.place_binding(placed(27_017));
    let (carrier, _events) = accepted(&client).await;
    let recipient =
        ask(&carrier, "getSecretIngressRecipient", &json!({})).await.unwrap()["recipient"].clone();
    let body = publication(&client, &recipient, "mongodb://word");
    client.cloudly.publications_fail_to_push(true);
    assert_eq!(code(&ask(&carrier, PUBLISH, &body).await.unwrap_err()), "INTERNAL_ERROR");
    let published = client.cloudly.published("binding-1").unwrap();
    assert_eq!((published.status.as_str(), published.granted), ("ready", false));
    assert_eq!(ask(&carrier, PUBLISH, &body).await.unwrap()["receipt"]["bindingId"], "binding-1");
}

/// A frame of the stream `closure-1`.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let hex = digest(b"closure-1");
    let name = |at: usize| u8::from_str_radix(&hex["sha256:".len()..][2 * at..2 * at + 2], 16).unwrap();
    let name: Vec<u8> = (0..16).map(name).collect();
    [&[kind], &name[..], payload].concat()
}

async fn answer_of(events: &mut tokio::sync::mpsc::Receiver<Event>) -> Vec<u8> {
    match events.recv().await {
        Some(Event::Stream(frame)) => frame[17..].to_vec(),
        other => panic!("no frame but {other:?}"),
    }
}

/// BAK-14: the record is of the closure that was accepted. One that was asked for and never came, or came otherwise than
/// it was announced, is a failed replication; leave to send is none yet.
#[tokio::test]
async fn the_replication_record_is_of_the_accepted_closure() {
    let client = Client::new().await;
    let (carrier, mut events) = accepted(&client).await;
    let content = b"the rows of a database";
    let offer = |backup: &str| {
        let integrity =
            json!({"algorithm": "sha256", "byteLength": content.len(), "digest": digest(content)});
        json!({
            "backupId": backup, "serviceId": "service-1", "nodeId": "node-1", "receipt": "closure:1",
            "stream": {
                "_isVirtualStream": true, "protocol": "virtual-stream-v1", "streamId": "closure-1",
                "creatorDirection": "send", "contentType": "application/octet-stream", "integrity": integrity,
                "transport": {"kind": "binary-frames-v1"},
            },
        })
    };
    let end = [&(content.len() as u64).to_be_bytes()[..], &[0; 32]].concat();
    let announce = "backupServiceDatabaseClosure";
    assert_eq!(ask(&carrier, announce, &offer("b-0")).await.unwrap_err().name(), "closure-not-requested");
    for backup in ["b-1", "b-2", "b-3"] {
        client.cloudly.request_closure(backup);
    }
    assert_eq!(ask(&carrier, announce, &offer("b-1")).await.unwrap()["permitted"], true);
    assert_eq!(client.cloudly.replication("b-1"), Some(Replication::Failed));
    for (offset, part) in [(0, &content[..10]), (10, &content[10..])] {
        carrier.send_binary(frame(1, &[&u64::to_be_bytes(offset)[..], part].concat())).await;
        let credit = answer_of(&mut events).await;
        assert_eq!(credit, (offset + part.len() as u64 + (4 << 20)).to_be_bytes());
    }
    carrier.send_binary(frame(3, &end)).await;
    assert_eq!(answer_of(&mut events).await, b"\x01stored");
    let stored = Replication::Stored(content.len() as u64, digest(content));
    assert_eq!(client.cloudly.replication("b-1"), Some(stored));

    ask(&carrier, announce, &offer("b-2")).await.unwrap();
    carrier.send_binary(frame(1, &[&[0; 8], &content[1..]].concat())).await;
    answer_of(&mut events).await;
    carrier.send_binary(frame(3, &end)).await;
    assert_eq!(answer_of(&mut events).await, b"\x00closure-mismatch");
    let failed = Some(Replication::Failed);
    assert_eq!(
        (client.cloudly.replication("b-2"), client.cloudly.replication("b-3")),
        (failed.clone(), failed)
    );
    assert_eq!(client.cloudly.replication("b-0"), None);
}
