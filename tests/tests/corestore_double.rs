//! The Corestore double is a Corestore: what the requirements say of a node's is what it does, over its own API and for
//! any client.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coreflow_tests::corestore::answer::digest;
use coreflow_tests::corestore::restores::{CHUNK_LIMIT, GRANT_LIMIT, Grant, Mapping, mappings_digest};
use coreflow_tests::corestore::store::Legacy;
use coreflow_tests::corestore::{BODY_LIMIT, Corestore, Fault};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

const TOKEN: &str = "the-token";
/// Unix milliseconds.
const NOW: u64 = 1_700_000_000_000;
const MINUTES: u64 = 5 * 60_000;

struct Got {
    status: u16,
    headers: HeaderMap,
    /// `None` where the body broke off.
    body: Option<Bytes>,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_slice(self.body.as_ref().unwrap()).unwrap()
    }
}

/// One call on a connection of its own; `None` where there is no answer.
async fn ask(
    corestore: &Corestore,
    token: &str,
    call: &str,
    more: &[(&str, &str)],
    body: &[u8],
) -> Option<Got> {
    let stream = TcpStream::connect(corestore.address()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driven = tokio::spawn(connection);
    let (method, path) = call.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path).header("host", "corestore");
    for (name, value) in [("authorization", format!("Bearer {token}").as_str())].iter().chain(more) {
        request = request.header(*name, *value);
    }
    let answer = sender.send_request(request.body(Full::new(Bytes::copy_from_slice(body))).unwrap()).await;
    let answer = answer.ok()?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = answer.into_body().collect().await.ok().map(http_body_util::Collected::to_bytes);
    driven.abort();
    Some(Got { status, headers, body })
}

async fn call(corestore: &Corestore, call: &str, body: &Value) -> Got {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    ask(corestore, TOKEN, call, &[], &body).await.unwrap()
}

async fn node(name: &str) -> Corestore {
    Corestore::start("cluster-1", name, TOKEN, NOW).await.unwrap()
}

fn database_binding(service: &str) -> Value {
    json!({
        "operation": {"id": "operation-1", "generation": 1}, "bindingId": "binding-1", "serviceId": service,
        "clusterId": "cluster-1", "nodeId": "node-1", "capability": "database",
        "endpoint": {"host": "10.0.0.4", "port": 27017},
    })
}

const RECONCILE: &str = "POST /control/credential-bindings/reconcile";

/// CST-01: what one node's Corestore stores is on that node, and another's knows nothing of it.
#[tokio::test]
async fn the_data_of_a_node_lies_on_that_node() {
    let (first, second) = (node("node-1").await, node("node-2").await);
    let volume = json!({"serviceId": "service-1", "name": "data"});
    assert_eq!(call(&first, "POST /control/volumes", &volume).await.json()["created"], true);
    assert_eq!(call(&first, "POST /control/volumes", &volume).await.json()["created"], false);
    first.store(|store| store.database("service-1", b"rows"));
    let snapshot = json!({"backupId": "b-1", "serviceId": "service-1", "kind": "database", "name": "db"});
    let taken = call(&first, "POST /control/snapshots", &snapshot).await.json();
    assert_eq!((&taken["sizeBytes"], &taken["digest"]), (&json!(4), &json!(digest(b"rows"))));

    let inventory = call(&first, "GET /control/inventory", &Value::Null).await.json();
    let volumes = json!([{"name": "data", "sizeBytes": 0}]);
    assert_eq!(inventory["services"][0]["volumes"], volumes);
    assert_eq!(inventory["services"][0]["database"]["name"], "db-service-1");
    assert_eq!(call(&second, "GET /control/inventory", &Value::Null).await.json(), json!({"services": []}));

    first.store(|store| store.database("service-1", b"later rows"));
    let restore = json!({
        "serviceId": "service-1", "kind": "database", "name": "db", "snapshotId": taken["snapshotId"],
    });
    assert_eq!(call(&second, "POST /control/snapshots/restore", &restore).await.status, 404);
    assert_eq!(call(&first, "POST /control/snapshots/restore", &restore).await.status, 200);
    assert_eq!(first.store(|store| store.database_of("service-1").unwrap().to_vec()), b"rows");
    let pruned = call(&first, "POST /control/archive/prune", &json!({"keepBackupIds": []})).await.json();
    assert_eq!(pruned, json!({"prunedBackupIds": ["b-1"], "freedBytes": 4}));
}

