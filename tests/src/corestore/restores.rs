//! Isolated restores as a node keeps them: grants, an archive whose objects never change, revisions, progress (ISO).
//! `control, now → answer`; it has no clock and no socket.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{Answer, digest, read, refused};

/// Largest chunk of one control, decoded, in bytes.
pub const CHUNK_LIMIT: usize = 512 << 10;
/// Longest time that a grant is good for from now on, in milliseconds: some minutes (ISO-07).
pub const GRANT_LIMIT: u64 = 10 * 60_000;

/// A resource of the archive and what it is restored as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// `volume`, `database` or `objectstorage`.
    pub kind: String,
    /// Its name in the archive.
    pub source: String,
    /// Its name once restored.
    pub target: String,
}

/// What a grant says. Cloudly signs it; this double has Cloudly's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// The one operation it is good for: `prepare`, `stage`, `progress`, `execute` or `cleanup`.
    pub operation: String,
    /// The restore.
    pub restore_id: String,
    /// The cluster.
    pub cluster_id: String,
    /// The node, by its name.
    pub node_name: String,
    /// The archive manifest.
    pub manifest_digest: String,
    /// Digest of the canonical resource mappings, as [`mappings_digest`] makes it.
    pub mappings_digest: String,
    /// Its end, Unix milliseconds.
    pub expires_at: u64,
}

impl Grant {
    /// A grant of `operation` in the one restore of the tests, `restore-1` of `node-1` in `cluster-1`, until `expires_at`.
    pub fn of_restore_1(operation: &str, manifest: &str, mappings: &[Mapping], expires_at: u64) -> Self {
        Self {
            operation: operation.to_owned(),
            restore_id: "restore-1".to_owned(),
            cluster_id: "cluster-1".to_owned(),
            node_name: "node-1".to_owned(),
            manifest_digest: manifest.to_owned(),
            mappings_digest: mappings_digest(mappings),
            expires_at,
        }
    }
}

