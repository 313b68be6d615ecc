//! Scripts of a node's restores.

use super::*;

const NOW: u64 = 1_700_000_000_000;
const FIRST: &[u8] = b"the first object of the archive";
const SECOND: &[u8] = b"the second";

/// Alters what would do otherwise.
type Alter = fn(&mut Grant);

struct Bed {
    restores: Restores,
    manifest: String,
    mappings: Vec<Mapping>,
}

impl Bed {
    fn new() -> Self {
        let mut restores = Restores::new("cluster-1", "node-1");
        let manifest = restores.archive(&[FIRST, SECOND]);
        let mapping = |kind: &str| Mapping {
            kind: kind.to_owned(),
            source: "data".to_owned(),
            target: format!("restored-{kind}"),
        };
        Self { restores, manifest, mappings: vec![mapping("volume"), mapping("database")] }
    }

    fn prepared() -> Self {
        let mut bed = Self::new();
        let body = bed.preparation();
        assert_eq!(bed.control("prepare", 0, &body).0, 200);
        bed
    }

    fn preparation(&self) -> Value {
        json!({"manifestDigest": self.manifest, "mappings": self.mappings})
    }

    fn granted(&mut self, operation: &str, revision: u64, body: &Value, alter: Alter) -> (u16, Value) {
        let mut grant = Grant::of_restore_1(operation, &self.manifest, &self.mappings, NOW + GRANT_LIMIT);
        alter(&mut grant);
        let grant = self.restores.sign(&grant);
        let control =
            json!({"grant": grant, "restoreId": "restore-1", "expectedRevision": revision, "body": body});
        self.post(operation, &control)
    }

    fn control(&mut self, operation: &str, revision: u64, body: &Value) -> (u16, Value) {
        self.granted(operation, revision, body, |_| {})
    }