/// PLT-48: beside a legacy resource a binding is answered 409 with the reason in the body, and nothing is reconciled;
/// without one it is, and gives its material.
#[tokio::test]
async fn a_legacy_resource_stands_in_the_way_of_a_binding() {
    let corestore = node("node-1").await;
    for (legacy, reason) in [
        (Legacy::Pending, "legacy-adoption-pending"),
        (Legacy::Conflict, "legacy-adoption-conflict"),
        (Legacy::Mismatch, "legacy-adoption-mismatch"),
    ] {
        corestore.store(|store| store.legacy("service-1", "database", legacy));
        let refused = call(&corestore, RECONCILE, &database_binding("service-1")).await;
        let stated = json!({"error": "legacy-resource", "reason": reason});
        assert_eq!((refused.status, refused.json()), (409, stated));
    }
    let material = json!({"operation": {"id": "operation-1", "generation": 1}, "bindingId": "binding-1"});
    let read = "POST /control/credential-bindings/material";
    assert_eq!(call(&corestore, read, &material).await.status, 404);
    let legacy = call(&corestore, "GET /control/legacy-resources", &Value::Null).await.json();
    assert_eq!(
        (&legacy["checkedAt"], &legacy["services"][0]["serviceId"]),
        (&json!(NOW), &json!("service-1"))
    );

    let reconciled = call(&corestore, RECONCILE, &database_binding("service-2")).await.json();
    let expected = json!({"id": "operation-1", "generation": 1});
    assert_eq!((&reconciled["operation"], &reconciled["state"]), (&expected, &json!("reconciled")));
    let material = call(&corestore, read, &material).await.json();
    assert_eq!(material["endpoint"], json!({"host": "10.0.0.4", "port": 27017}));
    assert_eq!(material["uri"], "mongodb://user-service-2:word-service-2@10.0.0.4:27017");
    let mut retained = database_binding("service-3");
    retained["capability"] = json!("objectstorage");
    retained.as_object_mut().unwrap().remove("endpoint");
    retained["retention"] = json!({"mode": "compliance", "days": 7});
    let evidence = call(&corestore, RECONCILE, &retained).await.json()["retention"].clone();
    assert_eq!((&evidence["days"], &evidence["lockedSince"]), (&json!(7), &json!(NOW)));

    let retaining = |retention: Option<Value>| {
        let mut binding = retained.clone();
        let members = binding.as_object_mut().unwrap();
        members.remove("retention");
        members.extend(retention.map(|retention| ("retention".to_owned(), retention)));
        binding
    };
    for (retention, status) in
        [(Some(Value::Null), 200), (None, 400), (Some(json!({"mode": "governance", "days": 7})), 400)]
    {
        let binding = retaining(retention);
        assert_eq!(call(&corestore, RECONCILE, &binding).await.status, status, "{binding}");
    }
    corestore.store(|store| store.legacy("service-3", "objectstorage", Legacy::Pending));
    let refused = call(&corestore, RECONCILE, &retained).await;
    assert_eq!((refused.status, &refused.json()["reason"]), (409, &json!("legacy-adoption-pending")));
}

/// One restore of two objects, and the grants of its operations.
struct Bed {
    corestore: Corestore,
    manifest: String,
    mappings: Vec<Mapping>,
}

const FIRST: &[u8] = b"the first object of the archive";
const SECOND: &[u8] = b"the second";

impl Bed {
    async fn new() -> Self {
        let corestore = node("node-1").await;
        let manifest = corestore.restores(|restores| restores.archive(&[FIRST, SECOND]));
        let mapping = |kind: &str| Mapping {
            kind: kind.to_owned(),
            source: "data".to_owned(),
            target: format!("restored-{kind}"),
        };
        Self { corestore, manifest, mappings: vec![mapping("volume"), mapping("database")] }
    }

    fn grant(&self, operation: &str) -> Grant {
        Grant::of_restore_1(operation, &self.manifest, &self.mappings, NOW + MINUTES)
    }

    fn body(&self, operation: &str) -> Value {
        match operation {
            "prepare" => json!({"manifestDigest": self.manifest, "mappings": self.mappings}),
            "stage" => chunk(FIRST, 0, FIRST),
            _ => json!({}),
        }
    }

    async fn with(&self, operation: &str, grant: &Grant, revision: u64, body: Value) -> Got {
        let grant = self.corestore.restores(|restores| restores.sign(grant));
        let control = json!({
            "grant": grant, "restoreId": "restore-1", "expectedRevision": revision, "body": body,
        });
        call(&self.corestore, &format!("POST /control/isolated-restores/{operation}"), &control).await
    }

    async fn done(&self, operation: &str, revision: u64, body: Value) -> Value {
        let got = self.with(operation, &self.grant(operation), revision, body).await;
        assert_eq!(got.status, 200, "{operation}: {}", got.json());
        got.json()
    }