/// The digest of mappings in their canonical order.
///
/// # Panics
/// Never: texts are always written.
pub fn mappings_digest(mappings: &[Mapping]) -> String {
    let mut texts: Vec<String> =
        mappings.iter().map(|mapping| serde_json::to_string(mapping).expect("texts are written")).collect();
    texts.sort();
    digest(texts.join("\n").as_bytes())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Control {
    grant: String,
    restore_id: String,
    expected_revision: u64,
    body: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Prepare {
    manifest_digest: String,
    mappings: Vec<Mapping>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stage {
    object_digest: String,
    offset: usize,
    chunk: String,
    chunk_sha256: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// An archive: the objects that its manifest names, by digest, immutable.
struct Archive(BTreeMap<String, Vec<u8>>);

struct Restore {
    revision: u64,
    state: &'static str,
    manifest: String,
    mappings: Vec<Mapping>,
    /// Bytes that have arrived, by object.
    staged: BTreeMap<String, usize>,
    latest: Option<String>,
}

/// The restores of one node.
pub struct Restores {
    cluster: String,
    node: String,
    key: hmac::Key,
    archives: BTreeMap<String, Archive>,
    restores: BTreeMap<String, Restore>,
}

impl Restores {
    /// A node that knows no archive yet.
    pub fn new(cluster: &str, node: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            key: hmac::Key::new(hmac::HMAC_SHA256, b"the key that signs grants"),
            archives: BTreeMap::new(),
            restores: BTreeMap::new(),
        }
    }

    /// Has an archive of `objects`, and gives the digest of its manifest.
    pub fn archive(&mut self, objects: &[&[u8]]) -> String {
        let named: BTreeMap<String, Vec<u8>> =
            objects.iter().map(|object| (digest(object), object.to_vec())).collect();
        let names: Vec<&str> = named.keys().map(String::as_str).collect();
        let manifest = digest(names.join("\n").as_bytes());
        self.archives.insert(manifest.clone(), Archive(named));
        manifest
    }

    /// The compact text of a grant.
    ///
    /// # Panics
    /// Never: texts and numbers are always written.
    pub fn sign(&self, grant: &Grant) -> String {
        let text = serde_json::to_vec(grant).expect("texts and numbers are written");
        let tag = hmac::sign(&self.key, &text);
        format!("{}.{}", URL_SAFE_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(tag))
    }

    /// How many bytes of an object a restore has.
    pub fn staged(&self, restore: &str, object: &str) -> usize {
        self.restores.get(restore).and_then(|restore| restore.staged.get(object)).copied().unwrap_or(0)
    }

    /// Answers one of the five controls at `now`, Unix milliseconds.
    pub fn control(&mut self, operation: &str, body: &[u8], now: u64) -> Answer {
        self.judge(operation, body, now).unwrap_or_else(|refusal| refusal)
    }

    fn judge(&mut self, operation: &str, body: &[u8], now: u64) -> Result<Answer, Answer> {
        let control: Control = read(body)?;
        let grant = self.grant(&control, operation, now)?;
        if operation == "prepare" {
            return self.prepare(&control, &grant);
        }
        let known = self.restores.get_mut(&control.restore_id);
        let restore = known.ok_or_else(|| refused(404, "restore-unknown", "no such restore here"))?;
        let same = grant.manifest_digest == restore.manifest
            && grant.mappings_digest == mappings_digest(&restore.mappings);
        if !same {
            return Err(refused(403, "grant-refused", "of another archive, or of other mappings"));
        }
        // ISO-16.
        if control.expected_revision != restore.revision {
            return Err(refused(409, "revision-conflict", &format!("the revision is {}", restore.revision)));
        }
        let archive = &self.archives[&restore.manifest];
        let more = match operation {
            "stage" => restore.stage(archive, &read(control.body.to_string().as_bytes())?)?,
            "execute" => restore.execute(&control)?,
            "cleanup" => restore.clean(&control)?,
            _ => {
                read::<Nothing>(control.body.to_string().as_bytes())?;
                Value::Null
            }
        };
        Ok(restore.progress(&control.restore_id, more))
    }

    /// ISO-07: good for one operation and some minutes, of this cluster and node, for this archive and these mappings.
    fn grant(&self, control: &Control, operation: &str, now: u64) -> Result<Grant, Answer> {
        let fault = |why: &str| refused(403, "grant-refused", why);
        let (text, tag) = control.grant.split_once('.').ok_or_else(|| fault("not a grant"))?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| fault("not a grant"));
        let (text, tag) = (decode(text)?, decode(tag)?);
        hmac::verify(&self.key, &text, &tag).map_err(|_| fault("not signed by Cloudly"))?;
        let grant: Grant = serde_json::from_slice(&text).map_err(|_| fault("not a grant"))?;
        let of_this = grant.operation == operation && grant.restore_id == control.restore_id;
        let here = grant.cluster_id == self.cluster && grant.node_name == self.node;
        if !of_this {
            return Err(fault("for another operation"));
        }
        if !here {
            return Err(fault("for another node"));
        }
        if now >= grant.expires_at {
            return Err(fault("expired"));
        }
        if grant.expires_at - now > GRANT_LIMIT {
            return Err(fault("for too long"));
        }
        Ok(grant)
    }

    fn prepare(&mut self, control: &Control, grant: &Grant) -> Result<Answer, Answer> {
        let body: Prepare = read(control.body.to_string().as_bytes())?;
        if body.manifest_digest != grant.manifest_digest
            || mappings_digest(&body.mappings) != grant.mappings_digest
        {
            return Err(refused(403, "grant-refused", "of another archive, or of other mappings"));
        }
        let archive = self.archives.get(&body.manifest_digest);
        archive.ok_or_else(|| refused(422, "manifest-unknown", "no archive has this manifest"))?;
        let revision = self.restores.get(&control.restore_id).map_or(0, |restore| restore.revision);
        if control.expected_revision != revision || revision > 0 {
            return Err(refused(409, "revision-conflict", &format!("the revision is {revision}")));
        }
        let restore = Restore {
            revision: 1,
            state: "prepared",
            manifest: body.manifest_digest,
            mappings: body.mappings,
            staged: BTreeMap::new(),
            latest: None,
        };
        let progress = restore.progress(&control.restore_id, Value::Null);
        self.restores.insert(control.restore_id.clone(), restore);
        Ok(progress)
    }
}

impl Restore {
    /// ISO-12: a chunk is compared with the object of the manifest before it is stored.
    fn stage(&mut self, archive: &Archive, stage: &Stage) -> Result<Value, Answer> {
        let bytes = STANDARD.decode(&stage.chunk).map_err(|_| refused(400, "body-invalid", "chunk"))?;
        if bytes.is_empty() || bytes.len() > CHUNK_LIMIT || digest(&bytes) != stage.chunk_sha256 {
            return Err(refused(400, "body-invalid", "chunk"));
        }
        if !matches!(self.state, "prepared" | "staging") {
            return Err(refused(409, "state-conflict", self.state));
        }
        let object = archive.0.get(&stage.object_digest);
        let object =
            object.ok_or_else(|| refused(422, "object-unknown", "the manifest has no such object"))?;
        let next = self.staged.get(&stage.object_digest).copied().unwrap_or(0);
        if stage.offset != next {
            return Err(refused(409, "offset-conflict", &format!("the next offset is {next}")));
        }
        let end = next + bytes.len();
        if object.get(next..end) != Some(&bytes[..]) {
            return Err(refused(422, "chunk-mismatch", "not the bytes of the manifest's object"));
        }
        self.staged.insert(stage.object_digest.clone(), end);
        self.latest = Some(stage.object_digest.clone());
        self.revision += 1;
        let whole = archive.0.iter().all(|(name, object)| self.staged.get(name) == Some(&object.len()));
        self.state = if whole { "staged" } else { "staging" };
        let received = (end == object.len()).then(|| json!({"objectDigest": stage.object_digest}));
        Ok(json!({"receivedObject": received}))
    }

    fn execute(&mut self, control: &Control) -> Result<Value, Answer> {
        read::<Nothing>(control.body.to_string().as_bytes())?;
        if self.state != "staged" {
            return Err(refused(409, "state-conflict", self.state));
        }
        self.revision += 1;
        self.state = "executed";
        Ok(json!({"restoredMappings": self.mappings}))
    }

    fn clean(&mut self, control: &Control) -> Result<Value, Answer> {
        read::<Nothing>(control.body.to_string().as_bytes())?;
        self.revision += 1;
        self.state = "cleaned";
        self.staged.clear();
        self.latest = None;
        Ok(json!({"deletedStagingTree": true}))
    }

    /// ISO-31: how many bytes of the latest object there are. What the route has besides is in `more`.
    fn progress(&self, id: &str, more: Value) -> Answer {
        let staged = self.latest.as_ref();
        let staged = staged.map(|name| json!({"objectDigest": name, "nextOffset": self.staged[name]}));
        let mut progress = json!({
            "restoreId": id, "revision": self.revision, "state": self.state, "stagedObject": staged,
            "failure": null,
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut progress, more) {
            all.extend(more);
        }
        Answer::json(200, &progress)
    }
}

#[cfg(test)]
mod tests;