    fn post(&mut self, operation: &str, control: &Value) -> (u16, Value) {
        let answer = self.restores.control(operation, control.to_string().as_bytes(), NOW);
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    fn staged(&self, object: &[u8]) -> usize {
        self.restores.staged("restore-1", &digest(object))
    }
}

/// `bytes` as the chunk of `object` at `offset`.
fn chunk(object: &[u8], offset: usize, bytes: &[u8]) -> Value {
    json!({
        "objectDigest": digest(object), "offset": offset, "chunk": STANDARD.encode(bytes),
        "chunkSha256": digest(bytes),
    })
}

/// ISO-07: each thing that a grant is tied to refuses it alone, its end at the millisecond, and too late an end as well.
#[test]
fn a_grant_is_tied_to_each_of_its_members() {
    let unfit: [(&str, Alter); 8] = [
        ("operation", |grant| grant.operation = "execute".to_owned()),
        ("restore", |grant| grant.restore_id = "restore-2".to_owned()),
        ("cluster", |grant| grant.cluster_id = "cluster-2".to_owned()),
        ("node", |grant| grant.node_name = "node-2".to_owned()),
        ("manifest", |grant| grant.manifest_digest = digest(b"another")),
        ("mappings", |grant| grant.mappings_digest = mappings_digest(&[])),
        ("over", |grant| grant.expires_at = NOW),
        ("long", |grant| grant.expires_at = NOW + GRANT_LIMIT + 1),
    ];
    let mut bed = Bed::prepared();
    for (member, alter) in unfit {
        let (status, refusal) = bed.granted("stage", 1, &chunk(FIRST, 0, FIRST), alter);
        assert_eq!((status, &refusal["error"]), (403, &json!("grant-refused")), "{member}");
    }
    assert_eq!(bed.staged(FIRST), 0);
    let (status, _) = bed.granted("stage", 1, &chunk(FIRST, 0, FIRST), |grant| grant.expires_at = NOW + 1);
    assert_eq!((status, bed.staged(FIRST)), (200, FIRST.len()));
}

/// ISO-07: the mappings count as a set; what is signed for one is not for a part of it.
#[test]
fn mappings_are_canonical() {
    let mut bed = Bed::new();
    let mut reversed = bed.mappings.clone();
    reversed.reverse();
    assert_eq!(mappings_digest(&bed.mappings), mappings_digest(&reversed));
    for (place, unfit) in [
        json!({"manifestDigest": bed.manifest, "mappings": bed.mappings[..1]}),
        json!({"manifestDigest": digest(b"another"), "mappings": bed.mappings}),
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(bed.control("prepare", 0, unfit).0, 403, "{place}");
    }
    let body = json!({"manifestDigest": bed.manifest, "mappings": reversed});
    assert_eq!(bed.control("prepare", 0, &body).0, 200);
}

/// A control has its members and no other, and so has its body.
#[test]
fn a_control_is_read_exactly() {
    let mut bed = Bed::prepared();
    let empty = json!({"grant": "", "restoreId": "restore-1", "expectedRevision": 1, "body": {}});
    assert_eq!(bed.post("progress", &empty).0, 403, "no grant");
    for (member, value) in [("more", json!(1)), ("expectedRevision", json!("1")), ("grant", Value::Null)] {
        let mut control = empty.clone();
        control[member] = value;
        assert_eq!(bed.post("progress", &control).0, 400, "{member}");
    }
    for operation in ["prepare", "stage", "progress", "execute", "cleanup"] {
        let (status, refusal) = bed.control(operation, 1, &json!({"more": 1}));
        assert_eq!((status, &refusal["error"]), (400, &json!("body-invalid")), "{operation}");
    }
}

/// ISO-16: each control that changes something asks for the revision before it, and each answer states the next.
#[test]
fn each_change_is_a_revision() {
    let mut bed = Bed::new();
    let steps = [
        ("prepare", bed.preparation(), "prepared"),
        ("stage", chunk(FIRST, 0, &FIRST[..4]), "staging"),
        ("stage", chunk(SECOND, 0, SECOND), "staging"),
        ("stage", chunk(FIRST, 4, &FIRST[4..]), "staged"),
        ("execute", json!({}), "executed"),
        ("cleanup", json!({}), "cleaned"),
    ];
    for (revision, (operation, body, state)) in (0..).zip(&steps) {
        for wrong in [revision + 1, revision + 7] {
            let (status, refusal) = bed.control(operation, wrong, body);
            let expected = if revision == 0 && *operation != "prepare" { 404 } else { 409 };
            assert_eq!(status, expected, "{operation}: {refusal}");
        }
        let (status, progress) = bed.control(operation, revision, body);
        assert_eq!(
            (status, &progress["revision"], &progress["state"]),
            (200, &json!(revision + 1), &json!(state))
        );
        let (status, seen) = bed.control("progress", revision + 1, &json!({}));
        assert_eq!((status, &seen["revision"]), (200, &json!(revision + 1)), "looking is no change");
    }
    let (status, refusal) = bed.control("prepare", 6, &bed.preparation());
    assert_eq!((status, &refusal["error"]), (409, &json!("revision-conflict")), "it was prepared once");
}

/// ISO-12: what is stored is the manifest's object byte for byte, as long as it is, in its order, and nothing else.
#[test]
fn a_chunk_is_the_object_s_own_bytes() {
    let mut bed = Bed::prepared();
    let (mut changed, long) = (FIRST[..4].to_vec(), [FIRST, b"."].concat());
    changed[3] ^= 1;
    let mut mislabelled = chunk(FIRST, 0, FIRST);
    mislabelled["chunkSha256"] = json!(digest(SECOND));
    let mut garbled = chunk(FIRST, 0, FIRST);
    garbled["chunk"] = json!("*");
    for (body, status, error) in [
        (chunk(FIRST, 0, &changed), 422, "chunk-mismatch"),
        (chunk(FIRST, 0, &long), 422, "chunk-mismatch"),
        (chunk(b"none", 0, b"none"), 422, "object-unknown"),
        (chunk(FIRST, 4, &FIRST[4..]), 409, "offset-conflict"),
        (chunk(FIRST, 0, b""), 400, "body-invalid"),
        (chunk(FIRST, 0, &vec![0; CHUNK_LIMIT + 1]), 400, "body-invalid"),
        (mislabelled, 400, "body-invalid"),
        (garbled, 400, "body-invalid"),
    ] {
        let (got, refusal) = bed.control("stage", 1, &body);
        assert_eq!((got, &refusal["error"], bed.staged(FIRST)), (status, &json!(error), 0));
    }
    assert_eq!(bed.control("stage", 1, &chunk(FIRST, 0, &FIRST[..4])).0, 200);
    let (status, refusal) = bed.control("stage", 2, &chunk(FIRST, 0, &FIRST[..4]));
    assert_eq!((status, &refusal["reason"]), (409, &json!("the next offset is 4")), "no chunk twice");
    assert_eq!(bed.control("execute", 2, &json!({})).0, 409, "it is not whole");
}

/// A chunk of 512 KiB is the largest.
#[test]
fn the_largest_chunk_is_taken() {
    let object = vec![7; CHUNK_LIMIT];
    let mut bed = Bed::new();
    bed.manifest = bed.restores.archive(&[&object]);
    let body = bed.preparation();
    assert_eq!(bed.control("prepare", 0, &body).0, 200);
    let (status, progress) = bed.control("stage", 1, &chunk(&object, 0, &object));
    assert_eq!((status, &progress["state"]), (200, &json!("staged")));
}

/// ISO-31: the progress tells the latest object and its next byte, until the staging tree is deleted.
#[test]
fn the_progress_tells_the_next_byte() {
    let mut bed = Bed::prepared();
    let staged =
        |bed: &mut Bed, revision| bed.control("progress", revision, &json!({})).1["stagedObject"].clone();
    assert_eq!(staged(&mut bed, 1), Value::Null);
    for (revision, object, upto) in [(1, FIRST, 4), (2, SECOND, 6)] {
        bed.control("stage", revision, &chunk(object, 0, &object[..upto]));
        let expected = json!({"objectDigest": digest(object), "nextOffset": upto});
        assert_eq!(staged(&mut bed, revision + 1), expected);
    }
    let (_, cleaned) = bed.control("cleanup", 3, &json!({}));
    assert_eq!((&cleaned["stagedObject"], &cleaned["deletedStagingTree"]), (&Value::Null, &json!(true)));
    assert_eq!(bed.staged(FIRST), 0);
    assert_eq!(bed.control("stage", 4, &chunk(FIRST, 0, FIRST)).0, 409, "it is over");
}