    async fn prepared() -> Self {
        let bed = Self::new().await;
        assert_eq!(bed.done("prepare", 0, bed.body("prepare")).await["revision"], 1);
        bed
    }

    fn staged(&self, object: &[u8]) -> usize {
        self.corestore.restores(|restores| restores.staged("restore-1", &digest(object)))
    }
}

/// `bytes` as the chunk of `object` at `offset`.
fn chunk(object: &[u8], offset: usize, bytes: &[u8]) -> Value {
    json!({
        "objectDigest": digest(object), "offset": offset, "chunk": STANDARD.encode(bytes),
        "chunkSha256": digest(bytes),
    })
}

/// A restore whose controls all fit goes through its states, each with the revision of the one before.
#[tokio::test]
async fn a_restore_goes_through_its_states() {
    let bed = Bed::prepared().await;
    let staging = bed.done("stage", 1, chunk(FIRST, 0, &FIRST[..10])).await;
    assert_eq!((&staging["state"], &staging["receivedObject"]), (&json!("staging"), &Value::Null));
    let received = bed.done("stage", 2, chunk(FIRST, 10, &FIRST[10..])).await;
    assert_eq!(received["receivedObject"]["objectDigest"], digest(FIRST));
    assert_eq!(bed.with("execute", &bed.grant("execute"), 3, json!({})).await.status, 409);
    assert_eq!(bed.done("stage", 3, chunk(SECOND, 0, SECOND)).await["state"], "staged");
    let executed = bed.done("execute", 4, json!({})).await;
    assert_eq!(
        (&executed["state"], &executed["restoredMappings"][0]["kind"]),
        (&json!("executed"), &json!("volume"))
    );
    let cleaned = bed.done("cleanup", 5, json!({})).await;
    assert_eq!((&cleaned["state"], &cleaned["deletedStagingTree"]), (&json!("cleaned"), &json!(true)));
    assert!(cleaned.get("nodeId").is_none(), "the node states none of its own");
}

/// ISO-07, ISO-23: a grant for another operation, restore, cluster, node, archive or mappings, one that is over and one
/// that Cloudly did not sign are each 403, and a bearer that is not accepted is 401, whatever the grant; none moves
/// the restore.
#[tokio::test]
async fn a_grant_is_good_for_one_thing() {
    let bed = Bed::prepared().await;
    let other = mappings_digest(&bed.mappings[..1]);
    let unfit: [fn(&mut Grant); 5] = [
        |grant| grant.operation = "execute".to_owned(),
        |grant| grant.restore_id = "restore-2".to_owned(),
        |grant| grant.cluster_id = "cluster-2".to_owned(),
        |grant| grant.node_name = "node-2".to_owned(),
        |grant| grant.manifest_digest = digest(b"another"),
    ];
    let mut refused: Vec<Grant> = unfit
        .iter()
        .map(|alter| {
            let mut grant = bed.grant("stage");
            alter(&mut grant);
            grant
        })
        .collect();
    refused.push(Grant { mappings_digest: other, ..bed.grant("stage") });
    refused.push(Grant { expires_at: NOW, ..bed.grant("stage") });
    refused.push(Grant { expires_at: NOW + GRANT_LIMIT + 1, ..bed.grant("stage") });
    for grant in refused {
        let got = bed.with("stage", &grant, 1, bed.body("stage")).await;
        assert_eq!((got.status, &got.json()["error"]), (403, &json!("grant-refused")), "{grant:?}");
    }
    let path = "POST /control/isolated-restores/stage";
    let sign = |operation: &str| bed.corestore.restores(|restores| restores.sign(&bed.grant(operation)));
    let signed = sign("stage");
    // What it says would do, but the signature is another grant's.
    let forged = [signed.split_once('.').unwrap().0, sign("execute").split_once('.').unwrap().1].join(".");
    let unsigned = json!({
        "grant": forged, "restoreId": "restore-1", "expectedRevision": 1, "body": bed.body("stage"),
    });
    assert_eq!(call(&bed.corestore, path, &unsigned).await.status, 403);
    let sound = json!({
        "grant": signed, "restoreId": "restore-1", "expectedRevision": 1, "body": bed.body("stage"),
    });
    for body in [&sound, &unsigned] {
        let got = ask(&bed.corestore, "another", path, &[], body.to_string().as_bytes()).await.unwrap();
        assert_eq!(got.status, 401);
    }
    assert_eq!(bed.staged(FIRST), 0);
    bed.corestore.at(NOW + MINUTES);
    assert_eq!(call(&bed.corestore, path, &sound).await.status, 403);
    bed.corestore.at(NOW + MINUTES - 1);
    assert_eq!(call(&bed.corestore, path, &sound).await.status, 200);
}

