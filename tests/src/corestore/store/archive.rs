//! The archive of a node's Corestore: snapshots, which stay on the node, and the closures that carry a database away and
//! back (contract of the Corestore half, section 3). A snapshot is restored as what it was taken of, and a database is
//! exported under its own binding.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::Store;
use crate::corestore::answer::{Answer, digest, read, refused};

/// What a resource was when a backup was made of it.
pub(super) struct Snapshot {
    backup: String,
    /// The service whose resource it is.
    service: String,
    /// `volume`, `database` or `objectstorage`.
    kind: String,
    content: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SnapshotRequest {
    backup_id: String,
    service_id: String,
    kind: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RestoreRequest {
    service_id: String,
    kind: String,
    name: String,
    snapshot_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PruneRequest {
    keep_backup_ids: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExportRequest {
    backup_id: String,
    service_id: String,
    binding_id: String,
}

/// What the headers of a closure's restore state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosureHead {
    /// The service whose database it is.
    pub service: String,
    /// The digest of the whole body.
    pub digest: String,
    /// The receipt of its export.
    pub receipt: String,
}

impl Store {
    pub(super) fn snapshot(&mut self, body: &[u8]) -> Result<Answer, Answer> {
        let asked: SnapshotRequest = read(body)?;
        let content = self.content(&asked.service_id, &asked.kind, &asked.name)?.clone();
        self.taken += 1;
        let id = format!("snapshot-{}-{}", self.node, self.taken);
        let answer = json!({"snapshotId": id, "sizeBytes": content.len(), "digest": digest(&content)});
        let SnapshotRequest { backup_id: backup, service_id: service, kind, .. } = asked;
        self.snapshots.insert(id, Snapshot { backup, service, kind, content });
        Ok(Answer::json(200, &answer))
    }

    pub(super) fn restore(&mut self, body: &[u8]) -> Result<Answer, Answer> {
        let asked: RestoreRequest = read(body)?;
        let snapshot = self.snapshots.get(&asked.snapshot_id);
        let snapshot = snapshot.ok_or_else(|| refused(404, "snapshot-unknown", "not in this archive"))?;
        if snapshot.service != asked.service_id || snapshot.kind != asked.kind {
            return Err(refused(422, "snapshot-mismatch", "of another service, or of another kind"));
        }
        let content = snapshot.content.clone();
        *self.content(&asked.service_id, &asked.kind, &asked.name)? = content;
        Ok(Answer::json(200, &json!({"snapshotId": asked.snapshot_id, "restored": true})))
    }

    pub(super) fn prune(&mut self, body: &[u8]) -> Result<Answer, Answer> {
        let asked: PruneRequest = read(body)?;
        let (mut pruned, mut freed) = (BTreeSet::new(), 0);
        self.snapshots.retain(|_, snapshot| {
            let kept = asked.keep_backup_ids.contains(&snapshot.backup);
            if !kept {
                pruned.insert(snapshot.backup.clone());
                freed += snapshot.content.len();
            }
            kept
        });
        Ok(Answer::json(200, &json!({"prunedBackupIds": pruned, "freedBytes": freed})))
    }

    pub(super) fn export(&self, body: &[u8]) -> Result<Answer, Answer> {
        let asked: ExportRequest = read(body)?;
        let bound = self.bindings.get(&asked.binding_id);
        let bound = bound.filter(|bound| bound.service == asked.service_id && bound.capability == "database");
        bound.ok_or_else(|| refused(404, "binding-unknown", "it was not reconciled"))?;
        let content = self.database_of(&asked.service_id);
        let content = content.expect("a binding that was reconciled has its database").to_vec();
        let receipt = format!("closure:{}:{}", asked.backup_id, asked.binding_id);
        let headers = vec![("x-closure-digest", digest(&content)), ("x-closure-receipt", receipt)];
        Ok(Answer { status: 200, headers, body: content })
    }

    /// Puts a closure that has arrived in the place of a service's database, unless it is another than was stated.
    pub fn import(&mut self, head: &ClosureHead, content: &[u8]) -> Answer {
        let found = digest(content);
        if found != head.digest {
            return refused(422, "closure-mismatch", "not the bytes that were stated");
        }
        self.service(&head.service).database = Some(content.to_vec());
        self.receipts.insert(head.service.clone(), head.receipt.clone());
        Answer::json(200, &json!({"restored": true, "byteLength": content.len(), "digest": found}))
    }

    /// The receipt of the closure that a service's database came from.
    pub fn receipt_of(&self, service: &str) -> Option<&str> {
        self.receipts.get(service).map(String::as_str)
    }
}
