//! What one node's Corestore has: services with their resources, legacy resources, credential bindings and volumes; the
//! snapshots and closures of them are in [`archive`]. `request → answer`; it has no clock and no socket.

mod archive;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, digest, read, refused};
use archive::Snapshot;

pub use archive::ClosureHead;

/// Why a legacy resource keeps a binding from being reconciled (PLT-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Legacy {
    /// It is not adopted yet.
    Pending,
    /// It and the binding want the same name.
    Conflict,
    /// It is another resource than the one that is to be adopted.
    Mismatch,
}

impl Legacy {
    fn reason(self) -> &'static str {
        match self {
            Self::Pending => "legacy-adoption-pending",
            Self::Conflict => "legacy-adoption-conflict",
            Self::Mismatch => "legacy-adoption-mismatch",
        }
    }
}

/// A service with resources on this node.
#[derive(Debug, Default)]
struct Service {
    /// The content of its database.
    database: Option<Vec<u8>>,
    /// The content of its bucket.
    bucket: Option<Vec<u8>>,
    volumes: BTreeMap<String, Vec<u8>>,
    /// What `/resources/provision` made, by capability, and how its adoption stands.
    legacy: BTreeMap<String, Legacy>,
}

/// What is kept of a reconciled binding.
struct Bound {
    operation: Value,
    capability: String,
    service: String,
    endpoint: Value,
}

/// The data of one node (CST-01: it lies on this one and on no other).
#[derive(Default)]
pub struct Store {
    node: String,
    cluster: String,
    services: BTreeMap<String, Service>,
    bindings: BTreeMap<String, Bound>,
    snapshots: BTreeMap<String, Snapshot>,
    taken: u64,
    /// The closure that an import has replaced each service's database by.
    receipts: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    id: String,
    generation: u64,
}