/// ISO-07: a restore is prepared for the archive and the mappings of its grant, and for no others.
#[tokio::test]
async fn a_restore_is_prepared_as_it_was_granted() {
    let bed = Bed::new().await;
    let another = bed.corestore.restores(|restores| restores.archive(&[SECOND]));
    for body in [
        json!({"manifestDigest": another, "mappings": bed.mappings}),
        json!({"manifestDigest": bed.manifest, "mappings": bed.mappings[..1]}),
    ] {
        let got = bed.with("prepare", &bed.grant("prepare"), 0, body).await;
        assert_eq!((got.status, &got.json()["error"]), (403, &json!("grant-refused")));
    }
    let mut reversed = bed.mappings.clone();
    reversed.reverse();
    let body = json!({"manifestDigest": bed.manifest, "mappings": reversed});
    assert_eq!(bed.done("prepare", 0, body).await["state"], "prepared");
}

/// ISO-12: bytes that are not those of the manifest's object, at their offset, are stored by no digest that fits them.
#[tokio::test]
async fn a_chunk_is_compared_with_the_object_of_the_manifest() {
    let bed = Bed::prepared().await;
    let wrong = b"The first object of the archive";
    for (body, status) in [
        (chunk(FIRST, 0, wrong), 422),
        (chunk(FIRST, 0, SECOND), 422),
        (chunk(FIRST, 0, &[FIRST, b"."].concat()), 422),
        (chunk(b"no object", 0, b"no object"), 422),
        (chunk(FIRST, 4, &FIRST[4..]), 409),
        (chunk(FIRST, 0, b""), 400),
        (chunk(FIRST, 0, &vec![0; CHUNK_LIMIT + 1]), 400),
        (
            json!({"objectDigest": digest(FIRST), "offset": 0, "chunk": STANDARD.encode(FIRST), "chunkSha256": digest(SECOND)}),
            400,
        ),
    ] {
        let got = bed.with("stage", &bed.grant("stage"), 1, body).await;
        assert_eq!((got.status, bed.staged(FIRST)), (status, 0), "{}", got.json());
    }
    bed.done("stage", 1, chunk(FIRST, 0, FIRST)).await;
    assert_eq!(bed.staged(FIRST), FIRST.len());
}

/// ISO-16: another revision than the restore's is a conflict, for each of the controls, and changes nothing.
#[tokio::test]
async fn a_wrong_revision_is_a_conflict() {
    let bed = Bed::prepared().await;
    for operation in ["prepare", "stage", "progress", "execute", "cleanup"] {
        for revision in [0, 2] {
            let got = bed.with(operation, &bed.grant(operation), revision, bed.body(operation)).await;
            assert_eq!((got.status, &got.json()["error"]), (409, &json!("revision-conflict")), "{operation}");
        }
    }
    let progress = bed.done("progress", 1, json!({})).await;
    assert_eq!((&progress["revision"], &progress["state"]), (&json!(1), &json!("prepared")));
}

/// ISO-31: a caller whose control had no answer learns from the progress whether it was applied, and at which byte to go
/// on.
#[tokio::test]
async fn the_progress_settles_an_answer_that_was_lost() {
    let bed = Bed::prepared().await;
    let path = "POST /control/isolated-restores/stage";
    let grant = bed.corestore.restores(|restores| restores.sign(&bed.grant("stage")));
    let control = json!({
        "grant": grant, "restoreId": "restore-1", "expectedRevision": 1, "body": chunk(FIRST, 0, &FIRST[..7]),
    });
    bed.corestore.fault(path, Some(Fault::Reset));
    assert!(ask(&bed.corestore, TOKEN, path, &[], control.to_string().as_bytes()).await.is_none());
    assert_eq!(bed.done("progress", 1, json!({})).await["stagedObject"], Value::Null, "it was not applied");
    bed.corestore.fault(path, Some(Fault::CutAfter(0)));
    let lost = ask(&bed.corestore, TOKEN, path, &[], control.to_string().as_bytes()).await;
    assert!(lost.is_none_or(|got| got.body.is_none()), "the answer is lost");
    let former = bed.with("progress", &bed.grant("progress"), 1, json!({})).await;
    assert_eq!(former.status, 409, "the revision has moved, so it was applied");
    let progress = bed.done("progress", 2, json!({})).await;
    assert_eq!(progress["stagedObject"], json!({"objectDigest": digest(FIRST), "nextOffset": 7}));
    bed.corestore.fault(path, None);
    bed.done("stage", 2, chunk(FIRST, 7, &FIRST[7..])).await;
}

