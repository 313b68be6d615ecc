//! Scripts of a node's store.

use super::*;

const NOW: u64 = 1_700_000_000_000;
const SNAPSHOT: &str = "POST /control/snapshots";
const RESTORE: &str = "POST /control/snapshots/restore";
const EXPORT: &str = "POST /control/database-closures/export";
const RECONCILE: &str = "POST /control/credential-bindings/reconcile";

/// The resources of a service, each by kind and name.
const RESOURCES: [(&str, &str); 4] =
    [("volume", "data"), ("volume", "logs"), ("database", "db-1"), ("objectstorage", "bucket-1")];

fn ask(store: &mut Store, call: &str, body: &Value) -> (u16, Value) {
    let answer = store.call(call, body.to_string().as_bytes(), NOW);
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// A node where service-1 has each of the [`RESOURCES`], every one of another content.
fn filled() -> Store {
    let mut store = Store::new("cluster-1", "node-1");
    store.volume("service-1", "data", b"data");
    store.volume("service-1", "logs", b"the logs");
    store.database("service-1", b"rows");
    store.bucket("service-1", b"objects");
    store
}

fn contents(store: &Store) -> [Option<&[u8]>; 4] {
    let volume = |name| store.volume_of("service-1", name);
    [volume("data"), volume("logs"), store.database_of("service-1"), store.bucket_of("service-1")]
}

fn taken(store: &mut Store, backup: &str, service: &str, (kind, name): (&str, &str)) -> Value {
    let asked = json!({"backupId": backup, "serviceId": service, "kind": kind, "name": name});
    let (status, answer) = ask(store, SNAPSHOT, &asked);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn restored(store: &mut Store, service: &str, (kind, name): (&str, &str), snapshot: &Value) -> (u16, Value) {
    let id = &snapshot["snapshotId"];
    ask(store, RESTORE, &json!({"serviceId": service, "kind": kind, "name": name, "snapshotId": id}))
}

fn binding(id: &str, service: &str, capability: &str) -> Value {
    let mut binding = json!({
        "operation": {"id": format!("operation-{id}"), "generation": 1}, "bindingId": id, "serviceId": service,
        "clusterId": "cluster-1", "nodeId": "node-1", "capability": capability,
    });
    match capability {
        "database" => binding["endpoint"] = json!({"host": "10.0.0.4", "port": 27017}),
        _ => binding["retention"] = Value::Null,
    }
    binding
}

/// What each resource holds is what its snapshot is of, and what a restore puts back, into that resource alone.
#[test]
fn a_snapshot_is_of_the_content_and_gives_it_back() {
    let mut store = filled();
    let (_, inventory) = ask(&mut store, "GET /control/inventory", &Value::Null);
    let volumes = json!([{"name": "data", "sizeBytes": 4}, {"name": "logs", "sizeBytes": 8}]);
    assert_eq!(inventory["services"][0]["volumes"], volumes);
    assert_eq!(inventory["services"][0]["bucket"], json!({"name": "bucket-service-1"}));
    for (place, resource) in RESOURCES.into_iter().enumerate() {
        let mut store = filled();
        let before = contents(&store)[place].unwrap().to_vec();
        let snapshot = taken(&mut store, "b-1", "service-1", resource);
        let (size, stated) = (json!(before.len()), json!(digest(&before)));
        assert_eq!((&snapshot["sizeBytes"], &snapshot["digest"]), (&size, &stated), "{resource:?}");
        for name in ["data", "logs"] {
            store.volume("service-1", name, b"later");
        }
        store.database("service-1", b"later");
        store.bucket("service-1", b"later");
        let (status, answer) = restored(&mut store, "service-1", resource, &snapshot);
        let expected = json!({"snapshotId": snapshot["snapshotId"], "restored": true});
        assert_eq!((status, answer), (200, expected), "{resource:?}");
        for (other, content) in contents(&store).into_iter().enumerate() {
            let expected = if other == place { before.as_slice() } else { b"later" };
            assert_eq!(content, Some(expected), "{resource:?}");
        }
    }
}

/// A snapshot is restored into a resource of its service and its kind; into any other it is refused, and none changes.
#[test]
fn a_snapshot_is_restored_as_what_it_was_taken_of() {
    let mut store = filled();
    store.database("service-2", b"rows of another");
    for from in RESOURCES {
        let snapshot = taken(&mut store, "b-1", "service-1", from);
        for into in RESOURCES.into_iter().filter(|into| into.0 != from.0) {
            let (status, refusal) = restored(&mut store, "service-1", into, &snapshot);
            let refused = (status, &refusal["error"]);
            assert_eq!(refused, (422, &json!("snapshot-mismatch")), "{from:?} into {into:?}");
        }
        let (status, refusal) = restored(&mut store, "service-2", from, &snapshot);
        assert_eq!((status, &refusal["error"]), (422, &json!("snapshot-mismatch")), "{from:?}");
    }
    assert_eq!(contents(&store), contents(&filled()));
    assert_eq!(store.database_of("service-2"), Some(&b"rows of another"[..]));
    let unknown = json!({"snapshotId": "snapshot-node-2-1"});
    assert_eq!(restored(&mut store, "service-1", RESOURCES[0], &unknown).0, 404);
}

/// A volume is created empty and once, and is no other's; only then it is restored into.
#[test]
fn a_volume_is_created_before_it_is_restored_into() {
    let mut store = filled();
    let snapshot = taken(&mut store, "b-1", "service-1", RESOURCES[0]);
    let absent = ("volume", "restored");
    assert_eq!(restored(&mut store, "service-1", absent, &snapshot).0, 404);
    let create = json!({"serviceId": "service-1", "name": "restored"});
    for created in [true, false] {
        let answer = ask(&mut store, "POST /control/volumes", &create);
        assert_eq!(answer, (200, json!({"name": "restored", "created": created})));
    }
    assert_eq!(store.volume_of("service-1", "restored"), Some(&b""[..]));
    assert_eq!(restored(&mut store, "service-1", absent, &snapshot).0, 200);
    assert_eq!(store.volume_of("service-1", "restored"), Some(&b"data"[..]));
}

/// Pruning frees the bytes of every backup that is not kept, and of none that is.
#[test]
fn pruning_keeps_what_it_is_told_to() {
    let mut store = filled();
    let kept = taken(&mut store, "b-2", "service-1", RESOURCES[2]);
    for resource in [RESOURCES[0], RESOURCES[1]] {
        taken(&mut store, "b-1", "service-1", resource);
    }
    taken(&mut store, "b-3", "service-1", RESOURCES[3]);
    let keep = json!({"keepBackupIds": ["b-2", "b-9"]});
    let pruned = json!({"prunedBackupIds": ["b-1", "b-3"], "freedBytes": 4 + 8 + 7});
    assert_eq!(ask(&mut store, "POST /control/archive/prune", &keep), (200, pruned));
    assert_eq!(restored(&mut store, "service-1", RESOURCES[2], &kept).0, 200);
    let again = ask(&mut store, "POST /control/archive/prune", &keep);
    assert_eq!(again, (200, json!({"prunedBackupIds": [], "freedBytes": 0})));
}

/// A database is exported under the binding that was reconciled for it, and under no other.
#[test]
fn a_database_is_exported_under_its_own_binding() {
    let mut store = filled();
    let export = |binding: &str| json!({"backupId": "b-1", "serviceId": "service-1", "bindingId": binding});
    assert_eq!(ask(&mut store, EXPORT, &export("d-1")).0, 404, "the service has a database, but no binding");
    for (id, service, capability) in [
        ("d-1", "service-1", "database"),
        ("d-2", "service-2", "database"),
        ("o-1", "service-1", "objectstorage"),
    ] {
        assert_eq!(ask(&mut store, RECONCILE, &binding(id, service, capability)).0, 200);
    }
    for unfit in ["d-2", "o-1", "d-3"] {
        let (status, refusal) = ask(&mut store, EXPORT, &export(unfit));
        assert_eq!((status, &refusal["error"]), (404, &json!("binding-unknown")), "{unfit}");
    }
    let exported = store.call(EXPORT, export("d-1").to_string().as_bytes(), NOW);
    let stated =
        vec![("x-closure-digest", digest(b"rows")), ("x-closure-receipt", "closure:b-1:d-1".to_owned())];
    assert_eq!(exported, Answer { status: 200, headers: stated, body: b"rows".to_vec() });
}

/// A closure of other bytes than were stated replaces nothing; the one that was stated replaces the database.
#[test]
fn a_closure_is_imported_as_it_was_stated() {
    let mut store = filled();
    let head = ClosureHead {
        service: "service-1".to_owned(),
        digest: digest(b"closure"),
        receipt: "receipt-1".to_owned(),
    };
    assert_eq!(store.import(&head, b"closurf").status, 422);
    assert_eq!((store.database_of("service-1"), store.receipt_of("service-1")), (Some(&b"rows"[..]), None));
    let imported = store.import(&head, b"closure");
    let answer = json!({"restored": true, "byteLength": 7, "digest": head.digest});
    assert_eq!(imported, Answer::json(200, &answer));
    assert_eq!(store.database_of("service-1"), Some(&b"closure"[..]));
    assert_eq!(store.receipt_of("service-1"), Some("receipt-1"));
}

/// PLT-48: a legacy resource stands in the way of a binding of its capability alone, and is listed.
#[test]
fn a_legacy_resource_stands_in_the_way_of_its_capability() {
    let mut store = Store::new("cluster-1", "node-1");
    store.legacy("service-1", "database", Legacy::Conflict);
    let refusal = json!({"error": "legacy-resource", "reason": "legacy-adoption-conflict"});
    let database = binding("d-1", "service-1", "database");
    assert_eq!(ask(&mut store, RECONCILE, &database), (409, refusal));
    assert_eq!(store.database_of("service-1"), None);
    assert_eq!(ask(&mut store, RECONCILE, &binding("o-1", "service-1", "objectstorage")).0, 200);
    let resource = json!({
        "kind": "database", "name": "legacy-service-1", "digest": digest(b"database legacy-service-1"),
    });
    let listed = json!({
        "checkedAt": NOW, "services": [{"serviceId": "service-1", "resources": [resource]}],
    });
    assert_eq!(ask(&mut store, "GET /control/legacy-resources", &Value::Null), (200, listed));
    for (member, other) in [("nodeId", "node-2"), ("clusterId", "cluster-2")] {
        let mut foreign = binding("o-2", "service-1", "objectstorage");
        foreign[member] = json!(other);
        assert_eq!(ask(&mut store, RECONCILE, &foreign).0, 422, "{member}");
    }
}