impl Reference {
    fn value(&self) -> Value {
        json!({"id": self.id, "generation": self.generation})
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    host: String,
    port: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Compliance,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Retention {
    mode: Mode,
    days: u32,
}

#[derive(Deserialize)]
#[serde(tag = "capability", rename_all = "lowercase", rename_all_fields = "camelCase", deny_unknown_fields)]
enum BindingRequest {
    Database {
        operation: Reference,
        binding_id: String,
        service_id: String,
        cluster_id: String,
        node_id: String,
        endpoint: Place,
    },
    ObjectStorage {
        operation: Reference,
        binding_id: String,
        service_id: String,
        cluster_id: String,
        node_id: String,
        // Stated, though it be null: what has a reader of its own has no default.
        #[serde(deserialize_with = "Option::deserialize")]
        retention: Option<Retention>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MaterialRequest {
    operation: Reference,
    binding_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeRequest {
    service_id: String,
    name: String,
}

impl Store {
    /// The empty store of a node.
    pub fn new(cluster: &str, node: &str) -> Self {
        Self { node: node.to_owned(), cluster: cluster.to_owned(), ..Self::default() }
    }

    /// Gives a service a database with this content.
    pub fn database(&mut self, service: &str, content: &[u8]) {
        self.service(service).database = Some(content.to_vec());
    }

    /// The content of a service's database.
    pub fn database_of(&self, service: &str) -> Option<&[u8]> {
        self.services.get(service)?.database.as_deref()
    }

    /// Gives a service a bucket with this content.
    pub fn bucket(&mut self, service: &str, content: &[u8]) {
        self.service(service).bucket = Some(content.to_vec());
    }

    /// The content of a service's bucket.
    pub fn bucket_of(&self, service: &str) -> Option<&[u8]> {
        self.services.get(service)?.bucket.as_deref()
    }

    /// Gives a service a volume with this content.
    pub fn volume(&mut self, service: &str, name: &str, content: &[u8]) {
        self.service(service).volumes.insert(name.to_owned(), content.to_vec());
    }

    /// The content of a service's volume.
    pub fn volume_of(&self, service: &str, name: &str) -> Option<&[u8]> {
        self.services.get(service)?.volumes.get(name).map(Vec::as_slice)
    }

    /// Has a resource that `/resources/provision` made for a service; `capability` as in a binding.
    pub fn legacy(&mut self, service: &str, capability: &str, adoption: Legacy) {
        self.service(service).legacy.insert(capability.to_owned(), adoption);
    }

    fn service(&mut self, service: &str) -> &mut Service {
        self.services.entry(service.to_owned()).or_default()
    }

    /// Answers a call that has no stream of its own at `now`, Unix milliseconds.
    pub fn call(&mut self, call: &str, body: &[u8], now: u64) -> Answer {
        let answered = match call {
            "GET /control/inventory" => Ok(self.inventory()),
            "GET /control/legacy-resources" => Ok(self.legacy_resources(now)),
            "POST /control/credential-bindings/reconcile" => self.reconcile(body, now),
            "POST /control/credential-bindings/material" => self.material(body),
            "POST /control/volumes" => self.create_volume(body),
            "POST /control/snapshots" => self.snapshot(body),
            "POST /control/snapshots/restore" => self.restore(body),
            "POST /control/archive/prune" => self.prune(body),
            "POST /control/database-closures/export" => self.export(body),
            _ => Err(Answer::json(404, &json!({"error": "not-found"}))),
        };
        answered.unwrap_or_else(|refusal| refusal)
    }

    fn inventory(&self) -> Answer {
        let named = |name: Option<String>| name.map(|name| json!({"name": name}));
        let volumes = |service: &Service| -> Vec<Value> {
            let sized =
                |(name, content): (&String, &Vec<u8>)| json!({"name": name, "sizeBytes": content.len()});
            service.volumes.iter().map(sized).collect()
        };
        let services: Vec<Value> = self
            .services
            .iter()
            .map(|(id, service)| {
                let database = service.database.as_ref().map(|_| format!("db-{id}"));
                let bucket = service.bucket.as_ref().map(|_| format!("bucket-{id}"));
                json!({
                    "serviceId": id, "database": named(database), "bucket": named(bucket),
                    "volumes": volumes(service),
                })
            })
            .collect();
        Answer::json(200, &json!({"services": services}))
    }

    fn legacy_resources(&self, now: u64) -> Answer {
        let resources = |id: &str, service: &Service| -> Vec<Value> {
            let one = |kind: &String| {
                let name = format!("legacy-{id}");
                json!({"kind": kind, "name": name, "digest": digest(format!("{kind} {name}").as_bytes())})
            };
            service.legacy.keys().map(one).collect()
        };
        let services: Vec<Value> = self
            .services
            .iter()
            .filter(|(_, service)| !service.legacy.is_empty())
            .map(|(id, service)| json!({"serviceId": id, "resources": resources(id, service)}))
            .collect();
        Answer::json(200, &json!({"checkedAt": now, "services": services}))
    }

    fn reconcile(&mut self, body: &[u8], now: u64) -> Result<Answer, Answer> {
        let (operation, binding, service, cluster, node, capability, endpoint, retention) = match read(body)?
        {
            BindingRequest::Database { operation, binding_id, service_id, cluster_id, node_id, endpoint } => {
                let endpoint = json!({"host": endpoint.host, "port": endpoint.port});
                (operation, binding_id, service_id, cluster_id, node_id, "database", endpoint, None)
            }
            BindingRequest::ObjectStorage {
                operation,
                binding_id,
                service_id,
                cluster_id,
                node_id,
                retention,
            } => {
                let endpoint = json!({"host": self.node, "port": 9000, "useSsl": false});
                (operation, binding_id, service_id, cluster_id, node_id, "objectstorage", endpoint, retention)
            }
        };
        if cluster != self.cluster || node != self.node {
            return Err(refused(422, "binding-foreign", "of another node"));
        }
        let known = self.service(&service);
        if let Some(adoption) = known.legacy.get(capability) {
            return Err(refused(409, "legacy-resource", adoption.reason()));
        }
        match capability {
            "database" => drop(known.database.get_or_insert_default()),
            _ => drop(known.bucket.get_or_insert_default()),
        }
        let evidence = retention.map(|intent| {
            let bucket = format!("bucket-{service}");
            let Retention { mode: Mode::Compliance, days } = intent;
            json!({"mode": "compliance", "days": days, "lockedSince": now, "bucket": bucket})
        });
        let answer = json!({"operation": operation.value(), "state": "reconciled", "retention": evidence});
        let capability = capability.to_owned();
        self.bindings.insert(binding, Bound { operation: operation.value(), capability, service, endpoint });
        Ok(Answer::json(200, &answer))
    }

    fn material(&self, body: &[u8]) -> Result<Answer, Answer> {
        let asked: MaterialRequest = read(body)?;
        let bound = self.bindings.get(&asked.binding_id);
        let bound = bound.filter(|bound| bound.operation == asked.operation.value());
        let bound = bound.ok_or_else(|| refused(404, "binding-unknown", "it was not reconciled"))?;
        let Bound { capability, service, endpoint, .. } = bound;
        let material = if capability == "database" {
            let host = endpoint["host"].as_str().expect("a place has a host");
            let uri = format!("mongodb://user-{service}:word-{service}@{host}:{}", endpoint["port"]);
            let name = format!("db-{service}");
            json!({"capability": capability, "uri": uri, "databaseName": name, "endpoint": endpoint})
        } else {
            json!({
                "capability": capability, "endpoint": endpoint, "accessKey": format!("key-{service}"),
                "accessSecret": format!("secret-{service}"), "bucketName": format!("bucket-{service}"),
                "region": "local",
            })
        };
        Ok(Answer::json(200, &material))
    }

    fn create_volume(&mut self, body: &[u8]) -> Result<Answer, Answer> {
        let asked: VolumeRequest = read(body)?;
        let volumes = &mut self.service(&asked.service_id).volumes;
        let created = !volumes.contains_key(&asked.name);
        volumes.entry(asked.name.clone()).or_default();
        Ok(Answer::json(200, &json!({"name": asked.name, "created": created})))
    }

    fn content(&mut self, service: &str, kind: &str, name: &str) -> Result<&mut Vec<u8>, Answer> {
        let unknown = || refused(404, "resource-unknown", kind);
        let known = self.services.get_mut(service).ok_or_else(unknown)?;
        match kind {
            "volume" => known.volumes.get_mut(name).ok_or_else(unknown),
            "database" => known.database.as_mut().ok_or_else(unknown),
            "objectstorage" => known.bucket.as_mut().ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests;