/// A closure crosses whole, by exact length and digest, or is refused; what is cut or stands still looks like it.
#[tokio::test]
async fn a_closure_crosses_whole_or_not() {
    const EXPORT: &str = "POST /control/database-closures/export";
    const IMPORT: &str = "PUT /control/database-closures/restore";
    let (from, to) = (node("node-1").await, node("node-2").await);
    let content: Vec<u8> = (0..3 * BODY_LIMIT).map(|at| u8::try_from(at % 251).unwrap()).collect();
    from.store(|store| store.database("service-1", &content));
    let asked = json!({"backupId": "b-1", "serviceId": "service-1", "bindingId": "binding-1"});
    assert_eq!(call(&from, EXPORT, &asked).await.status, 404, "nothing was reconciled under this binding");
    assert_eq!(call(&from, RECONCILE, &database_binding("service-1")).await.status, 200);
    let exported = call(&from, EXPORT, &asked).await;
    let of = |name: &str| exported.headers.get(name).unwrap().to_str().unwrap();
    let (stated, receipt) = (of("x-closure-digest"), of("x-closure-receipt"));
    assert_eq!(
        (of("content-length"), stated),
        (content.len().to_string().as_str(), digest(&content).as_str())
    );
    let body = exported.body.as_deref().unwrap();
    let head = |digest: &'static str| {
        [
            ("x-backup-id", "b-1"),
            ("x-service-id", "service-1"),
            ("x-binding-id", "binding-1"),
            ("x-closure-digest", digest),
        ]
    };
    let lying = head("sha256:0");
    let more = [&lying[..], &[("x-closure-receipt", receipt)]].concat();
    assert_eq!(ask(&to, TOKEN, IMPORT, &more, body).await.unwrap().status, 422);
    assert_eq!(to.store(|store| store.database_of("service-1").map(<[u8]>::len)), None);
    let more = [&lying[..3], &[("x-closure-digest", stated), ("x-closure-receipt", receipt)]].concat();
    let encoded = [&more[..], &[("content-encoding", "gzip")]].concat();
    assert_eq!(ask(&to, TOKEN, IMPORT, &encoded, body).await.unwrap().status, 415);
    let taken = ask(&to, TOKEN, IMPORT, &more, body).await.unwrap();
    assert_eq!((taken.status, &taken.json()["byteLength"]), (200, &json!(content.len())));
    assert_eq!(to.store(|store| store.receipt_of("service-1").unwrap().to_owned()), receipt);

    from.fault(EXPORT, Some(Fault::CutAfter(1000)));
    assert!(
        ask(&from, TOKEN, EXPORT, &[], asked.to_string().as_bytes())
            .await
            .is_none_or(|got| got.body.is_none())
    );
    from.fault(EXPORT, Some(Fault::StallAfter(1000)));
    let asked = asked.to_string();
    let stalled = ask(&from, TOKEN, EXPORT, &[], asked.as_bytes());
    assert!(tokio::time::timeout(Duration::from_millis(300), stalled).await.is_err(), "it stands still");
}

/// What no Corestore takes is refused by status, what arrives is kept, and a token that was rotated away is none.
#[tokio::test]
async fn calls_are_judged_and_kept() {
    let corestore = node("node-1").await;
    assert_eq!(call(&corestore, "GET /control/unknown", &Value::Null).await.status, 404);
    assert_eq!(call(&corestore, "POST /resources/provision", &json!({})).await.status, 404);
    let mut extra = database_binding("service-1");
    extra["more"] = json!(1);
    assert_eq!(call(&corestore, RECONCILE, &extra).await.status, 400);
    let large = vec![b' '; BODY_LIMIT + 1];
    assert_eq!(ask(&corestore, TOKEN, RECONCILE, &[], &large).await.unwrap().status, 413);
    corestore.rotate("the-next");
    assert_eq!(call(&corestore, "GET /control/inventory", &Value::Null).await.status, 401);
    let inventory = "GET /control/inventory";
    assert_eq!(ask(&corestore, "the-next", inventory, &[], b"").await.unwrap().status, 200);
    corestore.fault(inventory, Some(Fault::Reset));
    assert!(ask(&corestore, "the-next", inventory, &[], b"").await.is_none());
    let arrived = corestore.arrived();
    let authorized: Vec<bool> = arrived.iter().map(|arrived| arrived.authorized).collect();
    assert_eq!(authorized, [true, true, true, true, false, true, true]);
    assert_eq!(arrived[2].body, Some(digest(extra.to_string().as_bytes())));
    assert_eq!(arrived[3].body, None);
}
